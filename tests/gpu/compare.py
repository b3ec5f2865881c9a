#!/usr/bin/env python3
"""Compares a device with the processor on the examples, and times epochs beside PyTorch Geometric; prints two tables.

    tests/gpu/compare.py --hgnnc PATH --data DIR [--device cuda] [--epochs N] [EXAMPLE...]     an example is `han/acm`

Every example whose dataset lies in the folder
 - has the outputs of the processor for equal parameters (`infer`): the largest difference over the largest output,
 - is trained twice with the same seed for a few epochs, and both times has the same bits,
 - is trained to its end, as long as its model says, on both: the test metric, which may differ by a little, since sums
   are rounded in another order and training amplifies that.
Then the models of tests/bench, and RGCN on a graph of ogbn-mag's size, train on the device, on the processor, and in
PyTorch Geometric (peers.py) on the same device: median epochs (forward, backward, update), evaluation excluded.

    --hgnnc PATH      the command                                    (target/release/hgnnc)
    --data DIR        folder with the datasets                       (../shared/data)
    --device DEVICE   what is compared with the processor            (cuda)
    --epochs N        train no longer than this; metrics are then shown, not judged
    --bench N         epochs that are timed                          (100; 0: none)
    --mag SCALE       size of the large graph; epochs are a tenth    (1 on cuda, else 0: no such graph)
    --tolerance X     most that outputs may differ, relatively       (2e-3: products round their factors to TF32)
    --points X        most that a test metric may be below the processor's, in points (2)
    --python PYTHON   interpreter with PyTorch Geometric             (this one)
    --json FILE       write all figures there too

Exit code 1 where anything differs by more.
"""

import argparse
import array
import json
import os
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
DATASETS = {"cora_max": "cora", "mag_batch": "mag"}
# Test metrics in order of preference: the first one that a report has is compared.
METRICS = ("macro_f1", "accuracy", "auc")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("examples", nargs="*", metavar="EXAMPLE")
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    parser.add_argument("--hgnnc", type=Path, default=target / "release" / "hgnnc")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--bench", type=int, default=100)
    parser.add_argument("--mag", type=float)
    parser.add_argument("--tolerance", type=float, default=2e-3)
    parser.add_argument("--points", type=float, default=2.0)
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    if args.mag is None:
        args.mag = 1.0 if args.device.startswith("cuda") else 0.0
    return args


class Failed(Exception):
    """A command that did not end well; the message is its last line."""


def run(args, command, model, data, device, *rest):
    """One command to its end."""
    line = [args.hgnnc, command, model, "--data", data, "--device", device, *map(str, rest)]
    done = subprocess.run(line, capture_output=True, text=True)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise Failed(f"{command} on {device} ended with {done.returncode}: {last}")


def train(args, model, data, device, work, *rest):
    """The report and the bytes of the parameters of a training run."""
    report, weights = work / "report.json", work / "weights.safetensors"
    run(args, "train", model, data, device, "--quiet", "--seed", 0, "--report", report, "--weights-out", weights, *rest)
    return json.loads(report.read_text()), weights.read_bytes()


def outputs(args, model, data, device, weights, work):
    """The numbers that `infer` writes; those of the links to test where the dataset is one of links."""
    out = work / "out.npy"
    links = tomllib.loads((data / "dataset.toml").read_text()).get("link_split", [])
    pairs = ("--links", data / links[0]["test"]) if links else ()
    run(args, "infer", model, data, device, "--weights", weights, "--out", out, *pairs)
    content = out.read_bytes()
    numbers = array.array("f")
    numbers.frombytes(content[10 + int.from_bytes(content[8:10], "little") :])
    return numbers


def difference(exact, found):
    """The largest difference over the largest number; infinite where there is a number that is none."""
    if len(exact) != len(found) or any(x != x for x in found):
        return float("inf")
    scale = max(map(abs, exact)) or 1.0
    return max(abs(a - b) for a, b in zip(exact, found)) / scale


def check(args, example, work):
    """All checks of one example: its figures, and what is wrong with it."""
    dataset = example.split("/")[1]
    model = ROOT / "examples" / f"{example}.hgnn"
    data = args.data / DATASETS.get(dataset, dataset)
    few, wrong = ("--epochs", 3), []

    (work / "initial.safetensors").write_bytes(train(args, model, data, "cpu", work, *few)[1])
    numbers = [outputs(args, model, data, device, work / "initial.safetensors", work) for device in ("cpu", args.device)]
    differs = difference(*numbers)
    if not differs <= args.tolerance:
        wrong.append(f"outputs differ by {differs:.1e}")

    first, second = (train(args, model, data, args.device, work, *few) for _ in range(2))
    same = first[1] == second[1] and first[0]["losses"] == second[0]["losses"]
    if not same:
        wrong.append("a second run has other bits")

    length = () if args.epochs is None else ("--epochs", args.epochs)
    reports = [train(args, model, data, device, work, *length)[0] for device in ("cpu", args.device)]
    name = next((name for name in METRICS if name in reports[0]["metrics"]["test"]), None)
    if name is None:
        raise Failed(f"the report has none of the metrics {', '.join(METRICS)}")
    cpu, device = (100 * report["metrics"]["test"][name] for report in reports)
    if args.epochs is None and not device >= cpu - args.points:
        wrong.append(f"{name} {device:.1f} instead of {cpu:.1f}")
    return {
        "differs": differs,
        "same_bits": same,
        "metric": name,
        "cpu": cpu,
        "device": device,
        "epochs": reports[1]["epochs"],
        "epoch_ms": [report["epoch_ms"]["median"] for report in reports],
        "infer_ms": [report["infer_ms"]["median"] for report in reports],
        "device_mib": reports[1]["device_bytes"] / 2**20,
        "device_name": reports[1]["device"],
        "wrong": wrong,
    }


def checks(args, work):
    """Figures of all examples, and their table."""
    names = sorted(f"{path.parent.name}/{path.stem}" for path in (ROOT / "examples").glob("*/*.hgnn"))
    unknown = set(args.examples) - set(names)
    if unknown:
        sys.exit(f"there is no example {', '.join(sorted(unknown))}")
    wanted = [name for name in names if not args.examples or name in args.examples]
    results = {}
    print("| example | outputs differ | same bits | metric | cpu | device | epochs | epoch, ms: cpu | device | MiB |  |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    for name in wanted:
        dataset = name.split("/")[1]
        if not (args.data / DATASETS.get(dataset, dataset)).is_dir():
            print(f"skipped: {name}: its dataset is not in {args.data}", file=sys.stderr)
            continue
        try:
            it = results[name] = check(args, name, work)
        except Failed as error:
            results[name] = {"wrong": [str(error)]}
            print(f"| `{name}` | | | | | | | | | | {error} |", flush=True)
            continue
        cells = [
            f"`{name}`",
            f"{it['differs']:.1e}",
            "yes" if it["same_bits"] else "no",
            it["metric"],
            f"{it['cpu']:.1f}",
            f"{it['device']:.1f}",
            str(it["epochs"]),
            *(f"{ms:.3f}" for ms in it["epoch_ms"]),
            f"{it['device_mib']:.0f}",
            "; ".join(it["wrong"]) or "fine",
        ]
        print(f"| {' | '.join(cells)} |", flush=True)
    return results


def peer(args, model, dataset, data, epochs):
    """The median epoch of PyTorch Geometric in ms, or why there is none."""
    line = [args.python, "-W", "ignore", HERE / "peers.py", model, dataset, data, "--device", args.device]
    done = subprocess.run([*map(str, line), "--epochs", str(epochs)], capture_output=True, text=True)
    if done.returncode != 0:
        return None, (done.stderr.strip().splitlines() or ["no message"])[-1]
    found = json.loads(done.stdout.strip().splitlines()[-1])
    return found, None


def bench(args, work):
    """Figures of the models of tests/bench, and their table."""
    results = {}
    print("\n| model | device, ms | cpu, ms | PyG, ms | PyG / device | device MiB | PyG MiB |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    models = {path.stem: path for path in sorted((ROOT / "tests" / "bench").glob("*.hgnn"))}
    if args.mag > 0:
        models["rgcn-mag"] = ROOT / "examples" / "rgcn" / "mag.hgnn"
    for name, path in models.items():
        model, dataset = name.split("-")
        folder, epochs = args.data / dataset, args.bench
        if not folder.is_dir():
            if dataset not in ("dblp", "mag"):
                continue
            folder, scale = work / dataset, ("--scale", str(args.mag)) if dataset == "mag" else ()
            made = [args.hgnnc, "data", "synth", dataset, folder, *scale]
            if not folder.is_dir():
                subprocess.run(made, check=True, stdout=sys.stderr)
        if dataset == "mag":
            epochs = max(1, epochs // 10)
        try:
            reports = [
                train(args, path, folder, device, work, "--epochs", epochs + 3)[0] for device in (args.device, "cpu")
            ]
        except Failed as error:
            results[name] = {"wrong": [str(error)]}
            print(f"| {name} | {error} | | | | | |", flush=True)
            continue
        ours, cpu = (report["epoch_ms"]["median"] for report in reports)
        theirs, why = peer(args, model, dataset, folder, epochs) if args.device.startswith("cuda") else (None, "not on cuda")
        if theirs is None:
            print(f"no peer of {name}: {why}", file=sys.stderr)
        mib = reports[0]["device_bytes"] / 2**20
        results[name] = {"device_ms": ours, "cpu_ms": cpu, "peer": theirs, "device_mib": mib, "wrong": []}
        of_peer = ["", "", ""] if theirs is None else [f"{theirs['ms']:.3f}", f"{theirs['ms'] / ours:.1f} x"]
        of_peer = of_peer[:2] + [f"{mib:.0f}", "" if theirs is None else f"{theirs['mib']:.0f}"]
        print(f"| {name} | {ours:.3f} | {cpu:.3f} | {' | '.join(of_peer)} |", flush=True)
    return results


def main():
    args = arguments()
    args.hgnnc, args.data = args.hgnnc.resolve(), args.data.resolve()
    with tempfile.TemporaryDirectory() as folder:
        results = {"examples": checks(args, Path(folder))}
        if args.bench > 0:
            results["bench"] = bench(args, Path(folder))
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n")
    wrong = [name for part in results.values() for name, found in part.items() if found["wrong"]]
    if wrong or not results["examples"]:
        sys.exit(f"not as it should be: {', '.join(wrong) or 'there is nothing to compare'}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Trains the models of this folder, the same models in PyG, DGL and PyTorch, and prints one table.

    tests/bench/run.py [--epochs N] [--rounds N] [--threads N] [MODEL...]     a model is `han`, `han-acm`, ...

    --hgnnc PATH    the command                               (target/release/hgnnc)
    --data DIR      folder with the datasets acm and imdb     (../shared/data)
    --peers DIR     folder with bench_fullbatch.py            (without it, the peers' figures are those of peers.csv)
    --dgl PYTHON, --pyg PYTHON                                the interpreters with DGL, and with PyTorch Geometric
    --limit N       give a peer up after so many seconds  (600)
    --json FILE     write all figures there too

DBLP is synthetic, of the published sizes: `hgnnc data synth dblp`. Peers and compiler run in turns, each `--rounds`
times, and a figure is the median of the rounds' median epochs. The peers take their loss over all target vertices;
here it is over the training part of the split. That does not shorten an epoch: vertices without a part in the loss
have a weight of zero, and take the same work. The figures in peers.csv are of two threads of a Zen 5 server
processor: on another machine they say little.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
MIB = 2**20

# What is compared with: peer, framework, variant, and whether somebody wrote it by hand for this model.
PEERS = {
    "han": [("DGL", "dgl", "", False), ("PyG", "pyg", "", False)],
    "rgat": [("DGL", "dgl", "", False), ("PyG", "pyg", "", False)],
    "rgcn": [
        ("DGL", "dgl", "", False),
        ("PyG", "pyg", "", False),
        ("PyG homo", "pyg", "homo", False),
        ("PyTorch, CSR features", "torch", "sparsex", True),
    ],
}


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", metavar="MODEL")
    parser.add_argument("--epochs", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    parser.add_argument("--hgnnc", type=Path, default=target / "release" / "hgnnc")
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data")
    parser.add_argument("--peers", type=Path)
    parser.add_argument("--dgl", type=Path)
    parser.add_argument("--pyg", type=Path)
    parser.add_argument("--limit", type=float, default=600)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def ours(args, name, folder, work):
    """One run of the compiler: median epoch in ms, resident and arena MiB, compile time in ms."""
    report = work / "report.json"
    command = [args.hgnnc, "train", HERE / f"{name}.hgnn", "--data", folder, "--epochs", str(args.epochs)]
    command += ["--threads", str(args.threads), "--quiet", "--report", report]
    subprocess.run(command, check=True)
    found = json.loads(report.read_text())
    return {
        "ms": found["epoch_ms"]["median"],
        "rss": found["peak_rss_bytes"] / MIB,
        "arena": found["arena_bytes"] / MIB,
        "infer_arena": found["infer_arena_bytes"] / MIB,
        "compile_ms": found["compile_s"] * 1e3,
    }


def peer(args, model, dataset, framework, variant, data, work):
    """One run of a peer; None where it cannot run."""
    python = args.dgl if framework == "dgl" else args.pyg
    if python is None:
        return None
    out = work / "peer.jsonl"
    out.unlink(missing_ok=True)
    command = [python, "-W", "ignore", "bench_fullbatch.py", "--fw", framework, "--model", model, "--dataset", dataset]
    command += ["--threads", str(args.threads)] + (["--variant", variant] if variant else [])
    places = {"PEERS_DATA": str(data), "PEERS_OUT": str(out), "PEERS_CACHE": str(work / "cache")}
    try:
        done = subprocess.run(
            command, cwd=args.peers, env=os.environ | places, capture_output=True, text=True, timeout=args.limit
        )
    except subprocess.TimeoutExpired:
        print(f"{model}-{dataset}: {framework} {variant} took longer than {args.limit:g} s", file=sys.stderr)
        return None
    lines = out.read_text().splitlines() if out.exists() else []
    found = json.loads(lines[-1]) if lines else {}
    if done.returncode != 0 or not found.get("ok"):
        error = (done.stderr.strip().splitlines() or ["no figures"])[-1]
        print(f"{model}-{dataset}: {framework} {variant} failed: {error}", file=sys.stderr)
        return None
    return {"ms": found["epoch_ms"]["median"], "rss": found["peak_rss_mib"]}


def recorded(model, dataset):
    """The peers' figures of another machine."""
    with open(HERE / "peers.csv", newline="") as file:
        rows = [row for row in csv.DictReader(file) if (row["model"], row["dataset"]) == (model, dataset)]
    return {row["peer"]: {"ms": float(row["epoch_ms"]), "rss": float(row["rss_mib"])} for row in rows}


def measure(args, name, data, work):
    """Ours and the peers' figures of one model on one dataset."""
    model, dataset = name.split("-")
    mine, theirs = [], {}
    for _ in range(args.rounds):
        mine.append(ours(args, name, data / dataset, work))
        for label, framework, variant, _ in PEERS[model] if args.peers else []:
            found = peer(args, model, dataset, framework, variant, data, work)
            if found:
                theirs.setdefault(label, []).append(found)
    middle = lambda runs: {key: median(run[key] for run in runs) for key in runs[0]}
    theirs = {label: middle(runs) for label, runs in theirs.items()}
    return {"ours": middle(mine), "peers": theirs or recorded(model, dataset)}


def table(results):
    """The table of docs/results.md."""
    by_hand = {label for peers in PEERS.values() for label, _, _, hand in peers if hand} | {"torch sparsex"}
    yield "| model | epoch | best library | by hand | resident | smallest peer | arena, training : inference | compile |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for name, found in results.items():
        mine, peers = found["ours"], found["peers"]

        def compared(labels):
            if not labels:
                return ""
            best = min(labels, key=lambda label: peers[label]["ms"])
            ms = peers[best]["ms"]
            return f"{ms:.1f} ms ({best}), {ms / mine['ms']:.1f} x"

        least = min((peer["rss"] for peer in peers.values()), default=None)
        cells = [
            name,
            f"{mine['ms']:.2f} ms",
            compared([label for label in peers if label not in by_hand]),
            compared([label for label in peers if label in by_hand]),
            f"{mine['rss']:.0f} MiB",
            "" if least is None else f"{least:.0f} MiB, {least / mine['rss']:.1f} x",
            f"{mine['arena']:.1f} : {mine['infer_arena']:.1f} MiB, {mine['arena'] / mine['infer_arena']:.2f} x",
            f"{mine['compile_ms']:.0f} ms",
        ]
        yield f"| {' | '.join(cells)} |"


def main():
    args = arguments()
    for key in ("hgnnc", "data", "peers"):
        if getattr(args, key):
            setattr(args, key, getattr(args, key).resolve())
    for key in ("dgl", "pyg"):
        # Not resolved: an environment's interpreter is a link.
        if getattr(args, key):
            setattr(args, key, getattr(args, key).absolute())
    names = sorted(path.stem for path in HERE.glob("*.hgnn"))
    wanted = [name for name in names if not args.models or {name, name.split("-")[0]} & set(args.models)]
    if not wanted:
        sys.exit(f"no such model; there are {', '.join(names)}")
    results = {}
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        data = work / "data"
        data.mkdir()
        for dataset in sorted({name.split("-")[1] for name in wanted}):
            if dataset == "dblp":
                subprocess.run([args.hgnnc, "data", "synth", "dblp", data / "dblp"], check=True, stdout=sys.stderr)
            else:
                (data / dataset).symlink_to(args.data / dataset)
        for name in wanted:
            results[name] = measure(args, name, data, work)
            print(name, json.dumps(results[name]), file=sys.stderr)
    print("\n".join(table(results)))
    if args.json:
        args.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()

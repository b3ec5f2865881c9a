#!/usr/bin/env python3
"""Trains RGCN on batches of a graph of ogbn-mag's size, the same in DGL, and prints one table. Needs NumPy.

    tests/bench/batches/run.py --work DIR [--scale X] [--peers DIR --dgl PYTHON]

    --work DIR      where the dataset is generated, 1.2 GB, unless it is there
    --scale X       of the graph (1)
    --hgnnc PATH    the command                          (target/release/hgnnc)
    --threads N     of both                              (2)
    --peers DIR     folder with bench_minibatch.py
    --dgl PYTHON    an interpreter with DGL
    --json FILE     write all figures there too

An epoch of DGL is extrapolated from 16 batches; ours is a whole one, without its evaluation.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent.parent
WIDTH = 128


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--hgnnc", type=Path, default=target / "release" / "hgnnc")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--peers", type=Path)
    parser.add_argument("--dgl", type=Path)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def dataset(args):
    """The folder of the graph, with features on all types: papers have their own, others random ones."""
    import numpy

    folder = args.work / f"mag-{args.scale:g}"
    if (folder / "complete").exists():
        return folder
    subprocess.run([args.hgnnc, "data", "synth", "mag", folder, "--scale", str(args.scale)], check=True)
    toml = (folder / "dataset.toml").read_text()
    generator = numpy.random.default_rng(0)
    parts = toml.split("[[vertex_type]]\n")
    for index, part in enumerate(parts[1:], 1):
        if "[vertex_type.features]" in part:
            continue
        lines = part.splitlines()
        name, count = lines[0].split('"')[1], int(lines[1].split("=")[1])
        features = generator.standard_normal((count, WIDTH), dtype=numpy.float32)
        numpy.save(folder / f"{name}.x.npy", features)
        extra = ["[vertex_type.features]", 'kind = "dense"', f"dim = {WIDTH}", f'file = "{name}.x.npy"']
        parts[index] = "\n".join([*lines[:2], *extra, *lines[2:]]) + "\n"
    (folder / "dataset.toml").write_text("[[vertex_type]]\n".join(parts))
    (folder / "complete").touch()
    return folder


def ours(args, folder):
    report = args.work / "report.json"
    command = [args.hgnnc, "train", HERE / "rgcn-mag.hgnn", "--data", folder, "--threads", str(args.threads)]
    subprocess.run([*command, "--quiet", "--report", report], check=True)
    return json.loads(report.read_text())


def peer(args):
    command = [args.dgl, "-W", "ignore", args.peers / "bench_minibatch.py", "--fw", "dgl", "--fanout", "10x10"]
    command += ["--scale", str(args.scale), "--threads", str(args.threads)]
    environment = {**os.environ, "PEERS_OUT": str(args.work / "peers.jsonl"), "PEERS_CACHE": str(args.work)}
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment, cwd=args.peers)
    return json.loads(done.stdout.strip().splitlines()[-1])


def main():
    args = arguments()
    args.work.mkdir(parents=True, exist_ok=True)
    found = ours(args, dataset(args))
    batches = found["batches"]
    mine = {
        "epoch, s": found["epoch_ms"]["median"] / 1e3,
        "sampling, ms": batches["sample_ms"],
        "graphs, ms": batches["graphs_ms"],
        "features, ms": batches["gather_ms"],
        "planning, ms": batches["bind_ms"],
        "rows of parameters, ms": batches["rows_ms"],
        "computing, ms": batches["compute_ms"],
        "waiting, ms": batches["wait_ms"],
        "memory, MiB": found["peak_rss_bytes"] / 2**20,
    }
    theirs = {}
    if args.peers and args.dgl:
        it = peer(args)
        ms = {name: it[f"{name}_ms"]["median"] for name in ["sample", "gather", "fwd", "bwd", "opt"]}
        theirs = {
            "epoch, s": it["batch_ms"]["median"] / 1e3 * batches["per_epoch"],
            "sampling, ms": ms["sample"],
            "features, ms": ms["gather"],
            "computing, ms": ms["fwd"] + ms["bwd"] + ms["opt"],
            "waiting, ms": ms["sample"] + ms["gather"],
            "memory, MiB": it["peak_rss_mib"],
        }
    print("| | here | DGL |\n| --- | --- | --- |")
    for name, value in mine.items():
        print(f"| {name} | {value:.2f} | {theirs[name]:.2f} |" if name in theirs else f"| {name} | {value:.2f} | |")
    if theirs:
        print(f"\nan epoch is {theirs['epoch, s'] / mine['epoch, s']:.1f} times shorter", file=sys.stderr)
    if args.json:
        args.json.write_text(json.dumps({"here": mine, "dgl": theirs}, indent=1) + "\n")


if __name__ == "__main__":
    main()

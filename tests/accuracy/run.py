#!/usr/bin/env python3
"""Trains the examples on the real datasets and prints the table of docs/results.md.

    cargo build --release
    HGNN_DATA=DIR tests/accuracy/run.py [NAME...]

Each line is the mean and the standard deviation of the test metric over seeds 0, 1, ...; `least` is what the line has
to reach, `frameworks` what PyG and DGL reach on exactly these files. Exit code 1 where a line does not reach it.
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DATA = os.environ.get("HGNN_DATA") or os.path.join(os.path.dirname(ROOT), "shared", "data")
HGNNC = os.environ.get("HGNNC") or os.path.join(ROOT, "target", "release", "hgnnc")

# example, metric, seeds, least, frameworks
LINES = [
    ("han/acm", "macro_f1", 5, 91.5, "91.8"),
    ("rgcn/acm", "macro_f1", 5, 91.0, "91.3"),
    ("rgat/acm", "macro_f1", 5, 92.0, "92.4"),
    ("mlp/acm", "macro_f1", 5, None, "86.8"),
    ("han/acm_han", "micro_f1", 5, 87.5, "87.4 to 88.5"),
    ("mlp/acm_han", "micro_f1", 5, None, "78.4"),
    ("han/imdb", "macro_f1", 5, 56.5, "56.8"),
    ("rgcn/imdb", "macro_f1", 5, 56.5, "57.1"),
    ("rgat/imdb", "macro_f1", 5, 56.5, "57.0"),
    ("magnn/imdb", "macro_f1", 5, None, ""),
    ("mlp/imdb", "macro_f1", 5, None, "49.4"),
    ("gcn/cora", "accuracy", 10, 81.3, "81.7"),
    ("gat/cora", "accuracy", 10, 82.3, "82.8"),
    ("sage/cora", "accuracy", 10, 80.8, "81.4"),
    ("sage/cora_max", "accuracy", 10, None, ""),
    ("gin/cora", "accuracy", 10, 76.3, "77.3"),
    ("appnp/cora", "accuracy", 10, None, ""),
    ("gatv2/cora", "accuracy", 10, None, ""),
    ("mlp/cora", "accuracy", 10, None, "59.2"),
    ("rgcn/aifb", "accuracy", 10, 95.5, "96.4"),
    ("rgat/aifb", "accuracy", 10, 95.5, "96.3"),
    ("hgt/acm", "macro_f1", 5, None, ""),
    ("simple_hgn/acm", "macro_f1", 5, None, ""),
    ("sehgnn/acm", "macro_f1", 5, None, ""),
    ("sign/acm", "macro_f1", 5, None, ""),
    ("ie_hgcn/acm", "macro_f1", 5, None, ""),
    ("gtn/acm", "macro_f1", 5, None, ""),
    ("r_hgnn/acm", "macro_f1", 5, None, ""),
    ("hpn/acm", "macro_f1", 5, None, ""),
    ("het_gnn/acm", "macro_f1", 5, None, ""),
]
DATASETS = {"cora_max": "cora"}


def train(example, seed, report):
    dataset = example.split("/")[1]
    model = os.path.join(ROOT, "examples", example + ".hgnn")
    folder = os.path.join(DATA, DATASETS.get(dataset, dataset))
    command = [HGNNC, "train", model, "--data", folder, "--seed", str(seed), "--quiet", "--report", report]
    subprocess.run(command, check=True)
    with open(report) as file:
        return json.load(file)


def main():
    wanted = sys.argv[1:]
    fine = True
    print("| example | metric | mean | deviation | seeds | least | frameworks | epoch, ms | epochs |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        for example, metric, seeds, least, frameworks in LINES:
            if wanted and example not in wanted:
                continue
            runs = [train(example, seed, os.path.join(folder, "report.json")) for seed in range(seeds)]
            values = [100 * run["metrics"]["test"][metric] for run in runs]
            mean, deviation = statistics.mean(values), statistics.pstdev(values)
            epoch_ms = statistics.median(run["epoch_ms"]["median"] for run in runs)
            epochs = statistics.median(run["epochs"] for run in runs)
            fine &= least is None or mean >= least
            print(
                f"| `{example}` | {metric} | {mean:.2f} | {deviation:.2f} | {seeds} | {least or ''} | {frameworks} "
                f"| {epoch_ms:.1f} | {epochs:.0f} |",
                flush=True,
            )
    sys.exit(0 if fine else 1)


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Links to predict on real graphs: trains models of lastfm and fb15k237 and prints the metrics of their test parts.

    cargo build --release
    python3 tests/accuracy/links.py DATA [--hgnnc target/release/hgnnc] [--seeds 3] [--only lastfm] [--epochs N]

DATA holds the folders `lastfm` and `fb15k237`. A model of fb15k237 names 237 relations: it is written from the dataset, with as
little text by hand as that leaves.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]

FB15K237 = """\
//! DistMult (Yang et al., ICLR 2015) on FB15k-237: embeddings alone, without messages.
use std::link::DistMult

schema Freebase {{
    vertex Entity from "entity" {{ x: embedding[128] }}
{relations}
}}

model Embeddings(schema: Freebase) {{
    // Rows of a large table start small: a product of two of them would have no gradient to speak of.
    let h = dropout(Entity.x * 6, 0.4)
    output score: links = DistMult() over links(relations) of h
}}

train Embeddings {{
    split     "standard"
    loss      binary_cross_entropy(score, links)
    optimizer adam(lr: 0.005)
    schedule  cosine(epochs: {epochs}, floor: 0.05)
    epochs    {epochs}
    batch     4000
    negatives uniform(30)
    metrics   mrr, hits_1, hits_3, hits_10
}}
"""


def relations(data: Path) -> list[str]:
    """The names of a dataset's relations, in their order."""
    names, inside = [], False
    for line in (data / "dataset.toml").read_text().splitlines():
        if line.startswith("[["):
            inside = line == "[[relation]]"
        elif inside and line.startswith("name = "):
            names.append(json.loads(line.removeprefix("name = ")))
    return names


def fb15k237(data: Path, epochs: int) -> str:
    lines = [f'    relation r{i}: Entity -> Entity from "{name}"' for i, name in enumerate(relations(data))]
    return FB15K237.format(relations="\n".join(lines), epochs=epochs)


def test_metrics(hgnnc: Path, model: Path, data: Path, seed: int, epochs: int | None) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        command = [hgnnc, "train", model, "--data", data, "--seed", seed, "--report", report, "--quiet"]
        if epochs:
            command += ["--epochs", epochs]
        subprocess.run([str(part) for part in command], check=True)
        return json.loads(report.read_text())["metrics"]["test"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--hgnnc", type=Path, default=REPOSITORY / "target/release/hgnnc")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--only", choices=["lastfm", "fb15k237"])
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "fb15k237.hgnn"
        models = {"lastfm": REPOSITORY / "examples/rgcn/lastfm.hgnn", "fb15k237": written}
        for name, model in models.items():
            data = args.data / name
            if args.only not in (None, name) or not data.is_dir():
                print(f"{name}: left out", file=sys.stderr)
                continue
            if model == written:
                written.write_text(fb15k237(data, args.epochs or 32))
            runs = [test_metrics(args.hgnnc, model, data, seed, args.epochs) for seed in range(args.seeds)]
            for metric in runs[0]:
                values = [run[metric] for run in runs]
                spread = f" ({min(values):.4f} to {max(values):.4f})" if len(values) > 1 else ""
                print(f"{name:>9}  {metric:<18} {statistics.mean(values):.4f}{spread}")


if __name__ == "__main__":
    main()

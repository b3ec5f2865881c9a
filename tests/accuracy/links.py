#!/usr/bin/env python3
"""Links to predict on real graphs: trains models of lastfm, gowalla, fb15k237 and wn18rr and prints the metrics of their test parts.

    cargo build --release
    python3 tests/accuracy/links.py DATA [--hgnnc target/release/hgnnc] [--seeds 3] [--only rgcn/lastfm] [--epochs N]

DATA holds the folders of the datasets; those that it lacks are left out. A model of fb15k237 names 237 relations: it is written from the dataset, with as
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

SCHEMA = """\
schema Freebase {{
    vertex Entity from "entity" {{ x: embedding[{width}] }}
{relations}
}}
"""

DISTMULT = """\
//! DistMult (Yang et al., ICLR 2015) on FB15k-237: embeddings alone, without messages.
use std::compgcn::RelationVectors
use std::link::DistMultOf

SCHEMA
model Embeddings(schema: Freebase) {{
    let r = RelationVectors(width: {width}) over relations
    // Rows of a large table start small: a product of two of them would have no gradient to speak of.
    output score: links = DistMultOf() over links(relations) of (dropout(Entity.x * 6, 0.4), r: dropout(r * 6, 0.4))
}}

train Embeddings {{
    split     "standard"
    loss      cross_entropy(score, links)
    optimizer adam(lr: 0.002)
    schedule  cosine(epochs: {epochs}, floor: 0.05)
    epochs    {epochs}
    batch     1000
    negatives shared(1000)
    select    last
    metrics   mrr, hits_1, hits_3, hits_10
}}
"""

RGCN = """\
//! RGCN with block-diagonal weights and the score of DistMult (Schlichtkrull et al., ESWC 2018) on FB15k-237.
use std::compgcn::RelationVectors
use std::link::DistMultOf
use std::rgcn::RgcnBlockConv

SCHEMA
model Rgcn(schema: Freebase) {{
    let r = RelationVectors(width: {width}) over relations
    let x = features * 6
    let h = x + RgcnBlockConv(hidden: {width}, blocks: 32) over [relations, reverses] of dropout(x, 0.3)
    output score: links = DistMultOf() over links(relations) of (dropout(h, 0.4), r: dropout(r * 6, 0.3))
}}

train Rgcn {{
    split     "standard"
    loss      cross_entropy(score, links)
    optimizer adam(lr: 0.002)
    schedule  cosine(epochs: {epochs}, floor: 0.05)
    epochs    {epochs}
    batch     2000
    fanout    [10]
    negatives uniform(256)
    select    last
    metrics   mrr, hits_1, hits_3, hits_10
}}
"""

GOWALLA = """\
//! LightGCN (He et al., SIGIR 2020) on Gowalla, with the cross entropy among shared samples in place of a pairwise loss. There are no
//! validation links by which settings could be chosen.
use std::light_gcn::LightGcnConv
use std::link::Dot

schema Gowalla {{
    vertex User from "user" {{ x: embedding[64] = normal(0.1) }}
    vertex Place from "place" {{ x: embedding[64] = normal(0.1) }}
    relation visits: User -> Place from "user-place"
}}

model LightGcn(schema: Gowalla) {{
    let one = LightGcnConv() over [relations, reverses] of features
    let two = LightGcnConv() over [relations, reverses] of one
    let three = LightGcnConv() over [relations, reverses] of two
    output score: links = Dot() over links(visits) of (features + one + two + three) / 4
}}

train LightGcn {{
    split     "lightgcn"
    loss      cross_entropy(score, links)
    optimizer adam(lr: 0.005)
    schedule  cosine(epochs: {epochs}, floor: 0.05)
    epochs    {epochs}
    batch     8192
    fanout    [all, all, all]
    negatives shared(2000)
    select    last
    metrics   recall_20, ndcg_20
}}
"""

# Examples of the repository. The file is named for the dataset.
EXAMPLES = ["rgcn/lastfm", "distmult/wn18rr", "rotate/wn18rr", "transe/wn18rr", "compgcn/fb15k237"]

# Models of fb15k237 that are no examples: text, epochs, width.
FB15K237 = {"distmult": (DISTMULT, 40, 256), "rgcn": (RGCN, 10, 128)}


def relations(data: Path) -> list[str]:
    """The names of a dataset's relations, in their order."""
    names, inside = [], False
    for line in (data / "dataset.toml").read_text().splitlines():
        if line.startswith("[["):
            inside = line == "[[relation]]"
        elif inside and line.startswith("name = "):
            names.append(json.loads(line.removeprefix("name = ")))
    return names


def fb15k237(data: Path, name: str, epochs: int | None) -> str:
    lines = [f'    relation r{i}: Entity -> Entity from "{relation}"' for i, relation in enumerate(relations(data))]
    model, usual, width = FB15K237[name]
    text = model.replace("SCHEMA\n", SCHEMA)
    return text.format(relations="\n".join(lines), width=width, epochs=epochs or usual)


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
    names = [*EXAMPLES, "gowalla", *FB15K237]
    parser.add_argument("--only", choices=names)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            data = args.data / ("fb15k237" if name in FB15K237 else Path(name).name)
            if args.only not in (None, name) or not data.is_dir():
                print(f"{name}: left out", file=sys.stderr)
                continue
            model = Path(folder) / f"{name}.hgnn"
            if name in EXAMPLES:
                model = REPOSITORY / "examples" / f"{name}.hgnn"
            elif name in FB15K237:
                model.write_text(fb15k237(data, name, args.epochs))
            else:
                model.write_text(GOWALLA.format(epochs=args.epochs or 30))
            runs = [test_metrics(args.hgnnc, model, data, seed, args.epochs) for seed in range(args.seeds)]
            for metric in runs[0]:
                values = [run[metric] for run in runs]
                spread = f" ({min(values):.4f} to {max(values):.4f})" if len(values) > 1 else ""
                print(f"{name:>17}  {metric:<18} {statistics.mean(values):.4f}{spread}")


if __name__ == "__main__":
    main()

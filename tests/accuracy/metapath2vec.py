#!/usr/bin/env python3
"""Vectors of papers by metapath2vec on ACM, and what a linear classifier makes of them: docs/results.md.

    cargo build --release
    HGNN_DATA=DIR tests/accuracy/metapath2vec.py [MODEL.hgnn]

The classifier is a model of its own, which reads the vectors as a field of the dataset. Each line has the macro F1 of the
validation and the test part of the split `gtn` for a seed; the last one their means and standard deviations.
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DATA = os.path.join(os.environ.get("HGNN_DATA") or os.path.join(os.path.dirname(ROOT), "shared", "data"), "acm")
HGNNC = os.environ.get("HGNNC") or os.path.join(ROOT, "target", "release", "hgnnc")
SEEDS = int(os.environ.get("SEEDS") or 5)

CLASSIFIER = """
schema Acm {
    vertex Paper from "paper" { vectors: f32[64], topic: class[3] }
}
model Linear(schema: Acm) {
    output topics: Paper = linear(Paper.vectors, 3)
}
train Linear {
    split     "gtn"
    loss      cross_entropy(topics, Paper.topic)
    optimizer adam(lr: 0.01, weight_decay: 0.0005)
    epochs    500
    stop      when val.loss has not improved for 50 epochs
    select    val.macro_f1
    metrics   macro_f1
}
"""


def hgnnc(*args):
    subprocess.run([HGNNC, *args], check=True, stdout=subprocess.DEVNULL)


def with_vectors(folder, vectors):
    """The dataset with the vectors as a field of papers."""
    os.mkdir(folder)
    for name in os.listdir(DATA):
        if name != "dataset.toml":
            os.symlink(os.path.join(DATA, name), os.path.join(folder, name))
    os.symlink(vectors, os.path.join(folder, "paper.vectors.npy"))
    with open(os.path.join(DATA, "dataset.toml")) as file:
        head, papers, *others = file.read().split("[[vertex_type]]")
    field = '[[vertex_type.field]]\nname = "vectors"\nkind = "dense"\ndim = 64\nfile = "paper.vectors.npy"\n\n'
    with open(os.path.join(folder, "dataset.toml"), "w") as file:
        file.write("[[vertex_type]]".join([head, papers + field, *others]))


def measure(model, seed):
    with tempfile.TemporaryDirectory() as work:
        at = lambda name: os.path.join(work, name)
        how = ["--seed", str(seed), "--threads", "1", "--quiet"]
        hgnnc("train", model, "--data", DATA, "--weights-out", at("w.safetensors"), *how)
        outputs = ["--output", "vectors", "--out", at("v.npy")]
        hgnnc("infer", model, "--data", DATA, "--weights", at("w.safetensors"), *outputs)
        with_vectors(at("data"), at("v.npy"))
        with open(at("linear.hgnn"), "w") as file:
            file.write(CLASSIFIER)
        hgnnc("train", at("linear.hgnn"), "--data", at("data"), "--report", at("r.json"), *how)
        with open(at("r.json")) as file:
            metrics = json.load(file)["metrics"]
        return [100 * metrics[part]["macro_f1"] for part in ("val", "test")]


def main():
    model = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "examples", "metapath2vec", "acm.hgnn")
    found = []
    for seed in range(SEEDS):
        found.append(measure(model, seed))
        print(f"seed {seed}: validation {found[-1][0]:.2f}, test {found[-1][1]:.2f}", flush=True)
    for part, values in zip(("validation", "test"), zip(*found)):
        deviation = statistics.stdev(values) if len(values) > 1 else 0.0
        print(f"{part}: {statistics.mean(values):.2f} ± {deviation:.2f}")


main()

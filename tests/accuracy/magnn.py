#!/usr/bin/env python3
"""MAGNN's evaluation on IMDB (Fu et al., WWW 2020): a linear SVM on the embeddings of the test vertices, a share of which trains it.

    cargo build --release
    pip install numpy scikit-learn
    HGNN_DATA=DIR tests/accuracy/magnn.py [MODEL.hgnn]

As in the authors' code, the SVM is scikit-learn's `LinearSVC(dual=False)`, and each figure is the mean over 10 random divisions. Each
line has the loss and the macro F1 of a seed on the validation part, by which one would choose among seeds, and the macro F1 for each
share that trains the SVM; the last line has the means over the seeds.
"""

import json
import os
import subprocess
import sys
import tempfile

import numpy as np
from sklearn.metrics import f1_score
from sklearn.model_selection import train_test_split
from sklearn.svm import LinearSVC

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
DATA = os.path.join(os.environ.get("HGNN_DATA") or os.path.join(os.path.dirname(ROOT), "shared", "data"), "imdb")
HGNNC = os.environ.get("HGNNC") or os.path.join(ROOT, "target", "release", "hgnnc")
SEEDS = int(os.environ.get("SEEDS") or 5)
SHARES = [0.2, 0.4, 0.6, 0.8]
DIVISIONS = 10


def embeddings(model, seed):
    """The metrics of the validation part, and the embeddings of all movies in the order of the dataset."""
    with tempfile.TemporaryDirectory() as work:
        weights, rows = os.path.join(work, "w.safetensors"), os.path.join(work, "embedding.npy")
        report = os.path.join(work, "report.json")
        train = ["train", model, "--data", DATA, "--seed", str(seed), "--weights-out", weights, "--report", report, "--quiet"]
        infer = ["infer", model, "--data", DATA, "--weights", weights, "--output", "embedding", "--out", rows]
        for command in (train, infer):
            subprocess.run([HGNNC, *command], check=True, stdout=subprocess.DEVNULL)
        with open(report) as file:
            return json.load(file)["metrics"]["val"], np.load(rows)


def with_embedding(model, work):
    """The model with its embeddings as an output."""
    with open(model) as file:
        text = file.read()
    if "output embedding" not in text:
        before = "    output genre_logits"
        assert text.count(before) == 1, f"{model} has no output `genre_logits`"
        text = text.replace(before, f"    output embedding: Movie = conv.Movie\n{before}")
    path = os.path.join(work, "magnn.hgnn")
    with open(path, "w") as file:
        file.write(text)
    return path


def macro_f1(rows, labels, share):
    found = []
    for division in range(DIVISIONS):
        parts = train_test_split(rows, labels, test_size=1 - share, shuffle=True, random_state=182318 + division)
        train, test, train_labels, test_labels = parts
        svm = LinearSVC(dual=False).fit(train, train_labels)
        found.append(100 * f1_score(test_labels, svm.predict(test), average="macro"))
    return np.mean(found)


def shown(found):
    return ", ".join(f"{share:.0%}: {f1:.2f}" for share, f1 in zip(SHARES, found))


def main():
    model = sys.argv[1] if len(sys.argv) > 1 else os.path.join(ROOT, "tests", "accuracy", "magnn.hgnn")
    labels = np.load(os.path.join(DATA, "movie.y.npy"))
    test = np.load(os.path.join(DATA, "movie.magnn.test.npy"))
    found = []
    with tempfile.TemporaryDirectory() as work:
        model = with_embedding(model, work)
        for seed in range(SEEDS):
            val, rows = embeddings(model, seed)
            found.append([macro_f1(rows[test], labels[test], share) for share in SHARES])
            val = f"val.loss {val['loss']:.4f}, val.macro_f1 {val['macro_f1']:.4f}"
            print(f"seed {seed}, {val}: {shown(found[-1])}", flush=True)
    print(f"mean: {shown(np.mean(found, axis=0))}")


if __name__ == "__main__":
    main()

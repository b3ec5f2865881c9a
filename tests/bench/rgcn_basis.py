#!/usr/bin/env python3
"""RGCN with 30 bases on the one-hot features of AIFB: plain PyTorch beside `hgnnc`, full batch, Adam.

    tests/bench/rgcn_basis.py [--data DIR] [--hgnnc PATH] [--threads N]        needs torch

PyTorch computes it in three forms, of which the fastest counts: the tables of all relations as one product and a sparse
product, the same with `index_add`, and the products of the pairs of a relation and a vertex that exist.
"""

import argparse
import json
import os
import re
import subprocess
import tempfile
import time
import tomllib
from pathlib import Path
from statistics import median

import numpy as np
import torch

ROOT = Path(__file__).resolve().parent.parent.parent
HIDDEN, CLASSES, BASES, WARM_UP, EPOCHS = 16, 4, 30, 5, 25


def parameter(*shape):
    tensor = torch.empty(*shape)
    torch.nn.init.xavier_uniform_(tensor) if len(shape) > 1 else torch.nn.init.zeros_(tensor)
    return tensor.requires_grad_()


def peer(data, form):
    """The median epoch in ms of one form."""
    dataset = tomllib.loads((data / "dataset.toml").read_text())
    edges = np.load(data / "edges.npy")
    edges = edges if edges.shape[0] == 2 else edges.T
    vertices = dataset["vertex_type"][0]["count"]
    parts = [edges[:, slice(*relation["columns"])] for relation in dataset["relation"]]
    parts = [ends for part in parts for ends in (part, part[::-1])]
    relations = len(parts)
    src, dst = (torch.tensor(np.concatenate([part[end] for part in parts]).astype(np.int64)) for end in (0, 1))
    of = torch.tensor(np.repeat(np.arange(relations), [part.shape[1] for part in parts]))
    degrees = torch.zeros(relations * vertices).index_add_(0, of * vertices + dst, torch.ones(len(src)))
    weight = 1 / degrees[of * vertices + dst]
    pairs, pair = torch.unique(of * vertices + src, return_inverse=True)
    pair_of, pair_src = pairs // vertices, pairs % vertices

    def csr(columns, number):
        matrix = torch.sparse_coo_tensor(torch.stack([dst, columns]), weight, (vertices, number))
        return matrix.coalesce().to_sparse_csr()

    cells, existing = csr(of * vertices + src, relations * vertices), csr(pair, len(pairs))
    labels = torch.tensor(np.load(data / "entity.y.npy").astype(np.int64)).flatten()
    train = torch.tensor(np.load(data / "entity.standard.train.npy").astype(np.int64)).flatten()
    params = bases, shares, own, bias, bases2, shares2, own2, bias2 = [
        parameter(*shape)
        for shape in [
            (BASES, vertices * HIDDEN), (relations, BASES), (vertices, HIDDEN), (HIDDEN,),
            (BASES, HIDDEN * CLASSES), (relations, BASES), (HIDDEN, CLASSES), (CLASSES,),
        ]
    ]  # fmt: skip

    def forward():
        if form == "pairs":
            of_pair = bases.view(BASES, vertices, HIDDEN).permute(1, 0, 2)[pair_src]
            hidden = torch.sparse.mm(existing, torch.einsum("pb,pbh->ph", shares[pair_of], of_pair))
        else:
            table = (shares @ bases).view(relations * vertices, HIDDEN)
            if form == "sparse":
                hidden = torch.sparse.mm(cells, table)
            else:
                messages = table[of * vertices + src] * weight[:, None]
                hidden = torch.zeros(vertices, HIDDEN).index_add(0, dst, messages)
        hidden = torch.relu(hidden + own + bias)
        weights = (shares2 @ bases2).view(relations, HIDDEN, CLASSES)
        messages = torch.einsum("pi,pio->po", hidden[pair_src], weights[pair_of])
        return torch.sparse.mm(existing, messages) + hidden @ own2 + bias2

    optimizer = torch.optim.Adam(params, lr=0.01)
    times = []
    for _ in range(EPOCHS):
        start = time.perf_counter()
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(forward()[train], labels[train]).backward()
        optimizer.step()
        times.append(1e3 * (time.perf_counter() - start))
    return median(times[WARM_UP:])


def ours(arguments):
    text = (ROOT / "examples/rgcn/aifb.hgnn").read_text().replace("RgcnConv", "RgcnBasisConv")
    text = re.sub(r"hidden: (\d+)\)", rf"hidden: \1, bases: {BASES})", text)
    with tempfile.TemporaryDirectory() as folder:
        model, report = Path(folder) / "basis.hgnn", Path(folder) / "report.json"
        model.write_text(text)
        command = [arguments.hgnnc, "train", model, "--data", arguments.data, "--threads", str(arguments.threads)]
        subprocess.run([*command, "--epochs", "60", "--quiet", "--report", report], check=True, stdout=subprocess.DEVNULL)
        return json.loads(report.read_text())["epoch_ms"]["median"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    parser.add_argument("--data", type=Path, default=ROOT.parent / "shared/data/aifb")
    parser.add_argument("--hgnnc", type=Path, default=target / "release/hgnnc")
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(arguments.threads)
    for form in ["sparse", "index_add", "pairs"]:
        print(f"PyTorch {torch.__version__}, {form}: {peer(arguments.data, form):.1f} ms an epoch")
    print(f"hgnnc: {ours(arguments):.1f} ms an epoch")


if __name__ == "__main__":
    main()

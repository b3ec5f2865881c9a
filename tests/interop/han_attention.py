#!/usr/bin/env python3
"""Compares outputs of semantic graphs and of edges with PyTorch Geometric: HAN on random papers, authors and subjects.

    pip install numpy safetensors torch torch_geometric
    python3 tests/interop/han_attention.py target/release/hgnnc

Trains HAN with hgnnc, loads its weights into `HANConv`, and compares the weights of metapaths
(`return_semantic_attention_weights=True`), the attention of every edge, and the result of the layer: to 1e-5.
PyG's layer has relu after the aggregation, a bias in the projection (0 here), and as many elements in the semantic
attention as in its result.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

TOLERANCE = 1e-5
PAPERS, AUTHORS, SUBJECTS, WIDTH, CLASSES = 300, 120, 9, 24, 3
HEADS, HIDDEN = 4, 6

MODEL = f"""
use std::han::HanConv

schema Acm {{
    vertex Paper from "paper" {{ x: f32[{WIDTH}], topic: class[{CLASSES}] from "topic" }}
    vertex Author from "author"
    vertex Subject from "subject"
    relation written_by: Paper -> Author from "paper-author"
    relation about: Paper -> Subject from "paper-subject"
    metapath PAP = Paper -written_by-> Author <-written_by- Paper
    metapath PSP = Paper -about-> Subject <-about- Paper
}}

model Han(schema: Acm) {{
    let conv = HanConv(hidden: {HIDDEN}, heads: {HEADS}, attention: {HEADS * HIDDEN}, activation: relu)
        over [PAP, PSP] of Paper.x
    output logits: Paper = linear(conv, {CLASSES})
    output embedding: Paper = conv
    output beta: graphs = conv.beta
    output attention: edges = conv.alpha
}}

train Han {{
    loss      cross_entropy(logits, Paper.topic)
    optimizer adam(lr: 0.02)
    epochs    5
}}
"""

DATASET = f"""
name = "random"

[[vertex_type]]
name = "paper"
count = {PAPERS}
[vertex_type.features]
kind = "dense"
dim = {WIDTH}
file = "x.npy"

[[vertex_type]]
name = "author"
count = {AUTHORS}

[[vertex_type]]
name = "subject"
count = {SUBJECTS}

[[relation]]
name = "paper-author"
src = "paper"
dst = "author"
file = "written_by.npy"

[[relation]]
name = "paper-subject"
src = "paper"
dst = "subject"
file = "about.npy"

[[label]]
vertex_type = "paper"
name = "topic"
classes = {CLASSES}
file = "topic.npy"

[[split]]
name = "thirds"
vertex_type = "paper"
train = "train.npy"
val = "val.npy"
test = "test.npy"
"""


def main(hgnnc):
    try:
        import numpy as np
        import torch
        from safetensors.numpy import load_file
        from torch_geometric.nn import HANConv
        from torch_geometric.utils import softmax
    except ImportError as missing:
        print(f"skipped: {missing}")
        return

    rng = np.random.default_rng(7)
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        data = folder / "data"
        data.mkdir()
        (data / "dataset.toml").write_text(DATASET)
        (folder / "han.hgnn").write_text(MODEL)
        topic = rng.integers(0, CLASSES, PAPERS).astype(np.int32)
        x = rng.normal(size=(PAPERS, WIDTH)).astype(np.float32)
        x[np.arange(PAPERS), topic] += 2
        # Subjects tell the topic, authors do not.
        written_by = np.stack([rng.integers(0, PAPERS, 700), rng.integers(0, AUTHORS, 700)]).astype(np.int32)
        about = np.stack([np.arange(PAPERS), topic * 3 + rng.integers(0, 3, PAPERS)]).astype(np.int32)
        order = rng.permutation(PAPERS).astype(np.int32)
        arrays = {"x": x, "topic": topic, "written_by": written_by, "about": about}
        arrays |= {"train": np.sort(order[:100]), "val": np.sort(order[100:200]), "test": np.sort(order[200:])}
        for name, array in arrays.items():
            np.save(data / f"{name}.npy", array)

        def run(*args):
            subprocess.run([hgnnc, *args], cwd=folder, check=True, stdout=subprocess.DEVNULL)

        run("train", "han.hgnn", "--data", "data", "--quiet", "--weights-out", "w.safetensors")
        for output in ["beta", "embedding", "attention"]:
            arguments = ["--weights", "w.safetensors", "--output", output, "--out", f"{output}.npy"]
            run("infer", "han.hgnn", "--data", "data", *arguments)
        weights = {name: torch.from_numpy(array) for name, array in load_file(folder / "w.safetensors").items()}
        found = {name: np.load(folder / f"{name}.npy") for name in ["beta", "embedding", "attention"]}
        edges = np.load(folder / "attention.edges.npy")

    # Semantic graphs: the distinct pairs of papers that a path joins.
    def metapath(relation, ends):
        incidence = np.zeros((PAPERS, ends), dtype=np.int64)
        incidence[relation[0], relation[1]] = 1
        dst, src = np.nonzero(incidence @ incidence.T)
        return torch.from_numpy(np.stack([src, dst]))

    graphs = {
        ("paper", "PAP", "paper"): metapath(written_by, AUTHORS),
        ("paper", "PSP", "paper"): metapath(about, SUBJECTS),
    }
    for position, (name, pairs) in enumerate(graphs.items()):
        ours = edges[:, edges[1] == position][[0, 2]]
        assert np.array_equal(ours, pairs.numpy()), f"the edges of {name}"

    conv = HANConv(WIDTH, HEADS * HIDDEN, (["paper"], list(graphs)), heads=HEADS, negative_slope=0.2)
    with torch.no_grad():
        conv.proj["paper"].weight.copy_(weights["conv.w"].reshape(WIDTH, HEADS * HIDDEN).T)
        conv.proj["paper"].bias.zero_()
        for kind in graphs:
            key = "__".join(kind)
            conv.lin_src[key].copy_(weights[f"conv.a_src.{kind[1]}"][None])
            conv.lin_dst[key].copy_(weights[f"conv.a_dst.{kind[1]}"][None])
        conv.k_lin.weight.copy_(weights["conv.w_s"].T)
        conv.k_lin.bias.copy_(weights["conv.b_s"])
        conv.q.copy_(weights["conv.q"][None])
        conv.eval()
        out, semantic = conv({"paper": torch.from_numpy(x)}, graphs, return_semantic_attention_weights=True)
        h = conv.proj["paper"](torch.from_numpy(x)).view(PAPERS, HEADS, HIDDEN)
        attention = []
        for kind, (src, dst) in graphs.items():
            key = "__".join(kind)
            of_src, of_dst = ((h * of[key]).sum(-1) for of in (conv.lin_src, conv.lin_dst))
            score = torch.nn.functional.leaky_relu(of_src[src] + of_dst[dst], 0.2)
            attention.append(softmax(score, dst, num_nodes=PAPERS))

    expected = {
        "beta": semantic["paper"].numpy().reshape(-1, 1),
        "embedding": out["paper"].numpy(),
        "attention": torch.cat(attention).numpy(),
    }
    for name, array in expected.items():
        assert found[name].shape == array.shape, (name, found[name].shape, array.shape)
        difference = float(np.abs(found[name] - array).max())
        print(f"{name} {list(array.shape)}: largest difference {difference:.2e}")
        assert difference <= TOLERANCE * max(1.0, float(np.abs(array).max())), name
    weight = ", ".join(f"{kind[1]} {beta:.4f}" for kind, beta in zip(graphs, expected["beta"][:, 0]))
    print(f"beta: {weight}")
    assert np.ptp(expected["beta"]) > 1e-3, "the weights should differ"


if __name__ == "__main__":
    main(str(Path(sys.argv[1]).resolve()) if len(sys.argv) > 1 else "hgnnc")

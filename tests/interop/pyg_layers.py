#!/usr/bin/env python3
"""Compares layers of the library with those of PyTorch Geometric on random papers and authors: logits and gradients.

    pip install numpy safetensors torch torch_geometric
    python3 tests/interop/pyg_layers.py target/release/hgnnc [NAME ...]

Each model is trained for a step of gradient descent from its initial weights, so that the difference of the weights is the
gradient of the loss. PyG computes both in f64 with the same weights. Logits differ by 1e-5 of the largest one at most,
gradients of a parameter by 1e-4 of its largest element.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

LOGITS, GRADIENTS = 1e-5, 1e-4
# A step so long that differences of weights lose no digits of the gradient.
RATE = 64.0
PAPERS, AUTHORS, GRAPHS, CLASSES = 300, 120, 40, 3
PAPER_WIDTH, AUTHOR_WIDTH, HEADS, HIDDEN = 24, 16, 4, 6

SCHEMA = f"""
schema Library {{
    vertex Paper from "paper" {{ x: f32[{PAPER_WIDTH}], topic: class[{CLASSES}] from "topic" }}
    vertex Author from "author" {{ x: f32[{AUTHOR_WIDTH}] }}
    vertex Part from "graph" {{ kind: class[{CLASSES}] from "kind" }}
    relation cites: Paper -> Paper from "cites"
    relation near: Paper -> Paper from "near" {{ rate: target[1] }}
    relation writes: Author -> Paper from "writes"
    relation part_of: Paper -> Part from "part_of"
}}
"""

DATASET = f"""
name = "random"

[[vertex_type]]
name = "paper"
count = {PAPERS}
features = {{ kind = "dense", dim = {PAPER_WIDTH}, file = "x.npy" }}

[[vertex_type]]
name = "author"
count = {AUTHORS}
features = {{ kind = "dense", dim = {AUTHOR_WIDTH}, file = "y.npy" }}

[[vertex_type]]
name = "graph"
count = {GRAPHS}

[[relation]]
name = "cites"
src = "paper"
dst = "paper"
file = "cites.npy"

[[relation]]
name = "near"
src = "paper"
dst = "paper"
file = "near.npy"

[[relation]]
name = "writes"
src = "author"
dst = "paper"
file = "writes.npy"

[[relation]]
name = "part_of"
src = "paper"
dst = "graph"
file = "part_of.npy"

[[label]]
vertex_type = "paper"
name = "topic"
classes = {CLASSES}
file = "topic.npy"

[[label]]
vertex_type = "graph"
name = "kind"
classes = {CLASSES}
file = "kind.npy"

[[split]]
name = "half"
vertex_type = "paper"
train = "paper_train.npy"
val = "paper_rest.npy"
test = "none.npy"

[[label]]
relation = "near"
name = "rate"
kind = "real"
dim = 1
file = "rate.npy"

[[split]]
name = "half"
relation = "near"
train = "edge_train.npy"
val = "edge_rest.npy"
test = "none.npy"

[[split]]
name = "half"
vertex_type = "graph"
train = "graph_train.npy"
val = "graph_rest.npy"
test = "none.npy"
"""


class Case:
    """A model of one layer, and the same in PyG: `logits(world, weights)` reads tensors by the names of the weights. `of` names
    the rows of the logits: papers, graphs or edges."""

    of = "paper"
    label = "Paper.topic"
    loss = "cross_entropy"

    def model(self):
        raise NotImplementedError

    def logits(self, world, weights):
        raise NotImplementedError

    def source(self, rate):
        train = f"""
train Model {{
    loss      {self.loss}(logits, {self.label})
    optimizer sgd(lr: {rate})
    epochs    1
    seed      5
    split     "half"
}}
"""
        return self.model().replace("SCHEMA", SCHEMA) + train


def functional(module, tensors, *inputs, **named):
    """A call of a module of PyG with these tensors as its parameters, so that gradients reach them."""
    import torch

    return torch.func.functional_call(module.double(), tensors, inputs, named, strict=True)


class GatV2(Case):
    def model(self):
        return f"""use std::gat::GatV2Conv
SCHEMA
model Model(schema: Library) {{
    let conv = GatV2Conv(hidden: {HIDDEN}, heads: {HEADS}) over cites of Paper.x
    output logits: Paper = linear(conv, {CLASSES})
}}"""

    def logits(self, world, weights):
        import torch
        from torch_geometric.nn import GATv2Conv

        conv = GATv2Conv(PAPER_WIDTH, HIDDEN, HEADS, add_self_loops=False)
        joined = HEADS * HIDDEN
        none = torch.zeros(joined, dtype=torch.float64)
        tensors = {
            "att": weights["conv.a.cites"][None],
            "lin_l.weight": weights["conv.w_src"].reshape(PAPER_WIDTH, joined).T,
            "lin_l.bias": none,
            "lin_r.weight": weights["conv.w_dst"].reshape(PAPER_WIDTH, joined).T,
            "lin_r.bias": none,
            "bias": weights["conv.b"],
        }
        h = functional(conv, tensors, world["x"], world["cites"])
        return h @ weights["logits.weight"] + weights["logits.bias"]


class Hgt(Case):
    def model(self):
        return f"""use std::hgt::HgtConv
SCHEMA
model Model(schema: Library) {{
    let first = {{linear(Paper.x, {HEADS * HIDDEN}), linear(Author.x, {HEADS * HIDDEN})}}
    let conv = HgtConv(hidden: {HIDDEN}, heads: {HEADS}) over [cites, writes] of first
    output logits: Paper = linear(conv, {CLASSES}).Paper
}}"""

    def logits(self, world, weights):
        import torch
        from torch_geometric.nn import HGTConv

        width = HEADS * HIDDEN
        types = {"paper": "Paper", "author": "Author"}
        relations = {
            ("paper", "cites", "paper"): ("cites", world["cites"]),
            ("author", "writes", "paper"): ("writes", world["writes"]),
        }
        conv = HGTConv(width, width, (list(types), list(relations)), heads=HEADS)
        # Nothing is sent to authors: PyG has weights for them, which do not matter.
        none = lambda *shape: torch.zeros(shape, dtype=torch.float64)
        tensors = {}
        for theirs, ours in types.items():
            kqv = [weights.get(f"conv.w_{part}.{ours}", none(width, width)) for part in ("k", "q", "m")]
            tensors[f"kqv_lin.lins.{theirs}.weight"] = torch.cat([part.reshape(width, width) for part in kqv], dim=1).T
            biases = [weights.get(f"conv.b_{part}.{ours}", none(width)) for part in ("k", "q", "m")]
            tensors[f"kqv_lin.lins.{theirs}.bias"] = torch.cat([bias.reshape(-1) for bias in biases])
            tensors[f"out_lin.lins.{theirs}.weight"] = weights.get(f"conv.w.{ours}", none(width, width)).T
            tensors[f"out_lin.lins.{theirs}.bias"] = weights.get(f"conv.b.{ours}", none(width))
            tensors[f"skip.{theirs}"] = weights.get(f"conv.skip.{ours}", none()).reshape(1)
        # Weights of a head lie beside those of the same head in other relations.
        for theirs, part in (("k_rel", "w_att"), ("v_rel", "w_msg")):
            of_relations = torch.stack([weights[f"conv.{part}.{name}"] for name, _ in relations.values()])
            tensors[f"{theirs}.weight"] = of_relations.transpose(0, 1).reshape(-1, HIDDEN, HIDDEN)
        for kind, (name, _) in relations.items():
            tensors[f"p_rel.{'__'.join(kind)}"] = weights[f"conv.mu.{name}"][None]
        x = {
            "paper": world["x"] @ weights["first.weight"] + weights["first.bias"],
            "author": world["y"] @ weights["first_2.weight"] + weights["first_2.bias"],
        }
        h = functional(conv, tensors, x, {kind: edges for kind, (_, edges) in relations.items()})
        return h["paper"] @ weights["logits.weight.Paper"] + weights["logits.bias.Paper"]


class Rgcn(Case):
    def model(self):
        return f"""use std::rgcn::RgcnConv
SCHEMA
model Model(schema: Library) {{
    let conv = relu(RgcnConv(hidden: {HIDDEN}) over [cites, reverse(cites)] of Paper.x)
    output logits: Paper = linear(conv, {CLASSES})
}}"""

    def logits(self, world, weights):
        return self.hidden(world, weights) @ weights["logits.weight"] + weights["logits.bias"]

    @staticmethod
    def hidden(world, weights):
        import torch
        from torch_geometric.nn import RGCNConv

        conv = RGCNConv(PAPER_WIDTH, HIDDEN, 2)
        edges = torch.cat([world["cites"], world["cites"].flip(0)], dim=1)
        kinds = torch.arange(2).repeat_interleave(world["cites"].shape[1])
        tensors = {
            "weight": torch.stack([weights["conv.w.cites"], weights["conv.w.reverse_cites"]]),
            "root": weights["conv.w_self.Paper"],
            "bias": weights["conv.b.Paper"],
        }
        return functional(conv, tensors, world["x"], edges, kinds).relu()


class RgcnDistMult(Case):
    """Scores of the edges of `near`, which carry no messages."""

    of = "edge"
    label = "near.rate"
    loss = "mse"

    def model(self):
        return f"""use std::link::DistMult
use std::rgcn::RgcnConv
SCHEMA
model Model(schema: Library) {{
    let conv = relu(RgcnConv(hidden: {HIDDEN}) over [cites, reverse(cites)] of Paper.x)
    output logits: edges(near) = DistMult() over edges(near) of conv
}}"""

    def logits(self, world, weights):
        import torch
        from torch_geometric.nn import DistMult

        h = Rgcn.hidden(world, weights)
        source, destination = world["near"]
        score = DistMult(PAPERS, 1, HIDDEN)
        tensors = {"node_emb.weight": h, "rel_emb.weight": weights["logits.w.edges_near"][None]}
        scores = functional(score, tensors, source, torch.zeros_like(source), destination)
        return (scores + weights["logits.b.edges_near"])[:, None]


class ConvE(Case):
    """Scores of the edges of `near` by a convolution, which PyG has no model of: against `conv2d` of torch."""

    of = "edge"
    label = "near.rate"
    loss = "mse"

    def model(self):
        return f"""use std::compgcn::RelationVectors
use std::link::ConvE
SCHEMA
model Model(schema: Library) {{
    let r = RelationVectors(width: {PAPER_WIDTH}) over near
    let h = tanh(linear(Paper.x, {PAPER_WIDTH}))
    output logits: edges(near) = ConvE(rows: 4, filters: 5, kernel: 3) over edges(near) of (h, r: r)
}}"""

    def logits(self, world, weights):
        import torch

        h = (world["x"] @ weights["h.weight"] + weights["h.bias"]).tanh()
        source, destination = world["near"]
        r = weights["r.vector.near"].expand(len(source), -1)
        # As in the authors' code: both images, one below the other.
        image = torch.cat([e.reshape(-1, 1, 4, PAPER_WIDTH // 4) for e in (h[source], r)], dim=2)
        kernels = weights["logits.w"].reshape(5, 1, 3, 3)
        maps = torch.nn.functional.conv2d(image, kernels, weights["logits.c"]).relu()
        query = (maps.flatten(1) @ weights["logits.fc"] + weights["logits.d"]).relu()
        return ((query * h[destination]).sum(1) + weights["logits.b.edges_near"])[:, None]


class GinReadout(Case):
    of = "graph"
    label = "Part.kind"

    def model(self):
        return f"""use std::gin::GinConv
SCHEMA
layer Readout()
    over graphs: [U -> V]
    of x: U[in]
    -> V[in]
{{
    aggregate e: g in graphs {{
        z = sum(e.src.x) over in_edges
    }}
    fuse v: V across graphs {{
        out = sum(v.z) across graphs
    }}
}}
model Model(schema: Library) {{
    let conv = GinConv(hidden: {HIDDEN}) over cites of Paper.x
    output logits: Part = linear(Readout() over part_of of conv, {CLASSES})
}}"""

    def logits(self, world, weights):
        import torch
        from torch_geometric.nn import GINConv, global_add_pool

        perceptron = torch.nn.Sequential(
            torch.nn.Linear(PAPER_WIDTH, HIDDEN), torch.nn.ReLU(), torch.nn.Linear(HIDDEN, HIDDEN)
        )
        conv = GINConv(perceptron, train_eps=True)
        tensors = {
            "eps": weights["conv.eps"].reshape(1),
            "nn.0.weight": weights["conv.w1"].T,
            "nn.0.bias": weights["conv.b1"],
            "nn.2.weight": weights["conv.out.weight"].T,
            "nn.2.bias": weights["conv.out.bias"],
        }
        h = functional(conv, tensors, world["x"], world["cites"])
        pooled = global_add_pool(h, world["part_of"][1])
        return pooled @ weights["logits.weight"] + weights["logits.bias"]


class Set2SetReadout(Case):
    """PyG adds two vectors to the gates; the second one is 0 here."""

    of = "graph"
    label = "Part.kind"

    def model(self):
        return f"""use std::readout::Set2Set
SCHEMA
model Model(schema: Library) {{
    let h = linear(Paper.x, {HIDDEN})
    let r = Set2Set(steps: 4) over part_of of h
    output logits: Part = linear(r, {CLASSES})
}}"""

    def logits(self, world, weights):
        import torch
        from torch_geometric.nn import Set2Set

        readout = Set2Set(HIDDEN, processing_steps=4)
        tensors = {
            "lstm.weight_ih_l0": weights["r.w"].T,
            "lstm.weight_hh_l0": weights["r.u"].T,
            "lstm.bias_ih_l0": weights["r.b"],
            "lstm.bias_hh_l0": torch.zeros_like(weights["r.b"]),
        }
        h = world["x"] @ weights["h.weight"] + weights["h.bias"]
        pooled = functional(readout, tensors, h, world["part_of"][1], dim_size=GRAPHS)
        return pooled @ weights["logits.weight"] + weights["logits.bias"]


class SageLstm(Case):
    def model(self):
        return f"""use std::sage::SageLstmConv
SCHEMA
model Model(schema: Library) {{
    let conv = SageLstmConv(hidden: {HIDDEN}, state: {PAPER_WIDTH}) over near at most 4 per vertex of Paper.x
    output logits: Paper = linear(conv, {CLASSES})
}}"""

    def logits(self, world, weights):
        import torch
        from torch_geometric.nn import SAGEConv

        # In-edges are in the order of their sources: the edges are sorted by these already. PyG goes on over zeros where a
        # vertex has fewer in-edges than another one, so all have four here.
        order = torch.sort(world["near"][1], stable=True).indices
        edges = world["near"][:, order]
        conv = SAGEConv(PAPER_WIDTH, HIDDEN, aggr="lstm")
        gates = weights["conv.b_gates.near"]
        tensors = {
            "aggr_module.lstm.weight_ih_l0": weights["conv.w_x.near"].T,
            "aggr_module.lstm.weight_hh_l0": weights["conv.w_h.near"].T,
            "aggr_module.lstm.bias_ih_l0": gates,
            "aggr_module.lstm.bias_hh_l0": torch.zeros_like(gates),
            "lin_l.weight": weights["conv.w.near"].T,
            "lin_l.bias": weights["conv.b.Paper"],
            "lin_r.weight": weights["conv.w_self.Paper"].T,
        }
        h = functional(conv, tensors, world["x"], edges)
        return h @ weights["logits.weight"] + weights["logits.bias"]


CASES = {
    "GatV2Conv": GatV2(),
    "HgtConv": Hgt(),
    "RgcnConv": Rgcn(),
    "RgcnConv with DistMult": RgcnDistMult(),
    "ConvE": ConvE(),
    "GinConv with readout": GinReadout(),
    "Set2Set": Set2SetReadout(),
    "SageLstmConv": SageLstm(),
}


def write(data, rng):
    """Writes the dataset, and gives its arrays."""
    import numpy as np

    order = rng.permutation(PAPERS).astype(np.int32)
    graphs = rng.permutation(GRAPHS).astype(np.int32)
    edges = rng.permutation(4 * PAPERS).astype(np.int32)
    arrays = {
        "x": rng.normal(size=(PAPERS, PAPER_WIDTH)).astype(np.float32),
        "y": rng.normal(size=(AUTHORS, AUTHOR_WIDTH)).astype(np.float32),
        "topic": rng.integers(0, CLASSES, PAPERS).astype(np.int32),
        "kind": rng.integers(0, CLASSES, GRAPHS).astype(np.int32),
        "cites": rng.integers(0, PAPERS, (2, 900)).astype(np.int32),
        # So many in-edges for each paper, and none twice.
        "near": np.stack([(np.arange(4 * PAPERS) * 7 + 1) % PAPERS, np.repeat(np.arange(PAPERS), 4)]).astype(np.int32),
        "writes": np.stack([rng.integers(0, AUTHORS, 500), rng.integers(0, PAPERS, 500)]).astype(np.int32),
        "part_of": np.stack([np.arange(PAPERS), np.sort(rng.integers(0, GRAPHS, PAPERS))]).astype(np.int32),
        "rate": rng.normal(size=(4 * PAPERS, 1)).astype(np.float32),
        "paper_train": np.sort(order[:150]),
        "paper_rest": np.sort(order[150:]),
        "graph_train": np.sort(graphs[:20]),
        "graph_rest": np.sort(graphs[20:]),
        "edge_train": np.sort(edges[:600]),
        "edge_rest": np.sort(edges[600:]),
        "none": np.zeros(0, dtype=np.int32),
    }
    # Edges are distinct, so that no reader merges them.
    for name in ("cites", "near", "writes"):
        arrays[name] = np.unique(arrays[name], axis=1)
    data.mkdir()
    (data / "dataset.toml").write_text(DATASET)
    for name, array in arrays.items():
        np.save(data / f"{name}.npy", array)
    return arrays


def compare(name, case, hgnnc, folder, arrays):
    import numpy as np
    import torch
    from safetensors.numpy import load_file

    def run(*args):
        # Relations that a model does not use are warned of.
        done = subprocess.run([hgnnc, *args], cwd=folder, capture_output=True, text=True)
        if done.returncode != 0:
            sys.exit(done.stderr)

    weights = []
    for rate, file in ((1e-30, "before"), (RATE, "after")):
        (folder / "model.hgnn").write_text(case.source(rate))
        run("train", "model.hgnn", "--data", "data", "--quiet", "--weights-out", f"{file}.safetensors")
        weights.append(load_file(folder / f"{file}.safetensors"))
    before, after = weights
    out = ["--weights", "before.safetensors", "--output", "logits", "--out", "logits.npy"]
    run("infer", "model.hgnn", "--data", "data", *out)

    world = {}
    for key in ("x", "y"):
        world[key] = torch.from_numpy(arrays[key]).double()
    for key in ("cites", "near", "writes", "part_of"):
        world[key] = torch.from_numpy(arrays[key]).long()
    tensors = {key: torch.from_numpy(array).double().requires_grad_() for key, array in before.items()}
    logits = case.logits(world, tensors)
    train = torch.from_numpy(arrays[f"{case.of}_train"]).long()
    truth = torch.from_numpy(arrays[case.label.split(".")[1]])[train]
    if case.loss == "mse":
        torch.nn.functional.mse_loss(logits[train], truth.double()).backward()
    else:
        torch.nn.functional.cross_entropy(logits[train], truth.long()).backward()

    expected = logits.detach().numpy()
    apart = np.abs(np.load(folder / "logits.npy").reshape(expected.shape) - expected).max() / max(1.0, np.abs(expected).max())
    gradients = {}
    for key, tensor in tensors.items():
        ours = (before[key].astype(np.float64) - after[key]) / RATE
        theirs = np.zeros_like(ours) if tensor.grad is None else tensor.grad.numpy()
        largest = max(np.abs(theirs).max(initial=0.0), 1e-4)
        gradients[key] = np.abs(ours - theirs).max(initial=0.0) / largest
    worst = max(gradients, key=gradients.get)
    print(f"{name}: logits {apart:.1e}, gradients of {len(gradients)} parameters {gradients[worst]:.1e} ({worst})")
    return apart <= LOGITS and gradients[worst] <= GRADIENTS


def main(hgnnc, names):
    try:
        import numpy as np
        import torch
        import torch_geometric
    except ImportError as missing:
        print(f"skipped: {missing}")
        return 0
    print(f"torch {torch.__version__}, torch_geometric {torch_geometric.__version__}")
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        arrays = write(folder / "data", np.random.default_rng(7))
        chosen = {name: case for name, case in CASES.items() if not names or name in names}
        wrong = [name for name, case in chosen.items() if not compare(name, case, hgnnc, folder, arrays)]
    for name in wrong:
        print(f"{name} differs")
    return len(wrong)


if __name__ == "__main__":
    command = str(Path(sys.argv[1]).resolve()) if len(sys.argv) > 1 else "hgnnc"
    sys.exit(1 if main(command, sys.argv[2:]) else 0)

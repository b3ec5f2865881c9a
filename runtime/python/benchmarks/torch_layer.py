"""Times `hgnnc.torch.Layer` beside the layers of PyG, on demand: `pip install torch torch_geometric scipy`, then in
`runtime/python`: `python -m benchmarks.torch_layer DATA [--threads 2]`, where DATA has the datasets `acm` and `imdb`.

Both sides have the same weights and the same training loop: the layer, a linear classifier, cross entropy of all target
vertices, backward, Adam. Logits and gradients of the first epoch are compared. The features of target vertices are

- *dense*: a tensor that needs no gradient, on both sides;
- *sparse*: those of the dataset, which the layer reads as CSR, beside PyG's dense tensor;
- *encoded*: what a trained linear encoder makes of the dense tensor (64 numbers), so that gradients flow through.

Shown are medians of up to 15 epochs, measured by turns, in milliseconds: of the layer (its forward and its backward
pass), and of the epoch.
"""

from __future__ import annotations

import argparse
import pathlib
import statistics
import time

import numpy as np
import scipy.sparse as sp
import torch
import torch_geometric
from torch import nn
from torch.nn import functional
from torch_geometric.nn import GATConv, HANConv, RGCNConv

import hgnnc
from hgnnc.torch import Layer
from tests.test_torch_layer import copy_weights, key

ENCODED = 64
EPOCHS, MOST_MS = 15, 20_000

SCHEMAS = {
    "acm": ("paper", "author", "subject"),
    "imdb": ("movie", "director", "actor"),
}
LAYERS = {
    "HANConv": (
        "use std::han::HanConv",
        "HanConv(hidden: 8, heads: 8, attention: 64, activation: relu) over [First, Second] of Target.x",
    ),
    "GATConv (first)": ("use std::gat::GatConv", "GatConv(hidden: 8, heads: 8) over First of Target.x"),
    "GATConv (second)": ("use std::gat::GatConv", "GatConv(hidden: 8, heads: 8) over Second of Target.x"),
    "RGCNConv": ("use std::rgcn::RgcnConv", "RgcnConv(hidden: 64) over [First, Second] of Target.x"),
}


class Case:
    """A dataset: dense features and labels of its target vertices, and two metapath graphs."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.dataset = hgnnc.Dataset(folder)
        self.types = SCHEMAS[folder.name]
        target, first, second = self.types
        vertices = self.dataset.vertex_types[target]
        x = vertices.x
        dense = x if isinstance(x, np.ndarray) else sp.csr_array((x.data, x.indices, x.indptr), shape=x.shape).toarray()
        self.x = torch.from_numpy(dense)
        self.y = torch.from_numpy(np.array(next(iter(vertices.labels.values())).values)).long()
        self.graphs = [self.metapath(target, other) for other in (first, second)]

    def metapath(self, target: str, other: str) -> torch.Tensor:
        relation = self.dataset.relations[f"{target}-{other}"]
        src, dst = relation.edge_index
        shape = (self.dataset.vertex_types[target].count, self.dataset.vertex_types[other].count)
        to = sp.coo_array((np.ones(len(src), np.int32), (src, dst)), shape=shape).tocsr()
        rows, columns = (to @ to.T).nonzero()
        # By destination, as PyG likes it best.
        return torch.from_numpy(np.stack([columns, rows])).long()

    def source(self, layer: str, features: str) -> str:
        target, first, second = self.types
        use, call = LAYERS[layer]
        return f"""{use}
schema Data {{
    vertex Target from "{target}" {{ x: {features} }}
    vertex One from "{first}"
    vertex Two from "{second}"
    relation one: Target -> One from "{target}-{first}"
    relation two: Target -> Two from "{target}-{second}"
    metapath First = Target -one-> One <-one- Target
    metapath Second = Target -two-> Two <-two- Target
}}
model Net(schema: Data) {{
    output z: Target = {call}
}}
"""


class Theirs(nn.Module):
    """A layer of PyG on the graphs of a case."""

    def __init__(self, kind: str, case: Case, width: int) -> None:
        super().__init__()
        self.kind, target = kind, case.types[0]
        self.target = target
        if kind == "HANConv":
            kinds = [(target, "First", target), (target, "Second", target)]
            self.conv = HANConv({target: width}, 64, ([target], kinds), heads=8)
            nn.init.zeros_(self.conv.proj[target].bias)
            self.graphs = dict(zip(kinds, case.graphs, strict=True))
        elif kind.startswith("GATConv"):
            self.conv = GATConv(width, 8, heads=8, add_self_loops=False)
        else:
            self.conv = RGCNConv(width, 64, num_relations=2)
            self.edge_type = torch.cat([torch.full((g.shape[1],), i) for i, g in enumerate(case.graphs)])
            self.edges = torch.cat(case.graphs, dim=1)
        self.graph = case.graphs[kind.endswith("(second)")]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.kind == "HANConv":
            return self.conv({self.target: x}, self.graphs)[self.target]
        return self.conv(x, self.edges, self.edge_type) if self.kind == "RGCNConv" else self.conv(x, self.graph)

    def give_to(self, layer: Layer) -> None:
        """Copies the weights."""
        conv = self.conv
        if self.kind == "HANConv":
            weights = {
                key(layer, "w"): conv.proj[self.target].weight.T,
                key(layer, "w_s"): conv.k_lin.weight.T,
                key(layer, "b_s"): conv.k_lin.bias,
                key(layer, "q"): conv.q,
            }
            for name in ["First", "Second"]:
                weights[key(layer, "a_src", name)] = conv.lin_src[f"{self.target}__{name}__{self.target}"]
                weights[key(layer, "a_dst", name)] = conv.lin_dst[f"{self.target}__{name}__{self.target}"]
        elif self.kind.startswith("GATConv"):
            weights = {
                key(layer, "w"): conv.lin.weight.T,
                key(layer, "a_src"): conv.att_src,
                key(layer, "a_dst"): conv.att_dst,
                key(layer, "b"): conv.bias,
            }
        else:
            weights = {
                key(layer, "w_self"): conv.root,
                key(layer, "w", "First"): conv.weight[0],
                key(layer, "w", "Second"): conv.weight[1],
                key(layer, "b"): conv.bias,
            }
        copy_weights(layer, weights)


class Loop:
    """The training loop of a layer."""

    def __init__(self, layer: nn.Module, case: Case, features: str, takes_x: bool) -> None:
        torch.manual_seed(0)
        self.layer, self.case, self.takes_x = layer, case, takes_x
        self.encoder = nn.Linear(case.x.shape[1], ENCODED) if features == "encoded" else nn.Identity()
        self.head = nn.Linear(64, int(case.y.max()) + 1)
        self.params = [*self.encoder.parameters(), *layer.parameters(), *self.head.parameters()]
        self.optimizer = torch.optim.Adam(self.params, lr=0.005)

    def gradients(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Logits, and the gradients of the parameters that both sides have in common. `marks` are the times when the
        forward and the backward pass of the layer begin and end."""
        self.optimizer.zero_grad()
        self.marks = []
        x = self.encoder(self.case.x) if self.takes_x else None
        self.mark()
        z = self.layer() if x is None else self.layer(x)
        self.mark()
        z.register_hook(lambda _: self.mark())
        if x is not None and x.requires_grad:
            x.register_hook(lambda _: self.mark())
        logits = self.head(z)
        functional.cross_entropy(logits, self.case.y, ignore_index=-1).backward()
        self.mark()
        common = [*self.encoder.parameters(), *self.head.parameters()]
        return logits, torch.cat([parameter.grad.flatten() for parameter in common])

    def mark(self) -> None:
        self.marks.append(time.perf_counter())

    def epoch(self) -> tuple[float, float]:
        """Milliseconds of the layer's passes, and of the epoch."""
        begin = time.perf_counter()
        self.gradients()
        self.optimizer.step()
        end = time.perf_counter()
        forward, backward = self.marks[1] - self.marks[0], self.marks[3] - self.marks[2]
        return 1e3 * (forward + backward), 1e3 * (end - begin)


def measure(case: Case, name: str, kind: str, features: str, threads: int) -> None:
    width = ENCODED if features == "encoded" else case.x.shape[1]
    source = case.source(kind, f"f32[{width}]" + (" sparse" if features == "sparse" else ""))
    layer = Layer(source, case.dataset, inputs=[] if features == "sparse" else ["Target.x"], threads=threads)
    torch.manual_seed(1)
    theirs = Theirs(kind, case, width)
    theirs.give_to(layer)
    ours, peer = Loop(layer, case, features, features != "sparse"), Loop(theirs, case, features, True)
    for found, expected in zip(ours.gradients(), peer.gradients(), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
    times: tuple[list[tuple[float, float]], list[tuple[float, float]]] = ([], [])
    first = ours.epoch()[1] + peer.epoch()[1]
    for _ in range(max(3, min(EPOCHS, int(MOST_MS / first)))):
        for loop, found in zip((ours, peer), times, strict=True):
            found.append(loop.epoch())
    cells = [name, kind, features]
    for part in range(2):
        mine, other = (statistics.median(found[part] for found in of) for of in times)
        cells += [f"{mine:.1f}", f"{other:.1f}", f"{other / mine:.1f}"]
    print(f"| {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("data", type=pathlib.Path)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dataset", choices=SCHEMAS)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(f"torch {torch.__version__}, PyG {torch_geometric.__version__}, {arguments.threads} threads\n")
    print("| dataset | layer | features | layer: hgnnc | PyG | ratio | epoch: hgnnc | PyG | ratio |\n|" + " --- |" * 9)
    for name in [arguments.dataset] if arguments.dataset else SCHEMAS:
        case = Case(arguments.data / name)
        for kind in LAYERS:
            for features in ("dense", "sparse", "encoded"):
                measure(case, name, kind, features, arguments.threads)


if __name__ == "__main__":
    main()

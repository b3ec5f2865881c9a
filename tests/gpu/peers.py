#!/usr/bin/env python3
"""Times one model of tests/bench in PyTorch Geometric and prints one line of JSON: {"ms": ..., "mib": ...}.

    peers.py han|rgcn|rgat DATASET DIR [--device cuda] [--epochs N]

The models are those of tests/bench, and examples/rgcn/mag.hgnn, written as a user of the library would. An epoch is
forward, backward and update (Adam) with the loss over the training vertices; the figure is the median of the epochs
after three that do not count. Features are dense, as the library's layers want them; on mag, types without features have
learned embeddings.
"""

import argparse
import json
import statistics
import time
import tomllib
from pathlib import Path

import numpy as np

EMBEDDING, DROPOUT = 128, 0.5
METAPATHS = {"acm": ["PAP", "PSP"], "imdb": ["MDM", "MAM"], "dblp": ["APA", "APVPA", "APTPA"]}
HEADS, DIM, LAYERS, WIDTH = 8, 8, 3, 64


def read(folder, dataset):
    """Counts, dense features, edges by (source, relation, destination) with reverses, metapaths as steps, labels of all
    target vertices, and those of training."""
    table = tomllib.loads((folder / "dataset.toml").read_text())
    load = lambda name: np.load(folder / name)
    counts = {vertex["name"]: vertex["count"] for vertex in table["vertex_type"]}
    features = {}
    for vertex in table["vertex_type"]:
        found, count = vertex.get("features"), vertex["count"]
        if found is None and dataset == "mag":
            continue
        if found is None:
            features[vertex["name"]] = np.eye(count, dtype=np.float32)
        elif found["kind"] == "csr":
            indptr, indices = load(found["indptr"]), load(found["indices"])
            dense = np.zeros((count, found["dim"]), np.float32)
            dense[np.repeat(np.arange(count), np.diff(indptr)), indices] = load(found["data"])
            features[vertex["name"]] = dense
        else:
            features[vertex["name"]] = load(found["file"]).astype(np.float32)
    edges, ends = {}, {}
    for relation in table["relation"]:
        both = load(relation["file"]).astype(np.int64)
        if "columns" in relation:
            both = both[:, relation["columns"][0] : relation["columns"][1]]
        source, target = relation["src"], relation["dst"]
        name = relation["name"].replace("-", "_")
        edges[(source, name, target)] = both
        edges[(target, "reverse_" + name, source)] = both[::-1].copy()
        ends[relation["name"]] = (source, name, target)
    wanted = {path["name"]: path["steps"] for path in table.get("metapath", [])}
    paths = {}
    for name in METAPATHS.get(dataset, []):
        steps = []
        for step in wanted[name]:
            source, relation, target = ends[step[1:]]
            steps.append((source, relation, target) if step[0] == ">" else (target, "reverse_" + relation, source))
        paths[name] = steps
    label = table["label"][0]
    labels = np.maximum(load(label["file"]).astype(np.int64), 0)
    train = load(table["split"][0]["train"]).astype(np.int64)
    return counts, features, edges, paths, label["vertex_type"], label["classes"], labels, train


def compose(counts, edges, steps):
    """Distinct pairs of a metapath, as a boolean product of matrices."""
    import torch

    product = None
    for source, relation, target in steps:
        both = torch.from_numpy(edges[(source, relation, target)])
        shape = (counts[source], counts[target])
        matrix = torch.sparse_coo_tensor(both, torch.ones(both.shape[1]), shape).coalesce()
        matrix = torch.sparse_coo_tensor(matrix.indices(), torch.ones(matrix.values().shape[0]), shape)
        product = matrix if product is None else torch.sparse.mm(product, matrix)
    return product.coalesce().indices()


def build(model, counts, features, edges, paths, target, classes, device):
    """A function from features to logits, as a module. Vertex types without features get learned ones."""
    import torch
    import torch.nn as nn
    import torch.nn.functional as F
    import torch_geometric.nn as gnn

    widths = {vertex: x.shape[1] for vertex, x in features.items()}
    graphs = {key: torch.from_numpy(both).to(device) for key, both in edges.items()}
    if model == "han":
        metapaths = {(target, name, target): compose(counts, edges, steps).to(device) for name, steps in paths.items()}

        class Han(nn.Module):
            def __init__(self):
                super().__init__()
                meta = ([target], list(metapaths))
                self.conv = gnn.HANConv({target: widths[target]}, HEADS * DIM, meta, heads=HEADS)
                self.out = nn.Linear(HEADS * DIM, classes)

            def forward(self, x):
                return self.out(self.conv({target: x[target]}, metapaths)[target])

        return Han()
    if model == "rgat":

        class Rgat(nn.Module):
            def __init__(self):
                super().__init__()
                dims, self.convs = dict(widths), nn.ModuleList()
                for _ in range(LAYERS):
                    each = {
                        key: gnn.GATConv((dims[key[0]], dims[key[2]]), DIM, heads=HEADS, add_self_loops=False)
                        for key in graphs
                    }
                    self.convs.append(gnn.HeteroConv(each, aggr="sum"))
                    dims = {vertex: HEADS * DIM for vertex in dims}
                self.out = nn.Linear(HEADS * DIM, classes)

            def forward(self, x):
                for conv in self.convs:
                    x = {vertex: F.elu(h) for vertex, h in conv(x, graphs).items()}
                return self.out(x[target])

        return Rgat()

    class Mean(nn.Module):
        """Projects, then takes the mean over a relation."""

        def __init__(self, width):
            super().__init__()
            self.lin, self.mean = nn.Linear(width, WIDTH, bias=False), gnn.SimpleConv(aggr="mean")

        def forward(self, x, graph):
            x = x if isinstance(x, tuple) else (x, x)
            return self.mean((self.lin(x[0]), x[1]), graph)

    class Rgcn(nn.Module):
        def __init__(self):
            super().__init__()
            dims, self.convs, self.selfs = dict(widths), nn.ModuleList(), nn.ModuleList()
            for _ in range(LAYERS):
                self.convs.append(gnn.HeteroConv({key: Mean(dims[key[0]]) for key in graphs}, aggr="sum"))
                self.selfs.append(nn.ModuleDict({vertex: nn.Linear(dim, WIDTH) for vertex, dim in dims.items()}))
                dims = {vertex: WIDTH for vertex in dims}
            self.out = nn.Linear(WIDTH, classes)

        def forward(self, x):
            for conv, own in zip(self.convs, self.selfs):
                h = conv(x, graphs)
                x = {vertex: F.relu(h[vertex] + own[vertex](x[vertex])) for vertex in x}
            return self.out(x[target])

    if len(features) == len(counts):
        return Rgcn()

    class WithEmbeddings(nn.Module):
        """Two layers, each with dropout."""

        def __init__(self):
            super().__init__()
            missing = {vertex: count for vertex, count in counts.items() if vertex not in features}
            self.rows = nn.ParameterDict({vertex: torch.randn(count, EMBEDDING) for vertex, count in missing.items()})
            dims = widths | dict.fromkeys(missing, EMBEDDING)
            self.convs, self.selfs = nn.ModuleList(), nn.ModuleList()
            for _ in range(2):
                self.convs.append(gnn.HeteroConv({key: Mean(dims[key[0]]) for key in graphs}, aggr="sum"))
                self.selfs.append(nn.ModuleDict({vertex: nn.Linear(dim, WIDTH) for vertex, dim in dims.items()}))
                dims = dict.fromkeys(dims, WIDTH)
            self.out = nn.Linear(WIDTH, classes)

        def forward(self, x):
            x = {**x, **self.rows}
            for conv, own in zip(self.convs, self.selfs):
                h = conv(x, graphs)
                x = {vertex: F.dropout(F.relu(h[vertex] + own[vertex](x[vertex])), DROPOUT) for vertex in x}
            return self.out(x[target])

    return WithEmbeddings()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=("han", "rgcn", "rgat"))
    parser.add_argument("dataset")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--epochs", type=int, default=100)
    args = parser.parse_args()

    import torch
    import torch.nn.functional as F

    torch.manual_seed(0)
    device = torch.device(args.device)
    counts, features, edges, paths, target, classes, labels, train = read(args.folder, args.dataset)
    model = build(args.model, counts, features, edges, paths, target, classes, device).to(device)
    x = {vertex: torch.from_numpy(numbers).to(device) for vertex, numbers in features.items()}
    train = torch.from_numpy(train).to(device)
    y = torch.from_numpy(labels).to(device)[train]
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None

    times = []
    for _ in range(3 + args.epochs):
        wait()
        start = time.perf_counter()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x)[train], y)
        loss.backward()
        optimizer.step()
        wait()
        times.append(1e3 * (time.perf_counter() - start))
    mib = torch.cuda.max_memory_allocated() / 2**20 if device.type == "cuda" else 0.0
    print(json.dumps({"ms": statistics.median(times[3:]), "mib": mib, "loss": float(loss)}))


if __name__ == "__main__":
    main()

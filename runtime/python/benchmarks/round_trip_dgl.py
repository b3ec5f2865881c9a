"""Compares with DGL, on demand: `pip install dgl==2.1.0 torch==2.2.1 torchdata==0.7.1`, then
`python benchmarks/round_trip_dgl.py DATA/acm...`.

A graph of DGL survives `from_dgl` and `to_dgl` exactly, with features at the same address, and training on it equals
training on the dataset to the bit.
"""

import pathlib
import sys

import hgnnc

ROOT = pathlib.Path(__file__).resolve().parents[3]


def same(a, b) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and bool((a == b).all())


def main(folder: str) -> None:
    dataset = hgnnc.Dataset(folder)
    graph = dataset.to_dgl()
    again = hgnnc.from_dgl(graph)
    back = again.to_dgl()
    assert graph.ntypes == back.ntypes and graph.canonical_etypes == back.canonical_etypes
    for ty in graph.ntypes:
        assert graph.num_nodes(ty) == back.num_nodes(ty)
        assert graph.nodes[ty].data.keys() == back.nodes[ty].data.keys(), ty
        for key, value in graph.nodes[ty].data.items():
            assert same(value, back.nodes[ty].data[key]), (ty, key)
        x = again.vertex_types[ty].x
        if x is not None:
            assert x.ctypes.data == graph.nodes[ty].data["feat"].data_ptr(), ty
    for triple in graph.canonical_etypes:
        for found, expected in zip(back.edges(etype=triple), graph.edges(etype=triple), strict=True):
            assert same(found, expected), triple
        assert graph.edges[triple].data.keys() == back.edges[triple].data.keys(), triple
        for key, value in graph.edges[triple].data.items():
            assert same(value, back.edges[triple].data[key]), (triple, key)
    print(f"{dataset.name}: the round trip is exact, features are at the same address")
    if dataset.name == "acm":
        # Features of DGL are dense.
        text = (ROOT / "examples" / "han" / "acm.hgnn").read_text().replace("f32[1902] sparse", "f32[1902]")
        runs = [hgnnc.load(text).fit(data, epochs=3, device="cpu", progress=False) for data in (graph, again)]
        assert all(runs[0].weights[name].tobytes() == runs[1].weights[name].tobytes() for name in runs[1].weights)
        print("fit of a graph of DGL: equal to that of the dataset to the bit")


if __name__ == "__main__":
    for folder in sys.argv[1:]:
        main(folder)

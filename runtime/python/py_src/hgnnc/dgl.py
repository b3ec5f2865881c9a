"""Datasets from and to graphs of DGL. Only `to_dgl` imports it."""

from __future__ import annotations

from typing import Any, Union

from ._errors import DataError, warn
from .dataset import Dataset, EdgeType


def from_dgl(
    graph: Any,
    *,
    x: str = "feat",
    y: str = "label",
    weight: str = "weight",
    attr: str = "feat",
    time: str = "time",
    name: str = "data",
) -> Dataset:
    """A dataset of a heterogeneous graph of DGL. Features are not copied; ends of edges are converted to 32 bits.

    `x` and `y` are the names of the data of vertices that are features and labels, `weight` and `attr` those of edges,
    and `time` that of the times of both.
    Masks become the split `masks`. Data that are not used get a warning.
    """
    made: dict[Union[str, EdgeType], dict[str, Any]] = {}
    unused = []
    for ty in graph.ntypes:
        entry: dict[str, Any] = {"num_nodes": int(graph.num_nodes(ty))}
        for key, value in graph.nodes[ty].data.items():
            if key == x:
                entry["x"] = value
            elif key == y:
                entry["y"] = value
            elif key == time:
                entry["time"] = value
            elif key in ("train_mask", "val_mask", "test_mask"):
                mask = value.bool() if hasattr(value, "bool") else value.astype(bool)
                entry[key] = mask
            elif not key.startswith("_"):
                unused.append(f"nodes[{ty!r}].data[{key!r}]")
        made[ty] = entry
    for triple in graph.canonical_etypes:
        src, dst = graph.edges(etype=triple, order="eid")
        edges: dict[str, Any] = {"edge_index": (src, dst)}
        for key, value in graph.edges[triple].data.items():
            if key == weight:
                edges["edge_weight"] = value
            elif key == attr:
                edges["edge_attr"] = value
            elif key == time:
                edges["time"] = value
            elif not key.startswith("_"):
                unused.append(f"edges[{triple!r}].data[{key!r}]")
        made[tuple(triple)] = edges
    if unused:
        warn(f"data that are not used: {', '.join(unused)}")
    return Dataset.from_dict(made, name=name)


def to_dgl(dataset: Dataset, split: str | None = None) -> Any:
    """A dataset as a graph of DGL, with the masks of one split (the first, unless it is named): features as `feat`,
    the label `y` as `label`, weights as `weight`. Sparse features become dense, which DGL wants. Held-out links, and labels
    and splits of edges, are not in it."""
    import dgl

    from .pyg import check_split, tensor, vertex_attributes

    check_split(dataset, split)
    edges = {}
    for relation in dataset.relations.values():
        index = tensor(relation.edge_index)
        edges[relation.edge_type] = (index[0], index[1])
    counts = {ty: vertex.count for ty, vertex in dataset.vertex_types.items()}
    graph = dgl.heterograph(edges, num_nodes_dict=counts)
    for ty in dataset.vertex_types:
        found = vertex_attributes(dataset, ty, split)
        for key, own in (("x", "feat"), ("y", "label")):
            if key in found and own in found:
                raise DataError(
                    f"`{ty}` has a label `{own}`, which is the name of `{key}` in DGL: give it another name"
                )
        for key, value in found.items():
            if key == "x" and "sparse" in str(value.layout):
                value = value.to_dense()
            graph.nodes[ty].data[{"x": "feat", "y": "label"}.get(key, key)] = value
    for relation in dataset.relations.values():
        data = graph.edges[relation.edge_type].data
        for key, array in (("weight", relation.weight), ("feat", relation.x), ("time", relation.time)):
            if array is not None:
                data[key] = tensor(array)
    return graph

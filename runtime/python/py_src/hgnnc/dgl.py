"""Datasets from and to graphs of DGL. Only `to_dgl` imports it."""

from __future__ import annotations

from typing import Any, Iterable, Sequence, Union

from ._errors import DataError, warn
from .dataset import Dataset, EdgeType
from .pyg import MASK_NAMES, check_split, drop_masks, edge_attributes, tensor, vertex_attributes


def from_dgl(
    graph: Any,
    *,
    x: str = "feat",
    y: str = "label",
    weight: str = "weight",
    attr: str = "feat",
    time: str = "time",
    labels: Sequence[str] = (),
    fields: Sequence[str] = (),
    name: str = "data",
) -> Dataset:
    """A dataset of a heterogeneous graph of DGL. Features are not copied; ends of edges are converted to 32 bits.

    `x` is the name of the data of vertices that are features, `weight` and `attr` those of edges, `y` and `time` those of
    the label and the times of both. `labels` are the names of further labels, and `fields` those of further features of
    vertices. Masks become the split `masks`; those of edges without a label are not used. Data that are not used get a
    warning.
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
            elif key in MASK_NAMES:
                entry[key] = _mask(value)
            elif key in labels:
                entry.setdefault("labels", {})[key] = value
            elif key in fields:
                entry.setdefault("fields", {})[key] = value
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
            elif key == y:
                edges["y"] = value
            elif key == time:
                edges["time"] = value
            elif key in MASK_NAMES:
                edges[key] = _mask(value)
            elif key in labels:
                edges.setdefault("labels", {})[key] = value
            elif not key.startswith("_"):
                unused.append(f"edges[{triple!r}].data[{key!r}]")
        unused += [f"edges[{triple!r}].data[{key!r}]" for key in drop_masks(edges)]
        made[tuple(triple)] = edges
    if unused:
        warn(f"data that are not used: {', '.join(unused)}")
    return Dataset.from_dict(made, name=name)


def _mask(value: Any) -> Any:
    # Masks of DGL's own datasets are of bytes.
    return value.bool() if hasattr(value, "bool") else value.astype(bool)


def to_dgl(dataset: Dataset, split: str | None = None) -> Any:
    """A dataset as a graph of DGL, with the masks of one split (the first of each vertex type and relation, unless it
    is named): features as `feat`, the label `y` as `label`, weights as `weight`. Sparse features become dense, which
    DGL wants. Held-out links are not in it."""
    import dgl

    check_split(dataset, split)
    edges = {}
    for relation in dataset.relations.values():
        index = tensor(relation.edge_index)
        edges[relation.edge_type] = (index[0], index[1])
    counts = {ty: vertex.count for ty, vertex in dataset.vertex_types.items()}
    graph = dgl.heterograph(edges, num_nodes_dict=counts)
    for ty, vertex in dataset.vertex_types.items():
        _fill(graph.nodes[ty].data, ty, vertex_attributes(vertex, split), vertex.fields)
    for relation in dataset.relations.values():
        _fill(graph.edges[relation.edge_type].data, relation.name, edge_attributes(relation, split))
    return graph


def _fill(data: Any, of: str, attributes: dict[str, Any], fields: Iterable[str] = ()) -> None:
    """Adds attributes of PyG to the data of vertices or edges, under the names that DGL has for them."""
    names = {"x": "feat", "edge_attr": "feat", "edge_weight": "weight", "y": "label"}
    for key, own in names.items():
        if key in attributes and own in attributes:
            what = "field" if own in fields else "label"
            raise DataError(f"`{of}` has a {what} `{own}`, which is the name of `{key}` in DGL: give it another name")
    for key, value in attributes.items():
        if "sparse" in str(value.layout):
            value = value.to_dense()
        data[names.get(key, key)] = value

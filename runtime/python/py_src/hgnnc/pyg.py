"""Datasets from and to `torch_geometric.data.HeteroData`. Only `to_pyg` imports torch."""

from __future__ import annotations

import warnings
from typing import Any, Sequence, Union

import numpy as np

from ._arrays import Sparse
from ._errors import DataError, warn
from .dataset import MASKS, Dataset, EdgeType, Relation, VertexType

MASK_NAMES = ("train_mask", "val_mask", "test_mask")
_VERTEX = ("x", "y", "num_nodes", *MASK_NAMES, "time")
_EDGE = ("edge_index", "adj_t", "edge_weight", "edge_attr", "y", *MASK_NAMES, "time")


def from_pyg(
    data: Any, *, labels: Sequence[str] = (), fields: Sequence[str] = (), name: str = "data"
) -> Dataset:
    """A dataset of a `HeteroData`. Features and weights are not copied; `edge_index` is converted to 32 bits.

    `labels` names further attributes of vertices and edges that are labels, beside `y`, and `fields` further attributes
    of vertices that are features, beside `x`. Masks become the split `masks`; those of edges without a label are not
    used. Arrays of NumPy instead of tensors are fine. Attributes that are not used get a warning.
    """
    made: dict[Union[str, EdgeType], dict[str, Any]] = {}
    unused = []
    for ty in data.node_types:
        store = data[ty]
        entry: dict[str, Any] = {}
        for key in store.keys():
            if key in _VERTEX:
                entry[key] = store[key]
            elif key in labels:
                entry.setdefault("labels", {})[key] = store[key]
            elif key in fields:
                entry.setdefault("fields", {})[key] = store[key]
            else:
                unused.append(f"data[{ty!r}].{key}")
        made[ty] = entry
    for triple in data.edge_types:
        store = data[triple]
        edges: dict[str, Any] = {}
        for key in store.keys():
            if key == "adj_t":
                continue
            if key in _EDGE:
                edges[key] = store[key]
            elif key in labels:
                edges.setdefault("labels", {})[key] = store[key]
            else:
                unused.append(f"data[{triple!r}].{key}")
        unused += [f"data[{triple!r}].{key}" for key in drop_masks(edges)]
        if "adj_t" in store.keys() and "edge_index" not in edges:
            dst, src, values = _coo(store["adj_t"], triple)
            edges["edge_index"] = (src, dst)
            if values is not None:
                edges.setdefault("edge_weight" if values.ndim == 1 else "edge_attr", values)
        made[tuple(triple)] = edges
    if unused:
        warn(f"attributes that are not used: {', '.join(unused)}")
    return Dataset.from_dict(made, name=name)


def drop_masks(edges: dict[str, Any]) -> list[str]:
    """Removes the masks of edges without a label, which divide nothing, from an entry of `from_dict`; their names."""
    if "y" in edges or "labels" in edges:
        return []
    names = [name for name in MASK_NAMES if name in edges]
    for name in names:
        del edges[name]
    return names


def _coo(adj: Any, triple: EdgeType) -> tuple[Any, Any, Any]:
    """Rows, columns and values, None where there are none. Parallel edges stay."""
    if hasattr(adj, "coo"):
        found: tuple[Any, Any, Any] = adj.coo()
        return found
    if hasattr(adj, "to_sparse_coo"):
        adj = adj.to_sparse_coo()
        indices, values = adj._indices(), adj._values()
        # Tensors of torch always have values: ones stand for none.
        return indices[0], indices[1], None if bool((values == 1).all()) else values
    raise DataError(f"`data[{triple!r}].adj_t` is a {type(adj).__name__}; give an `edge_index`")


def tensor(array: Any) -> Any:
    """An array as a tensor in the same memory. Do not write to it."""
    import torch

    with warnings.catch_warnings():
        # Views of a dataset cannot be written; torch has no such tensors.
        warnings.filterwarnings("ignore", message=".*not writable.*")
        return torch.from_numpy(np.asarray(array))


def sparse_tensor(rows: Sparse) -> Any:
    """Sparse rows as a tensor of layout `sparse_csr`."""
    import torch

    parts = (tensor(rows.indptr.astype(np.int64)), tensor(rows.indices.astype(np.int64)), tensor(rows.data))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*Sparse CSR.*")
        return torch.sparse_csr_tensor(*parts, size=rows.shape)


def vertex_attributes(vertex: VertexType, split: str | None) -> dict[str, Any]:
    """The attributes of a vertex type as tensors: `x`, fields and labels by their names, masks and times."""
    fields = vertex.fields
    for name in fields:
        if name in _VERTEX or name in vertex.labels:
            what = "another attribute of a graph" if name in _VERTEX else "a label as well"
            raise DataError(f"`{vertex.name}` has a field `{name}`, which is {what}: give it another name")
    rows = ({} if vertex.x is None else {"x": vertex.x}) | fields
    found = {key: sparse_tensor(of) if isinstance(of, Sparse) else tensor(of) for key, of in rows.items()}
    return found | _targets(vertex, vertex.count, split, _VERTEX)


def edge_attributes(relation: Relation, split: str | None) -> dict[str, Any]:
    """The attributes of the edges of a relation as tensors: `edge_weight`, `edge_attr`, labels, masks and times."""
    rows = (("edge_weight", relation.weight), ("edge_attr", relation.x))
    found = {key: tensor(value) for key, value in rows if value is not None}
    return found | _targets(relation, relation.num_edges, split, _EDGE)


def _targets(of: VertexType | Relation, count: int, split: str | None, attributes: Sequence[str]) -> dict[str, Any]:
    """The labels, masks and times of `count` vertices or edges, which have other attributes of these names."""
    import torch

    found: dict[str, Any] = {}
    for name, label in of.labels.items():
        if name != "y" and name in attributes:
            what = "another attribute of a graph"
            raise DataError(f"`{of.name}` has a label `{name}`, which is {what}: give it another name")
        values = tensor(label.values.astype(np.int64) if label.kind == "class" else label.values.copy())
        if label.labelled is not None and not label.labelled.all():
            values[~tensor(label.labelled)] = float("nan") if label.kind == "real" else -1.0
        found[name] = values[:, 0] if label.kind == "real" and label.width == 1 else values
    splits = of.splits
    chosen = split if split is not None else next(iter(splits), None)
    for part, ids in splits.get(chosen or MASKS, {}).items():
        if len(ids):
            mask = torch.zeros(count, dtype=torch.bool)
            mask[tensor(ids.astype(np.int64))] = True
            found[f"{part}_mask"] = mask
    time = of.time
    if time is not None:
        found["time"] = tensor(time)
    return found


def check_split(dataset: Dataset, split: str | None) -> None:
    """Refuses the name of a split that no vertex type and no relation has."""
    all_of: list[VertexType | Relation] = [*dataset.vertex_types.values(), *dataset.relations.values()]
    names = list(dict.fromkeys(name for of in all_of for name in of.splits))
    if split is not None and split not in names:
        there = ", ".join(f"`{name}`" for name in names) or "none"
        raise DataError(f"no vertex type or relation has a split `{split}` (there is {there})")


def to_pyg(dataset: Dataset, split: str | None = None) -> Any:
    """A dataset as a `HeteroData`, with the masks of one split (the first of each vertex type and relation, unless it
    is named). Dense features share memory with the dataset: do not write to them. Held-out links are not in it."""
    from torch_geometric.data import HeteroData

    check_split(dataset, split)
    data = HeteroData()
    for ty, vertex in dataset.vertex_types.items():
        found = vertex_attributes(vertex, split)
        if "x" not in found:
            data[ty].num_nodes = vertex.count
        for key, value in found.items():
            data[ty][key] = value
    for relation in dataset.relations.values():
        store = data[relation.edge_type]
        store.edge_index = tensor(relation.edge_index)
        for key, value in edge_attributes(relation, split).items():
            store[key] = value
    return data

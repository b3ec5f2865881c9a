"""Datasets: folders, and arrays in memory."""

from __future__ import annotations

import html
import operator
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Union

import numpy as np

from . import _native
from ._arrays import Array, Floats, Ints, Sparse, edge_index, features, floats, ids, ints, numpy_of, view
from ._errors import DataError

EdgeType = tuple[str, str, str]
MASKS = "masks"
"""The name of a split that was given as masks."""

_VERTEX_KEYS = (
    "x", "fields", "num_nodes", "ids", "time", "y", "labels", "class_names", "train_mask", "val_mask", "test_mask",
    "splits",
)  # fmt: skip
_EDGE_KEYS = (
    "edge_index", "edge_weight", "edge_attr", "time", "y", "labels", "class_names", "train_mask", "val_mask", "test_mask",
    "splits",
)  # fmt: skip
_PARTS = ("train", "val", "test")


@dataclass(frozen=True)
class Label:
    """A label of a vertex type, or of the edges of a relation."""

    kind: str
    """`class`: one class each, -1 for none; `multi`: 0 or 1 for each class; `real`: numbers."""
    width: int
    """Number of classes or numbers."""
    values: Array
    labelled: Array | None
    """Which rows have the label; None for `class`, where -1 says it."""
    class_names: list[str]


def _labels(rows: Iterable[_native.LabelRow]) -> dict[str, Label]:
    return {
        name: Label(kind, width, view(values), None if mask is None else view(mask), names)
        for name, kind, width, values, mask, names in rows
    }


def _splits(rows: Iterable[_native.SplitRow]) -> dict[str, dict[str, Array]]:
    return {name: {part: view(found) for part, found in zip(_PARTS, parts)} for name, *parts in rows}


def _shape(rows: Floats | Sparse) -> str:
    return f"{'sparse' if isinstance(rows, Sparse) else 'dense'}[{rows.shape[1]}]"


class VertexType:
    """A vertex type of a dataset. Arrays are views of its memory, and cannot be written."""

    def __init__(self, native: _native.Dataset, number: int, row: tuple[str, int, str | None, int, int]) -> None:
        self._native, self._number = native, number
        self.name, self.count, self.kind, self.width, self.stored = row

    @property
    def x(self) -> Floats | Sparse | None:
        """Feature rows, or None."""
        return self._rows(None)

    @property
    def fields(self) -> dict[str, Floats | Sparse]:
        """Further feature rows by the name of their field."""
        all_rows = ((name, self._rows(name)) for name in self._native.fields(self._number))
        return {name: rows for name, rows in all_rows if rows is not None}

    def _rows(self, field: str | None) -> Floats | Sparse | None:
        dense = self._native.dense(self._number, field)
        if dense is not None:
            return view(dense)
        found = self._native.sparse(self._number, field)
        if found is None:
            return None
        width, indptr, indices, data = found
        return Sparse((self.count, width), view(indptr), view(indices), view(data))

    @property
    def ids(self) -> Array | list[str] | None:
        """The ids of the vertices where they came from, or None."""
        found = self._native.ids(self._number)
        return found if found is None or isinstance(found, list) else view(found)

    @property
    def time(self) -> Array | None:
        """A time of each vertex, or None."""
        found = self._native.time(self._number)
        return None if found is None else view(found)

    @property
    def labels(self) -> dict[str, Label]:
        """Labels by name."""
        return _labels(row for vertex, row in self._native.labels() if vertex == self._number)

    @property
    def splits(self) -> dict[str, dict[str, Array]]:
        """Splits by name: the vertices of `train`, `val` and `test`."""
        return _splits(row for vertex, row in self._native.splits() if vertex == self._number)

    def __repr__(self) -> str:
        x = f", x: {self.kind}[{self.width}]" if self.kind else ""
        fields = "".join(f", {name}: {_shape(rows)}" for name, rows in self.fields.items())
        return f"VertexType({self.name!r}, {self.count} vertices{x}{fields})"


class Relation:
    """A relation of a dataset. Arrays are views of its memory, and cannot be written."""

    def __init__(self, native: _native.Dataset, number: int, name: str, src: str, dst: str, edges: int) -> None:
        self._native, self._number = native, number
        self.name, self.src, self.dst, self.num_edges = name, src, dst, edges

    @property
    def edge_type(self) -> EdgeType:
        """Source type, name and destination type, as other libraries name edges."""
        head, tail = f"{self.src}__", f"__{self.dst}"
        name = self.name
        if name.startswith(head) and name.endswith(tail) and len(name) > len(head) + len(tail):
            name = name[len(head) : -len(tail)]
        return (self.src, name, self.dst)

    @property
    def src_ids(self) -> Array:
        """The source of each edge. uint32[edges]"""
        return view(self._native.edges(self._number)[0])

    @property
    def dst_ids(self) -> Array:
        """The destination of each edge. uint32[edges]"""
        return view(self._native.edges(self._number)[1])

    @property
    def edge_index(self) -> Ints:
        """Sources above destinations, a copy. int64[2, edges]"""
        return np.stack([self.src_ids, self.dst_ids]).astype(np.int64)

    @property
    def weight(self) -> Floats | None:
        """The weight of each edge, or None."""
        found = self._native.weight(self._number)
        return None if found is None else view(found)

    @property
    def x(self) -> Floats | None:
        """The feature row of each edge, or None."""
        found = self._native.edge_features(self._number)
        return None if found is None else view(found)

    @property
    def time(self) -> Array | None:
        """The time of each edge, or None."""
        found = self._native.edge_time(self._number)
        return None if found is None else view(found)

    @property
    def labels(self) -> dict[str, Label]:
        """Labels of the edges by name, with a row for each edge."""
        return _labels(self._native.edge_labels(self._number))

    @property
    def splits(self) -> dict[str, dict[str, Array]]:
        """Splits of the edges by name: the positions of the edges of `train`, `val` and `test`."""
        return _splits(self._native.edge_splits(self._number))

    def __repr__(self) -> str:
        return f"Relation({self.name!r}, {self.src} -> {self.dst}, {self.num_edges} edges)"


class Dataset:
    """A heterogeneous graph with features, labels and splits, validated.

    `Dataset(folder)` loads one; `Dataset.from_dict`, `Dataset.from_frames`, `hgnnc.from_pyg` and `hgnnc.from_dgl` make
    one of arrays in memory. Dense float32 features and weights stay where they are: do not change them while a dataset
    is in use.
    """

    _folder: str | None = None
    """Where it was loaded from; None of arrays in memory."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self._native = _native.Dataset.load(os.fspath(folder))
        self._folder = os.path.abspath(folder)

    @classmethod
    def _of(cls, native: _native.Dataset) -> Dataset:
        dataset = cls.__new__(cls)
        dataset._native = native
        return dataset

    @classmethod
    def from_dict(
        cls,
        data: Mapping[Union[str, EdgeType], Any],
        *,
        name: str = "data",
        link_splits: Mapping[str, Mapping[str, Mapping[Union[str, EdgeType], Any]]] | None = None,
    ) -> Dataset:
        """A dataset of a dictionary of arrays.

        A key that is a text names a vertex type, and its value has `x` (float32[vertices, width], or sparse rows),
        `fields` (further features of the same form, by name; float32[vertices] is a field of width 1), `y` or `labels`
        (by name), `train_mask`, `val_mask`, `test_mask` or `splits` (ids by name and part), `ids`, `time`,
        `class_names` (of `y`), and `num_nodes` where nothing else says it. The value may also be the number of
        vertices alone. A key (source type, name, destination type) is a relation, and its value has `edge_index`
        (int[2, edges]), `edge_weight`, `edge_attr` and `time`, or is the `edge_index` alone. Where edges are to predict,
        it has labels and masks or splits as a vertex type has, with a row for each edge. `link_splits` holds out links, by
        the name of the split, `val` or `test`, and the relation: int[2, links], or {"edge_index": int[2, links],
        "time": int[links]} with a time of each link, of all relations of a part or of none.

        A relation whose name others have too is called `source__name__destination` in models.
        """
        return cls._of(_native.Dataset.build(_Spec(name, data, link_splits or {}).made))

    @classmethod
    def from_frames(
        cls,
        vertices: Mapping[str, Any],
        relations: Mapping[EdgeType, Any],
        *,
        ids: Mapping[str, str] | None = None,
        features: Mapping[Any, Sequence[str]] | None = None,
        labels: Mapping[Any, str | Sequence[str]] | None = None,
        splits: Mapping[Any, str] | None = None,
        times: Mapping[Any, str] | None = None,
        weights: Mapping[EdgeType, str] | None = None,
        ends: Mapping[EdgeType, tuple[str, str]] | None = None,
        name: str = "data",
    ) -> Dataset:
        """A dataset of data frames (of pandas, polars, or dictionaries of columns). See `hgnnc.frames`."""
        from .frames import from_frames

        return from_frames(
            vertices, relations, ids=ids, features=features, labels=labels, splits=splits, times=times, weights=weights,
            ends=ends, name=name,
        )  # fmt: skip

    @property
    def name(self) -> str:
        """The name of the dataset."""
        return self._native.name

    @property
    def vertex_types(self) -> dict[str, VertexType]:
        """Vertex types by name."""
        return {row[0]: VertexType(self._native, i, row) for i, row in enumerate(self._native.vertices())}

    @property
    def relations(self) -> dict[str, Relation]:
        """Relations by name."""
        types = list(self.vertex_types)
        rows = self._native.relations()
        return {
            name: Relation(self._native, i, name, types[src], types[dst], edges)
            for i, (name, src, dst, edges) in enumerate(rows)
        }

    @property
    def link_splits(self) -> dict[str, dict[str, dict[str, Ints | dict[str, Ints]]]]:
        """Held-out links by the name of the split, `val` or `test`, and relation, as `from_dict` takes them:
        int64[2, links], or {"edge_index": int64[2, links], "time": int64[links]} where they have times."""
        names = list(self.relations)
        found: dict[str, dict[str, dict[str, Ints | dict[str, Ints]]]] = {}
        for split, *parts in self._native.link_splits():
            found[split] = {}
            for part, (src, relation, dst, time) in zip(("val", "test"), parts):
                links, of = np.stack([view(src), view(dst)]).astype(np.int64), view(relation)
                own: dict[str, Ints | dict[str, Ints]] = {}
                for r in np.unique(of):
                    ends = links[:, of == r]
                    own[names[r]] = ends if time is None else {"edge_index": ends, "time": view(time)[of == r]}
                found[split][part] = own
        return found

    def schema(self) -> str:
        """The schema that a model needs for this dataset, with an identifier for each of its names."""
        return self._native.schema()

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes the dataset to a folder, which must not exist yet or be empty."""
        self._native.write(os.fspath(folder))

    def to_dict(self) -> dict[Union[str, EdgeType], dict[str, Any]]:
        """The dictionary that `from_dict` makes this dataset of; arrays are views. `link_splits` has the rest."""
        data: dict[Union[str, EdgeType], dict[str, Any]] = {}
        for vertex in self.vertex_types.values():
            entry: dict[str, Any] = {"num_nodes": vertex.count}
            for key, value in (("x", vertex.x), ("ids", vertex.ids), ("time", vertex.time)):
                if value is not None:
                    entry[key] = value
            if fields := vertex.fields:
                entry["fields"] = fields
            data[vertex.name] = entry | _targets(vertex)
        for relation in self.relations.values():
            edges: dict[str, Any] = {"edge_index": relation.edge_index}
            for key, value in (("edge_weight", relation.weight), ("edge_attr", relation.x), ("time", relation.time)):
                if value is not None:
                    edges[key] = value
            data[relation.edge_type] = edges | _targets(relation)
        return data

    def to_pyg(self, split: str | None = None) -> Any:
        """The dataset as `torch_geometric.data.HeteroData`. See `hgnnc.pyg`."""
        from .pyg import to_pyg

        return to_pyg(self, split)

    def to_dgl(self, split: str | None = None) -> Any:
        """The dataset as a graph of DGL. See `hgnnc.dgl`."""
        from .dgl import to_dgl

        return to_dgl(self, split)

    def __reduce__(self) -> tuple[Any, ...]:
        # A folder stays where it is; arrays are copied.
        if self._folder is not None:
            return Dataset, (self._folder,)
        return _from_dict, (self.to_dict(), self.name, self.link_splits)

    def __copy__(self) -> Dataset:
        return self  # it does not change

    def __deepcopy__(self, memo: dict[int, Any]) -> Dataset:
        return self

    def __repr__(self) -> str:
        types = ", ".join(f"{v.name} {v.count}" for v in self.vertex_types.values())
        relations = ", ".join(f"{r.name} {r.num_edges}" for r in self.relations.values())
        return f"Dataset({self.name!r}: {types}; {relations})"

    def _repr_html_(self) -> str:
        rows = [
            (v.name, f"{v.count:,}",
             ", ".join([f"{v.kind} {v.width}"] * (v.kind is not None)
                       + [f"{name}: {_shape(rows)}" for name, rows in v.fields.items()]) or "–",
             ", ".join(f"{name}: {label.kind}[{label.width}]" for name, label in v.labels.items()) or "–",
             ", ".join(f"{name} " + "/".join(str(len(p)) for p in parts.values()) for name, parts in v.splits.items())
             or "–")
            for v in self.vertex_types.values()
        ]  # fmt: skip
        edges = [(r.name, f"{r.src} → {r.dst}", f"{r.num_edges:,}") for r in self.relations.values()]
        return (
            f"<p><b>{html.escape(self.name)}</b></p>"
            + table(("vertex type", "vertices", "features", "labels", "splits (train/val/test)"), rows)
            + table(("relation", "", "edges"), edges)
        )


def _from_dict(data: Any, name: str, link_splits: Any) -> Dataset:
    return Dataset.from_dict(data, name=name, link_splits=link_splits)


def table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A table in HTML."""
    head = "".join(f"<th style='text-align:left'>{html.escape(text)}</th>" for text in heads)
    body = "".join(
        "<tr>" + "".join(f"<td style='text-align:left'>{html.escape(text)}</td>" for text in row) + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _targets(of: VertexType | Relation) -> dict[str, Any]:
    """The labels and splits of an entry of `to_dict`."""
    found: dict[str, Any] = {}
    if labels := {name: _label_dict(label) for name, label in of.labels.items()}:
        found["labels"] = labels
    if splits := of.splits:
        found["splits"] = splits
    return found


def _label_dict(label: Label) -> dict[str, Any]:
    values = label.values
    if label.labelled is not None and not label.labelled.all():
        values = values.copy()
        values[~label.labelled] = -1.0 if label.kind == "multi" else np.nan
    return {"kind": label.kind, "classes": label.width, "values": values, "class_names": label.class_names}


class _Spec:
    """A dictionary of arrays as the native part takes it."""

    def __init__(
        self,
        name: str,
        data: Mapping[Any, Any],
        link_splits: Mapping[str, Mapping[str, Mapping[Any, Any]]],
    ) -> None:
        self.numbers: dict[str, int] = {}
        self.relations: dict[EdgeType, int] = {}
        self.made: dict[str, Any] = {
            "name": name, "vertices": [], "relations": [], "labels": [], "splits": [], "link_splits": [],
        }  # fmt: skip
        for key, value in data.items():
            if isinstance(key, str):
                self.vertex(key, value)
            elif not (isinstance(key, tuple) and len(key) == 3 and all(isinstance(part, str) for part in key)):
                raise DataError(
                    f"`data[{key!r}]`: a key is the name of a vertex type, or (source type, name, destination type)"
                )
        triples = [key for key in data if isinstance(key, tuple)]
        counts: dict[str, int] = {}
        for _, middle, _ in triples:
            counts[middle] = counts.get(middle, 0) + 1
        for triple in triples:
            self.relation(triple, relation_name(triple, counts), data[triple])
        for split, parts in mapping("link_splits", link_splits).items():
            made: dict[str, Any] = {"name": split, "val": [], "test": []}
            for part, links in mapping(f"link_splits[{split!r}]", parts).items():
                if part not in ("val", "test"):
                    raise DataError(f"`link_splits[{split!r}]`: `{part}` should be `val` or `test`")
                for relation, pairs in mapping(f"link_splits[{split!r}][{part!r}]", links).items():
                    key = f"link_splits[{split!r}][{part!r}][{relation!r}]"
                    made[part].append(self.links(relation, pairs, key))
            self.made["link_splits"].append(made)

    def links(self, relation: str | EdgeType, value: Any, key: str) -> dict[str, Any]:
        """Held-out links of a relation."""
        at, time = key, None
        if isinstance(value, Mapping):
            known(key, value, ("edge_index", "time"))
            if value.get("edge_index") is None:
                raise DataError(f"`{key}` has no `edge_index`")
            at = f"{key}['edge_index']"
            if value.get("time") is not None:
                time = (f"{key}['time']", ints(value["time"], f"{key}['time']"))
            value = value["edge_index"]
        src, dst = edge_index(value, at)
        return {"key": at, "relation": self.relation_number(relation, key), "src": src, "dst": dst, "time": time}

    def relation_number(self, relation: str | EdgeType, key: str) -> int:
        for number, made in enumerate(self.made["relations"]):
            if made["name"] == relation:
                return number
        if isinstance(relation, tuple) and relation in self.relations:
            return self.relations[relation]
        names = ", ".join(f"`{made['name']}`" for made in self.made["relations"])
        raise DataError(f"`{key}`: there is no such relation (there is {names or 'none'})")

    def vertex(self, name: str, value: Any) -> None:
        key = f"data[{name!r}]"
        if isinstance(value, (int, np.integer)) and not isinstance(value, bool):
            value = {"num_nodes": int(value)}
        if not isinstance(value, Mapping):
            raise DataError(f"`{key}` is a {type(value).__name__}; give a dictionary, or the number of vertices")
        known(key, value, _VERTEX_KEYS)
        at = {part: f"{key}[{part!r}]" for part in _VERTEX_KEYS}
        x = None if value.get("x") is None else features(value["x"], at["x"])
        fields = _fields(at["fields"], value.get("fields"))
        rows = next((one.shape[0] for one in (x, *(found for *_, found in fields)) if one is not None), None)
        own_ids = None if value.get("ids") is None else ids(value["ids"], at["ids"])
        time = None if value.get("time") is None else ints(value["time"], at["time"])
        count = value.get("num_nodes")
        if count is None:
            for found in (rows, own_ids, time, value.get("y"), *_masks(value).values()):
                if found is not None:
                    count = found if isinstance(found, int) else len(found)
                    break
        if count is None:
            raise DataError(
                f"`{key}` has nothing that says how many vertices there are: add `num_nodes` to a type without features"
            )
        try:
            count = operator.index(count)
        except TypeError:
            raise DataError(f"`{at['num_nodes']}` is {count!r}, and should be a whole number") from None
        if count < 0:
            raise DataError(f"`{at['num_nodes']}` is {count}, and should be 0 or more")
        number = self.numbers[name] = len(self.numbers)
        self.made["vertices"].append({
            "key": key, "name": name, "count": count, "x": None if x is None else (at["x"], _feature_spec(x)),
            "fields": [(own, field, _feature_spec(found)) for own, field, found in fields],
            "ids": None if own_ids is None else (at["ids"], own_ids), "time": None if time is None else (at["time"], time),
        })  # fmt: skip
        self.targets({"of": number, "edges": False}, key, value, count)

    def targets(self, of: dict[str, Any], key: str, value: Mapping[str, Any], count: int) -> None:
        """The labels and splits of vertices or edges."""
        self.labels(of, key, value)
        for split, parts in self.splits(key, value, _masks(value), count):
            self.made["splits"].append({**of, "name": split, "parts": parts})

    def labels(self, of: dict[str, Any], key: str, value: Mapping[str, Any]) -> None:
        given: dict[str, tuple[str, Any]] = {}
        if value.get("y") is not None:
            given["y"] = (f"{key}['y']", {"values": value["y"], "class_names": value.get("class_names")})
        labels = value.get("labels")
        for name, label in mapping(f"{key}['labels']", {} if labels is None else labels).items():
            if name in given:
                raise DataError(f"`{key}['labels']`: there is a label `{name}` already")
            given[name] = (f"{key}['labels'][{name!r}]", label)
        for name, (at, label) in given.items():
            if not isinstance(label, Mapping):
                label = {"values": label}
            known(at, label, ("values", "kind", "classes", "class_names"))
            kind, width, values = label_values(label.get("values"), at, label.get("kind"), label.get("classes"))
            names = label.get("class_names")
            names = [] if names is None else [str(text) for text in names]
            self.made["labels"].append({
                **of, "key": at, "name": name, "kind": kind,
                "width": max(width, len(names)) if kind == "class" else width, "values": values, "class_names": names,
            })  # fmt: skip

    def splits(
        self, key: str, value: Mapping[str, Any], masks: Mapping[str, Any], count: int
    ) -> Iterable[tuple[str, list[tuple[str, Ints]]]]:
        if masks:
            found: dict[str, Array] = {}
            for part, mask in masks.items():
                at = f"{key}['{part}_mask']"
                array = numpy_of(mask, at)
                if array.dtype != np.bool_ or array.shape[:1] != (count,) or array.ndim > 2:
                    raise DataError(f"`{at}` is {array.dtype}{list(array.shape)}, and should be bool[{count}]")
                found[part] = array
            # Several splits side by side, as columns.
            widths = {part: array.shape[1] for part, array in found.items() if array.ndim == 2}
            columns = next(iter(widths.values()), None)
            if len(set(widths.values())) > 1:
                each = ", ".join(f"`{part}_mask` {width}" for part, width in widths.items())
                raise DataError(f"`{key}`: masks have different numbers of columns, one for each split: {each}")
            for column in range(columns or 1):
                parts = []
                for part in _PARTS:
                    mask = found.get(part)
                    if mask is not None and mask.ndim == 2:
                        mask = mask[:, column]
                    own = np.zeros(0, np.int64) if mask is None else np.flatnonzero(mask).astype(np.int64)
                    parts.append((f"{key}['{part}_mask']", own))
                yield (MASKS if columns is None else f"{MASKS}{column}"), parts
        splits = value.get("splits")
        for split, given in mapping(f"{key}['splits']", {} if splits is None else splits).items():
            at = f"{key}['splits'][{split!r}]"
            known(at, mapping(at, given), _PARTS)
            empty = np.zeros(0, np.int64)
            yield split, [(f"{at}[{part!r}]", ints(given.get(part, empty), f"{at}[{part!r}]")) for part in _PARTS]

    def relation(self, triple: EdgeType, name: str, value: Any) -> None:
        key = f"data[{triple!r}]"
        src, _, dst = triple
        for end in (src, dst):
            if end not in self.numbers:
                types = ", ".join(f"`{known}`" for known in self.numbers)
                raise DataError(f"`{key}`: there is no vertex type `{end}` (there is {types or 'none'})")
        if not isinstance(value, Mapping):
            value = {"edge_index": value}
        known(key, value, _EDGE_KEYS)
        if value.get("edge_index") is None:
            raise DataError(f"`{key}` has no `edge_index`")
        at = {part: f"{key}[{part!r}]" for part in _EDGE_KEYS}
        src_ids, dst_ids = edge_index(value["edge_index"], at["edge_index"])
        weight, attr, time = (value.get(part) for part in ("edge_weight", "edge_attr", "time"))
        if attr is not None and numpy_of(attr, at["edge_attr"]).ndim == 1:
            attr = numpy_of(attr, at["edge_attr"])[:, None]
        number = self.relations[triple] = len(self.made["relations"])
        self.made["relations"].append({
            "key": at["edge_index"], "name": name, "src": self.numbers[src], "dst": self.numbers[dst],
            "src_ids": src_ids, "dst_ids": dst_ids,
            "weight": None if weight is None else (at["edge_weight"], floats(weight, at["edge_weight"], 1)),
            "features": None if attr is None else (at["edge_attr"], floats(attr, at["edge_attr"], 2)),
            "time": None if time is None else (at["time"], ints(time, at["time"])),
        })  # fmt: skip
        self.targets({"of": number, "edges": True}, key, value, len(src_ids))


def _fields(key: str, given: Any) -> list[tuple[str, str, Floats | Sparse]]:
    """The key, name and rows of each field of a vertex type."""
    found: list[tuple[str, str, Floats | Sparse]] = []
    for name, rows in mapping(key, {} if given is None else given).items():
        at = f"{key}[{name!r}]"
        if not isinstance(name, str):
            raise DataError(f"`{at}`: the name of a field is a text")
        # Sparse rows of torch_sparse have no `ndim`.
        is_column = not isinstance(rows, tuple) and getattr(rows, "ndim", 2) == 1
        found.append((at, name, features(numpy_of(rows, at)[:, None] if is_column else rows, at)))
    return found


def _feature_spec(rows: Floats | Sparse) -> Any:
    return (rows.shape[1], rows.indptr, rows.indices, rows.data) if isinstance(rows, Sparse) else rows


def _masks(value: Mapping[str, Any]) -> dict[str, Any]:
    return {part: value[f"{part}_mask"] for part in _PARTS if value.get(f"{part}_mask") is not None}


def relation_name(triple: EdgeType, counts: Mapping[str, int]) -> str:
    """The name of a relation: that of the triple, with its ends if other relations have the same, or if the name itself
    looks like one with ends, so that `Relation.edge_type` is exact."""
    src, middle, dst = triple
    looks = middle.startswith(f"{src}__") and middle.endswith(f"__{dst}")
    return f"{src}__{middle}__{dst}" if counts[middle] > 1 or looks else middle


def mapping(key: str, value: Any) -> Mapping[Any, Any]:
    """Refuses what is no dictionary."""
    if not isinstance(value, Mapping):
        raise DataError(f"`{key}` is a {type(value).__name__}; give a dictionary")
    return value


def known(key: str, value: Mapping[str, Any], names: Sequence[str]) -> None:
    """Refuses keys that mean nothing."""
    for name in value:
        if name not in names:
            raise DataError(f"`{key}` has an entry `{name}`; known are {', '.join(f'`{n}`' for n in names)}")


def label_values(values: Any, key: str, kind: str | None, classes: int | None) -> tuple[str, int, Array]:
    """Kind, width and values of a label: whole numbers are classes (-1 for none); rows of 0 and 1 are sets of classes;
    other numbers are themselves, and NaN is no label."""
    array = numpy_of(values, key)
    if array.ndim == 2 and array.shape[1] == 1 and array.dtype.kind in "iu":
        array = array[:, 0]
    if array.ndim not in (1, 2):
        raise DataError(f"`{key}` has shape {list(array.shape)}, and labels have one or two axes")
    if kind is None:
        if array.ndim == 1:
            kind = "class" if array.dtype.kind in "iu" else "real"
        else:
            known_values = np.isin(array, (0, 1, -1)) | (array != array)
            kind = "multi" if array.dtype.kind in "biu" or bool(array.size and known_values.all()) else "real"
    if kind not in ("class", "multi", "real"):
        raise DataError(f"`{key}`: there is no kind of label {kind!r}; there is `class`, `multi` and `real`")
    if kind == "class":
        of = ints(array, key)
        return kind, classes or max(int(of.max(initial=0)) + 1, 1), of
    if array.dtype.kind not in "biuf":
        raise DataError(f"`{key}` is {array.dtype}, and labels are numbers")
    rows = np.ascontiguousarray(array[:, None] if array.ndim == 1 else array, np.float32)
    return kind, rows.shape[1], rows

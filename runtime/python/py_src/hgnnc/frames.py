"""Datasets of data frames, with ids of any kind.

A frame is a table of pandas or polars, or a dictionary of columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Union

import numpy as np

from ._arrays import Array, Ints, column as values_of, ints, missing
from ._errors import DataError, warn
from .dataset import Dataset, EdgeType


def from_frames(
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
    """A dataset of data frames.

    Each vertex type has a frame with a row per vertex, and each relation one with a row per edge. By vertex type,
    `ids` names the column of ids (without it the column `id`, or the number of the row). By vertex type or by (source
    type, name, destination type), `features` names the columns of features (without it all other columns of numbers of
    a vertex type, and none of a relation), `labels` the columns of labels (texts and whole numbers are classes, other
    numbers themselves), `splits` a column of `train`, `val` and `test`, and `times` a column of whole numbers. `ends`
    names the columns of the sources and the destinations of a relation; without it they are its first two. `weights`
    names the column of the weights of its edges. Without `weights` and `times`, they are the columns `weight` and
    `time` of a relation, if it has them. A column that is not used gets a warning.
    """
    ids, features, labels, splits = ids or {}, features or {}, labels or {}, splits or {}
    times, weights, ends = times or {}, weights or {}, ends or {}
    of_both = ((features, "features"), (labels, "labels"), (splits, "splits"), (times, "times"))
    for given, of in ((ids, "ids"), *of_both):
        for ty in given:
            is_vertices = of == "ids" or not isinstance(ty, tuple)
            if is_vertices and ty not in vertices:
                raise DataError(f"`{of}[{ty!r}]`: there is no vertex type `{ty}` (there is {_list(vertices)})")
    for given, of in ((ends, "ends"), (weights, "weights"), *of_both):
        for triple in given:
            is_edges = of in ("ends", "weights") or isinstance(triple, tuple)
            if is_edges and triple not in relations:
                raise DataError(f"`{of}[{triple!r}]`: there is no such relation (there is {_list(relations)})")
    data: dict[Union[str, EdgeType], Any] = {}
    places: dict[str, dict[Any, int] | int] = {}
    own = {
        key: _Chosen(features.get(key), labels.get(key, ()), splits.get(key), times.get(key))
        for key in (*vertices, *relations)
    }
    for ty, frame in vertices.items():
        data[ty], places[ty] = _vertices(ty, frame, ids.get(ty), own[ty])
    for triple, frame in relations.items():
        data[triple] = _edges(triple, frame, ends.get(triple), weights.get(triple), own[triple], places)
    return Dataset.from_dict(data, name=name)


class _Chosen:
    """The columns that arguments name, of a vertex type or a relation."""

    def __init__(
        self, features: Sequence[str] | None, labels: str | Sequence[str], split: str | None, time: str | None
    ) -> None:
        self.features = None if features is None else list(features)
        self.labels = [labels] if isinstance(labels, str) else list(labels)
        self.split, self.time = split, time

    def names(self) -> set[str]:
        single = [name for name in (self.split, self.time) if name is not None]
        return {*(self.features or ()), *self.labels, *single}

    def entries(self, frame: Any, key: str) -> dict[str, Any]:
        """The labels, splits and times of an entry of `from_dict`."""
        entry: dict[str, Any] = {}
        if self.labels:
            entry["labels"] = {name: _label(_column(frame, name, key)) for name in self.labels}
        if self.split is not None:
            entry["splits"] = {self.split: _parts(frame, self.split, key)}
        if self.time is not None:
            entry["time"] = _times(frame, self.time, key)
        return entry


def _list(names: Any) -> str:
    return ", ".join(f"`{name}`" for name in names) or "none"


def _text(value: Any) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _column(frame: Any, name: str, key: str) -> Array:
    if name not in list(_columns(frame)):
        raise DataError(f"`{key}` has no column `{name}` (it has {_list(_columns(frame))})")
    return values_of(frame[name])


def _columns(frame: Any) -> list[str]:
    return list(frame.columns if hasattr(frame, "columns") else frame)


def _vertices(
    ty: str, frame: Any, id_column: str | None, own: _Chosen
) -> tuple[dict[str, Any], dict[Any, int] | int]:
    key = f"vertices[{ty!r}]"
    columns = _columns(frame)
    if not columns:
        raise DataError(f"`{key}` has no columns")
    if id_column is None and "id" in columns:
        id_column = "id"
    entry: dict[str, Any] = {"num_nodes": len(_column(frame, columns[0], key))}
    places: dict[Any, int] | int = int(entry["num_nodes"])
    if id_column is not None:
        names = _column(frame, id_column, key).tolist()
        places = {}
        for row, name in enumerate(names):
            if missing(name):
                raise DataError(f"`{key}`, column `{id_column}`, row {row}: there is no id")
            if name in places:
                raise DataError(f"`{key}`, column `{id_column}`: rows {places[name]} and {row} have the same id {name!r}")
            if isinstance(name, int) and not -(1 << 63) <= name < 1 << 63:
                where = f"`{key}`, column `{id_column}`, row {row}"
                raise DataError(f"{where}: {name} is no whole number of 64 bits: make texts of the ids")
            places[name] = row
        whole = all(isinstance(name, int) for name in names)
        entry["ids"] = np.asarray(names, np.int64) if whole else [_text(name) for name in names]
    unused = [name for name in columns if name != id_column and name not in own.names()]
    chosen = own.features
    if chosen is None:
        chosen = [name for name in unused if _column(frame, name, key).dtype.kind in "biuf"]
        unused = [name for name in unused if name not in chosen]
    if chosen:
        entry["x"] = _features(frame, chosen, key)
    if unused:
        warn(f"`{key}`: columns that are not used: {_list(unused)}")
    return entry | own.entries(frame, key), places


def _features(frame: Any, names: Sequence[str], key: str) -> Array:
    return np.stack([_numbers(frame, name, key) for name in names], axis=1)


def _numbers(frame: Any, name: str, key: str) -> Array:
    column = _column(frame, name, key)
    if column.dtype.kind not in "biuf":
        raise DataError(f"`{key}`, column `{name}` is not of numbers: make numbers of it, or leave it out of `features`")
    missing = np.flatnonzero(np.isnan(column)) if column.dtype.kind == "f" else np.zeros(0, int)
    if len(missing):
        more = f" (and {len(missing) - 1} more)" if len(missing) > 1 else ""
        raise DataError(f"`{key}`, column `{name}`, row {missing[0]} has no value{more}: fill it, or drop the column")
    return column.astype(np.float32)


def _times(frame: Any, name: str, key: str) -> Ints:
    column = _column(frame, name, key)
    if column.size and column.dtype.kind not in "iu":
        raise DataError(f"`{key}`, column `{name}` is {column.dtype}, and times are whole numbers, one in each row")
    return column.astype(np.int64)


def _parts(frame: Any, split: str, key: str) -> dict[str, Ints]:
    """The rows of each part of a split."""
    rows: dict[str, list[int]] = {"train": [], "val": [], "test": []}
    for row, part in enumerate(_column(frame, split, key).tolist()):
        if missing(part) or part in ("", b""):
            continue
        if (part := _text(part)) not in rows:
            raise DataError(
                f"`{key}`, column `{split}`, row {row}: {part!r} should be `train`, `val` or `test`, or nothing"
            )
        rows[part].append(row)
    return {part: np.asarray(found, np.int64) for part, found in rows.items()}


def _label(column: Array) -> dict[str, Any]:
    if column.dtype.kind in "iuf":
        return {"values": column}
    texts = [None if missing(value) else _text(value) for value in column.tolist()]
    names = sorted({text for text in texts if text is not None})
    number = {name: at for at, name in enumerate(names)}
    of = [-1 if text is None else number[text] for text in texts]
    return {"values": np.asarray(of, np.int64), "classes": len(names), "class_names": names}


def _edges(
    triple: EdgeType,
    frame: Any,
    ends: tuple[str, str] | None,
    weight: str | None,
    own: _Chosen,
    places: Mapping[str, dict[Any, int] | int],
) -> dict[str, Any]:
    key = f"relations[{triple!r}]"
    columns = _columns(frame)
    if ends is None:
        if len(columns) < 2:
            raise DataError(f"`{key}` has {len(columns)} columns; the first two are sources and destinations")
        ends = (columns[0], columns[1])
    found: list[Ints] = []
    for ty, column in zip((triple[0], triple[2]), ends):
        if ty not in places:
            raise DataError(f"`{key}`: there is no vertex type `{ty}` (there is {_list(places)})")
        found.append(_rows(_column(frame, column, key), places[ty], ty, f"`{key}`, column `{column}`"))
    entry: dict[str, Any] = {"edge_index": (found[0], found[1])}
    free = [name for name in columns if name not in ends and name not in own.names() and name != weight]
    if weight is None and "weight" in free:
        weight = "weight"
    # A column of that name which no argument mentions may as well hold dates.
    if own.time is None and "time" in free and _column(frame, "time", key).dtype.kind in "iu":
        own.time = "time"
    if weight is not None:
        entry["edge_weight"] = _numbers(frame, weight, key)
    if own.features:
        entry["edge_attr"] = _features(frame, own.features, key)
    unused = [name for name in free if name not in (weight, own.time)]
    if unused:
        warn(f"`{key}`: columns that are not used: {_list(unused)}")
    return entry | own.entries(frame, key)


def _rows(column: Array, places: dict[Any, int] | int, ty: str, key: str) -> Ints:
    """The vertices that ids name."""
    if isinstance(places, int):
        if column.size and column.dtype.kind not in "iu":
            raise DataError(f"{key}: `{ty}` has no column of ids, so its vertices are row numbers")
        return ints(column, key.replace("`", ""))
    unknown = [(row, name) for row, name in enumerate(column.tolist()) if name not in places]
    if unknown:
        row, name = unknown[0]
        more = f" (and {len(unknown) - 1} more)" if len(unknown) > 1 else ""
        raise DataError(f"{key}, row {row}: `{ty}` has no vertex {name!r}{more}")
    return np.asarray([places[name] for name in column.tolist()], np.int64)

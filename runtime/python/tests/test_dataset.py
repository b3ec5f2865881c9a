"""Datasets of arrays, graphs of other libraries, and data frames."""

from __future__ import annotations

import pathlib
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import hgnnc

Data = dict[Any, Any]


def test_features_are_at_the_same_address(data: Data) -> None:
    weight = np.ones(150, np.float32)
    data["author", "writes", "paper"] = {"edge_index": data["author", "writes", "paper"], "edge_weight": weight}
    dataset = hgnnc.Dataset.from_dict(data)
    x = dataset.vertex_types["paper"].x
    assert isinstance(x, np.ndarray) and x.ctypes.data == data["paper"]["x"].ctypes.data
    assert not x.flags.writeable
    found = dataset.relations["writes"].weight
    assert found is not None and found.ctypes.data == weight.ctypes.data


def test_arrays_outlive_what_they_came_from(data: Data) -> None:
    expected = data["paper"]["x"].copy()
    dataset = hgnnc.Dataset.from_dict(data)
    data.clear()
    x = dataset.vertex_types["paper"].x
    del dataset
    assert (x == expected).all()


def equal(a: Any, b: Any) -> None:
    if isinstance(a, dict):
        assert a.keys() == b.keys()
        for key in a:
            equal(a[key], b[key])
    elif isinstance(a, tuple):
        for one, other in zip(a, b, strict=True):
            equal(one, other)
    elif isinstance(a, np.ndarray):
        np.testing.assert_array_equal(a, b)
    else:
        assert a == b


def everything() -> Data:
    """All that a dictionary can hold."""
    sparse = hgnnc.Sparse((3, 5), np.array([0, 2, 2, 3]), np.array([1, 4, 0]), np.array([1, 2, 3], np.float32))
    return {
        "paper": {
            "x": sparse,
            "ids": ["p-1", "ü", ""],
            "time": np.array([2001, 2002, 2003]),
            "labels": {
                "y": np.array([1, -1, 0]),
                "tags": {"values": np.array([[0, 1], [-1, -1], [1, 1]]), "class_names": ["a", "b"]},
                "age": np.array([0.5, np.nan, 2]),
            },
            "splits": {"a": {"train": np.array([2]), "val": [], "test": np.array([0])}},
        },
        "no name-like this": {"num_nodes": 2, "ids": np.array([7, 5])},
        ("paper", "to", "paper"): {
            "edge_index": np.array([[0, 0, 2], [1, 1, 0]]),
            "edge_weight": np.array([1, 2, 3], np.float32),
            "edge_attr": np.ones((3, 2), np.float32),
            "time": np.array([1, 2, 3]),
        },
        ("paper", "to", "no name-like this"): np.zeros((2, 0), np.int64),
    }


def test_everything_survives_a_dictionary_and_a_folder(tmp_path: pathlib.Path) -> None:
    links = {"l": {"test": {("paper", "to", "paper"): [[2], [2]]}}}
    dataset = hgnnc.Dataset.from_dict(everything(), link_splits=links)
    dataset.save(tmp_path / "d")
    for other in (hgnnc.Dataset(tmp_path / "d"), hgnnc.Dataset.from_dict(dataset.to_dict(), link_splits=links)):
        equal(other.to_dict(), dataset.to_dict())
        equal(other.link_splits, dataset.link_splits)
    # Two relations are called `to`: models name them with their ends.
    assert list(dataset.relations) == ["paper__to__paper", "paper__to__no name-like this"]
    assert dataset.relations["paper__to__paper"].edge_type == ("paper", "to", "paper")
    tags = dataset.vertex_types["paper"].labels["tags"]
    assert tags.kind == "multi" and tags.class_names == ["a", "b"] and tags.labelled is not None
    assert tags.labelled.tolist() == [True, False, True]
    assert 'from "no name-like this"' in dataset.schema()
    with pytest.raises(hgnnc.MachineError, match="exists"):
        dataset.save(tmp_path / "d")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda d: d["paper"].update(x=np.zeros((60, 6))), "`data['paper']['x']` is float64, and features and weights are float32"),
        (lambda d: d["paper"].update(x=np.zeros(60, np.float32)), "should have [rows, features]"),
        (lambda d: d.update(paper={"x": d["paper"]["x"], "num_nodes": 59}), "`data['paper']['x']`: vertex type `paper` has 59 vertices"),
        (lambda d: d["paper"]["x"].__setitem__((4, 2), np.inf), "row 4, column 2 is inf"),
        (lambda d: d["paper"].update(y=np.full(60, -2)), "row 0 is class -2"),
        (lambda d: d["paper"].update(val_mask=d["paper"]["train_mask"]), "is in both `train` and `val`"),
        (lambda d: d["paper"].update(val_mask=np.zeros(5, bool)), "`data['paper']['val_mask']` is bool[5], and should be bool[60]"),
        (lambda d: d["paper"].update(feat=1), "has an entry `feat`; known are `x`"),
        (lambda d: d.update(author={}), "`data['author']` has nothing that says how many vertices there are"),
        (lambda d: d.update(author=20), "but vertex type `author` has 20, so ids go from 0 to 19"),
        (lambda d: d.update({("author", "knows", "reader"): np.zeros((2, 1), int)}), "there is no vertex type `reader` (there is `paper`, `author`)"),
        (lambda d: d.update({("author", "knows", "author"): np.zeros((9, 2), int)}), "this one is [edges, 2]: give its transpose"),
        (lambda d: d.update({("author", "knows", "author"): np.zeros((2, 3), np.float32)}), "is float32, and should be whole numbers"),
        (lambda d: d.update({("author", "author"): np.zeros((2, 1), int)}), "a key is the name of a vertex type, or (source"),
        (lambda d: d.clear(), "there are no vertex types"),
    ],
)  # fmt: skip
def test_faults_name_the_key_and_the_value(data: Data, change: Any, said: str) -> None:
    change(data)
    with pytest.raises(hgnnc.DataError) as found:
        hgnnc.Dataset.from_dict(data)
    assert said in str(found.value)


def test_all_faults_are_listed(data: Data) -> None:
    data["author"] = 20
    data["paper"]["y"] = data["paper"]["y"] - 5
    with pytest.raises(hgnnc.DataError) as found:
        hgnnc.Dataset.from_dict(data)
    assert "the dataset has 3 errors:" in str(found.value), str(found.value)


def test_a_folder_that_is_none_is_said(tmp_path: pathlib.Path) -> None:
    with pytest.raises(hgnnc.DataError, match="it has no `dataset.toml`"):
        hgnnc.Dataset(tmp_path)


class Hetero:
    """Looks like a HeteroData, with arrays of NumPy in it, which PyG itself accepts and cannot use."""

    def __init__(self, stores: dict[Any, dict[str, Any]]) -> None:
        self.stores = stores
        self.node_types = [key for key in stores if isinstance(key, str)]
        self.edge_types = [key for key in stores if isinstance(key, tuple)]

    def __getitem__(self, key: Any) -> dict[str, Any]:
        return self.stores[key]


def test_hetero_data_may_hold_numpy_arrays(data: Data, model: str) -> None:
    stores = {key: value if isinstance(value, dict) else {"edge_index": value} for key, value in data.items()}
    stores["author"] = {"num_nodes": 25, "n_id": np.arange(25)}
    with pytest.warns(hgnnc.HgnncWarning, match=r"not used: data\['author'\].n_id"):
        dataset = hgnnc.from_pyg(Hetero(stores))
    equal(dataset.to_dict(), hgnnc.Dataset.from_dict(data).to_dict())
    assert hgnnc.load(model).check(dataset) == []


def test_dgl_graphs_are_read_by_their_names(data: Data) -> None:
    def frame(**data: Any) -> Any:
        return SimpleNamespace(data=data)

    paper = data["paper"]
    masks = {f"{part}_mask": paper[f"{part}_mask"].astype(np.uint8) for part in ("train", "val", "test")}
    triples = [key for key in data if isinstance(key, tuple)]
    edges = {triple: frame(_ID=np.arange(150)) for triple in triples}

    class Edges(dict[Any, Any]):
        def __call__(self, etype: Any, order: str) -> Any:
            assert order == "eid"
            return tuple(data[etype])

    graph = SimpleNamespace(
        ntypes=["paper", "author"],
        canonical_etypes=triples,
        num_nodes={"paper": 60, "author": 25}.get,
        nodes={"paper": frame(feat=paper["x"], label=paper["y"], **masks), "author": frame()},
        edges=Edges(edges),
    )
    dataset = hgnnc.from_dgl(graph)
    equal(dataset.to_dict(), hgnnc.Dataset.from_dict(data).to_dict())


def test_hetero_data_of_pyg_survives(data: Data) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed: benchmarks/round_trip_pyg.py compares with it")
    pytest.importorskip("torch_geometric", reason="PyG is not installed")
    x = torch.from_numpy(data["paper"]["x"])
    back = hgnnc.from_pyg(hgnnc.Dataset.from_dict(data).to_pyg()).to_pyg()
    assert back["paper"].x.data_ptr() == x.data_ptr()


def test_frames_have_ids_of_any_kind() -> None:
    papers = {"id": ["p9", "p2", "p5"], "year": [2001, 2003, 2002], "title": ["a", "b", "c"],
              "topic": ["db", "ml", None], "part": ["train", "test", ""]}  # fmt: skip
    writes = {"author": [30, 10, 30], "paper": ["p2", "p5", "p9"], "weight": [1.0, 2.0, 3.0]}
    frames: Any = {"paper": papers, "author": {"id": [10, 20, 30]}}
    triple = ("author", "writes", "paper")
    with pytest.warns(hgnnc.HgnncWarning, match="columns that are not used: `title`"):
        dataset = hgnnc.Dataset.from_frames(
            frames, {triple: writes}, labels={"paper": "topic"}, splits={"paper": "part"}
        )
    paper, relation = dataset.vertex_types["paper"], dataset.relations["writes"]
    assert paper.ids == ["p9", "p2", "p5"]
    np.testing.assert_array_equal(paper.x, np.array([[2001], [2003], [2002]], np.float32))  # type: ignore[arg-type]
    topic = paper.labels["topic"]
    assert (topic.values.tolist(), topic.class_names) == ([0, 1, -1], ["db", "ml"])
    assert {part: ids.tolist() for part, ids in paper.splits["part"].items()} == {"train": [0], "val": [], "test": [1]}
    assert relation.edge_index.tolist() == [[2, 0, 2], [1, 2, 0]]
    assert relation.weight is not None and relation.weight.tolist() == [1, 2, 3]

    writes["paper"][1] = "p7"
    with pytest.raises(hgnnc.DataError, match="column `paper`, row 1: `paper` has no vertex 'p7'"):
        hgnnc.Dataset.from_frames({"paper": {"id": papers["id"]}, "author": frames["author"]}, {triple: writes})
    with pytest.raises(hgnnc.DataError, match="rows 0 and 1 have the same id 1"):
        hgnnc.Dataset.from_frames({"author": {"id": [1, 1]}}, {})
    with pytest.raises(hgnnc.DataError, match="column `year`, row 1 has no value"):
        hgnnc.Dataset.from_frames({"paper": {"id": [1, 2], "year": [1.0, np.nan]}}, {})

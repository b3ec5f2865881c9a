"""Datasets of arrays, graphs of other libraries, and data frames."""

from __future__ import annotations

import copy
import pathlib
import pickle
import sys
import warnings
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
    elif isinstance(a, (np.ndarray, np.generic)):
        np.testing.assert_array_equal(a, b)
    else:
        assert a == b


def everything() -> Data:
    """All that a dictionary can hold."""
    sparse = hgnnc.Sparse((3, 5), np.array([0, 2, 2, 3]), np.array([1, 4, 0]), np.array([1, 2, 3], np.float32))
    return {
        "paper": {
            "x": sparse,
            "fields": {"pages": np.array([[9], [5], [7]], np.float32), "words": sparse},
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
            "labels": {"kind": np.array([2, -1, 0]), "stars": {"values": np.array([1, np.nan, 4.5])}},
            "splits": {"known": {"train": np.array([0]), "val": [], "test": np.array([2])}},
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
    assert 'from "no name-like this"' in dataset.schema() and "pages: f32[1]" in dataset.schema()
    to = dataset.relations["paper__to__paper"]
    stars = to.labels["stars"]
    assert (stars.kind, stars.width) == ("real", 1) and stars.labelled is not None
    assert stars.labelled.tolist() == [True, False, True]
    assert to.labels["kind"].kind == "class" and to.labels["kind"].values.tolist() == [2, -1, 0]
    assert to.splits["known"]["test"].tolist() == [2]
    assert dataset.relations["paper__to__no name-like this"].labels == {}
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
        (lambda d: d.update({("author", "knows", "author"): {"edge_index": [[0, 1], [2, 3]], "y": [1]}}), "`data[('author', 'knows', 'author')]['y']`: relation `knows` has 2 edges, so it should have as many entries, but it has 1"),
        (lambda d: d.update({("author", "knows", "author"): {"edge_index": [[0, 1], [2, 3]], "y": [1, -1], "splits": {"a": {"val": [1]}}}}), "split `a`, position 0 of `val` is edge 1, which has no label"),
        (lambda d: d.update({("author", "knows", "author"): {"edge_index": [[0, 1], [2, 3]], "train_mask": np.ones(2, bool)}}), "relation `knows` has no label, so nothing of it is divided"),
        (lambda d: d["paper"].update(feat=1), "has an entry `feat`; known are `x`"),
        (lambda d: d.update(author={}), "`data['author']` has nothing that says how many vertices there are"),
        (lambda d: d.update(author=20), "but vertex type `author` has 20, so ids go from 0 to 19"),
        (lambda d: d.update({("author", "knows", "reader"): np.zeros((2, 1), int)}), "there is no vertex type `reader` (there is `paper`, `author`)"),
        (lambda d: d.update({("author", "knows", "author"): np.zeros((9, 2), int)}), "this one is [edges, 2]: give its transpose"),
        (lambda d: d.update({("author", "knows", "author"): np.zeros((2, 3), np.float32)}), "is float32, and should be whole numbers"),
        (lambda d: d.update({("author", "author"): np.zeros((2, 1), int)}), "a key is the name of a vertex type, or (source"),
        (lambda d: d["paper"].update(labels=[1, 2]), "`data['paper']['labels']` is a list; give a dictionary"),
        (lambda d: d["paper"].update(splits={"a": [1]}), "`data['paper']['splits']['a']` is a list; give a dictionary"),
        (lambda d: d.update(author=-3), "`data['author']['num_nodes']` is -3, and should be 0 or more"),
        (lambda d: d.update(author={"num_nodes": 2.5}), "`data['author']['num_nodes']` is 2.5, and should be a whole number"),
        (lambda d: d["paper"].update(train_mask=np.zeros((60, 2), bool), val_mask=np.zeros((60, 3), bool)), "masks have different numbers of columns, one for each split: `train_mask` 2, `val_mask` 3"),
        (lambda d: d.update({("author", "knows", "author"): ([0, 1], [2])}), "has 2 sources and 1 destinations"),
        (lambda d: d.update({("author", "knows", "author"): np.array([[2**63], [0]], np.uint64)}), "9223372036854775808 is too large"),
        (lambda d: d.update(author={"ids": np.array([1, 2**63], np.uint64)}), "`data['author']['ids']`: 9223372036854775808 is too large"),
        (lambda d: d.update(author={"ids": [2**63, -1]}), "`data['author']['ids']`, row 0: 9223372036854775808 is no whole number of 64 bits"),
        (lambda d: d.update(author={"ids": ["a", None]}), "`data['author']['ids']`, row 1: there is no id"),
        (lambda d: d.update(author={"ids": ["a", float("nan")]}), "`data['author']['ids']`, row 1: there is no id"),
        (lambda d: d["paper"].update(fields={"year": np.zeros(59, np.float32)}), "`data['paper']['fields']['year']`: field `year` of vertex type `paper` has 60 vertices, so it should have as many rows, but it has 59"),
        (lambda d: d["paper"].update(fields={"year": np.zeros(60, int)}), "`data['paper']['fields']['year']` is int64, and features and weights are float32"),
        (lambda d: d["paper"].update(fields={"year": np.zeros((60, 1, 1), np.float32)}), "`data['paper']['fields']['year']` has shape [60, 1, 1], and should have [rows, features]"),
        (lambda d: d["paper"].update(fields={"features": d["paper"]["x"]}), "`data['paper']['fields']['features']`: a field has a name of its own, other than `features`"),
        (lambda d: d["paper"].update(fields=d["paper"]["x"]), "`data['paper']['fields']` is a ndarray; give a dictionary"),
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


def test_held_out_links_are_in_dictionaries(data: Data) -> None:
    for links, said in (({"l": None}, r"link_splits\['l'\]"), ({"l": {"val": None}}, r"link_splits\['l'\]\['val'\]")):
        with pytest.raises(hgnnc.DataError, match=f"`{said}` is a NoneType; give a dictionary"):
            hgnnc.Dataset.from_dict(data, link_splits=links)  # type: ignore[arg-type]


def test_a_vertex_type_has_several_fields(data: Data) -> None:
    year = np.linspace(0, 1, 60, dtype=np.float32)
    sparse = hgnnc.Sparse((25, 4), np.arange(26), np.arange(25) % 4, np.ones(25, np.float32))
    data["paper"]["fields"] = {"year": year, "more": data["paper"]["x"]}
    data["author"] = {"fields": {"words": sparse}}
    dataset = hgnnc.Dataset.from_dict(data)
    paper, author = dataset.vertex_types["paper"], dataset.vertex_types["author"]
    assert list(paper.fields) == ["year", "more"]
    found = paper.fields["year"]
    assert isinstance(found, np.ndarray) and found.shape == (60, 1)
    assert found.ctypes.data == year.ctypes.data and not found.flags.writeable
    assert author.count == 25 and author.x is None
    equal(author.fields["words"], sparse)
    assert repr(paper) == "VertexType('paper', 60 vertices, x: dense[6], year: dense[1], more: dense[6])"
    assert "<td style='text-align:left'>words: sparse[4]</td>" in dataset._repr_html_()

    # A model reads them by their names.
    text = '''
schema Small {
    vertex Paper from "paper" { x: f32[6], year: f32, topic: class[3] from "y" }
    vertex Author from "author" { words: f32[4] sparse }
}

model Net(schema: Small) {
    output logits: Paper = concat(Paper.x, Paper.year)[4..7]
    output words: Author = Author.words @ eye(4)
}
'''
    loaded = hgnnc.load(text)
    assert loaded.check(dataset) == []
    outputs = loaded.predict(dataset, weights={})
    np.testing.assert_array_equal(outputs["logits"], np.column_stack([data["paper"]["x"][:, 4:], year]))
    np.testing.assert_array_equal(outputs["words"], np.eye(4, dtype=np.float32)[np.arange(25) % 4])


def test_held_out_links_have_times(data: Data, tmp_path: pathlib.Path) -> None:
    writes, written_by = ("author", "writes", "paper"), ("paper", "written-by", "author")
    val = {
        writes: {"edge_index": np.array([[3, 0], [1, 2]]), "time": np.array([2020, 2019])},
        "written-by": {"edge_index": ([5], [6]), "time": [-(2**40)]},
    }
    links: Any = {"later": {"val": val, "test": {writes: np.array([[4], [4]])}}}
    dataset = hgnnc.Dataset.from_dict(data, link_splits=links)
    dataset.save(tmp_path / "d")
    again = hgnnc.Dataset.from_dict(dataset.to_dict(), link_splits=dataset.link_splits)
    for one in (dataset, again, hgnnc.Dataset(tmp_path / "d"), pickle.loads(pickle.dumps(dataset))):
        found: Any = one.link_splits["later"]
        equal(found["val"]["writes"], {"edge_index": np.array([[3, 0], [1, 2]]), "time": np.array([2020, 2019])})
        equal(found["val"]["written-by"], {"edge_index": np.array([[5], [6]]), "time": np.array([-(2**40)])})
        # Links without times are an array alone.
        equal(found["test"], {"writes": np.array([[4], [4]])})

    val[written_by] = {"edge_index": val.pop("written-by")["edge_index"]}  # type: ignore[index]
    said = (
        r"`link_splits\['later'\]\['val'\]\[\('paper', 'written-by', 'author'\)\]\['edge_index'\]`: `val` of link split "
        "`later` has times of the links of relation `writes`, but none of relation `written-by`: give all"
    )
    with pytest.raises(hgnnc.DataError, match=said):
        hgnnc.Dataset.from_dict(data, link_splits=links)
    del val[written_by]
    for value, said in (
        ({"edge_index": [[0], [0]], "time": [1, 2]}, r"\['time'\]`: `val` of link split `later`, relation `writes` has 1 "),
        ({"edge_index": [[0], [0]], "time": [1.5]}, r"\['time'\]` is float64, and should be whole numbers"),
        ({"time": [1]}, r"\['val'\]\[.*\]` has no `edge_index`"),
        ({"edge_index": [[0], [0]], "times": [1]}, "has an entry `times`; known are `edge_index`, `time`"),
    ):
        val[writes] = value
        with pytest.raises(hgnnc.DataError, match=said):
            hgnnc.Dataset.from_dict(data, link_splits=links)


def test_names_of_classes_are_an_array_and_labels_may_be_empty() -> None:
    paper = {"y": np.array([0, 1]), "class_names": np.array(["db", "ml"])}
    labels = {"m": np.zeros((0, 3), int), "r": np.zeros((0, 2)), "s": {"values": np.zeros(0), "kind": "real"}}
    dataset = hgnnc.Dataset.from_dict({"paper": paper, "author": {"num_nodes": 0, "labels": labels}})
    assert dataset.vertex_types["paper"].labels["y"].class_names == ["db", "ml"]
    found = {name: (label.kind, label.width) for name, label in dataset.vertex_types["author"].labels.items()}
    assert found == {"m": ("multi", 3), "r": ("real", 2), "s": ("real", 1)}


def test_ids_are_not_changed() -> None:
    def ids(value: Any) -> Any:
        found = hgnnc.Dataset.from_dict({"paper": {"ids": value}}).vertex_types["paper"].ids
        return found if isinstance(found, list) else np.asarray(found).tolist()

    assert ids(np.array([b"a", "ü".encode()])) == ["a", "ü"]
    assert ids(np.array(["a", 7], object)) == ids(["a", 7]) == ["a", "7"]
    assert ids([2**60 + 1, -1]) == ids(np.array([2**60 + 1, -1], object)) == [2**60 + 1, -1]
    assert ids([]) == []


def test_datasets_are_pickled_and_not_copied(data: Data, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    links = {"l": {"test": {("paper", "to", "paper"): [[2], [2]]}}}
    dataset = hgnnc.Dataset.from_dict(everything(), name="all", link_splits=links)
    dataset.save(tmp_path / "d")
    monkeypatch.chdir(tmp_path)
    loaded = hgnnc.Dataset("d")
    monkeypatch.chdir("/")
    for one in (dataset, loaded):
        again = pickle.loads(pickle.dumps(one))
        assert again.name == one.name and list(again.relations) == list(one.relations)
        equal(again.to_dict(), one.to_dict())
        equal(again.link_splits, one.link_splits)
        assert copy.copy(one) is one and copy.deepcopy({"a": one})["a"] is one


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
    edges = {triple: frame(_ID=np.arange(150), time=np.arange(150)) for triple in triples}

    class Edges(dict[Any, Any]):
        def __call__(self, etype: Any, order: str) -> Any:
            assert order == "eid"
            return tuple(data[etype])

    graph = SimpleNamespace(
        ntypes=["paper", "author"],
        canonical_etypes=triples,
        num_nodes={"paper": 60, "author": 25}.get,
        nodes={"paper": frame(feat=paper["x"], label=paper["y"], time=np.arange(60), **masks), "author": frame()},
        edges=Edges(edges),
    )
    dataset = hgnnc.from_dgl(graph)
    expected = {**data, "paper": {**paper, "time": np.arange(60)}}
    expected.update({triple: {"edge_index": data[triple], "time": np.arange(150)} for triple in triples})
    equal(dataset.to_dict(), hgnnc.Dataset.from_dict(expected).to_dict())


class Graph:
    """Looks like a heterogeneous graph of DGL."""

    def __init__(self, edges: Data, num_nodes_dict: dict[str, int]) -> None:
        class Edges(dict[Any, Any]):
            def __call__(self, etype: Any, order: str) -> Any:
                return edges[etype]

        self.ntypes, self.canonical_etypes = list(num_nodes_dict), list(edges)
        self.num_nodes = num_nodes_dict.get
        self.nodes = {ty: SimpleNamespace(data={}) for ty in num_nodes_dict}
        self.edges = Edges({triple: SimpleNamespace(data={}) for triple in edges})


def test_labels_for_dgl_have_names_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch", reason="torch is not installed")

    monkeypatch.setitem(sys.modules, "dgl", SimpleNamespace(heterograph=Graph))
    paper: Any = {"num_nodes": 2, "labels": {"y": np.array([0, 1]), "feat": np.array([1, 0])}}
    found = hgnnc.Dataset.from_dict({"paper": paper}).to_dgl().nodes["paper"].data
    assert {name: value.tolist() for name, value in found.items()} == {"label": [0, 1], "feat": [1, 0]}
    paper["x"] = np.zeros((2, 1), np.float32)
    with pytest.raises(hgnnc.DataError, match="`paper` has a label `feat`, which is the name of `x` in DGL"):
        hgnnc.Dataset.from_dict({"paper": paper}).to_dgl()
    cites = {"edge_index": [[0], [1]], "edge_weight": np.ones(1, np.float32), "labels": {"weight": np.array([1])}}
    with pytest.raises(hgnnc.DataError, match="`cites` has a label `weight`, which is the name of `edge_weight` in DGL"):
        hgnnc.Dataset.from_dict({"paper": 2, ("paper", "cites", "paper"): cites}).to_dgl()


def rated() -> Data:
    """Edges with labels, parts, times, weights and features."""
    return {
        "user": 2,
        "film": 3,
        ("user", "rates", "film"): {
            "edge_index": np.array([[0, 1, 1, 0], [0, 0, 2, 1]]),
            "edge_weight": np.array([1, 2, 3, 4], np.float32),
            "edge_attr": np.arange(8, dtype=np.float32).reshape(4, 2),
            "time": np.array([2019, 2020, 2021, 2022]),
            "labels": {
                "y": {"values": np.array([1, 0, -1, 1])},
                "stars": {"values": np.array([4.5, np.nan, 3.0, 1.0], np.float32)},
                "moods": {"values": np.array([[0, 1], [1, 1], [-1, -1], [0, 0]])},
            },
            "splits": {"known": {"train": [0], "val": [1], "test": [3]}, "other": {"train": [3], "val": [], "test": [0]}},
        },
    }


def test_labels_and_masks_of_edges_survive_dgl(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    try:
        import dgl
    except ImportError:
        monkeypatch.setitem(sys.modules, "dgl", SimpleNamespace(heterograph=Graph))
    dataset = hgnnc.Dataset.from_dict(rated())
    graph = dataset.to_dgl()
    found = graph.edges["user", "rates", "film"].data
    assert found["label"].tolist() == [1, 0, -1, 1] and found["val_mask"].tolist() == [False, True, False, False]
    assert found["time"].tolist() == [2019, 2020, 2021, 2022] and found["weight"].tolist() == [1, 2, 3, 4]
    for part in ("train", "val", "test"):
        found[f"{part}_mask"] = found[f"{part}_mask"].to(torch.uint8)
    back = hgnnc.from_dgl(graph, labels=["stars", "moods"])
    renamed = dataset.to_dict()
    edges = renamed["user", "rates", "film"]
    edges["splits"] = {"masks": edges["splits"]["known"]}
    equal(back.to_dict(), renamed)
    assert dataset.to_dgl("other").edges["user", "rates", "film"].data["train_mask"].tolist() == [False, False, False, True]
    del found["label"]
    with pytest.warns(hgnnc.HgnncWarning, match=r"\.data\['stars'\], .*\.data\['train_mask'\], .*\.data\['val_mask'\]"):
        assert hgnnc.from_dgl(graph).relations["rates"].splits == {}


def test_labels_and_masks_of_edges_survive_pyg() -> None:
    pytest.importorskip("torch_geometric", reason="PyG is not installed")
    dataset = hgnnc.Dataset.from_dict(rated())
    graph = dataset.to_pyg()
    rates = graph["user", "rates", "film"]
    assert rates.y.tolist() == [1, 0, -1, 1] and rates.val_mask.tolist() == [False, True, False, False]
    assert rates.stars.isnan().tolist() == [False, True, False, False] and rates.time.tolist() == [2019, 2020, 2021, 2022]
    back = hgnnc.from_pyg(graph, labels=["stars", "moods"])
    renamed = dataset.to_dict()
    edges = renamed["user", "rates", "film"]
    edges["splits"] = {"masks": edges["splits"]["known"]}
    equal(back.to_dict(), renamed)
    assert dataset.to_pyg("other")["user", "rates", "film"].train_mask.tolist() == [False, False, False, True]
    data = rated()
    data["user", "rates", "film"]["labels"]["edge_attr"] = np.zeros(4, int)
    with pytest.raises(hgnnc.DataError, match="`rates` has a label `edge_attr`, which is another attribute of a graph"):
        hgnnc.Dataset.from_dict(data).to_pyg()


def test_fields_survive_pyg_and_dgl(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch_geometric", reason="PyG is not installed")
    sparse = hgnnc.Sparse((2, 3), np.array([0, 1, 2]), np.array([2, 0]), np.array([1, 2], np.float32))
    paper: Any = {"x": np.ones((2, 2), np.float32), "fields": {"year": np.array([1, 2], np.float32), "words": sparse}}
    dataset = hgnnc.Dataset.from_dict({"paper": paper})
    graph = dataset.to_pyg()
    assert graph["paper"].year.tolist() == [[1], [2]] and "sparse_csr" in str(graph["paper"].words.layout)
    equal(hgnnc.from_pyg(graph, fields=["year", "words"]).to_dict(), dataset.to_dict())
    with pytest.warns(hgnnc.HgnncWarning, match=r"not used: data\['paper'\].words"):
        assert list(hgnnc.from_pyg(graph, fields=["year"]).vertex_types["paper"].fields) == ["year"]
    monkeypatch.setitem(sys.modules, "dgl", SimpleNamespace(heterograph=Graph))
    found = hgnnc.from_dgl(dataset.to_dgl(), fields=["year", "words"]).vertex_types["paper"].fields
    assert np.asarray(found["words"]).tolist() == [[0, 0, 1], [2, 0, 0]] and np.asarray(found["year"]).tolist() == [[1], [2]]
    paper["fields"] = {"feat": paper["x"]}
    with pytest.raises(hgnnc.DataError, match="`paper` has a field `feat`, which is the name of `x` in DGL"):
        hgnnc.Dataset.from_dict({"paper": paper}).to_dgl()
    for name, said in (("time", "another attribute of a graph"), ("topic", "a label as well")):
        paper.update(fields={name: paper["x"]}, labels={"topic": np.array([0, 1])})
        with pytest.raises(hgnnc.DataError, match=f"`paper` has a field `{name}`, which is {said}"):
            hgnnc.Dataset.from_dict({"paper": paper}).to_pyg()


def test_masks_of_edges_without_labels_are_not_used() -> None:
    stores: Data = {"a": {"num_nodes": 2}, ("a", "to", "a"): {"edge_index": [[0, 1], [1, 1]], "train_mask": np.ones(2, bool)}}
    with pytest.warns(hgnnc.HgnncWarning, match=r"not used: data\[\('a', 'to', 'a'\)\].train_mask"):
        assert hgnnc.from_pyg(Hetero(stores)).relations["to"].splits == {}
    stores["a", "to", "a"]["y"] = [0, 1]
    found = hgnnc.from_pyg(Hetero(stores)).relations["to"]
    assert found.labels["y"].values.tolist() == [0, 1] and found.splits["masks"]["train"].tolist() == [0, 1]


def test_hetero_data_of_pyg_survives(data: Data) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed: benchmarks/round_trip_pyg.py compares with it")
    pytest.importorskip("torch_geometric", reason="PyG is not installed")
    x = torch.from_numpy(data["paper"]["x"])
    back = hgnnc.from_pyg(hgnnc.Dataset.from_dict(data).to_pyg()).to_pyg()
    assert back["paper"].x.data_ptr() == x.data_ptr()


def test_weights_and_parallel_edges_of_pyg_stay(data: Data) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    ends, weight = torch.tensor([[1, 0, 1], [2, 1, 2]]), torch.tensor([2.0, 3.0, 4.0])
    turned = torch.sparse_coo_tensor(ends.flip(0), weight, (3, 2))

    def found(**store: Any) -> Any:
        stores = {"a": {"num_nodes": 2}, "b": {"num_nodes": 3}, ("a", "to", "b"): store}
        relation = hgnnc.from_pyg(Hetero(stores)).relations["to"]
        return relation.edge_index.tolist(), None if relation.weight is None else relation.weight.tolist()

    assert found(adj_t=turned) == (ends.tolist(), [2, 3, 4])
    assert found(adj_t=turned, edge_weight=weight + 1)[1] == [3, 4, 5]
    # Other edges may be in another order.
    assert found(adj_t=turned, edge_index=ends) == (ends.tolist(), None)
    ones = torch.sparse_coo_tensor(ends.flip(0), torch.ones(3), (3, 2))
    assert found(adj_t=ones) == (ends.tolist(), None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows = turned.coalesce().to_sparse_csr()
    assert found(adj_t=rows) == ([[0, 1], [1, 2]], [3, 6])

    class Adjacency:
        """Looks like a `SparseTensor` of torch_sparse."""

        def coo(self) -> Any:
            return ends[1], ends[0], None

    assert found(adj_t=Adjacency()) == (ends.tolist(), None)


def test_tensors_that_numpy_has_not_are_said(data: Data) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    data["paper"]["x"] = torch.zeros(60, 6, dtype=torch.bfloat16)
    with pytest.raises(hgnnc.DataError, match=r"\['x'\]` is torch.bfloat16, .* convert it with `.float\(\)`"):
        hgnnc.Dataset.from_dict(data)


def test_a_split_for_pyg_may_be_of_some_types() -> None:
    pytest.importorskip("torch_geometric", reason="PyG is not installed")
    one = {"y": np.array([0, 1]), "splits": {"a": {"train": [0]}}}
    other = {"y": np.array([0, 1]), "splits": {"b": {"train": [1]}}}
    dataset = hgnnc.Dataset.from_dict({"one": one, "other": other})
    graph = dataset.to_pyg("a")
    assert graph["one"].train_mask.tolist() == [True, False] and "train_mask" not in graph["other"]
    with pytest.raises(hgnnc.DataError, match=r"no vertex type or relation has a split `c` \(there is `a`, `b`\)"):
        dataset.to_pyg("c")
    with pytest.raises(hgnnc.DataError, match="`one` has a label `x`"):
        hgnnc.Dataset.from_dict({"one": {"num_nodes": 2, "labels": {"x": np.array([0, 1])}}}).to_pyg()


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
    with pytest.raises(hgnnc.DataError, match="column `part`, row 1: 'tset' should be `train`, `val` or `test`"):
        hgnnc.Dataset.from_frames({"paper": {"id": [1, 2], "part": ["train", "tset"]}}, {}, splits={"paper": "part"})
    with pytest.raises(hgnnc.DataError, match=r"`ends\[\('author', 'write', 'paper'\)\]`: there is no such relation"):
        hgnnc.Dataset.from_frames(frames, {triple: writes}, ends={("author", "write", "paper"): ("author", "paper")})
    for huge in (np.array([2**63, 1], np.uint64), [1, 2**63], [-1, 2**63]):
        with pytest.raises(hgnnc.DataError, match="column `id`, row [01]: 9223372036854775808 is no whole number of 64 bits"):
            hgnnc.Dataset.from_frames({"author": {"id": huge}}, {})
    rows = {"author": np.array([2**64 - 1], np.uint64), "paper": np.array([0], np.uint64)}
    with pytest.raises(hgnnc.DataError, match="18446744073709551615 is too large"):
        hgnnc.Dataset.from_frames({"author": {"v": [1.0]}, "paper": {"v": [1.0]}}, {triple: rows})


def test_frames_of_edges_have_labels_splits_and_times() -> None:
    users: Any = {"id": ["u", "v"], "joined": [2001, 2003]}
    rates: Any = {
        "by": ["u", "v", "v"], "of": [7, 7, 9], "stars": [4.5, np.nan, 1.0], "mood": ["good", None, "bad"],
        "part": ["train", "", "test"], "hours": [1.0, 2.0, 3.0], "clicks": [1, 2, 3], "year": [2004, 2005, 2006],
        "share": [0.5, 1.0, 1.5], "note": ["a", "b", "c"],
    }  # fmt: skip
    triple = ("user", "rates", "film")
    frames: Any = {"user": users, "film": {"id": [7, 9]}}
    options: Any = {
        "labels": {triple: ["stars", "mood"]},
        "splits": {triple: "part"},
        "times": {"user": "joined", triple: "year"},
        "weights": {triple: "share"},
        "features": {triple: ["hours", "clicks"]},
    }
    with pytest.warns(hgnnc.HgnncWarning, match=r"not used: `note`$"):
        dataset = hgnnc.Dataset.from_frames(frames, {triple: rates}, **options)
    user, relation = dataset.vertex_types["user"], dataset.relations["rates"]
    assert user.x is None and user.time is not None and user.time.tolist() == [2001, 2003]
    stars, mood = relation.labels["stars"], relation.labels["mood"]
    assert stars.kind == "real" and stars.labelled is not None and stars.labelled.tolist() == [True, False, True]
    assert (mood.values.tolist(), mood.class_names) == ([1, -1, 0], ["bad", "good"])
    assert {part: of.tolist() for part, of in relation.splits["part"].items()} == {"train": [0], "val": [], "test": [2]}
    assert relation.x is not None and relation.x.tolist() == [[1, 1], [2, 2], [3, 3]]
    assert relation.weight is not None and relation.weight.tolist() == [0.5, 1, 1.5]
    assert relation.time is not None and relation.time.tolist() == [2004, 2005, 2006]

    # Columns of these names need no argument, unless an argument names them.
    named: Any = {"by": ["u"], "of": [9], "time": [3], "weight": [2.0]}
    relation = hgnnc.Dataset.from_frames(frames, {triple: named}).relations["rates"]
    assert relation.time is not None and relation.time.tolist() == [3]
    relation = hgnnc.Dataset.from_frames(frames, {triple: named}, labels={triple: ["time", "weight"]}).relations["rates"]
    assert relation.time is None and relation.weight is None and list(relation.labels) == ["time", "weight"]
    with pytest.warns(hgnnc.HgnncWarning, match="not used: `time`"):
        dataset = hgnnc.Dataset.from_frames(frames, {triple: {**named, "time": ["monday"]}})
    assert dataset.relations["rates"].time is None

    for more, said in (
        ({"times": {triple: "note"}}, "column `note` is <U1, and times are whole numbers"),
        ({"labels": {triple: "topic"}}, r"`relations\[.*\]` has no column `topic` \(it has `by`, `of`"),
        ({"splits": {triple: "mood"}}, "column `mood`, row 0: 'good' should be `train`, `val` or `test`"),
        ({"labels": {}}, "relation `rates` has no label, so nothing of it is divided"),
        ({"labels": {("user", "rate", "film"): "stars"}}, r"`labels\[\('user', 'rate', 'film'\)\]`: there is no such relation"),
        ({"weights": {"user": "joined"}}, r"`weights\['user'\]`: there is no such relation"),
        ({"times": {"users": "joined"}}, r"`times\['users'\]`: there is no vertex type `users`"),
        ({"ids": {triple: "by"}}, r"`ids\[\('user', 'rates', 'film'\)\]`: there is no vertex type"),
    ):
        with pytest.raises(hgnnc.DataError, match=said), warnings.catch_warnings():
            warnings.simplefilter("ignore", hgnnc.HgnncWarning)
            hgnnc.Dataset.from_frames(frames, {triple: rates}, **{**options, **more})


def test_frames_may_be_empty_or_of_large_ids() -> None:
    triple = ("author", "writes", "paper")
    for frame in ({"id": []}, {"v": np.zeros(0)}):
        dataset = hgnnc.Dataset.from_frames({"author": frame, "paper": frame}, {triple: {"a": [], "b": []}})
        assert (dataset.vertex_types["paper"].count, dataset.relations["writes"].num_edges) == (0, 0)
    authors = {"id": np.array([7, 2**62 + 1], np.uint64)}
    dataset = hgnnc.Dataset.from_frames({"author": authors}, {("author", "to", "author"): {"a": [2**62 + 1], "b": [7]}})
    assert np.asarray(dataset.vertex_types["author"].ids).tolist() == [7, 2**62 + 1]
    assert dataset.relations["to"].edge_index.tolist() == [[1], [0]]


def test_frames_of_pandas_may_have_no_values() -> None:
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    text = {"dtype": "string"}
    papers = pandas.DataFrame({
        "id": pandas.array(["a", "b", "c"], **text),
        "topic": pandas.array(["ml", None, "db"], **text),
        "part": pandas.array(["train", None, "test"], **text),
    })  # fmt: skip
    options: Any = {"labels": {"paper": "topic"}, "splits": {"paper": "part"}}
    paper = hgnnc.Dataset.from_frames({"paper": papers}, {}, **options).vertex_types["paper"]
    assert paper.ids == ["a", "b", "c"] and paper.labels["topic"].values.tolist() == [1, -1, 0]
    assert {part: ids.tolist() for part, ids in paper.splits["part"].items()} == {"train": [0], "val": [], "test": [2]}
    papers.loc[1, "id"] = pandas.NA
    with pytest.raises(hgnnc.DataError, match="column `id`, row 1: there is no id"):
        hgnnc.Dataset.from_frames({"paper": papers}, {}, **options)

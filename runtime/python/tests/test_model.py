"""Models: diagnostics as exceptions, and where they render."""

from __future__ import annotations

import pathlib
import warnings
from typing import Any

import numpy as np
import pytest

import hgnnc

Data = dict[Any, Any]


def test_a_model_has_a_name_and_outputs(model: str, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "m.hgnn"
    file.write_text(model)
    for loaded in (hgnnc.load(model), hgnnc.load(file), hgnnc.load(str(file))):
        assert (loaded.name, loaded.outputs, loaded.text) == ("Net", ["authors", "logits"], model)
        assert loaded.warnings == [] and "without weights" in repr(loaded)


def test_mistakes_are_an_exception_with_places(model: str) -> None:
    with pytest.raises(hgnnc.ModelError) as found:
        hgnnc.load(model.replace("relu(", "rellu("))
    error = found.value
    assert "error[E" in str(error) and "rellu" in str(error)
    first = error.diagnostics[0]
    line = next(i for i, text in enumerate(model.splitlines(), 1) if "relu(" in text)
    column = model.splitlines()[line - 1].index("relu(") + 1
    assert first.severity == "error" and first.code.startswith("E02")
    assert (first.line, first.column) == (line, column) and first.span == (line, column, line, column + 5)
    # A notebook shows the colours instead of a traceback.
    assert any("\x1b[" in text for text in error._render_traceback_())
    assert "<pre>" in error._repr_html_()


def test_a_model_that_does_not_fit_the_data_says_why(model: str, data: Data) -> None:
    data["paper"]["x"] = np.zeros((60, 7), np.float32)
    for refuse in (hgnnc.load(model).check, lambda d: hgnnc.load(model).fit(d, progress=False)):
        with pytest.raises(hgnnc.ModelError) as found:
            refuse(data)
        assert "7" in str(found.value) and "the dataset `data`" in str(found.value), str(found.value)


def test_masks_serve_the_split_that_the_model_names(model: str, data: Data) -> None:
    assert hgnnc.load(model).check(data) == []
    with pytest.raises(hgnnc.ModelError):
        hgnnc.load(model).check(data, split="other")


LINKS = """
use std::link::Dot
use std::rgcn::RgcnConv

schema Small {
    vertex Paper from "paper" { x: f32[6] }
    vertex Author from "author" { x: embedding[6] }
    relation writes: Author -> Paper
    relation written_by: Paper -> Author from "written-by"
}

model Recommend(schema: Small) {
    let conv = RgcnConv(hidden: 4) over [writes, written_by] of features
    output score: links = Dot() over links(writes) of conv
}

train Recommend {
    split     "l"
    loss      binary_cross_entropy(score, links)
    optimizer adam(lr: 0.01)
    batch     32
    fanout    [5]
    negatives uniform(1)
    exclude   [written_by]
    epochs    1
    metrics   auc
    select    val.auc
}
"""


def links(data: Data) -> hgnnc.Dataset:
    """A dataset that holds out links."""
    edges = np.unique(data["author", "writes", "paper"], axis=1)
    data["author", "writes", "paper"], held = edges[:, :-20], edges[:, -20:]
    data["paper", "written-by", "author"] = edges[::-1, :-20]
    parts = {"val": {"writes": held[:, :10]}, "test": {"writes": held[:, 10:]}}
    return hgnnc.Dataset.from_dict(data, link_splits={"l": parts})


def test_masks_are_no_split_of_links(data: Data) -> None:
    dataset = links(data)
    assert "masks" in dataset.vertex_types["paper"].splits
    model = hgnnc.load(LINKS)
    assert model.check(dataset) == []
    run = model.fit(dataset, progress=False)
    assert model.evaluate(dataset) == run.metrics
    pairs = {"writes": [[0, 1], [2, 3]], ("author", "writes", "paper"): [[0], [1]]}
    with pytest.raises(hgnnc.InputError, match="are of the same relation"):
        model.score(dataset, pairs)


def test_links_under_a_cutoff_need_times_of_those_held_out(data: Data) -> None:
    edges = np.unique(data["author", "writes", "paper"], axis=1)
    writes = {"edge_index": edges[:, :-20], "time": np.arange(edges.shape[1] - 20) // 10}
    graph = {"paper": {"x": data["paper"]["x"]}, "author": 25, ("author", "writes", "paper"): writes}
    held = {"val": edges[:, -20:-10], "test": edges[:, -10:]}
    # The model of a relation with times, and without its reverse.
    text = LINKS.replace("writes: Author -> Paper", "writes: Author -> Paper { at: time }")
    text = text.replace('    relation written_by: Paper -> Author from "written-by"\n', "").replace("    exclude   [written_by]\n", "")
    text = text.replace("[writes, written_by]", "[writes, reverse(writes)]").replace("    batch ", "    cutoff    time\n    batch ")
    untimed = {part: {"writes": ends} for part, ends in held.items()}
    with pytest.raises(hgnnc.HgnncError, match="read as of their times, but"):
        hgnnc.load(text).fit(hgnnc.Dataset.from_dict(graph, link_splits={"l": untimed}), progress=False)
    timed = {part: {"writes": {"edge_index": ends, "time": np.full(10, 20)}} for part, ends in held.items()}
    run = hgnnc.load(text).fit(hgnnc.Dataset.from_dict(graph, link_splits={"l": timed}), progress=False)
    assert set(run.metrics["test"]) >= {"auc"}


def test_masks_serve_beside_splits_of_other_types(model: str, data: Data) -> None:
    years = {"y": np.arange(25) % 2, "splits": {"years": {"train": [0, 1], "val": [2], "test": [3]}}}
    data["author"] = {"num_nodes": 25, **years}
    assert hgnnc.load(model).check(data) == []
    hgnnc.load(model).fit(data, epochs=1, progress=False)
    # Beside another split of the type that is trained, the model names one.
    data["paper"]["splits"] = {"any": {"train": [0, 1, 2], "val": [3], "test": [4]}}
    run = hgnnc.load(model).fit(data, epochs=1, progress=False)
    assert run.metrics["test"]["accuracy"] in (0, 1)
    with pytest.raises(hgnnc.ModelError):
        hgnnc.load(model.replace('"any"', '"other"')).check(data)


def test_warnings_are_warnings_of_python(model: str, data: Data) -> None:
    data["author", "writes", "paper"] = np.zeros((2, 0), int)
    found = hgnnc.load(model).check(data)
    assert [diagnostic.severity for diagnostic in found] == ["warning"]
    with pytest.warns(hgnnc.HgnncWarning, match=found[0].code):
        hgnnc.load(model).fit(data, epochs=1, progress=False)
    # They are at the line of the caller.
    compiled = hgnnc.load(model)
    run = compiled.fit(data, epochs=1, progress=False)
    for call in (compiled.evaluate, compiled.predict, lambda _: run.profile(1)):
        with pytest.warns(hgnnc.HgnncWarning) as seen:
            call(data)
        assert {pathlib.Path(warning.filename).name for warning in seen} == {"test_model.py"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(hgnnc.HgnncWarning):
            hgnnc.load(model).fit(data, epochs=1, progress=False)


def test_a_file_that_is_not_there_is_said(tmp_path: pathlib.Path) -> None:
    with pytest.raises(hgnnc.InputError, match="cannot read"):
        hgnnc.load(tmp_path / "nothing.hgnn")


def test_the_code_of_the_tutorial_runs(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = (pathlib.Path(__file__).resolve().parents[3] / "docs" / "python.md").read_text()
    blocks = [part.split("```", 1)[0] for part in text.split("```python\n")[1:]]
    assert len(blocks) >= 5
    monkeypatch.chdir(tmp_path)
    scope: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, "docs/python.md", "exec"), scope)

"""The notebook of the package runs, and its outputs are what a reader sees."""

import pathlib

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")

FOLDER = pathlib.Path(__file__).resolve().parents[1] / "examples"


def html(cell: "nbformat.NotebookNode") -> str:
    return "".join(output.get("data", {}).get("text/html", "") for output in cell.outputs)


def test_the_notebook_runs() -> None:
    notebook = nbformat.read(FOLDER / "acm.ipynb", as_version=4)
    # A cell with an error that is not expected raises.
    client = nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(FOLDER)}})
    client.execute()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    shown = [html(cell) for cell in cells]
    assert "topic_logits" in shown[0]  # the model
    assert "<svg" in shown[1] and "finished after 60 epochs" in shown[1]  # the run
    assert any("written_by" in page for page in shown)  # the dataset
    assert "<iframe" in shown[-1]  # the profile
    (mistake,) = [cell for cell in cells if "raises-exception" in cell.metadata.get("tags", [])]
    traceback = "".join("\n".join(o.traceback) for o in mistake.outputs if o.output_type == "error")
    assert "writen_by" in traceback and "Traceback" not in traceback

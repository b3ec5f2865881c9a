"""Training: equal to the command to the bit, callbacks, Ctrl-C, outputs."""

from __future__ import annotations

import os
import pathlib
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import numpy as np
import pytest

import hgnnc

from .conftest import ROOT, hgnnc_command

Data = dict[Any, Any]


def same_bits(a: dict[str, Any], b: dict[str, Any]) -> None:
    assert sorted(a) == sorted(b)
    for name in a:
        assert a[name].shape == b[name].shape and a[name].tobytes() == b[name].tobytes(), name


def test_fit_of_a_dictionary_equals_the_command_to_the_bit(model: str, data: Data, tmp_path: pathlib.Path) -> None:
    file = tmp_path / "m.hgnn"
    file.write_text(model)
    hgnnc.Dataset.from_dict(data).save(tmp_path / "d")
    run = hgnnc.load(file).fit(data, seed=3, epochs=5, device="cpu", progress=False)
    hgnnc_command(
        "train", file, "--data", tmp_path / "d", "--split", "masks", "--seed", 3, "--epochs", 5, "--device", "cpu",
        "--weights-out", tmp_path / "w.safetensors", "--quiet",
    )  # fmt: skip
    same_bits(run.weights, hgnnc.load(file, weights=tmp_path / "w.safetensors").weights or {})
    # The file that Python writes is the same, too.
    trained = hgnnc.load(file)
    trained.weights = run.weights
    trained.save(tmp_path / "p.safetensors")
    assert (tmp_path / "p.safetensors").read_bytes() == (tmp_path / "w.safetensors").read_bytes()
    # And so are the outputs.
    hgnnc_command(
        "infer", file, "--data", tmp_path / "d", "--weights", tmp_path / "w.safetensors", "--device", "cpu",
        "--out", tmp_path / "o.npy",
    )  # fmt: skip
    logits = trained.predict(data, device="cpu")["logits"]
    assert np.load(tmp_path / "o.npy").tobytes() == logits.tobytes()


def test_fit_on_acm_equals_the_command_to_the_bit(tmp_path: pathlib.Path) -> None:
    folder = pathlib.Path(os.environ.get("HGNN_DATA", ROOT.parent / "shared" / "data")) / "acm"
    if not folder.is_dir():
        pytest.skip("HGNN_DATA is not set and ../shared/data does not exist")
    model, weights = ROOT / "examples" / "han" / "acm.hgnn", tmp_path / "w.safetensors"
    hgnnc_command(
        "train", model, "--data", folder, "--no-graph-cache", "--epochs", 2, "--device", "cpu", "--weights-out",
        weights, "--quiet",
    )  # fmt: skip
    run = hgnnc.load(model).fit(hgnnc.Dataset(folder).to_dict(), epochs=2, device="cpu", progress=False)
    same_bits(run.weights, hgnnc.load(model, weights=weights).weights or {})


def test_a_run_has_metrics_history_and_weights(model: str, data: Data) -> None:
    seen: list[dict[str, float]] = []
    compiled = hgnnc.load(model)
    run = compiled.fit(data, on_epoch=lambda epoch: seen.append(epoch.metrics), progress=False)
    assert [epoch.epoch for epoch in run.history] == [1, 2, 3, 4, 5, 6]
    assert [epoch.loss for epoch in run.history] == run.report["losses"] == [metrics["loss"] for metrics in seen]
    assert "val.loss" in seen[0] and not run.interrupted and run.best_epoch in range(1, 7)
    assert set(run.metrics) == {"train", "val", "test"}
    assert compiled.evaluate(data) == run.metrics
    again = hgnnc.load(model).fit(data, epochs=0, init=run.weights, progress=False)
    same_bits(again.weights, run.weights)


def test_labels_of_edges_are_learned(model: str, data: Data, tmp_path: pathlib.Path) -> None:
    edges = data["author", "writes", "paper"]
    first = edges[0] % 2
    data["author", "writes", "paper"] = {
        "edge_index": edges, "labels": {"kind": {"values": first, "class_names": ["even", "odd"]}},
        "splits": {"some": {"train": np.arange(0, 100), "val": np.arange(100, 120), "test": np.arange(120, 150)}},
    }  # fmt: skip
    head, _, rest = model.partition("model Net")
    text = head.replace("use std::rgcn", "use std::link::EdgeMlp\nuse std::rgcn").replace(
        "Author -> Paper\n", "Author -> Paper { kind: class[2] }\n"
    )
    text += '''model Net(schema: Small) {
        let conv = tanh(RgcnConv(hidden: 8) over [writes, written_by] of features)
        output kind: edges(writes) = EdgeMlp(hidden: 8, out: 2) over edges(writes) of conv
    }
    train Net { loss cross_entropy(kind, writes.kind) split "some" optimizer adam(lr: 0.05) epochs 60 metrics accuracy }'''
    dataset = hgnnc.Dataset.from_dict(data)
    assert dataset.relations["writes"].labels["kind"].class_names == ["even", "odd"]
    run = hgnnc.load(text).fit(dataset, threads=1, progress=False)
    assert run.metrics["train"]["accuracy"] > 0.95 and run.metrics["test"]["accuracy"] > 0.7
    dataset.save(tmp_path / "d")
    again = hgnnc.load(text).fit(str(tmp_path / "d"), threads=1, progress=False)
    assert again.metrics["test"] == run.metrics["test"]
    # Masks have no name, and serve the split that the model names.
    edge_split = data["author", "writes", "paper"].pop("splits")["some"]
    for part, positions in edge_split.items():
        data["author", "writes", "paper"][f"{part}_mask"] = np.isin(np.arange(150), positions)
    masked = hgnnc.load(text).fit(data, threads=1, progress=False)
    assert masked.metrics == run.metrics


def test_predictions_are_arrays_with_probabilities_and_dlpack(model: str, data: Data) -> None:
    compiled = hgnnc.load(model)
    with pytest.raises(hgnnc.InputError, match="no weights"):
        compiled.predict(data)
    compiled.fit(data, progress=False)
    found = compiled.predict(data)
    assert {name: array.shape for name, array in found.items()} == {"logits": (60, 3), "authors": (25, 8)}
    shared = np.from_dlpack(found["logits"])
    assert shared.ctypes.data == found["logits"].ctypes.data
    likely = compiled.predict(data, outputs=["logits"], probabilities=True)["logits"]
    np.testing.assert_allclose(likely.sum(axis=1), 1, rtol=1e-6)
    assert (likely.argmax(axis=1) == found["logits"].argmax(axis=1)).all()
    with pytest.raises(hgnnc.InputError, match="only the trained output, `logits`, has probabilities"):
        compiled.predict(data, outputs=["authors"], probabilities=True)
    # Neither labels nor masks are needed.
    bare = {key: {"x": value["x"]} if key == "paper" else value for key, value in data.items()}
    assert compiled.predict(bare)["logits"].tobytes() == found["logits"].tobytes()
    with pytest.raises(hgnnc.InputError, match="no output `nothing`"):
        compiled.predict(data, outputs=["nothing"])


def test_an_artifact_is_a_model_with_weights(model: str, data: Data, tmp_path: pathlib.Path) -> None:
    compiled = hgnnc.load(model)
    with pytest.raises(hgnnc.InputError, match="no weights"):
        compiled.save(tmp_path / "net.hgnnx")
    run = compiled.fit(data, device="cpu", progress=False)
    compiled.save(tmp_path / "net.hgnnx")
    trained = hgnnc.load(tmp_path / "net.hgnnx")
    assert (trained.name, trained.outputs) == ("Net", ["authors", "logits"])
    assert "dataflow Net" in trained.text and "9 weights" in repr(trained)
    same_bits(trained.weights or {}, run.weights)
    assert trained.check(data) == [] and trained.evaluate(data, device="cpu") == run.metrics
    same_bits(trained.predict(data, device="cpu"), compiled.predict(data, device="cpu"))
    # It can be written again, and is read by the command.
    trained.save(tmp_path / "again.hgnnx")
    assert (tmp_path / "again.hgnnx").read_bytes() == (tmp_path / "net.hgnnx").read_bytes()
    hgnnc.Dataset.from_dict(data).save(tmp_path / "d")
    hgnnc_command(
        "infer", tmp_path / "net.hgnnx", "--data", tmp_path / "d", "--device", "cpu", "--out", tmp_path / "o.npy",
    )  # fmt: skip
    assert np.load(tmp_path / "o.npy").tobytes() == trained.predict(data, device="cpu")["logits"].tobytes()
    # It is not trained further, and other data are refused with the reason.
    with pytest.raises(hgnnc.InputError, match="is a trained model"):
        trained.fit(data, progress=False)
    with pytest.raises(hgnnc.InputError, match="author"):
        trained.predict({**data, "author": 26})


def test_artifacts_are_of_trained_models(model: str, data: Data, tmp_path: pathlib.Path) -> None:
    compiled = hgnnc.load(model)
    run = compiled.fit(data, epochs=1, progress=False)
    compiled.save(tmp_path / "w.safetensors")
    with pytest.raises(hgnnc.InputError, match="call `fit` first"):
        hgnnc.load(model, weights=tmp_path / "w.safetensors").save(tmp_path / "net.hgnnx")
    first = sorted(run.weights)[0]
    compiled.weights = {name: value[:1] if name == first else value for name, value in run.weights.items()}
    with pytest.raises(hgnnc.InputError, match=first):
        compiled.save(tmp_path / "net.hgnnx")
    assert not (tmp_path / "net.hgnnx").exists()


def test_constants_have_other_values(model: str, data: Data) -> None:
    text = model.replace("schema Small", "const rate = 0.01\nconst hidden = 8\n\nschema Small")
    text = text.replace("lr: 0.01", "lr: rate").replace("hidden: 8", "hidden: hidden")
    plain = hgnnc.load(text).fit(data, epochs=2, device="cpu", progress=False)
    wide = hgnnc.load(text, constants={"hidden": np.int64(5), "rate": np.float32(0.5)})
    run = wide.fit(data, epochs=2, device="cpu", progress=False)
    assert run.report["constants"] == {"hidden": 5, "rate": 0.5}
    assert {value.shape for value in run.weights.values()} != {value.shape for value in plain.weights.values()}
    with pytest.raises(hgnnc.ModelError, match="heads"):
        hgnnc.load(text, constants={"heads": 2})


def test_weights_of_metapaths_and_edges_are_outputs(model: str, data: Data) -> None:
    text = model.replace("use std::rgcn::RgcnConv", "use std::han::HanConv")
    text = text.replace(
        "relation writes: Author -> Paper",
        "relation writes: Author -> Paper\n    metapath PAP = Paper -written_by-> Author <-written_by- Paper",
    )
    begin, end = text.index("    let conv"), text.index("}\n\ntrain")
    body = "    let conv = HanConv(hidden: 4, heads: 2) over [PAP] of Paper.x\n    output logits: Paper = linear(conv, 3)\n"
    outputs = "    output beta: graphs = conv.beta\n    output attention: edges = conv.alpha\n"
    compiled = hgnnc.load(text[:begin] + body + outputs + text[end:])
    compiled.fit(data, epochs=2, progress=False)
    beta = compiled.predict_graphs(data, "beta")
    assert list(beta) == ["PAP"] and beta["PAP"].edge_index is None and beta["PAP"].values.tolist() == [[1.0]]
    attention = compiled.predict_graphs(data, "attention")["PAP"]
    assert attention.edge_index is not None and attention.edge_index.shape == (2, len(attention.values))
    # The attention of each paper sums to 1, for both heads.
    sums = np.zeros((60, 2), np.float32)
    np.add.at(sums, attention.edge_index[1], attention.values)
    np.testing.assert_allclose(sums[np.unique(attention.edge_index[1])], 1, rtol=1e-5)
    with pytest.raises(hgnnc.InputError, match="output of vertices"):
        compiled.predict_graphs(data, "logits")


def test_weights_that_do_not_fit_are_refused(model: str, data: Data, tmp_path: pathlib.Path) -> None:
    compiled = hgnnc.load(model)
    run = compiled.fit(data, epochs=1, progress=False)
    first = sorted(run.weights)[0]
    with pytest.raises(hgnnc.InputError, match=f"`{first}` is missing"):
        compiled.predict(data, weights={name: run.weights[name] for name in run.weights if name != first})
    with pytest.raises(hgnnc.InputError, match="saved as `.safetensors`"):
        compiled.save(tmp_path / "w.pt")
    with pytest.raises(hgnnc.InputError, match="No such file"):
        compiled.load_weights(tmp_path / "nothing.safetensors")


def test_a_callback_ends_training_by_false_and_its_exceptions_come_out(model: str, data: Data) -> None:
    compiled = hgnnc.load(model)
    run = compiled.fit(data, epochs=1000, on_epoch=lambda epoch: epoch.epoch < 3, progress=False)
    assert run.interrupted and len(run.history) == run.report["epochs"] == 3

    run = compiled.fit(data, epochs=1000, on_epoch=lambda epoch: np.float32(epoch.epoch) < 3, progress=False)
    assert run.interrupted and len(run.history) == 3

    def fail(epoch: hgnnc.Epoch) -> None:
        raise RuntimeError("of the callback")

    with pytest.raises(RuntimeError, match="of the callback"):
        compiled.fit(data, epochs=1000, on_epoch=fail, progress=False)


def test_ctrl_c_keeps_the_best_epoch(model: str, data: Data) -> None:
    compiled = hgnnc.load(model)

    def interrupt(epoch: hgnnc.Epoch) -> None:
        if epoch.epoch == 4:
            os.kill(os.getpid(), signal.SIGINT)

    run = compiled.fit(data, epochs=100_000, on_epoch=interrupt, progress=False)
    assert run.interrupted and 4 <= len(run.history) < 100_000
    assert run.report["outcome"] == "interrupted"
    # Not the last epoch's, but those of the best one.
    same = hgnnc.load(model).fit(data, epochs=run.best_epoch, progress=False)
    if same.best_epoch == run.best_epoch:
        same_bits(run.weights, same.weights)


def test_a_program_that_gets_a_sigint_ends_with_a_run(tmp_path: pathlib.Path) -> None:
    program = """
import hgnnc
from tests.conftest import MODEL, small
print("ready", flush=True)
run = hgnnc.load(MODEL).fit(small(), epochs=10**9)
print("interrupted", run.interrupted, len(run.history) == run.report["epochs"], flush=True)
"""
    child = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, cwd=pathlib.Path(__file__).parents[1]
    )
    assert child.stdout is not None and child.stdout.readline() == "ready\n"
    time.sleep(1)
    child.send_signal(signal.SIGINT)
    out, _ = child.communicate(timeout=120)
    assert (out, child.returncode) == ("interrupted True True\n", 0)


def test_other_threads_of_python_run_while_a_model_is_trained(model: str, data: Data) -> None:
    beats, done = [0], threading.Event()

    def beat() -> None:
        while not done.wait(0.001):
            beats[0] += 1

    thread = threading.Thread(target=beat)
    thread.start()
    hgnnc.load(model).fit(data, epochs=200, progress=False)
    done.set()
    thread.join()
    assert beats[0] > 0


def test_machines_and_devices_that_cannot_are_named(model: str, data: Data) -> None:
    compiled = hgnnc.load(model)
    with pytest.raises(hgnnc.MachineError, match="the budget is 1000 bytes"):
        compiled.fit(data, memory_budget=1000, device="cpu", progress=False)
    with pytest.raises(ValueError, match="there is no device \"tpu\""):
        compiled.fit(data, device="tpu", progress=False)
    with pytest.raises(TypeError, match="data is a int"):
        compiled.fit(3, progress=False)


def test_numbers_that_are_not_finite_are_nan(model: str, data: Data) -> None:
    compiled = hgnnc.load(model)
    run = compiled.fit(data, epochs=2, progress=False)
    huge = {name: value * np.float32(1e30) for name, value in run.weights.items()}
    metrics = compiled.evaluate(data, weights=huge)
    assert np.isnan(metrics["test"]["loss"]) and 0 <= metrics["test"]["accuracy"] <= 1
    run = compiled.fit(data, epochs=0, init=huge, progress=False)
    assert np.isnan(run.metrics["test"]["loss"])
    assert "loss nan" in repr(run) and "<td style='text-align:left'>nan</td>" in run._repr_html_()


def test_options_that_are_no_whole_numbers_are_named(model: str, data: Data) -> None:
    compiled = hgnnc.load(model)
    for option, error, said in (
        ({"seed": -1}, ValueError, "`seed` is -1, and should be 0 or more"),
        ({"threads": -1}, ValueError, "`threads` is -1, and should be 0 or more"),
        ({"seed": 2**64}, ValueError, "`seed` is 18446744073709551616, and should be less than 2\\^64"),
        ({"epochs": 1.5}, TypeError, "`epochs` is 1.5, and should be a whole number"),
        ({"memory_budget": "1G"}, TypeError, "`memory_budget` is '1G', and should be a whole number"),
    ):
        options: Any = option
        with pytest.raises(error, match=said):
            compiled.fit(data, progress=False, **options)
    run = compiled.fit(data, epochs=np.int64(1), seed=np.uint8(1), progress=False)
    with pytest.raises(ValueError, match="`epochs` is -1"):
        run.profile(-1)


def test_notebooks_see_tables_and_a_profile(model: str, data: Data) -> None:
    compiled = hgnnc.load(model)
    run = compiled.fit(data, epochs=3, progress=False)
    assert "<svg" in run._repr_html_() and "finished after 3 epochs" in run._repr_html_()
    assert "<details>" in compiled._repr_html_()
    assert "paper" in hgnnc.Dataset.from_dict(data)._repr_html_()
    profile = run.profile(2)
    assert profile.data["kernels"] and "iframe" in profile._repr_html_() and str(profile)


def test_torch_is_not_imported() -> None:
    program = "import sys, hgnnc; print([m for m in ('torch', 'dgl', 'pandas', 'IPython') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", program], capture_output=True, text=True).stdout == "[]\n"

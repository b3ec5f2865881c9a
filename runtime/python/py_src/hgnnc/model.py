"""Models and their runs."""

from __future__ import annotations

import html
import json
import logging
import operator
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Union

import numpy as np

from . import _native
from ._arrays import Array, Floats, Ints, edge_index
from ._errors import Diagnostic, InputError, diagnostics, warn
from ._progress import Progress
from .dataset import MASKS, Dataset, EdgeType, table

Weights = dict[str, Floats]
_log = logging.getLogger("hgnnc")


@dataclass(frozen=True)
class Epoch:
    """An epoch that is done."""

    epoch: int
    """Its number, from 1."""
    epochs: int
    """The number of planned epochs."""
    loss: float
    """The loss of training."""
    criterion: tuple[str, float] | None
    """The name and the value of what selects the best epoch, such as `val.loss`."""
    best: bool
    """Whether it is the best epoch so far."""
    ms: float
    """Milliseconds of forward, backward and update."""

    @property
    def metrics(self) -> dict[str, float]:
        """The numbers by name, for loggers."""
        found = {"loss": self.loss}
        if self.criterion is not None:
            found[self.criterion[0]] = self.criterion[1]
        return found


class Predictions(dict[str, Array]):
    """Outputs by name: float32[vertices, width] each. NumPy arrays have `__dlpack__`: `torch.from_dlpack(p["logits"])`
    copies nothing."""

    def _repr_html_(self) -> str:
        rows = [(name, str(list(array.shape)), str(array.dtype)) for name, array in self.items()]
        return table(("output", "shape", "type"), rows)


@dataclass(frozen=True)
class GraphValues:
    """An output of one semantic graph, or of its edges."""

    values: Floats
    """A row for the graph, or for each edge."""
    edge_index: Ints | None
    """Of edges: sources above destinations."""


class Profile:
    """Where the time of training goes. In a notebook it shows its page."""

    def __init__(self, text: str, written: str, page: str) -> None:
        self.text = text
        """The profile as text."""
        self.html = page
        """The profile as a page."""
        self._json = written

    @property
    def data(self) -> dict[str, Any]:
        """The content of `profile.json`."""
        found: dict[str, Any] = json.loads(self._json)
        return found

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes `profile.txt`, `profile.json` and `profile.html`."""
        os.makedirs(folder, exist_ok=True)
        for name, text in (("profile.txt", self.text), ("profile.json", self._json), ("profile.html", self.html)):
            with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
                file.write(text)

    def __str__(self) -> str:
        return self.text

    def _repr_html_(self) -> str:
        return f'<iframe srcdoc="{html.escape(self.html)}" style="width:100%;height:60em;border:0"></iframe>'


class Run:
    """A model that has been trained."""

    def __init__(
        self,
        report: dict[str, Any],
        history: list[Epoch],
        weights: Weights,
        interrupted: bool,
        profile: Callable[[int | None], Profile],
    ) -> None:
        self.report = report
        """The report, as `hgnnc train --report` writes it."""
        self.history = history
        """All epochs."""
        self.weights = weights
        """The weights of the best epoch, by name."""
        self.interrupted = interrupted
        """Whether Ctrl-C or `on_epoch` ended it."""
        self._profile = profile

    @property
    def metrics(self) -> dict[str, dict[str, float]]:
        """Metrics of `train`, `val` and `test` with the weights of the best epoch."""
        found: dict[str, dict[str, float]] = self.report["metrics"]
        return found

    @property
    def best_epoch(self) -> int | None:
        """The epoch of the weights, from 1."""
        found: int | None = self.report["best_epoch"]
        return found

    def profile(self, epochs: int | None = None) -> Profile:
        """Trains for some more epochs on this processor, from new weights, and measures where the time goes."""
        return self._profile(epochs)

    def __repr__(self) -> str:
        best = f", best {self.best_epoch}" if self.best_epoch else ""
        parts = ", ".join(
            f"{part} " + " ".join(f"{name} {value:.4f}" for name, value in metrics.items())
            for part, metrics in self.metrics.items()
        )
        return f"Run({self.report['model']}: {self.report['outcome']}, {self.report['epochs']} epochs{best}; {parts})"

    def _repr_html_(self) -> str:
        names = sorted({name for metrics in self.metrics.values() for name in metrics})
        rows = [
            (part, *(f"{metrics[name]:.4f}" if name in metrics else "–" for name in names))
            for part, metrics in self.metrics.items()
        ]
        report = self.report
        best = f", best epoch {self.best_epoch}" if self.best_epoch else ""
        head = (
            f"{report['model']} on {report['dataset']}: {report['outcome']} after {report['epochs']} epochs{best}, "
            f"{report['epoch_ms']['median']:.2f} ms per epoch"
        )
        return f"<p>{html.escape(head)}</p>" + table(("", *names), rows) + _curve(report["losses"])


def _report(text: str) -> dict[str, Any]:
    """A report; JSON has null for numbers that are not finite."""
    report: dict[str, Any] = json.loads(text)
    nan = float("nan")
    report["metrics"] = {
        part: {name: nan if value is None else value for name, value in metrics.items()}
        for part, metrics in report["metrics"].items()
    }
    if "losses" in report:
        report["losses"] = [nan if loss is None else loss for loss in report["losses"]]
    return report


def _curve(losses: list[float]) -> str:
    """The loss of each epoch as a line."""
    finite = [loss for loss in losses if loss == loss and abs(loss) != float("inf")]
    if len(finite) < 2:
        return ""
    low, high = min(finite), max(finite)
    span = (high - low) or 1.0
    points = " ".join(
        f"{360 * i / (len(finite) - 1):.1f},{80 - 76 * (loss - low) / span:.1f}" for i, loss in enumerate(finite)
    )
    return (
        "<svg viewBox='0 0 360 84' style='width:24em;height:auto'><polyline fill='none' stroke='currentColor' "
        f"stroke-width='1.5' points='{points}'/></svg><p><small>loss of training, {high:.4g} to {low:.4g}</small></p>"
    )


def dataset_of(data: Any) -> Dataset | None:
    """Data of any kind as a dataset: one already, a folder, a dictionary of arrays, `HeteroData`, a graph of DGL. None
    is the dataset that a model names."""
    if data is None or isinstance(data, Dataset):
        return data
    if isinstance(data, (str, os.PathLike)):
        return Dataset(data)
    if hasattr(data, "node_types") and hasattr(data, "edge_types"):
        from .pyg import from_pyg

        return from_pyg(data)
    if hasattr(data, "ntypes") and hasattr(data, "canonical_etypes"):
        from .dgl import from_dgl

        return from_dgl(data)
    if isinstance(data, Mapping):
        return Dataset.from_dict(data)
    raise TypeError(
        f"data is a {type(data).__name__}; give a folder, an `hgnnc.Dataset`, a dictionary of arrays, a HeteroData or a "
        "graph of DGL"
    )


def _split(model: _native.Model, dataset: Dataset | None, asked: str | None) -> str | None:
    """Masks have no name: as the only split of the vertex type or relation that is trained, they serve whichever the
    model names."""
    if asked is None and dataset is not None and model.target is not None:
        vertex = dataset.vertex_types.get(model.target)
        # The target of a loss over the edges of a relation is `edges of RELATION`.
        of = dataset.relations.get(model.target.removeprefix("edges of ")) if vertex is None else vertex
        if of is not None and list(of.splits) == [MASKS]:
            return MASKS
    return asked


class Model:
    """A model without errors. `hgnnc.load` makes one."""

    def __init__(self, native: _native.Model) -> None:
        self._native = native
        self.weights: Weights | None = None
        """The weights of the last run, or those that were loaded."""
        self._metadata: str | None = None  # of the artifact with these weights, where they were trained here

    @property
    def name(self) -> str:
        """Its name."""
        return self._native.name

    @property
    def outputs(self) -> list[str]:
        """Names of its outputs."""
        return self._native.outputs

    @property
    def text(self) -> str:
        """Its source; of an artifact, which has none, the forward program."""
        return self._native.text

    @property
    def warnings(self) -> list[Diagnostic]:
        """Diagnostics of the model alone."""
        return diagnostics(self._native.warnings)

    def check(self, data: Any, split: str | None = None) -> list[Diagnostic]:
        """Checks the model against data, as `hgnnc check --data` does, and returns the warnings.

        Raises `ModelError` if they do not fit together.
        """
        dataset = dataset_of(data)
        if dataset is None:
            raise TypeError("data is None; give what the model is to be checked against")
        return diagnostics(self._native.check(dataset._native, _split(self._native, dataset, split)))

    def fit(
        self,
        data: Any = None,
        *,
        epochs: int | None = None,
        seed: int | None = None,
        threads: int | None = None,
        split: str | None = None,
        memory_budget: int | None = None,
        device: str = "auto",
        init: Union[str, os.PathLike[str], Mapping[str, Any], None] = None,
        on_epoch: Callable[[Epoch], Any] | None = None,
        progress: bool = True,
    ) -> Run:
        """Trains the model, and keeps the weights of the best epoch.

        `data` is a folder, a `Dataset`, a dictionary of arrays, a HeteroData or a graph of DGL; without it the dataset
        that the model names. `memory_budget` is in bytes. `init` are weights to begin with. `on_epoch` is called after
        each epoch; if it returns False, training ends. Ctrl-C ends training after the epoch, and the run is returned
        with `interrupted` set; a second one gives it up.
        """
        dataset = dataset_of(data)
        options = _options(self._native, dataset, split, device, threads, memory_budget, seed, epochs)
        start = None
        if init is not None:
            start = _given(init if isinstance(init, Mapping) else _native.Model.read_weights(os.fspath(init)))
        shown = Progress(progress)

        def heard(kind: str, payload: Any) -> Any:
            if kind != "epoch":
                return _heard(kind, payload)
            number, planned, loss, criterion, best, ms, within = payload
            text = f"loss {loss:.4f}" + (f"  {criterion[0]} {criterion[1]:.4f}" if criterion else "")
            if within is not None:
                shown.update(number - 1 + within[0] / max(within[1], 1), planned, text)
                return None
            shown.update(number, planned, f"{text}  {ms:.1f} ms")
            if on_epoch is None:
                return None
            answer = on_epoch(Epoch(number, planned, loss, criterion, best, ms))
            return False if isinstance(answer, (bool, np.bool_)) and not answer else None

        native = None if dataset is None else dataset._native
        try:
            report, weights, metadata, interrupted, epochs_done = self._native.fit(native, options, start, heard)
        finally:
            shown.finish()
        self.weights, self._metadata = weights, metadata
        history = [Epoch(*fields[:6]) for fields in epochs_done]

        def profile(epochs: int | None) -> Profile:
            asked = {**options, "epochs": whole("epochs", epochs)}
            return Profile(*self._native.profile(native, asked, _heard))

        return Run(_report(report), history, weights, interrupted, profile)

    def evaluate(
        self,
        data: Any = None,
        *,
        split: str | None = None,
        weights: Mapping[str, Any] | None = None,
        threads: int | None = None,
        device: str = "auto",
    ) -> dict[str, dict[str, float]]:
        """Metrics of `train`, `val` and `test` with the weights of the model, or with others."""
        dataset = dataset_of(data)
        options = _options(self._native, dataset, split, device, threads)
        report = self._native.evaluate(_native_of(dataset), options, self._weights(weights), _heard)
        metrics: dict[str, dict[str, float]] = _report(report)["metrics"]
        return metrics

    def predict(
        self,
        data: Any = None,
        *,
        outputs: list[str] | None = None,
        probabilities: bool = False,
        weights: Mapping[str, Any] | None = None,
        threads: int | None = None,
        device: str = "auto",
    ) -> Predictions:
        """The outputs for all vertices of their types, or some of the outputs. `probabilities` turns the logits of
        classes of the output that is trained into probabilities."""
        dataset = dataset_of(data)
        options = _options(self._native, dataset, None, device, threads)
        given = self._weights(weights)
        return Predictions(self._native.predict(_native_of(dataset), options, given, outputs, probabilities, _heard))

    def predict_graphs(
        self,
        data: Any,
        output: str,
        *,
        weights: Mapping[str, Any] | None = None,
        threads: int | None = None,
        device: str = "auto",
    ) -> dict[str, GraphValues]:
        """An output of semantic graphs or of their edges, such as the weights of metapaths or attention, by semantic
        graph: `output beta: graphs = conv.beta`, `output attention: edges = conv.alpha`."""
        dataset = dataset_of(data)
        options = _options(self._native, dataset, None, device, threads)
        native, given = _native_of(dataset), self._weights(weights)
        found = self._native.predict_graphs(native, options, given, output, _heard)
        return {name: GraphValues(values, None if ends is None else np.stack(ends)) for name, values, ends in found}

    def score(
        self,
        data: Any,
        pairs: Mapping[Union[str, EdgeType], Any],
        *,
        weights: Mapping[str, Any] | None = None,
        threads: int | None = None,
        device: str = "auto",
    ) -> dict[Union[str, EdgeType], Floats]:
        """Scores of pairs of vertices, of a model that predicts links: by relation, an array [2, pairs], sources above
        destinations."""
        dataset = dataset_of(data)
        asked: list[tuple[str, Ints, Ints]] = []
        names: dict[str, Union[str, EdgeType]] = {}
        for relation, value in pairs.items():
            name = relation if isinstance(relation, str) else relation[1]
            if not isinstance(relation, str) and dataset is not None:
                name = next((r.name for r in dataset.relations.values() if r.edge_type == relation), name)
            if name in names:
                raise InputError(f"`pairs[{names[name]!r}]` and `pairs[{relation!r}]` are of the same relation")
            names[name] = relation
            src, dst = edge_index(value, f"pairs[{relation!r}]")
            asked.append((name, np.ascontiguousarray(src), np.ascontiguousarray(dst)))
        options = _options(self._native, dataset, None, device, threads)
        found = self._native.score(_native_of(dataset), options, self._weights(weights), asked, _heard)
        return {names[name]: scores for name, scores in found.items()}

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the weights to a `.safetensors` file, or the model with its weights to a `.hgnnx` file, an artifact.

        `hgnnc.load` and the commands `hgnnc eval` and `hgnnc infer` read both. An artifact needs no source; it can be
        written after `fit`, which knows the classes and the schema of the data.
        """
        name = os.fspath(path)
        if name.endswith(".safetensors"):
            _native.Model.write_weights(name, self._weights(None), None)
        elif name.endswith(".hgnnx"):
            weights = self._weights(None)
            if self._metadata is None:
                raise InputError(
                    f"`{name}`: an artifact describes the data that its model was trained on: call `fit` first, or run "
                    "`hgnnc build -o`; weights alone are saved as `.safetensors`"
                )
            _native.Model.write_weights(name, weights, self._metadata)
        else:
            raise InputError(f"`{name}`: weights are saved as `.safetensors`, and models with weights as `.hgnnx`")

    def load_weights(self, path: str | os.PathLike[str]) -> Model:
        """Reads weights from a `.safetensors` file, and returns the model."""
        self.weights, self._metadata = _native.Model.read_weights(os.fspath(path)), None
        return self

    def _weights(self, given: Mapping[str, Any] | None) -> dict[str, tuple[list[int], Floats]]:
        weights = self.weights if given is None else given
        if weights is None:
            raise InputError("the model has no weights: call `fit` or `load_weights` first, or give `weights`")
        return _given(weights)

    def __repr__(self) -> str:
        state = "without weights" if self.weights is None else f"{len(self.weights)} weights"
        return f"Model({self.name!r}, outputs {self.outputs}, {state})"

    def _repr_html_(self) -> str:
        rows = [(name, shape) for name, shape in self._native.params]
        source = f"<details><summary>source</summary><pre>{html.escape(self.text)}</pre></details>"
        outputs = ", ".join(self.outputs)
        return (
            f"<p><b>{html.escape(self.name)}</b>, outputs {html.escape(outputs)}</p>"
            + table(("parameter", "shape"), rows)
            + source
        )


def _native_of(dataset: Dataset | None) -> _native.Dataset | None:
    return None if dataset is None else dataset._native


def _given(weights: Mapping[str, Any]) -> dict[str, tuple[list[int], Floats]]:
    found = {}
    for name, value in weights.items():
        array = np.ascontiguousarray(value, dtype=np.float32)
        found[name] = (list(np.shape(value)), array.reshape(-1))
    return found


def _options(
    model: _native.Model,
    dataset: Dataset | None,
    split: str | None,
    device: str,
    threads: int | None,
    memory_budget: int | None = None,
    seed: int | None = None,
    epochs: int | None = None,
) -> dict[str, Any]:
    return {
        "split": _split(model, dataset, split), "device": device, "threads": whole("threads", threads) or 0,
        "memory_budget": whole("memory_budget", memory_budget), "seed": whole("seed", seed),
        "epochs": whole("epochs", epochs),
    }  # fmt: skip


def _heard(kind: str, payload: Any) -> Any:
    """Notes go to the log `hgnnc`, warnings to `warnings`."""
    if kind == "note":
        _log.info(payload)
    elif kind == "warning":
        warn(payload)
    return None


def whole(name: str, value: Any) -> int | None:
    """An option that is a whole number of 64 bits, or None."""
    if value is None:
        return None
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"`{name}` is {value!r}, and should be a whole number") from None
    if not 0 <= number < 1 << 64:
        raise ValueError(f"`{name}` is {number}, and should be {'less than 2^64' if number > 0 else '0 or more'}")
    return number


def _number(value: Any) -> str:
    """A number as the language writes it."""
    try:
        return str(operator.index(value))
    except TypeError:
        return repr(float(value))


def is_text(model: str | os.PathLike[str]) -> bool:
    """Whether it is the text of a model, and not the path of its file."""
    return isinstance(model, str) and ("\n" in model or "{" in model)


def load(
    model: str | os.PathLike[str],
    *,
    weights: str | os.PathLike[str] | None = None,
    constants: Mapping[str, float] | None = None,
) -> Model:
    """Reads a model, a `.hgnn` file or its text, and optionally its weights; or an artifact, a `.hgnnx` file with both.

    A text is what has a line break or a brace. `constants` are other values for constants of the source, as
    `--set NAME=VALUE` of the command. Raises `ModelError` with all diagnostics.
    """
    settings = [(name, _number(value)) for name, value in (constants or {}).items()]
    if is_text(model):
        native, trained = _native.Model.load("model.hgnn", str(model), settings)
    else:
        native, trained = _native.Model.load(os.fspath(model), None, settings)
    found = Model(native)
    if trained is not None:
        found.weights, found._metadata = trained
    return found if weights is None else found.load_weights(weights)

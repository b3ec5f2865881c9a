"""A model as a layer of a PyTorch network, with autograd through it.

``Layer`` is a ``torch.nn.Module``: its parameters are ``torch.nn.Parameter``s, any optimizer of PyTorch trains them,
and gradients reach the tensors that are passed to it, so that a text encoder in front of it trains as well::

    import torch
    from hgnnc.torch import Layer

    layer = Layer("han.hgnn", "data/acm", inputs=["Paper.x"])
    encoder = torch.nn.Linear(768, 64)
    optimizer = torch.optim.Adam([*encoder.parameters(), *layer.parameters()])
    loss = torch.nn.functional.cross_entropy(layer(encoder(texts))[train], labels[train])
    loss.backward()
    optimizer.step()

Features that are not among ``inputs`` are those of the dataset. Everything is f32 and runs on the processor; tensors on
another device are copied. ``import hgnnc`` does not import this module, and so no torch.
"""

from __future__ import annotations

import copy
import ctypes
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from . import _native
from ._errors import InputError, warn
from .dataset import Dataset
from .model import dataset_of, is_text, whole

__all__ = ["Layer"]


def _pause() -> Callable[[int], object] | None:
    """`omp_pause_resource_all` of the OpenMP library that PyTorch has loaded. Unless they wait passively, its threads spin
    for some milliseconds after each operation, on the processors that the layer computes on: layers of few milliseconds
    would take twice as long. After a pause, the next operation of PyTorch starts its threads again."""
    if os.environ.get("OMP_WAIT_POLICY", "").lower() == "passive":
        return None
    try:
        found: Callable[[int], object] = ctypes.CDLL(None).omp_pause_resource_all
    except (AttributeError, OSError, TypeError):
        return None
    return found


_omp_pause = _pause()
_OMP_PAUSE_SOFT = 1


def _pause_torch() -> None:
    if _omp_pause is not None and torch.get_num_threads() > 1:
        _omp_pause(_OMP_PAUSE_SOFT)


class Layer(torch.nn.Module):
    """A ``.hgnn`` model bound to the graphs of a dataset.

    Arguments:
        model: path of a ``.hgnn`` file, or the text of a model. It needs no ``train`` block, which is ignored.
        data: a dataset, its folder, or what ``hgnnc.Model.fit`` takes: a dictionary of arrays, a HeteroData, a graph of
            DGL.
        inputs: the features that each call passes, such as ``"Paper.x"``, declared dense: ``x: f32[64]``. Rows are the
            vertices in the order of the dataset.
        seed: seed of the initial parameters.
        threads: number of threads; 0 for one for each processor.

    The keys of ``state_dict()`` are the names of parameters in files that hgnnc writes. In training mode
    (``module.train()``) dropout masks are drawn with a seed from ``torch``'s generator; in evaluation mode nothing is
    dropped. Second derivatives are not supported.
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        data: Any,
        *,
        inputs: Sequence[str] = (),
        seed: int = 0,
        threads: int = 0,
    ) -> None:
        super().__init__()
        if isinstance(inputs, str):
            inputs = (inputs,)
        name, text = _text(model)
        self._job = (name, text, list(inputs), whole("threads", threads) or 0)
        found = data if isinstance(data, (str, os.PathLike)) else dataset_of(data)
        if found is None:
            raise TypeError("data is None; give the dataset of the layer")
        self._data: Dataset | str | os.PathLike[str] = found
        seed = whole("seed", seed) or 0
        self._open(gradients=False)
        self._places: list[tuple[str, ...]] = []
        for (key, _), numbers in zip(self._native.params(), self._native.initial_params(seed), strict=True):
            path = tuple(key.split("."))
            owner: torch.nn.Module = self
            for part in path[:-1]:
                # Names of a model may be names of methods of a module, so that `add_module` would refuse them.
                owner = owner._modules.setdefault(part, _Part())
            owner._parameters[path[-1]] = torch.nn.Parameter(torch.from_numpy(numbers))
            self._places.append(path)

    def _open(self, gradients: bool) -> None:
        """Compiles the layer, with or without the gradients of its inputs."""
        name, text, inputs, threads = self._job
        data = self._data if isinstance(self._data, Dataset) else Dataset(self._data)
        again = hasattr(self, "_native")
        self._native, found = _native.Layer.open(name, text, data._native, inputs, gradients, threads)
        self._gradients = gradients
        for warning in [] if again else found:
            warn(warning)
        self._inputs: list[tuple[str, tuple[int, ...]]] = [(n, tuple(s)) for n, s in self._native.inputs()]
        self._outputs = [n for n, _ in self._native.outputs()]

    def forward(self, *inputs: torch.Tensor | Mapping[str, torch.Tensor]) -> torch.Tensor | dict[str, torch.Tensor]:
        """Computes the outputs from the inputs: tensors in the order of ``inputs``, or a dict from their names.

        Returns a tensor if the model has one output, else a dict from names to tensors.
        """
        tensors = self._check(inputs)
        # Features that need no gradient often come first: their gradient would be the largest product of all.
        if not self._gradients and torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
            self._open(gradients=True)
        params = [self._param(path) for path in self._places]
        device = next((tensor.device for tensor in [*tensors, *params]), torch.device("cpu"))
        tensors = [tensor.to("cpu").contiguous() for tensor in [*tensors, *params]]
        seed = None
        if self.training and self._native.has_dropout():
            seed = int(torch.randint(1 << 62, ()))
        results = _Pass.apply(self._native, len(self._inputs), seed, *tensors)
        outputs = [result.to(device) for result in results]
        return outputs[0] if len(outputs) == 1 else dict(zip(self._outputs, outputs, strict=True))

    def _check(self, inputs: tuple[Any, ...]) -> list[torch.Tensor]:
        names = [name for name, _ in self._inputs]
        if len(inputs) == 1 and isinstance(inputs[0], Mapping):
            given = inputs[0]
            if set(given) != set(names):
                raise InputError(f"the layer takes {_list(names)}, not {_list(given)}")
            inputs = tuple(given[name] for name in names)
        if len(inputs) != len(names):
            raise TypeError(f"the layer takes {len(names)} inputs ({_list(names)}), not {len(inputs)}")
        for (name, shape), tensor in zip(self._inputs, inputs, strict=True):
            if not isinstance(tensor, torch.Tensor):
                raise TypeError(f"{name} is a {type(tensor).__name__}, not a tensor")
            if tensor.layout != torch.strided:
                raise TypeError(f"{name} is sparse: inputs of a layer are dense; features of the dataset may be sparse")
            if tensor.dtype != torch.float32:
                raise TypeError(f"{name} has dtype {tensor.dtype}: pass {name}.float(), a layer computes in float32")
            if tuple(tensor.shape) != shape:
                rows = f"{name} has shape {tuple(tensor.shape)}, not {shape}: a row for each vertex of the dataset"
                raise InputError(rows)
        return list(inputs)

    def _param(self, path: tuple[str, ...]) -> torch.Tensor:
        owner: torch.nn.Module = self
        for part in path[:-1]:
            owner = owner._modules[part]  # type: ignore[assignment]
        param = owner._parameters[path[-1]]
        if param is None or param.dtype != torch.float32:
            raise TypeError(f"parameter {'.'.join(path)} is not float32: a layer computes in float32")
        return param

    def extra_repr(self) -> str:
        inputs = ", ".join(f"{name}: {list(shape)}" for name, shape in self._inputs)
        return f"{self._job[0]}, inputs: [{inputs}], outputs: {self._outputs}"

    def __getstate__(self) -> dict[str, Any]:
        state = self.__dict__.copy()
        del state["_native"]
        return state

    def __deepcopy__(self, memo: dict[int, Any]) -> Layer:
        # Copies share the dataset, which does not change.
        memo[id(self._data)] = self._data
        new = self.__class__.__new__(self.__class__)
        memo[id(self)] = new
        new.__setstate__(copy.deepcopy(self.__getstate__(), memo))
        return new

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._open(self._gradients)


class _Part(torch.nn.Module):
    """The parameters whose names have a common prefix."""


class _Pass(torch.autograd.Function):
    """Forward pass, and vector-Jacobian product."""

    @staticmethod
    def forward(
        ctx: Any, native: _native.Layer, num_inputs: int, seed: int | None, *tensors: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        arrays = [tensor.detach().numpy() for tensor in tensors]
        _pause_torch()
        number, outputs = native.forward(arrays[:num_inputs], arrays[num_inputs:], seed)
        ctx.save_for_backward(*tensors)
        ctx.set_materialize_grads(False)
        ctx.native, ctx.num_inputs, ctx.seed, ctx.number = native, num_inputs, seed, number
        return tuple(torch.from_numpy(output) for output in outputs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor | None) -> tuple[Any, ...]:
        arrays = [tensor.detach().numpy() for tensor in ctx.saved_tensors]
        given = [None if g is None else g.detach().to(torch.float32).contiguous().numpy() for g in gradients]
        wanted = list(ctx.needs_input_grad[3:])
        inputs, params = arrays[: ctx.num_inputs], arrays[ctx.num_inputs :]
        _pause_torch()
        found = ctx.native.backward(ctx.number, inputs, params, ctx.seed, given, wanted)
        return (None, None, None, *[None if g is None else torch.from_numpy(g) for g in found])


def _text(model: str | os.PathLike[str]) -> tuple[str, str]:
    """Name and text of a model that is a path or the text itself."""
    if is_text(model):
        return "model", str(model)
    path = os.fspath(model)
    return path, _native.Layer.source(path)


def _list(names: Any) -> str:
    return ", ".join(repr(name) for name in names) or "no inputs"

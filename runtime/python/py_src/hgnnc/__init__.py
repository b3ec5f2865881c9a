"""A compiler for heterogeneous graph neural networks.

>>> model = hgnnc.load("han.hgnn")
>>> run = model.fit(data, epochs=200, seed=0)
>>> logits = model.predict(data)["topic_logits"]
"""

from __future__ import annotations

from ._arrays import Sparse
from ._errors import DataError, Diagnostic, HgnncError, HgnncWarning, InputError, MachineError, ModelError
from .dataset import Dataset, Label, Relation, VertexType
from .dgl import from_dgl, to_dgl
from .model import Epoch, GraphValues, Model, Predictions, Profile, Run, load
from .pyg import from_pyg, to_pyg

__all__ = [
    "DataError",
    "Dataset",
    "Diagnostic",
    "Epoch",
    "GraphValues",
    "HgnncError",
    "HgnncWarning",
    "InputError",
    "Label",
    "MachineError",
    "Model",
    "ModelError",
    "Predictions",
    "Profile",
    "Relation",
    "Run",
    "Sparse",
    "VertexType",
    "from_dgl",
    "from_pyg",
    "load",
    "to_dgl",
    "to_pyg",
]

__version__ = "0.1.0"

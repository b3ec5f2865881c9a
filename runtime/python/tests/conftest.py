"""A small graph: papers with topics, their authors and their subjects."""

from __future__ import annotations

import os
import pathlib
import subprocess
from typing import Any

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]

MODEL = """
use std::rgcn::RgcnConv

schema Small {
    vertex Paper from "paper" { x: f32[6], topic: class[3] from "y" }
    vertex Author from "author" { x: embedding[6] }
    relation writes: Author -> Paper
    relation written_by: Paper -> Author from "written-by"
}

model Net(schema: Small) {
    let conv = relu(RgcnConv(hidden: 8) over [writes, written_by] of features)
    output logits: Paper = linear(conv.Paper, 3)
    output authors: Author = conv.Author
}

train Net {
    split     "any"
    loss      cross_entropy(logits, Paper.topic)
    optimizer adam(lr: 0.01)
    epochs    6
}
"""


def small(seed: int = 0) -> dict[Any, Any]:
    """A dictionary of arrays, with ids in no order and duplicate edges."""
    random = np.random.default_rng(seed)
    papers, authors, edges = 60, 25, 150
    y = random.integers(0, 3, papers)
    part = random.permutation(papers)
    masks = {}
    for name, own in (("train", part[:30]), ("val", part[30:40]), ("test", part[40:])):
        masks[f"{name}_mask"] = np.zeros(papers, bool)
        masks[f"{name}_mask"][own] = True
    x = random.normal(size=(papers, 6)).astype(np.float32)
    x[np.arange(papers), y] += 2
    src, dst = random.integers(0, authors, edges), random.integers(0, papers, edges)
    return {
        "paper": {"x": x, "y": y, **masks},
        "author": authors,
        ("author", "writes", "paper"): np.stack([src, dst]),
        ("paper", "written-by", "author"): np.stack([dst, src]),
    }


@pytest.fixture
def data() -> dict[Any, Any]:
    return small()


@pytest.fixture
def model() -> str:
    return MODEL


def command() -> pathlib.Path:
    """The command `hgnnc`, that in `HGNNC` or of a build in the target folder."""
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    for path in (os.environ.get("HGNNC"), target / "release" / "hgnnc", target / "debug" / "hgnnc"):
        if path and pathlib.Path(path).is_file():
            return pathlib.Path(path)
    pytest.skip("there is no command hgnnc: build it, or name it in HGNNC")


def hgnnc_command(*arguments: Any) -> str:
    """Runs the command, and returns what it prints."""
    done = subprocess.run([command(), *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout

"""What is common to the layouts: datasets as dictionaries of arrays, and their comparison."""

import importlib.metadata
import os
import subprocess
import tomllib
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("HGNN_DATA", ROOT.parent / "shared/data"))


class Layout:
    """A layout of another library. See README.md."""

    kind = ""
    peer = ""
    title = ""

    def refuses(self, held):
        return None

    def expected(self, held):
        return held

    def read(self, folder, held):
        return None

    def back(self, held):
        return self.expected(held)

    def version(self):
        return f"{self.peer} {importlib.metadata.version(self.peer)}" if self.peer else ""


class Held(dict):
    """Arrays of a dataset by name, and the names of its types and relations."""

    def __init__(self, *args):
        super().__init__(*args)
        self.types, self.relations, self.labels, self.splits = [], [], [], []

    def copy(self):
        copy = Held(self)
        copy.types, copy.relations = self.types, self.relations
        copy.labels, copy.splits = list(self.labels), list(self.splits)
        return copy

    def first_labels(self):
        """The first label of each type, whose name becomes `y`, and what has no other."""
        part, seen = self.copy(), {}
        part.labels = []
        for ty, name, kind in self.labels:
            values = part.pop(f"{ty}.{name}")
            if seen.setdefault(ty, values) is values:
                part.labels.append((ty, "y", kind))
        part.update({f"{ty}.y": values for ty, values in seen.items()})
        return part

    def drop(self, *ends):
        """Without the arrays whose names end so."""
        for name in [name for name in self if name.endswith(ends)]:
            del self[name]
        return self


def held(folder):
    """The arrays of a dataset of hgnnc: `TYPE.count`, `.x`, `.time`, `.ids`; `RELATION.edges` [2, E], `.weight`, `.attr`,
    `.time`; `TYPE.LABEL` (float64, NaN where there is no label); `TYPE/SPLIT.PART` and `LINKSPLIT.PART` [3, n]."""
    folder = Path(folder)
    tables = tomllib.loads((folder / "dataset.toml").read_text(encoding="utf-8"))

    def array(file):
        return np.load(folder / file)

    all = Held()
    for of in tables["vertex_type"]:
        name, count = of["name"], of["count"]
        all.types.append((name, count))
        all[f"{name}.count"] = np.array(count)
        x = of.get("features")
        if x and x["kind"] == "dense":
            all[f"{name}.x"] = array(x["file"]).astype(np.float32)
        elif x:
            dense = np.zeros((count, x["dim"]), np.float32)
            indptr = array(x["indptr"])
            dense[np.repeat(np.arange(count), np.diff(indptr)), array(x["indices"])] = array(x["data"])
            all[f"{name}.x"] = dense
        if "time" in of:
            all[f"{name}.time"] = array(of["time"])
        if "ids" in of and of["ids"]["kind"] == "integer":
            all[f"{name}.ids"] = array(of["ids"]["file"]).astype(str)
        elif "ids" in of:
            offsets, text = array(of["ids"]["offsets"]), array(of["ids"]["bytes"]).tobytes()
            all[f"{name}.ids"] = np.array([text[a:b].decode() for a, b in zip(offsets, offsets[1:])])
    for of in tables.get("relation", []):
        name = of["name"]
        all.relations.append((of["src"], name, of["dst"]))
        begin, end = of.get("columns", (None, None))
        all[f"{name}.edges"] = array(of["file"])[:, begin:end].astype(np.int64)
        for field, key in (("weight", "weight"), ("time", "time")):
            if field in of:
                all[f"{name}.{key}"] = array(of[field])
        if "features" in of:
            all[f"{name}.attr"] = array(of["features"]["file"])
    for of in tables.get("label", []):
        values = array(of["file"]).astype(np.float64)
        if of.get("kind", "single") == "single":
            values[values < 0] = np.nan
        else:
            values[(values == -1).reshape(len(values), -1).all(axis=1)] = np.nan
            if "mask_file" in of:
                values[array(of["mask_file"]) == 0] = np.nan
        if of.get("kind") == "real" and values.ndim == 2 and values.shape[1] == 1:
            values = values[:, 0]
        all.labels.append((of["vertex_type"], of.get("name", "y"), of.get("kind", "single")))
        all[f"{of['vertex_type']}.{of.get('name', 'y')}"] = values
    for of in tables.get("split", []):
        all.splits.append((of["vertex_type"], of["name"]))
        for part in ("train", "val", "test"):
            vertices = np.sort(array(of[part])) if part in of else np.zeros(0, np.int64)
            all[f"{of['vertex_type']}/{of['name']}.{part}"] = vertices
    for of in tables.get("link_split", []):
        for part in ("val", "test"):
            links = array(of[part]) if part in of else np.zeros((3, 0), np.int64)
            all[f"{of['name']}.links.{part}"] = links
    return all


def differences(found, expected):
    """Names of arrays that differ, with how."""
    wrong = []
    for name in sorted(found.keys() | expected.keys()):
        if name not in found or name not in expected:
            wrong.append(f"{name}: {'missing' if name in expected else 'not expected'}")
            continue
        a, b = np.asarray(found[name]), np.asarray(expected[name])
        if a.size == 0 and b.size == 0:
            continue
        if a.shape != b.shape:
            wrong.append(f"{name}: shape {a.shape}, expected {b.shape}")
        elif a.dtype.kind in "US" or b.dtype.kind in "US":
            if not (a.astype(str) == b.astype(str)).all():
                wrong.append(f"{name}: {np.flatnonzero(a.astype(str) != b.astype(str))[:3]} differ")
        elif not np.array_equal(a.astype(np.float64), b.astype(np.float64), equal_nan=True):
            wrong.append(f"{name}: {(a.astype(np.float64) != b.astype(np.float64)).sum()} of {a.size} values differ")
    return wrong


def values(arrays):
    return sum(np.asarray(array).size for array in arrays.values())


def run(command, *args, works=True):
    """Runs hgnnc. Returns what it says."""
    done = subprocess.run([str(command), *map(str, args)], capture_output=True, text=True)
    if (done.returncode == 0) != works:
        raise SystemExit(f"{' '.join(map(str, args))}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr

"""What is common to the layouts: datasets as dictionaries of arrays, and their comparison."""

import importlib.metadata
import os
import subprocess
import tempfile
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
    compared = ""
    # The interpreter that has the library.
    python = None

    def refuses(self, held):
        return None

    def remark(self, held):
        return None

    def expected(self, held):
        return held

    def config(self, folder):
        return None

    def read(self, folder, held):
        return None

    def back(self, held):
        return self.expected(held)

    def version(self):
        return f"{self.peer} {importlib.metadata.version(self.peer)}" if self.peer else ""


class DglLayout(Layout):
    """A layout that `read_dgl.py` reads, in an interpreter of its own."""

    def read_by(self, folder):
        """The arrays that the library finds in a folder."""
        with tempfile.TemporaryDirectory() as work:
            out = Path(work) / "found.npz"
            script = Path(__file__).parent / "read_dgl.py"
            command = [self.python, "-W", "ignore", script, self.kind, Path(folder).resolve(), out]
            done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"DGLBACKEND": "pytorch"})
            if done.returncode:
                raise SystemExit(f"{self.title}: its reader failed\n{done.stdout}{done.stderr}")
            with np.load(out) as file:
                return {str(name): file[f"array{i}"] for i, name in enumerate(file["names"])}

    def version(self):
        code = f"import importlib.metadata; print(importlib.metadata.version('{self.peer}'))"
        done = subprocess.run([self.python, "-c", code], capture_output=True, text=True, check=True)
        return f"{self.peer} {done.stdout.strip()}"


class Held(dict):
    """Arrays of a dataset by name, and the names of its types and relations."""

    def __init__(self, *args):
        super().__init__(*args)
        self.types, self.relations, self.labels, self.splits, self.link_splits = [], [], [], [], []
        # Vertices of the kind `literal`, by type.
        self.literals = {}

    def copy(self):
        copy = Held(self)
        copy.types, copy.relations, copy.literals = self.types, self.relations, self.literals
        copy.labels, copy.splits, copy.link_splits = list(self.labels), list(self.splits), list(self.link_splits)
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

    def first_splits(self, name):
        """The first split of each type and of links, under this name. Links are in the order of their relations."""
        part, seen = self.copy(), set()
        part.splits, part.link_splits = [], [name] if self.link_splits else []
        for ty, split in self.splits:
            parts = {p: part.pop(f"{ty}/{split}.{p}") for p in PARTS}
            if ty not in seen:
                part.splits.append((ty, name))
                part.update({f"{ty}/{name}.{p}": vertices for p, vertices in parts.items()})
            seen.add(ty)
        for split in self.link_splits:
            links = {p: part.pop(f"{split}.links.{p}") for p in PARTS[1:]}
            if split == self.link_splits[0]:
                part.update({f"{name}.links.{p}": by_relation(of) for p, of in links.items()})
        return part

    def only_classes(self):
        """Without labels of another kind than one class, and their splits."""
        part = self.copy()
        part.labels = [label for label in self.labels if label[2] == "single"]
        for ty, name, kind in self.labels:
            if kind != "single":
                del part[f"{ty}.{name}"]
        part.splits = [(ty, name) for ty, name in self.splits if any(ty == of for of, _, _ in part.labels)]
        for ty, name in set(self.splits) - set(part.splits):
            part.drop(*(f"{ty}/{name}.{p}" for p in PARTS))
        return part

    def drop(self, *ends):
        """Without the arrays whose names end so."""
        for name in [name for name in self if name.endswith(ends)]:
            del self[name]
        return self


PARTS = ("train", "val", "test")


def by_relation(links):
    """Links [3, n] in the order of their relations."""
    return links[:, np.argsort(links[1], kind="stable")]


def stacked(found, relations, name):
    """Puts `RELATION.links.PART` [2, n] of a library together, as `name.links.PART` [3, n]."""
    for part in PARTS[1:]:
        links = [(number, found.pop(f"{r}.links.{part}", None)) for number, (_, r, _) in enumerate(relations)]
        all = [np.stack([of[0], np.full(of.shape[1], number), of[1]]) for number, of in links if of is not None]
        if all:
            found[f"{name}.links.{part}"] = np.concatenate(all, axis=1)
    return found


def first_seen(values):
    """A number for each value, in the order in which they are met."""
    _, first, number = np.unique(values, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[number]


def ranks(values):
    """Classes by their rank among those that are there, NaN where there is none."""
    known = ~np.isnan(values)
    out = np.full(len(values), np.nan)
    out[known] = np.unique(values[known], return_inverse=True)[1]
    return out


def held(folder):
    """The arrays of a dataset of hgnnc: `TYPE.count`, `.x`, `.time`, `.ids`, `.kind` (numbered as they are met);
    `RELATION.edges` [2, E], `.weight`, `.attr`, `.time`; `TYPE.LABEL` (float64, NaN where there is no label);
    `TYPE/SPLIT.PART` and `LINKSPLIT.links.PART` [3, n]."""
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
        if "kind_file" in of:
            kinds = array(of["kind_file"])
            all[f"{name}.kind"] = first_seen(kinds)
            all.literals[name] = np.flatnonzero(np.array(of["kind_names"])[kinds] == "literal")
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
        for part in PARTS:
            vertices = np.sort(array(of[part])) if part in of else np.zeros(0, np.int64)
            all[f"{of['vertex_type']}/{of['name']}.{part}"] = vertices
    for of in tables.get("link_split", []):
        all.link_splits.append(of["name"])
        for part in PARTS[1:]:
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


def text_of(rows):
    """Each row as numbers between commas, which read back as the same numbers."""
    whole = (rows == np.trunc(rows)).all(axis=1)
    return [",".join(map(str, (row.astype(int) if of else row).tolist())) for row, of in zip(rows, whole)]


def values(arrays):
    return sum(np.asarray(array).size for array in arrays.values())


def run(command, *args, works=True):
    """Runs hgnnc. Returns what it says."""
    done = subprocess.run([str(command), *map(str, args)], capture_output=True, text=True)
    if (done.returncode == 0) != works:
        raise SystemExit(f"{' '.join(map(str, args))}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout + done.stderr

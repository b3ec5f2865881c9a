"""HGB, read with HGBDataset of PyG. Link prediction it refuses (NotImplementedError)."""

import shutil
import tempfile
from pathlib import Path

import numpy as np

from common import Layout


def pyg_relation(src, name, dst):
    """The edge type that PyG makes of `src-name-dst`."""
    part = f"{src}-{name}-{dst}".split("-")[1]
    return (src, "to" if part == dst or part[1:] == dst else part, dst)


def groups(held):
    """Names of the relations behind each edge type of PyG, which takes a part of a name with `-`."""
    by_type = {}
    for relation in held.relations:
        by_type.setdefault(pyg_relation(*relation), []).append(relation[1])
    return by_type


class Hgb(Layout):
    kind, peer, title = "hgb", "torch_geometric", "HGB"
    compared = (
        "`HGBDataset` of PyG has one mask to train and validate on, and no ids; it refuses datasets without labels, and takes relations whose"
        " names are equal up to a `-` for one, which the export notes. Not held: times, features of edges, kinds, further labels and splits of a type"
    )

    def remark(self, held):
        merged = [names for names in groups(held).values() if len(names) > 1]
        if not held.labels or not merged:
            return None
        return "; ".join(f"PyG takes {len(names)} relations, `{names[0]}` among them, for one" for names in merged)

    def held_part(self, held):
        """The first label and the first split, without what HGB has no place for."""
        part = held.first_labels().drop(".time", ".attr", ".kind")
        for ty, _, _ in part.labels:
            label = part.pop(f"{ty}.y")
            splits = [split for of, split in held.splits if of == ty]
            for split in splits:
                parts = [part.pop(f"{ty}/{split}.{p}") for p in ("train", "val", "test")]
                if split == splits[0]:
                    known = np.zeros(len(label), bool)
                    known[np.concatenate(parts).astype(np.int64)] = True
                    label = np.where(known.reshape(-1, *[1] * (label.ndim - 1)), label, np.nan)
                    for p, vertices in zip(("train", "val", "test"), parts):
                        part[f"{ty}/hgb.{p}"] = vertices
            part[f"{ty}.y"] = label
        for name in [name for name in part if name.endswith(".weight")]:
            if (part[name] == 1).all():
                del part[name]
        return part

    def expected(self, held):
        part = self.held_part(held).drop(".ids", ".links.val", ".links.test")
        for first, *others in groups(held).values():
            for end in ("edges", "weight") if others else ():
                merged = [part.pop(key) for name in (first, *others) if (key := f"{name}.{end}") in part]
                if merged:
                    part[f"{first}.{end}"] = np.concatenate(merged, axis=-1)
        for ty, _ in held.types:
            if f"{ty}/hgb.train" in part:
                train = np.concatenate([part.pop(f"{ty}/hgb.train"), part.pop(f"{ty}/hgb.val")])
                part[f"{ty}.train"], part[f"{ty}.test"] = np.sort(train), part.pop(f"{ty}/hgb.test")
        return part

    def back(self, held):
        part = self.held_part(held)
        for name in [name for name in part if ".links." in name]:
            part["hgb.links." + name.rsplit(".", 1)[1]] = part.pop(name)
        return part

    def read(self, folder, held):
        from torch_geometric.datasets import HGBDataset

        if not held.labels:
            return None
        name = "imdb" if any(kind == "multi" for _, _, kind in held.labels) else "acm"
        with tempfile.TemporaryDirectory() as root:
            shutil.copytree(folder, Path(root) / name / "raw" / HGBDataset.names[name])
            data = HGBDataset(root, name)[0]
        found = {}
        for ty, _ in held.types:
            store = data[ty]
            found[f"{ty}.count"] = store.num_nodes
            if "x" in store:
                found[f"{ty}.x"] = store.x.numpy()
            if "y" in store:
                y = store.y.numpy().astype(np.float64)
                train, test = store.train_mask.numpy(), store.test_mask.numpy()
                y[~(train | test)] = np.nan
                found[f"{ty}.y"] = y
                found[f"{ty}.train"], found[f"{ty}.test"] = np.flatnonzero(train), np.flatnonzero(test)
        for edge_type, (name, *_) in groups(held).items():
            store = data[edge_type]
            found[f"{name}.edges"] = store.edge_index.numpy()
            if "edge_weight" in store:
                found[f"{name}.weight"] = store.edge_weight.numpy()
        return found


LAYOUT = Hgb()

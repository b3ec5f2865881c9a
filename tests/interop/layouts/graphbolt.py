"""A folder of GraphBolt's OnDiskDataset, written here, and read by OnDiskDataset of DGL."""

import json
import shutil
import tempfile
from pathlib import Path

import numpy as np

from common import PARTS, DglLayout, by_relation, stacked

SETS = {"train": "train_set", "val": "validation_set", "test": "test_set"}


class Graphbolt(DglLayout):
    kind, peer, title = "graphbolt", "dgl", "GraphBolt"
    compared = (
        "edges are in CSV and NumPy files by turns, each split is a task, whose vertices alone have labels. Edges are put into the"
        " order of `_ORIGINAL_EDGE_ID`. Not held: ids, times, kinds, further labels of a type; a `:` in the name of a relation is `_`"
    )

    def part(self, held):
        """What the layout holds, with the names of relations as it can write them."""
        part = held.only_classes().first_labels().drop(".ids", ".time", ".kind")
        names = {name: name.replace(":", "_") for _, name, _ in held.relations}
        part.relations = [(src, names[name], dst) for src, name, dst in held.relations]
        for old, new in names.items():
            for end in ("edges", "weight", "attr"):
                if f"{old}.{end}" in part:
                    part[f"{new}.{end}"] = part.pop(f"{old}.{end}")
        for name in part.link_splits:
            for p in PARTS[1:]:
                part[f"{name}.links.{p}"] = by_relation(part[f"{name}.links.{p}"])
        return part

    def expected(self, held):
        part, seen = self.part(held), set()
        labels = {ty: part.pop(f"{ty}.y") for ty, _, _ in part.labels}
        for ty, name in part.splits:
            y = np.full(len(labels[ty]), np.nan)
            of = np.concatenate([part[f"{ty}/{name}.{p}"] for p in PARTS]).astype(int)
            y[of] = labels[ty][of]
            part[f"{ty}.{name if ty in seen else 'y'}"] = y
            seen.add(ty)
        return part

    def write(self, folder, held):
        part = self.part(held)
        for name in ("edges", "data", "set"):
            (folder / name).mkdir()
        data = []

        def save(path, array, **entry):
            np.save(folder / path, array)
            return entry | {"format": "numpy", "path": path}

        nodes = [{"type": ty, "num": count} for ty, count in held.types]
        for number, (ty, _) in enumerate(held.types):
            if f"{ty}.x" in part:
                x = part[f"{ty}.x"]
                data.append(save(f"data/node_{number}.npy", x, domain="node", type=ty, name="feat"))
        edges, types = [], {}
        for number, (src, name, dst) in enumerate(part.relations):
            types[name] = ty = f"{src}:{name}:{dst}"
            of = part[f"{name}.edges"]
            if number % 2:
                edges.append(save(f"edges/{number}.npy", of, type=ty))
            else:
                np.savetxt(folder / f"edges/{number}.csv", of.T, "%d", ",")
                edges.append({"type": ty, "format": "csv", "path": f"edges/{number}.csv"})
            for key, called in (("weight", "weight"), ("attr", "feat")):
                if f"{name}.{key}" in part:
                    array = part[f"{name}.{key}"]
                    data.append(save(f"data/{called}_{number}.npy", array, domain="edge", type=ty, name=called))
        tasks = []
        for name in dict.fromkeys([split for _, split in part.splits] + part.link_splits):
            task = {"name": name} | {of: [] for of in SETS.values()}
            for ty, split in part.splits:
                for p, of in SETS.items() if split == name else ():
                    seeds = part[f"{ty}/{name}.{p}"]
                    if len(seeds):
                        file = f"set/{len(tasks)}_{p}_{len(task[of])}"
                        labels = part[f"{ty}.y"][seeds].astype(np.int64)
                        sets = [save(f"{file}.npy", seeds.astype(np.int64), name="seeds")]
                        sets.append(save(f"{file}_labels.npy", labels, name="labels"))
                        task[of].append({"type": ty, "data": sets})
            if name in part.link_splits:
                links = {p: part[f"{name}.links.{p}"] for p in PARTS[1:]}
                for number, (_, relation, _) in enumerate(part.relations):
                    pairs = {p: of[:, of[1] == number][[0, 2]] for p, of in links.items()}
                    if any(of.shape[1] for of in pairs.values()):
                        pairs["train"] = part[f"{relation}.edges"]
                    for p, of in pairs.items():
                        if of.shape[1]:
                            file = f"set/{len(tasks)}_{p}_{number}_links.npy"
                            sets = [save(file, np.ascontiguousarray(of.T, np.int64), name="node_pairs")]
                            task[SETS[p]].append({"type": types[relation], "data": sets})
            tasks.append({key: of for key, of in task.items() if of})
        lines = ["dataset_name: interop", "graph:"]
        for key, entries in {"nodes": nodes, "edges": edges}.items():
            lines += [f"  {key}:", *(f"  - {json.dumps(entry)}" for entry in entries)]
        for key, entries in {"feature_data": data, "tasks": tasks}.items():
            lines += [f"{key}:", *(f"- {json.dumps(entry)}" for entry in entries)] if entries else []
        (folder / "metadata.yaml").write_text("\n".join(lines) + "\n")

    def read(self, folder, held):
        part = self.part(held)
        with tempfile.TemporaryDirectory() as work:
            # It writes what it makes of the folder into it.
            copy = Path(work) / "copy"
            shutil.copytree(folder, copy)
            found = self.read_by(copy)
        for name in part.link_splits:
            of_task = {key.removeprefix(f"{name}|"): found.pop(key) for key in list(found) if key.startswith(f"{name}|")}
            found |= stacked(of_task, part.relations, name)
        # There is no set where a part is empty.
        empty = [f"{ty}/{name}.{p}" for ty, name in part.splits for p in PARTS]
        empty += [f"{name}.links.{p}" for name in part.link_splits for p in PARTS[1:]]
        found |= {key: part[key] for key in empty if key not in found and part[key].size == 0}
        seen = set()
        for ty, name in part.splits:
            found[f"{ty}.{name if ty in seen else 'y'}"] = found.pop(f"{ty}|{name}")
            seen.add(ty)
        return found


LAYOUT = Graphbolt()

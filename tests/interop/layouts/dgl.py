"""A folder of DGL's CSVDataset, written here, and read by CSVDataset of DGL."""

import csv
import json
import shutil
import tempfile
from pathlib import Path

import numpy as np

from common import PARTS, DglLayout, ranks, stacked, text_of

SPLIT = "standard"


def ids(number, ty, count):
    """Ids that sort as the vertices: integers with gaps, or texts."""
    return [7 * v + 3 for v in range(count)] if number % 2 == 0 else [f"{ty} {v:07}" for v in range(count)]


class Dgl(DglLayout):
    kind, peer, title = "dgl", "dgl", "DGL CSVDataset"
    compared = (
        "rows of vertices are shuffled, since DGL orders them by their ids, which are integers or texts by turns; all edges are in one"
        " table with masks of the parts. Not held: times, kinds, further labels and splits of a type. DGL keeps no ids; `hgnnc` numbers the"
        " classes that there are"
    )

    def expected(self, held):
        part = self.part(held)
        for name in self.single_rows(held):
            part.drop(f"{name}.edges", f"{name}.weight", f"{name}.attr")
        return part

    def part(self, held):
        return held.only_classes().first_labels().first_splits(SPLIT).drop(".ids", ".time", ".kind")

    def back(self, held):
        part = self.part(held)
        for number, (ty, count) in enumerate(held.types):
            part[f"{ty}.ids"] = np.array(ids(number, ty, count))
        for ty, _, _ in part.labels:
            part[f"{ty}.y"] = ranks(part[f"{ty}.y"])
        return part

    def single_rows(self, held):
        """Relations whose table has one row: DGL makes a number of a column and fails."""
        part = self.part(held)
        return [name for _, name, _ in held.relations if len(self.tags(part, name)[0]) == 1]

    def remark(self, held):
        few = len(self.single_rows(held))
        return f"DGL fails on a table of one row: it read a copy without relations of one edge ({few})" if few else None

    def tags(self, part, name):
        """The part of each row of a relation, and its rows by part."""
        number = [r[1] for r in part.relations].index(name)
        rows = [part[f"{name}.edges"]]
        for p in PARTS[1:]:
            links = part.get(f"{SPLIT}.links.{p}", np.zeros((3, 0), np.int64))
            rows.append(links[:, links[1] == number][[0, 2]])
        tags = np.repeat(np.arange(3), [of.shape[1] for of in rows])
        return np.random.default_rng(number).permutation(tags), rows

    def write(self, folder, held):
        part = self.part(held)
        keys = {ty: ids(number, ty, count) for number, (ty, count) in enumerate(held.types)}
        meta = {"node_data": [], "edge_data": []}
        for number, (ty, count) in enumerate(held.types):
            columns = {"key": keys[ty]}
            if f"{ty}.x" in part:
                columns["feat"] = text_of(part[f"{ty}.x"])
            if f"{ty}.y" in part:
                columns["label"] = np.nan_to_num(part[f"{ty}.y"], nan=-1).astype(int).tolist()
            if f"{ty}/{SPLIT}.train" in part:
                for p in PARTS:
                    columns[f"{p}_mask"] = np.isin(np.arange(count), part[f"{ty}/{SPLIT}.{p}"]).astype(int).tolist()
            order = np.random.default_rng(number).permutation(count)
            name = f"nodes_{number}.csv"
            table(folder / name, columns, order)
            meta["node_data"].append({"file_name": name, "ntype": ty, "node_id_field": "key"})
        for number, (src, relation, dst) in enumerate(held.relations):
            tags, rows = self.tags(part, relation)
            edges = np.zeros((2, len(tags)), np.int64)
            for tag, of in enumerate(rows):
                edges[:, tags == tag] = of
            columns = {"from": [keys[src][v] for v in edges[0]], "to": [keys[dst][v] for v in edges[1]]}
            if f"{relation}.weight" in part:
                # Links that are held out have none.
                weight = np.ones(len(tags))
                weight[tags == 0] = part[f"{relation}.weight"]
                columns["weight"] = weight.tolist()
            if f"{relation}.attr" in part:
                attr = np.zeros((len(tags), part[f"{relation}.attr"].shape[1]))
                attr[tags == 0] = part[f"{relation}.attr"]
                columns["feat"] = text_of(attr)
            if any(of.shape[1] for of in rows[1:]):
                for tag, p in enumerate(PARTS):
                    columns[f"{p}_mask"] = (tags == tag).astype(int).tolist()
            name = f"edges_{number}.csv"
            table(folder / name, columns, range(len(tags)))
            fields = {"src_id_field": "from", "dst_id_field": "to"}
            meta["edge_data"].append({"file_name": name, "etype": [src, relation, dst]} | fields)
        self.describe(folder, meta)

    def describe(self, folder, meta):
        lines = ["dataset_name: interop"]
        for key, entries in meta.items():
            lines += [f"{key}:", *(f"- {json.dumps(entry)}" for entry in entries)]
        (folder / "meta.yaml").write_text("\n".join(lines) + "\n")
        self.meta = meta

    def read(self, folder, held):
        few = self.single_rows(held)
        with tempfile.TemporaryDirectory() as work:
            copy = Path(work) / "copy"
            shutil.copytree(folder, copy)
            kept = [of for of in self.meta["edge_data"] if of["etype"][1] not in few]
            self.describe(copy, self.meta | {"edge_data": kept})
            found = self.read_by(copy)
        return stacked(found, held.relations, SPLIT)


def table(path, columns, order):
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        writer.writerows([column[row] for column in columns.values()] for row in order)


LAYOUT = Dgl()

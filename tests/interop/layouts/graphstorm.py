"""A configuration of GraphStorm's graph construction with its tables, written here, and read by its `construct_graph`."""

import csv
import json

import numpy as np

from common import PARTS, DglLayout, ranks, stacked, text_of

SPLIT = "standard"
FILES = {"train": "train", "val": "valid", "test": "test"}


class Graphstorm(DglLayout):
    kind, peer, title = "graphstorm", "graphstorm", "GraphStorm"
    compared = (
        "tables are CSV, and JSON by turns where there are no labels; all edges are in one table, and files name the links of each part."
        " Weights are features of edges, as GraphStorm has none. GraphStorm's graph is read with DGL. Not held: times, kinds,"
        " further labels and splits of a type; `hgnnc` numbers the classes that there are"
    )

    def expected(self, held):
        part = held.only_classes().first_labels().first_splits(SPLIT).drop(".time", ".kind")
        for ty, count in held.types:
            part[f"{ty}.ids"] = np.array(self.ids(held, ty, count))
        for _, name, _ in held.relations:
            columns = [part.pop(f"{name}.{key}", None) for key in ("weight", "attr")]
            columns = [column.reshape(len(column), -1) for column in columns if column is not None]
            if columns:
                part[f"{name}.attr"] = np.concatenate(columns, axis=1)
        return part

    def back(self, held):
        part = self.expected(held)
        for ty, _, _ in part.labels:
            part[f"{ty}.y"] = ranks(part[f"{ty}.y"])
        return part

    def ids(self, held, ty, count):
        """Texts and integers by turns, in an order of their own: vertices are in that of the rows."""
        number = [name for name, _ in held.types].index(ty)
        order = np.random.default_rng(number).permutation(count)
        return [f"{ty} {v}" for v in order] if number % 2 == 0 else [7 * int(v) + 3 for v in order]

    def write(self, folder, held):
        part = held.only_classes().first_labels().first_splits(SPLIT)
        keys = {ty: self.ids(held, ty, count) for ty, count in held.types}
        config = {"version": "gconstruct-v0.1", "nodes": [], "edges": []}
        for number, (ty, _) in enumerate(held.types):
            has_label = f"{ty}.y" in part
            table = Table(folder, f"nodes_{number}", number % 2 == 1 and not has_label, {"key": keys[ty]})
            table.feature("feat", part.get(f"{ty}.x"))
            entry = {"node_type": ty, "node_id_col": "key"}
            if has_label:
                y = part[f"{ty}.y"]
                table.columns["topic"] = ["" if np.isnan(of) else int(of) for of in y]
                label = {"task_type": "classification", "label_col": "topic", "split_pct": [0.0, 0.0, 0.0]}
                if f"{ty}/{SPLIT}.train" in part:
                    del label["split_pct"]
                    rows = {p: [keys[ty][v] for v in part[f"{ty}/{SPLIT}.{p}"]] for p in PARTS}
                    label["custom_split_filenames"] = split_files(folder, f"nodes_{number}", rows)
                entry["labels"] = [label]
            config["nodes"].append(entry | table.save())
        for number, (src, name, dst) in enumerate(held.relations):
            edges, rows = [part[f"{name}.edges"]], {}
            for p in PARTS[1:]:
                links = part.get(f"{SPLIT}.links.{p}", np.zeros((3, 0), np.int64))
                edges.append(links[:, links[1] == number][[0, 2]])
            for p, of in zip(PARTS, edges):
                rows[p] = [[keys[src][s], keys[dst][d]] for s, d in of.T]
            pairs = [pair for of in rows.values() for pair in of]
            columns = {"from": [pair[0] for pair in pairs], "to": [pair[1] for pair in pairs]}
            table = Table(folder, f"edges_{number}", number % 2 == 1, columns)
            for called, key in (("weight", "weight"), ("feat", "attr")):
                values = part.get(f"{name}.{key}")
                if values is not None:
                    # Links that are held out have none.
                    rest = np.zeros((len(pairs) - len(values), *values.shape[1:]), np.float32)
                    table.feature(called, np.concatenate([values, rest]))
            entry = {"relation": [src, name, dst], "source_id_col": "from", "dest_id_col": "to"}
            if rows["val"] or rows["test"]:
                files = split_files(folder, f"edges_{number}", rows)
                entry["labels"] = [{"task_type": "link_prediction", "custom_split_filenames": files}]
            config["edges"].append(entry | table.save())
        (folder / "config.json").write_text(json.dumps(config, indent=1))

    def read(self, folder, held):
        return stacked(self.read_by(folder), held.relations, SPLIT)


class Table:
    """A table in CSV or JSON, and its features as a configuration has them."""

    def __init__(self, folder, name, is_json, columns):
        self.path = folder / f"{name}.{'json' if is_json else 'csv'}"
        self.is_json, self.columns, self.features = is_json, columns, []

    def feature(self, name, values):
        if values is None:
            return
        feature = {"feature_col": name, "feature_name": name}
        if self.is_json or values.ndim == 1:
            self.columns[name] = values.tolist()
        else:
            self.columns[name] = text_of(values)
            feature["transform"] = {"name": "no-op", "separator": ","}
        self.features.append(feature)

    def save(self):
        rows = zip(*self.columns.values())
        with open(self.path, "w", newline="") as file:
            if self.is_json:
                file.writelines(json.dumps(dict(zip(self.columns, row))) + "\n" for row in rows)
            else:
                writer = csv.writer(file)
                writer.writerow(self.columns)
                writer.writerows(rows)
        entry = {"files": [self.path.name], "format": {"name": "json" if self.is_json else "csv"}}
        return entry | ({"features": self.features} if self.features else {})


def split_files(folder, name, rows):
    """Files with the ids of each part, of those that are not empty."""
    files = {}
    for p, of in rows.items():
        if of:
            files[FILES[p]] = f"{name}_{p}.json"
            (folder / files[FILES[p]]).write_text("".join(json.dumps(key) + "\n" for key in of))
    return files


LAYOUT = Graphstorm()

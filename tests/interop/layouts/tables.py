"""CSV files with an import.toml, read with pandas."""

import tomllib
from pathlib import Path

import numpy as np

from common import PARTS, Layout


class Tables(Layout):
    kind, peer, title = "tables", "pandas", "tables"
    compared = "pandas reads vertices, features, ids, edges, weights and times; `hgnnc` labels, splits and links held out as well"

    def expected(self, held):
        part = held.copy()
        # Labels and splits are columns of words: `hgnnc` reads them back.
        for ty, split in held.splits:
            part.drop(*(f"{ty}/{split}.{p}" for p in PARTS))
        for ty, name, _ in held.labels:
            del part[f"{ty}.{name}"]
        return part.drop(".links.val", ".links.test", ".kind")

    def back(self, held):
        return held.copy().drop(".kind")

    def read(self, folder, held):
        import pandas as pd

        folder = Path(folder)
        config = tomllib.loads((folder / "import.toml").read_text())
        found, keys = {}, {}

        def table(file):
            return pd.read_csv(folder / file, dtype={c: str for c in ("id", "src", "dst", "x")}, keep_default_na=False)

        for of in config["vertex_type"]:
            name, rows = of["name"], table(of["files"])
            found[f"{name}.count"] = len(rows)
            column = of.get("id", "vertex")
            keys[name] = {str(key): row for row, key in enumerate(rows[column])}
            if "id" in of:
                found[f"{name}.ids"] = rows[column].to_numpy(str)
            if "time" in of:
                found[f"{name}.time"] = rows[of["time"]].to_numpy()
            for features in of.get("features", []):
                if features.get("vector"):
                    lines = rows[features["column"]]
                    x = np.array([np.fromstring(line, sep=" ", dtype=np.float64) for line in lines])
                else:
                    x = rows[features["columns"]].to_numpy(np.float64)
                found[f"{name}.x"] = x.astype(np.float32)
        for of in config.get("relation", []):
            name, rows = of["name"], table(of["files"])
            ends = [(of["src"], of["src_key"]), (of["dst"], of["dst_key"])]
            found[f"{name}.edges"] = np.array([[keys[ty][key] for key in rows[column]] for ty, column in ends], np.int64)
            for key in ("weight", "time"):
                if key in of:
                    found[f"{name}.{key}"] = rows[of[key]].to_numpy().astype(np.float32 if key == "weight" else np.int64)
            if "features" in of:
                found[f"{name}.attr"] = rows[of["features"]].to_numpy(np.float64).astype(np.float32)
        return found


LAYOUT = Tables()

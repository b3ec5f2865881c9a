"""A folder with a load.py, which makes a HeteroData of PyG. The folder is a dataset of hgnnc as well."""

import importlib.util
from pathlib import Path

import numpy as np

from common import Layout, first_seen


class Pyg(Layout):
    kind, peer, title = "pyg", "torch_geometric", "PyG"
    compared = "`load.py` of the export makes a `HeteroData`, whose `validate()` is called. The folder is a dataset of `hgnnc` as it is"

    def read(self, folder, held):
        spec = importlib.util.spec_from_file_location("exported", Path(folder) / "load.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        data = module.load()
        data.validate()
        found = {}
        for ty, _ in held.types:
            store = data[ty]
            found[f"{ty}.count"] = store.num_nodes
            for name in ("x", "time"):
                if name in store:
                    found[f"{ty}.{name}"] = store[name].numpy()
            if "kind" in store:
                found[f"{ty}.kind"] = first_seen(store.kind.numpy())
            if "ids" in store:
                found[f"{ty}.ids"] = np.array([str(id) for id in store.ids])
        for relation in held.relations:
            store, name = data[relation], relation[1]
            found[f"{name}.edges"] = store.edge_index.numpy()
            for key, field in (("weight", "edge_weight"), ("attr", "edge_attr"), ("time", "time")):
                if field in store:
                    found[f"{name}.{key}"] = store[field].numpy()
        for ty, name, kind in held.labels:
            y = data[ty][name].numpy().astype(np.float64)
            y[y < 0 if kind == "single" else ~data[ty][name + "_mask"].numpy()] = np.nan
            found[f"{ty}.{name}"] = y[:, 0] if kind == "real" and y.ndim == 2 and y.shape[1] == 1 else y
        seen = set()
        for ty, split in held.splits:
            suffix = f"_{split}" if ty in seen else ""
            seen.add(ty)
            for part in ("train", "val", "test"):
                found[f"{ty}/{split}.{part}"] = np.flatnonzero(data[ty][f"{part}_mask{suffix}"].numpy())
        for name, parts in (data.link_splits if "link_splits" in data else {}).items():
            for part, links in parts.items():
                # Relation by relation, in the order of the links of each.
                expected = held[f"{name}.links.{part}"]
                rebuilt = np.array(expected)
                for relation, (src, _) in links.items():
                    number = held.relations.index(relation)
                    of = expected[1] == number
                    rebuilt[0, of], rebuilt[2, of] = links[relation].numpy()
                found[f"{name}.links.{part}"] = rebuilt
        return found


LAYOUT = Pyg()

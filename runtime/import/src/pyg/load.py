"""Makes a torch_geometric.data.HeteroData of this folder, which `hgnnc data export pyg` wrote.

    from load import load
    data = load()

The folder is a dataset of hgnnc as well; `hgnnc data format` describes its files. Of a vertex type there are, as far as
the dataset has them:

    data[type].num_nodes
    data[type].x                     float32 [count, dim]; load(sparse=True) leaves sparse ones torch.sparse_csr
    data[type].y                     int64 [count], -1 without a label; float32 [count, classes] of several classes or
                                     numbers. A label with another name than `y` is data[type][name]
    data[type].y_mask                of several classes or numbers: which rows have a label
    data[type].train_mask, val_mask, test_mask     of the first split; of the others train_mask_NAME, ...
    data[type].time, kind            int64 [count]
    data[type].ids                   a list: the id of each vertex where it came from
    data[type].kind_names, y_names   lists of names

and of a relation

    data[src, name, dst].edge_index  int64 [2, edges]
    data[src, name, dst].edge_weight, edge_attr, time
    data[src, name, dst].y, y_mask, train_mask, ...     labels and splits of edges, as of vertices

Links that are held out are data.link_splits[name]["val"][src, relation, dst], int64 [2, links] ("test" likewise), and
metapaths data.metapaths[name], a list of edge types; an edge type of a step backwards is (dst, "rev_" + name, src).
"""

from pathlib import Path

import numpy as np
import torch
from torch_geometric.data import HeteroData

try:
    import tomllib
except ModuleNotFoundError:  # Before Python 3.11.
    import tomli as tomllib


def load(folder=Path(__file__).resolve().parent, sparse=False):
    """Reads the dataset in `folder` into a HeteroData."""
    folder = Path(folder)
    tables = tomllib.loads((folder / "dataset.toml").read_text(encoding="utf-8"))

    def array(file, dtype):
        return torch.from_numpy(np.load(folder / file).astype(dtype, copy=False))

    data = HeteroData()
    types = {}
    for of in tables["vertex_type"]:
        name, count = of["name"], of["count"]
        types[name], store = count, data[name]
        store.num_nodes = count
        if "features" in of:
            store.x = _features(of["features"], count, array, sparse)
        for field in of.get("field", []):
            store[field["name"]] = _features(field, count, array, sparse)
        if "time" in of:
            store.time = array(of["time"], np.int64)
        if "kind_file" in of:
            store.kind = array(of["kind_file"], np.int64)
            store.kind_names = of["kind_names"]
        if "ids" in of:
            store.ids = _ids(of["ids"], folder)

    edge_types = []
    for of in tables.get("relation", []):
        key = (of["src"], of["name"], of["dst"])
        edge_types.append(key)
        store = data[key]
        begin, end = of.get("columns", (None, None))
        store.edge_index = array(of["file"], np.int64)[:, begin:end].contiguous()
        if "weight" in of:
            store.edge_weight = array(of["weight"], np.float32)
        if "features" in of:
            store.edge_attr = array(of["features"]["file"], np.float32)
        if "time" in of:
            store.time = array(of["time"], np.int64)

    for of in tables.get("label", []):
        store, name = data[_rows(of, tables)], of.get("name", "y")
        if of.get("kind", "single") == "single":
            store[name] = array(of["file"], np.int64)
        else:
            values = array(of["file"], np.float32)
            known = ~(values == -1).all(dim=-1) if of["kind"] == "multi" else torch.ones(len(values), dtype=torch.bool)
            if "mask_file" in of:
                known &= array(of["mask_file"], bool)
            values = values.clone()
            values[~known] = 0
            store[name], store[name + "_mask"] = values, known
        if "class_names" in of:
            store[name + "_names"] = of["class_names"]

    seen = set()
    for of in tables.get("split", []):
        rows = _rows(of, tables)
        suffix = "_" + of["name"] if rows in seen else ""
        seen.add(rows)
        count = types[rows] if "vertex_type" in of else data[rows].edge_index.shape[1]
        for part in ("train", "val", "test"):
            mask = torch.zeros(count, dtype=torch.bool)
            if part in of:
                mask[array(of[part], np.int64)] = True
            data[rows][f"{part}_mask{suffix}"] = mask

    link_splits = {}
    for of in tables.get("link_split", []):
        parts = link_splits[of["name"]] = {}
        for part in ("val", "test"):
            links = array(of[part], np.int64) if part in of else torch.zeros((3, 0), dtype=torch.int64)
            of_part = parts[part] = {}
            for relation in links[1].unique().tolist():
                of_part[edge_types[relation]] = links[:, links[1] == relation][[0, 2]]
    if link_splits:
        data.link_splits = link_splits

    metapaths = {}
    for of in tables.get("metapath", []):
        by_name = {key[1]: key for key in edge_types}
        steps = [(step[0], by_name[step[1:]]) for step in of["steps"]]
        metapaths[of["name"]] = [
            key if arrow == ">" else (key[2], "rev_" + key[1], key[0]) for arrow, key in steps
        ]
    if metapaths:
        data.metapaths = metapaths
    return data


def _rows(of, tables):
    """The store of a label or a split: that of a vertex type, or the edge type of a relation."""
    if "vertex_type" in of:
        return of["vertex_type"]
    relation = next(relation for relation in tables["relation"] if relation["name"] == of["relation"])
    return relation["src"], relation["name"], relation["dst"]


def _features(of, count, array, sparse):
    if of["kind"] == "dense":
        return array(of["file"], np.float32)
    indptr, indices = array(of["indptr"], np.int64), array(of["indices"], np.int64)
    values = array(of["data"], np.float32)
    x = torch.sparse_csr_tensor(indptr, indices, values, size=(count, of["dim"]))
    return x if sparse else x.to_dense()


def _ids(of, folder):
    if of["kind"] == "integer":
        return np.load(folder / of["file"]).tolist()
    offsets, text = np.load(folder / of["offsets"]).tolist(), np.load(folder / of["bytes"]).tobytes()
    return [text[begin:end].decode("utf-8") for begin, end in zip(offsets, offsets[1:])]

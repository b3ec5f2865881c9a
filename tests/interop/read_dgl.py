#!/usr/bin/env python3
"""Reads a folder with DGL, GraphBolt or GraphStorm, in an interpreter that has them, and writes what it finds as arrays.

    read_dgl.py dgl|graphbolt|graphstorm FOLDER OUT.npz
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import dgl
import numpy as np

PARTS = ("train", "val", "test")


def of_graph(graph, label, features, relations=None):
    """The arrays of a graph of DGL."""
    found = {}
    for ty in graph.ntypes:
        data = graph.nodes[ty].data
        found[f"{ty}.count"] = np.array(graph.num_nodes(ty))
        if "feat" in data:
            found[f"{ty}.x"] = columns(data["feat"])
        if label in data:
            y = data[label].numpy().astype(np.float64)
            found[f"{ty}.y"] = np.where(y < 0, np.nan, y)
        if "train_mask" in data:
            for part in PARTS:
                found[f"{ty}/standard.{part}"] = np.flatnonzero(data[f"{part}_mask"].numpy())
    for etype in graph.canonical_etypes:
        name, data = (relations or {}).get(etype, etype[1]), graph.edges[etype].data
        edges = np.stack([of.numpy() for of in graph.edges(etype=etype, order="eid")])
        held_out = np.zeros(edges.shape[1], bool)
        for part in PARTS[1:] if "train_mask" in data else ():
            mask = data[f"{part}_mask"].numpy() == 1
            found[f"{name}.links.{part}"] = edges[:, mask]
            held_out |= mask
        found[f"{name}.edges"] = edges[:, ~held_out]
        if features == "apart" and "weight" in data:
            found[f"{name}.weight"] = data["weight"].numpy()[~held_out]
        wanted = ("feat",) if features == "apart" else ("weight", "feat")
        parts = [columns(data[key])[~held_out] for key in wanted if key in data]
        if parts:
            found[f"{name}.attr"] = np.concatenate(parts, axis=1)
    return found


def columns(tensor):
    return tensor.numpy().reshape(len(tensor), -1)


def read_dgl(folder):
    return of_graph(dgl.data.CSVDataset(folder, force_reload=True, verbose=False)[0], "label", "apart")


# It collects garbage for every relation: what its libraries keep need not be looked at each time.
GRAPHSTORM = """
import gc, runpy, graphstorm.gconstruct
gc.freeze()
runpy.run_module("graphstorm.gconstruct.construct_graph", run_name="__main__")
"""


def read_graphstorm(folder):
    from graphstorm.gconstruct.id_map import IdReverseMap

    config = json.loads((Path(folder) / "config.json").read_text())
    with tempfile.TemporaryDirectory() as out:
        args = ["--conf-file", "config.json", "--output-dir", out, "--graph-name", "interop", "--output-format", "DGL"]
        subprocess.run([sys.executable, "-c", GRAPHSTORM, *args, "--remap-node-id"], cwd=folder, check=True)
        graph = dgl.load_graphs(f"{out}/interop.dgl")[0][0]
        types = {ty: ty for ty in graph.ntypes}
        relations = None
        if types.keys() == {"_N"}:
            # What it calls the types of a graph of one type and one relation.
            types = {"_N": config["nodes"][0]["node_type"]}
            relations = {graph.canonical_etypes[0]: config["edges"][0]["relation"][1]}
        found = of_graph(graph, "topic", "together", relations)
        for called, ty in types.items():
            ids = IdReverseMap(f"{out}/raw_id_mappings/{called}").map_range(0, graph.num_nodes(called))
            found[f"{ty}.ids"] = np.array([str(id) for id in ids])
            for end in [key.removeprefix(called) for key in found if key.startswith((f"{called}.", f"{called}/"))]:
                found[ty + end] = found.pop(called + end)
    return found


def read_graphbolt(folder):
    import dgl.graphbolt as gb

    dataset = gb.OnDiskDataset(folder, include_original_edge_id=True).load()
    graph, found = dataset.graph, {}
    offsets = dict(zip(sorted(graph.num_nodes), graph.node_type_offset.tolist()))
    for ty, count in graph.num_nodes.items():
        found[f"{ty}.count"] = np.array(count)
    indptr = graph.csc_indptr.numpy().astype(np.int64)
    dst = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    src, kind = graph.indices.numpy(), graph.type_per_edge.numpy()
    number = graph.edge_attributes[gb.ORIGINAL_EDGE_ID].numpy()
    for etype, of in graph.edge_type_to_id.items():
        ends, here = etype.split(":"), kind == of
        edges = np.zeros((2, here.sum()), np.int64)
        edges[:, number[here]] = src[here] - offsets[ends[0]], dst[here] - offsets[ends[2]]
        found[f"{ends[1]}.edges"] = edges
    for domain, ty, name in dataset.feature.keys():
        values = dataset.feature.read(domain, ty, name).numpy()
        owner = ty.split(":")[1] if domain == "edge" else ty
        key = {"node": "x"}.get(domain, "weight" if name == "weight" else "attr")
        found[f"{owner}.{key}"] = values[:, 0] if key == "weight" else values
    for task in dataset.tasks:
        name = task.metadata["name"]
        for part, sets in zip(PARTS, (task.train_set, task.validation_set, task.test_set)):
            for ty, items in (sets._itemsets if sets else {}).items():
                seeds = items._items[0].numpy()
                if ":" in ty:
                    if part != "train":
                        found[f"{name}|{ty.split(':')[1]}.links.{part}"] = seeds.T
                    continue
                found[f"{ty}/{name}.{part}"] = np.sort(seeds)
                y = found.setdefault(f"{ty}|{name}", np.full(graph.num_nodes[ty], np.nan))
                y[seeds] = items._items[1].numpy()
    return found


def main():
    kind, folder, out = sys.argv[1:]
    found = {"dgl": read_dgl, "graphbolt": read_graphbolt, "graphstorm": read_graphstorm}[kind](folder)
    arrays = {f"array{i}": array for i, array in enumerate(found.values())}
    np.savez(out, names=np.array(list(found)), **arrays)


if __name__ == "__main__":
    main()

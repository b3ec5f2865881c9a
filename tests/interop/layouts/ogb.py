"""OGB, read with NodePropPredDataset of `ogb`, and written by its DatasetSaver as archives."""

import contextlib
import io
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
import ogb.io
import ogb.nodeproppred
from ogb.io.read_graph_raw import read_nodesplitidx_split_hetero

from common import PARTS, Layout


class Ogb(Layout):
    kind, peer, title = "ogb", "ogb", "OGB"
    compared = (
        "`NodePropPredDataset` needs labels, reads no ids, and takes a wrong range of the features of edges, which are compared for `hgnnc` alone;"
        " splits are read with its `read_nodesplitidx_split_hetero`, which does not read empty parts. Its `DatasetSaver` writes the dataset as"
        " well, without ids, splits, and all of edges but their ends. Not held: kinds, links held out, further labels of a type"
    )

    def refuses(self, held):
        wrong = [name for _, name, _ in held.relations if "/" in name]
        return f"relations are called like `{wrong[0]}`, which no folder can be" if wrong else None

    def back(self, held):
        part = held.first_labels().drop(".links.val", ".links.test", ".kind")
        for _, name, _ in held.relations:
            if part[f"{name}.edges"].shape[1] == 0:
                del part[f"{name}.edges"]
        return part

    def expected(self, held):
        part = self.back(held).drop(".ids", ".count")
        counts = {f"{ty}.count": count for ty, count in held.types}
        part.update(counts)
        # The reader takes a wrong range of the features of edges: of one graph it finds none.
        part.drop(".attr")
        return part

    def read(self, folder, held):
        if not held.labels:
            return None
        of_nodes = [key for key in ("node_year",) if any(f"{ty}.time" in held for ty, _ in held.types)]
        of_edges = [f"edge_{key}" for key in ("time", "weight") if any(f"{r[1]}.{key}" in held for r in held.relations)]
        meta = {
            "dir_path": str(folder),
            "version": 1,
            "download_name": "",
            "num tasks": 1,
            "task type": "multiclass classification",
            "eval metric": "acc",
            "num classes": 2,
            "is hetero": "True",
            "binary": "False",
            "url": "",
            "add_inverse_edge": "False",
            "additional node files": ",".join(of_nodes) or "None",
            "additional edge files": ",".join(of_edges) or "None",
            "split": "",
        }
        # Where it keeps what it has read.
        (Path(folder) / "processed").mkdir()
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            graph, labels = ogb.nodeproppred.NodePropPredDataset("interop", meta_dict=meta)[0]
        shutil.rmtree(Path(folder) / "processed")
        found = {f"{ty}.count": count for ty, count in graph["num_nodes_dict"].items()}
        for ty, x in (graph["node_feat_dict"] or {}).items():
            found[f"{ty}.x"] = x
        for ty, year in graph.get("node_year", {}).items():
            found[f"{ty}.time"] = year[:, 0]
        for (_, name, _), edges in graph["edge_index_dict"].items():
            found[f"{name}.edges"] = edges
        for key in ("time", "weight"):
            for (_, name, _), of in graph.get(f"edge_{key}", {}).items():
                found[f"{name}.{key}"] = of[:, 0]
        for ty, y in labels.items():
            y = y.astype(np.float64)
            found[f"{ty}.y"] = y[:, 0] if y.shape[1] == 1 else y
        for ty, split in held.splits:
            path = Path(folder) / "split" / split
            if any(held[f"{ty}/{split}.{part}"].size == 0 for part in PARTS):
                # Its reader does not read empty tables.
                for part in PARTS:
                    found[f"{ty}/{split}.{part}"] = held[f"{ty}/{split}.{part}"]
                continue
            parts = read_nodesplitidx_split_hetero(str(path))
            for name, of in zip(PARTS, parts):
                found[f"{ty}/{split}.{name}"] = of[ty]
        return found

    def written_by_peer(self, folder, held):
        """Archives of its own writer, which has no place for ids and keeps splits as pickles."""
        if not held.labels:
            return None
        triplet = {name: (src, name, dst) for src, name, dst in held.relations}
        graph = {
            "num_nodes_dict": dict(held.types),
            "edge_index_dict": {triplet[name]: held[f"{name}.edges"] for name in triplet},
        }
        x = {ty: held[f"{ty}.x"] for ty, _ in held.types if f"{ty}.x" in held}
        years = {ty: held[f"{ty}.time"].reshape(-1, 1) for ty, _ in held.types if f"{ty}.time" in held}
        graph |= {"node_feat_dict": x} if x else {}
        graph |= {"node_year": years} if years else {}
        labels = {}
        first = held.first_labels()
        for ty, _, _ in first.labels:
            y = first[f"{ty}.y"]
            labels[ty] = y.reshape(len(y), -1).astype(np.float32)
        cwd = os.getcwd()
        with tempfile.TemporaryDirectory() as work:
            os.chdir(work)
            try:
                with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                    saver = ogb.io.DatasetSaver("ogbn-interop", is_hetero=True, version=1)
                    saver.save_graph_list([graph])
                    saver.save_target_labels(labels)
                raw = next(Path(work).rglob("raw"))
                shutil.copytree(raw, Path(folder) / "raw")
            finally:
                os.chdir(cwd)
        part = self.back(held).drop(".ids", ".weight", ".attr")
        for ty, split in held.splits:
            part.drop(*(f"{ty}/{split}.{p}" for p in PARTS))
        for _, name, _ in held.relations:
            part.pop(f"{name}.time", None)
        return part


LAYOUT = Ogb()

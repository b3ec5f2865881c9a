"""Triples of a knowledge graph as TSV files, written here, and read with FB15k_237 of PyG."""

import shutil
import tempfile
from pathlib import Path

import numpy as np

from common import Layout


class Triples(Layout):
    kind, peer, title = "triples", "torch_geometric", "triples"
    compared = (
        "every vertex with an edge or a link held out is an entity; the lines of a file are shuffled. PyG numbers entities and relations as they"
        " come: its numbers are put into the order of names. Not held: all but edges and the first links held out"
    )

    def parts(self, held):
        """The lines of each file: names of heads, relations and tails."""
        names = {ty: np.array([f"{ty}/{v:07}" for v in range(count)], object) for ty, count in held.types}
        one = held.first_splits("standard")
        parts = {"train": [(number, *held[f"{name}.edges"]) for number, (_, name, _) in enumerate(held.relations)]}
        for p, file in (("val", "valid"), ("test", "test")):
            links = one.get(f"standard.links.{p}", np.zeros((3, 0), np.int64))
            parts[file] = [(number, *links[:, links[1] == number][[0, 2]]) for number in range(len(held.relations))]
        for file, relations in parts.items():
            columns = ([], [], [])
            for number, heads, tails in relations:
                src, name, dst = held.relations[number]
                columns[0].append(names[src][heads])
                columns[1].append(np.full(len(heads), name, object))
                columns[2].append(names[dst][tails])
            lines = np.stack([np.concatenate(column) for column in columns])
            parts[file] = lines[:, np.random.default_rng(0).permutation(lines.shape[1])]
        return parts

    def expected(self, held):
        parts = self.parts(held)
        all = np.concatenate(list(parts.values()), axis=1)
        entities, relations = np.unique(all[[0, 2]].astype(str)), np.unique(all[1].astype(str))
        found = {"entity.count": len(entities), "entity.ids": entities}
        for file, lines in parts.items():
            heads, tails = (np.searchsorted(entities, of.astype(str)) for of in lines[[0, 2]])
            number = np.searchsorted(relations, lines[1].astype(str))
            if file == "train":
                found |= {f"{r}.edges": np.stack([heads, tails])[:, number == i] for i, r in enumerate(relations)}
            elif held.link_splits:
                found[f"standard.links.{'val' if file == 'valid' else file}"] = np.stack([heads, number, tails])
        return found

    def write(self, folder, held):
        for file, lines in self.parts(held).items():
            (folder / f"{file}.txt").write_text("".join("\t".join(line) + "\n" for line in lines.T))

    def read(self, folder, held):
        from torch_geometric.datasets import FB15k_237

        # It keeps no names: they are numbered as they come.
        entities, relations, found = {}, {}, {}
        for file in ("train", "valid", "test"):
            for line in (folder / f"{file}.txt").read_text().splitlines():
                head, relation, tail = line.split("\t")
                entities.setdefault(head, len(entities))
                entities.setdefault(tail, len(entities))
                relations.setdefault(relation, len(relations))
        names, place = {}, {}
        for key, numbers in (("entity", entities), ("relation", relations)):
            names[key] = sorted(numbers)
            place[key] = np.empty(len(numbers), np.int64)
            place[key][[numbers[name] for name in names[key]]] = np.arange(len(numbers))
        with tempfile.TemporaryDirectory() as root:
            shutil.copytree(folder, Path(root) / "raw")
            for split, part in (("train", None), ("val", "val"), ("test", "test")):
                data = FB15k_237(root, split)[0]
                heads, tails = place["entity"][data.edge_index.numpy()]
                number = place["relation"][data.edge_type.numpy()]
                found["entity.count"] = data.num_nodes
                if part is None:
                    edges = np.stack([heads, tails])
                    found |= {f"{r}.edges": edges[:, number == i] for i, r in enumerate(names["relation"])}
                elif held.link_splits:
                    found[f"standard.links.{part}"] = np.stack([heads, number, tails])
        return found | {"entity.ids": np.array(names["entity"])}


LAYOUT = Triples()

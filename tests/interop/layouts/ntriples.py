"""RDF in N-Triples, written here, and read with rdflib."""

import gzip
from urllib.parse import quote

import numpy as np

from common import PARTS, Layout, first_seen, ranks

BASE = "http://interop"


def terms(held, ty, count):
    """The term of each vertex as N-Triples writes it. Those of a type sort as its vertices; literals come first."""
    is_literal = np.isin(np.arange(count), held.literals.get(ty, ()))
    iri = f"{BASE}/{quote(ty)}"
    return np.array([f'"{v:07}"' if is_literal[v] else f"<{iri}/{v:07}>" for v in range(count)])


def bare(term):
    """The term as an id."""
    return term[1:-1] if term.startswith("<") else term


def predicate(name):
    return name if name.startswith("http") else f"{BASE}/relation/{quote(name)}"


class Ntriples(Layout):
    kind, peer, title = "ntriples", "rdflib", "N-Triples"
    compared = (
        "every vertex with an edge is an entity with a made-up IRI (a literal where the kind of the dataset says so); triples are in two files,"
        " shuffled, one of them compressed. The files of AIFB as they are published were not at hand. Tables beside them have the first label"
        " and split of the first type with classes, which rdflib does not read. Not held: vertices without edges, features, weights, times, links"
        " held out"
    )

    def remark(self, held):
        part, edges = self.back(held), [(f"{predicate(name)}.edges", held[f"{name}.edges"]) for _, name, _ in held.relations]
        if len(held.types) > 1 or not all(np.array_equal(part[name], of) for name, of in edges):
            return None
        number = sum(of.shape[1] for _, of in edges)
        return f"entities: {part['entity.count']:,}, relations: {len(edges)}, edges: {number:,}; numbered as in the dataset"

    def expected(self, held):
        part = self.back(held)
        for name in [name for name in part if name.startswith("entity/") or name in ("entity.y", "entity.kind")]:
            del part[name]
        return part

    def back(self, held):
        """What is in the triples, numbered by the order of all terms."""
        all_terms = {ty: terms(held, ty, count) for ty, count in held.types}
        has_edge = {ty: np.zeros(count, bool) for ty, count in held.types}
        for src, name, dst in held.relations:
            for ty, vertices in zip((src, dst), held[f"{name}.edges"]):
                has_edge[ty][vertices] = True
        entities = sorted(bare(t) for ty in all_terms for t in all_terms[ty][has_edge[ty]])
        number = {term: v for v, term in enumerate(entities)}
        of = {ty: np.array([number.get(bare(t), -1) for t in all_terms[ty]]) for ty in all_terms}
        part = {"entity.count": np.array(len(entities)), "entity.ids": np.array(entities)}
        for src, name, dst in held.relations:
            s, d = held[f"{name}.edges"]
            if len(s):
                part[f"{predicate(name)}.edges"] = np.unique(np.stack([of[src][s], of[dst][d]]), axis=1)
        label = self.label(held)
        if label:
            ty, y, parts = label
            # The tables name classes of vertices without edges as well.
            y, values = ranks(y), np.full(len(entities), np.nan)
            values[of[ty][has_edge[ty]]] = y[has_edge[ty]]
            part["entity.y"] = values
            for p, vertices in parts.items():
                part[f"entity/standard.{p}"] = np.sort(of[ty][vertices[has_edge[ty][vertices]]])
        if any(predicate(name).endswith("22-rdf-syntax-ns#type") for _, name, _ in held.relations):
            kinds = np.full(len(entities), -1)
            for ty, _ in held.types:
                kinds[of[ty][has_edge[ty]]] = held[f"{ty}.kind"][has_edge[ty]]
            part["entity.kind"] = first_seen(kinds)
        return part

    def label(self, held):
        """The type, values and split of the label that the tables have."""
        one = held.only_classes().first_labels().first_splits("standard")
        if not one.splits:
            return None
        ty = one.splits[0][0]
        return ty, one[f"{ty}.y"], {p: one[f"{ty}/standard.{p}"].astype(int) for p in PARTS}

    def write(self, folder, held):
        all_terms, lines = {ty: terms(held, ty, count) for ty, count in held.types}, []
        for src, name, dst in held.relations:
            s, d = held[f"{name}.edges"]
            lines += [f"{a} <{predicate(name)}> {b} .\n" for a, b in zip(all_terms[src][s], all_terms[dst][d])]
        lines = np.array(lines)[np.random.default_rng(0).permutation(len(lines))]
        half = len(lines) // 2
        (folder / "a.nt").write_text("".join(lines[:half]))
        with gzip.open(folder / "b.nt.gz", "wt", compresslevel=1) as file:
            file.write("".join(lines[half:]))
        config = ["unknown = \"skip\""]
        label = self.label(held)
        if label:
            ty, y, parts = label
            config += ["entity = \"who\"", "class = \"what\""]
            parts["all"] = np.flatnonzero(~np.isnan(y))
            for p, vertices in parts.items():
                rows = [f"{bare(all_terms[ty][v])}\tclass {int(y[v]):07}\n" for v in vertices]
                (folder / f"{p}.tsv").write_text("who\twhat\n" + "".join(rows))
                config.append(f"{p} = \"{p}.tsv\"")
        (folder / "settings.toml").write_text("\n".join(config) + "\n")

    def config(self, folder):
        return folder / "settings.toml"

    def read(self, folder, held):
        import rdflib

        graph = rdflib.Graph()
        graph.parse(folder / "a.nt", format="nt")
        with gzip.open(folder / "b.nt.gz", "rb") as file:
            graph.parse(file, format="nt")
        triples = [tuple(str(t) if isinstance(t, rdflib.URIRef) else t.n3() for t in triple) for triple in graph]
        entities = sorted({term for s, _, o in triples for term in (s, o)})
        number = {term: v for v, term in enumerate(entities)}
        found = {"entity.count": len(entities), "entity.ids": np.array(entities)}
        edges = {}
        for s, relation, o in triples:
            edges.setdefault(relation, []).append((number[s], number[o]))
        for relation, of in edges.items():
            found[f"{relation}.edges"] = np.array(sorted(of)).T
        return found


LAYOUT = Ntriples()

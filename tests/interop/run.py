#!/usr/bin/env python3
"""Writes datasets in the layouts of other libraries, reads them with those and with hgnnc, and writes docs/interop.md.

    tests/interop/run.py [--hgnnc FILE] [--dgl-python FILE] [--data NAME]... [--page] [LAYOUT]...

README.md beside this file says what it needs.
"""

import argparse
import importlib
import sys
import tempfile
import time
import warnings
from pathlib import Path

from common import DATA, ROOT, DglLayout, differences, held, run, values

LAYOUTS = ["tables", "hgb", "ogb", "pyg", "dgl", "graphbolt", "graphstorm", "ntriples", "triples"]
DATASETS = ["acm", "acm_han", "imdb", "freebase_movie", "cora", "aifb", "lastfm", "fb15k237", "wn18rr", "gowalla", "mag"]
# Of ogbn-mag.
SCALE = "0.002"

HEAD = """# Layouts against the libraries that own them

`tests/interop/run.py` writes this page. Each dataset was written in each layout, and read with the reader of the library that
owns the layout and with `hgnnc data import`. Compared with the dataset are all arrays that the layout holds: vertices, features, ids, edges,
weights, times, labels, splits, links held out; [below](#what-is-compared) is what else there is to say of each. `mag` is `hgnnc data synth mag
--scale {scale}`, the others are real ({versions}).

| layout | dataset | its library's reader | `hgnnc data import` | notes |
| --- | --- | --- | --- | --- |
"""

COMPARED = """
A `-` is a layout whose library has no reader for such a dataset, or that cannot hold it; what `data export` notes is counted.

## What is compared

Tables, HGB, OGB and PyG are written by `hgnnc data export` ([what they hold](import.md#export)). The others `hgnnc` reads and does not write:
there the script writes the dataset from its arrays.

"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("layouts", nargs="*", metavar="LAYOUT", help=", ".join(LAYOUTS))
    parser.add_argument("--data", action="append", help=", ".join(DATASETS))
    parser.add_argument("--hgnnc", type=Path, default=ROOT / "target/release/hgnnc")
    parser.add_argument("--dgl-python", help="an interpreter with DGL and GraphStorm")
    parser.add_argument("--page", action="store_true", help="write the page of these alone")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    modules = {name: importlib.import_module(f"layouts.{name}").LAYOUT for name in args.layouts or LAYOUTS}
    for name, layout in modules.items():
        if isinstance(layout, DglLayout):
            if args.dgl_python is None:
                parser.error(f"{name} needs --dgl-python")
            layout.python = args.dgl_python

    rows, failed = [], 0
    for data in args.data or DATASETS:
        with tempfile.TemporaryDirectory() as work:
            work = Path(work)
            folder = DATA / data
            if data == "mag":
                folder = work / "mag"
                run(args.hgnnc, "data", "synth", "mag", folder, "--scale", SCALE)
            elif not (folder / "dataset.toml").exists():
                print(f"skipped: there is no {folder}", flush=True)
                continue
            original = held(folder)
            for layout in modules.values():
                begun = time.monotonic()
                for row in rows_of(layout, data, folder, original, work, args.hgnnc):
                    failed += any("differ" in cell for cell in row)
                    rows.append(row)
                    print(" | ".join(row), f"({time.monotonic() - begun:.0f} s)", flush=True)
    if args.page or not (args.layouts or args.data):
        (ROOT / "docs/interop.md").write_text(page(rows, list(modules.values())))
    sys.exit(1 if failed else 0)


def page(rows, layouts):
    versions = sorted({layout.version() for layout in layouts})
    titles = [layout.title for layout in layouts]
    rows = sorted(rows, key=lambda row: titles.index(row[0].split(" by ")[0]))
    text = HEAD.format(scale=SCALE, versions=", ".join(versions))
    text += "".join(f"| {' | '.join(row)} |\n" for row in rows) + COMPARED
    return text + "".join(f"- **{layout.title}**: {layout.compared}.\n" for layout in layouts)


def compared(found, expected):
    wrong = differences(found, expected)
    for line in wrong:
        print(f"  {line}", file=sys.stderr)
    return f"{len(wrong)} of {len(expected)} arrays differ" if wrong else f"equal: {len(expected)} arrays, {values(expected):,} values"


def rows_of(layout, data, folder, original, work, hgnnc):
    """The rows of a layout and a dataset."""
    out, notes = work / f"{layout.kind}-out", [layout.remark(original)]
    reason = layout.refuses(original)
    if reason:
        said = run(hgnnc, "data", "export", layout.kind, folder, out, works=False)
        assert not out.exists(), said
        return [[layout.title, data, "-", "-", f"refused: {reason}"]]
    if hasattr(layout, "write"):
        out.mkdir()
        layout.write(out, original)
    else:
        said = run(hgnnc, "data", "export", layout.kind, folder, out)
        noted = sum(line.startswith("note: ") for line in said.splitlines())
        notes.append(f"{noted} of the export" if noted else None)
    found = layout.read(out, original)
    by_peer = "-" if found is None else compared(found, layout.expected(original))
    back = out
    if layout.kind != "pyg":
        back = work / f"{layout.kind}-back"
        config = layout.config(out)
        run(hgnnc, "data", "import", layout.kind, out, back, *(["--config", config] if config else []))
    by_hgnnc = compared(held(back), layout.back(original))
    rows = [[layout.title, data, by_peer, by_hgnnc, "; ".join(filter(None, notes))]]
    if hasattr(layout, "written_by_peer"):
        own = work / f"{layout.kind}-peer"
        own.mkdir()
        expected = layout.written_by_peer(own, original)
        if expected is not None:
            read = work / f"{layout.kind}-peer-read"
            run(hgnnc, "data", "import", layout.kind, own, read)
            title = f"{layout.title} by its own writer"
            rows.append([title, data, "(writes it)", compared(held(read), expected), ""])
    return rows


if __name__ == "__main__":
    main()

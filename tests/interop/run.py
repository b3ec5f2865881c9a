#!/usr/bin/env python3
"""Exports datasets in the layouts of other libraries, reads them with those and with hgnnc, and writes docs/interop.md.

    tests/interop/run.py [--hgnnc FILE] [--data NAME]... [--page] [LAYOUT]...

README.md beside this file says what it needs.
"""

import argparse
import importlib
import sys
import tempfile
import warnings
from pathlib import Path

from common import DATA, ROOT, differences, held, run, values

LAYOUTS = ["tables", "hgb", "ogb", "pyg"]
DATASETS = ["acm", "imdb", "freebase_movie", "cora", "aifb", "lastfm", "mag"]
# Of ogbn-mag.
SCALE = "0.002"

HEAD = """# Layouts against the libraries that own them

`tests/interop/run.py` writes this page. Each dataset was exported with `hgnnc data export`, and read with the reader of the library that
owns the layout and with `hgnnc data import`. Compared with the dataset are all arrays that the layout holds
([docs/import.md](import.md#export)): vertices, features, ids, edges, weights, times, labels, splits. `mag` is `hgnnc data synth mag
--scale {scale}`, the others are real ({versions}).

| layout | dataset | its library's reader | `hgnnc data import` | notes of the export |
| --- | --- | --- | --- | --- |
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("layouts", nargs="*", metavar="LAYOUT", help=", ".join(LAYOUTS))
    parser.add_argument("--data", action="append", help=", ".join(DATASETS))
    parser.add_argument("--hgnnc", type=Path, default=ROOT / "target/release/hgnnc")
    parser.add_argument("--page", action="store_true", help="write the page of these alone")
    args = parser.parse_args()
    warnings.filterwarnings("ignore")
    modules = {name: importlib.import_module(f"layouts.{name}").LAYOUT for name in args.layouts or LAYOUTS}

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
                for row in rows_of(layout, data, folder, original, work, args.hgnnc):
                    failed += any("differ" in cell for cell in row)
                    rows.append(row)
                    print(" | ".join(row), flush=True)
    versions = sorted({layout.version() for layout in modules.values()})
    if args.page or not (args.layouts or args.data):
        text = HEAD.format(scale=SCALE, versions=", ".join(versions))
        rows.sort(key=lambda row: [layout.title for layout in modules.values()].index(row[0].split(" by ")[0]))
        text += "".join(f"| {' | '.join(row)} |\n" for row in rows)
        (ROOT / "docs/interop.md").write_text(text)
    sys.exit(1 if failed else 0)


def compared(found, expected, problems):
    wrong = differences(found, expected)
    problems += wrong
    for line in wrong:
        print(f"  {line}", file=sys.stderr)
    return f"{len(wrong)} of {len(expected)} arrays differ" if wrong else f"equal: {len(expected)} arrays, {values(expected):,} values"


def rows_of(layout, data, folder, original, work, hgnnc):
    """The rows of a layout and a dataset."""
    out, problems = work / f"{layout.kind}-out", []
    reason = layout.refuses(original)
    if reason:
        said = run(hgnnc, "data", "export", layout.kind, folder, out, works=False)
        assert not out.exists(), said
        return [[layout.title, data, "-", "-", f"refused: {reason}"]]
    said = run(hgnnc, "data", "export", layout.kind, folder, out)
    notes = sum(line.startswith("note: ") for line in said.splitlines())
    found = layout.read(out, original)
    by_peer = "-" if found is None else compared(found, layout.expected(original), problems)
    back = out
    if layout.kind != "pyg":
        back = work / f"{layout.kind}-back"
        run(hgnnc, "data", "import", layout.kind, out, back)
    rows = [[layout.title, data, by_peer, compared(held(back), layout.back(original), problems), str(notes)]]
    if hasattr(layout, "written_by_peer"):
        own = work / f"{layout.kind}-peer"
        own.mkdir()
        expected = layout.written_by_peer(own, original)
        if expected is not None:
            read = work / f"{layout.kind}-peer-read"
            run(hgnnc, "data", "import", layout.kind, own, read)
            title = f"{layout.title} by its own writer"
            rows.append([title, data, "(writes it)", compared(held(read), expected, problems), "-"])
    return rows


if __name__ == "__main__":
    main()

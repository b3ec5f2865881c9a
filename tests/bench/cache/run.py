#!/usr/bin/env python3
"""Prints what caches of several sizes would save in an epoch of mini-batches, beside the best that there is.

    tests/bench/cache/run.py --model MODEL.hgnn --data DIR --work DIR [--sizes 1,5,10,25]

    --model FILE    a model that is trained on batches
    --data DIR      its dataset
    --work DIR      where reports are written
    --sizes LIST    percent of the bytes of all rows       (1,5,10,25)
    --hgnnc PATH    the command                            (target/release/hgnnc)
    --threads N                                            (2)
    --json FILE     write all figures there too

An epoch is sampled for each size, and nothing trained (`hgnnc simulate-cache`): what is kept does not change the batches, so the
report says of each policy what it would save of the same accesses. The best is a choice of rows that knows them: each of its
figures is by rows of its own.
"""

import argparse
import json
import os
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent.parent


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    target = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target"))
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--sizes", type=lambda text: [float(size) for size in text.split(",")], default=[1, 5, 10, 25])
    parser.add_argument("--hgnnc", type=Path, default=target / "release" / "hgnnc")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path)
    return parser.parse_args()


def run(args):
    report = args.work / "report.json"
    command = [args.hgnnc, "simulate-cache", args.model, "--data", args.data, "--threads", str(args.threads)]
    command += ["--sizes", ",".join(f"{size:g}%" for size in args.sizes), "--report", report]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return json.loads(report.read_text())


def main():
    args = arguments()
    args.work.mkdir(parents=True, exist_ok=True)
    without, *sizes = run(args)
    found = dict(zip(args.sizes, sizes))
    print(f"{without['bytes_of_all'] / 2**20:.0f} MiB in all rows. Of each size: rows that were there, % (GiB fetched, s of fetching)")
    print("| policy |" + "".join(f" {percent:g} % |" for percent in args.sizes))
    print("| --- |" + " --- |" * len(args.sizes))
    for name in [*without["policies"], "best"]:
        cells = []
        for percent in args.sizes:
            cache = found[percent]
            saved = cache["best"] if name == "best" else cache["policies"][name]
            gib, seconds = saved["bytes_missed"] / 2**30, saved["miss_ms"] / 1e3
            cells.append(f" {100 * saved['hit_rate']:.1f} ({gib:.1f}, {seconds:.1f}) |")
        print(f"| {name} |" + "".join(cells))
    print(f"\nan epoch needs {without['bytes_without'] / 2**30:.1f} GiB; {without['presampled']} batches were sampled before in", end=" ")
    print(f"{without['presample_s']:.1f} s, everything before took {without['setup_s']:.1f} s")
    print("\n| array | rows | bytes of one | learned | ns of a miss | needed |\n| --- |" + " --- |" * 5)
    for it in without["tables"]:
        cells = [it["name"], it["rows"], it["row_bytes"], it["learned"], f"{it['miss_ns']:.0f}", it["accesses"]]
        print("| " + " | ".join(str(cell) for cell in cells) + " |")
    if args.json:
        args.json.write_text(json.dumps({"0": without} | {f"{percent:g}": found[percent] for percent in found}, indent=1))


if __name__ == "__main__":
    main()

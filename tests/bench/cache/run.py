#!/usr/bin/env python3
"""Trains on batches with a cache of several sizes, and prints what each policy saves beside the best that there is.

    tests/bench/cache/run.py --model MODEL.hgnn --data DIR --work DIR [--sizes 1,5,10,25]

    --model FILE    a model that is trained on batches
    --data DIR      its dataset
    --work DIR      where reports are written
    --sizes LIST    percent of the bytes of all rows       (1,5,10,25)
    --hgnnc PATH    the command                            (target/release/hgnnc)
    --threads N                                            (2)
    --json FILE     write all figures there too

Of each size an epoch is sampled, and nothing trained (`--epochs 0`): what is kept does not change the batches, so the report says of
each policy what it would save of the same accesses. The best is a choice of rows that knows them: each of its figures is by
rows of its own.
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


def run(args, size):
    report = args.work / "report.json"
    command = [args.hgnnc, "train", args.model, "--data", args.data, "--threads", str(args.threads)]
    command += ["--epochs", "0", "--cache", str(size)]
    subprocess.run([*command, "--quiet", "--report", report], check=True)
    return json.loads(report.read_text())


def main():
    args = arguments()
    args.work.mkdir(parents=True, exist_ok=True)
    found = {0: run(args, 0)}
    of_all = found[0]["batches"]["cache"]["bytes_of_all"]
    for percent in args.sizes:
        found[percent] = run(args, int(of_all * percent / 100))
    names = [*found[0]["batches"]["cache"]["policies"], "best"]
    print(f"{of_all / 2**20:.0f} MiB in all rows. Of each size: rows that were there, % (GiB fetched, s of fetching)")
    print("| policy |" + "".join(f" {percent:g} % |" for percent in args.sizes))
    print("| --- |" + " --- |" * len(args.sizes))
    for name in names:
        cells = []
        for percent in args.sizes:
            cache = found[percent]["batches"]["cache"]
            saved = cache["best"] if name == "best" else cache["policies"][name]
            gib, seconds = saved["bytes_missed"] / 2**30, saved["miss_ms"] / 1e3
            cells.append(f" {100 * saved['hit_rate']:.1f} ({gib:.1f}, {seconds:.1f}) |")
        print(f"| {name} |" + "".join(cells))
    cache = found[0]["batches"]["cache"]
    print(f"\nan epoch needs {cache['bytes_without'] / 2**30:.1f} GiB; {cache['presampled']} batches were sampled before in", end=" ")
    print(f"{cache['presample_s']:.1f} s, everything before took {cache['setup_s']:.1f} s")
    print("\n| array | rows | bytes of one | learned | ns of a miss | needed |\n| --- |" + " --- |" * 5)
    for it in found[0]["batches"]["cache"]["tables"]:
        cells = [it["name"], it["rows"], it["row_bytes"], it["learned"], f"{it['miss_ns']:.0f}", it["accesses"]]
        print("| " + " | ".join(str(cell) for cell in cells) + " |")
    if args.json:
        args.json.write_text(json.dumps({str(percent): report["batches"] for percent, report in found.items()}, indent=1))


if __name__ == "__main__":
    main()

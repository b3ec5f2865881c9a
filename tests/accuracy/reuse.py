#!/usr/bin/env python3
"""What historical embeddings of hot vertices cost in accuracy: trains RGCN on batches of acm and imdb with and without it.

    cargo build --release
    python3 tests/accuracy/reuse.py DATA [--hgnnc target/release/hgnnc] [--seeds 5] [--only acm] [--epochs N] [--rate 0.002]

DATA holds the folders `acm` and `imdb`. Models are those of examples/rgcn with batches of 128 and fan-outs [20, 20]. Prints test
micro-F1, mean and deviation over the seeds, and the part of the edges that was saved.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]

REUSE = [None, "hot(0.1, batches: 2)", "hot(0.1, batches: 4)", "hot(0.1, batches: 8)", "hot(0.3, batches: 4)", "hot(1, batches: 4)"]


def model(name: str, reuse: str | None, rate: float | None) -> str:
    """The example, trained on batches, perhaps at another learning rate."""
    text = (REPOSITORY / f"examples/rgcn/{name}.hgnn").read_text()
    entries = "    batch     128\n    fanout    [20, 20]\n" + (f"    reuse     {reuse}\n" if reuse else "")
    if rate is not None:
        text = re.sub(r"lr: [0-9.]+", f"lr: {rate}", text)
    return re.sub(r"(\n    epochs .*\n)", lambda found: found[1] + entries, text, count=1)


def run(hgnnc: Path, text: str, data: Path, seed: int, epochs: int | None) -> dict:
    """The report of a run."""
    with tempfile.TemporaryDirectory() as folder:
        path, report = Path(folder) / "model.hgnn", Path(folder) / "report.json"
        path.write_text(text)
        command = [hgnnc, "train", path, "--data", data, "--seed", seed, "--report", report, "--quiet"]
        if epochs:
            command += ["--epochs", epochs]
        subprocess.run([str(part) for part in command], check=True, stdout=subprocess.DEVNULL)
        return json.loads(report.read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("--hgnnc", type=Path, default=REPOSITORY / "target/release/hgnnc")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--rate", type=float)
    parser.add_argument("--only", choices=["acm", "imdb"])
    args = parser.parse_args()
    for name in ["acm", "imdb"]:
        data = args.data / name
        if args.only not in (None, name) or not data.is_dir():
            print(f"{name}: left out", file=sys.stderr)
            continue
        for reuse in REUSE:
            reports = [run(args.hgnnc, model(name, reuse, args.rate), data, seed, args.epochs) for seed in range(args.seeds)]
            values = [100 * report["metrics"]["test"]["micro_f1"] for report in reports]
            deviation = statistics.pstdev(values)
            line = f"{name:>5}  {reuse or 'no reuse':<22} {statistics.mean(values):.2f} ± {deviation:.2f}"
            line += f"  ({min(values):.2f} to {max(values):.2f}; {statistics.mean(r['epochs'] for r in reports):.0f} epochs)"
            saved = [report["batches"]["reuse"] for report in reports if reuse]
            if saved:
                drawn = sum(it["edges_sampled"] + it["edges_saved"] for it in saved)
                part = sum(it["edges_saved"] for it in saved) / drawn
                line += f"  {100 * part:.1f} % of the edges saved"
            print(line, flush=True)


if __name__ == "__main__":
    main()

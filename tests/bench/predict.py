#!/usr/bin/env python3
"""Compares what is predicted of every kernel with what it takes, and writes docs/prediction.md.

    tests/bench/predict.py [--quick] [MODEL...]       a model is `han`, `han-acm`, ...

Every kernel over 1 % of an epoch counts. Its time is compared with the prediction, and so is what limits it: the models are
measured again on one thread, alone and while another process keeps copying 256 MiB. That process takes the last-level
cache and the memory from its neighbours, and leaves them their arithmetic and their own caches. It slows down reading from L3
in order by some factor, which is measured; a kernel that it slows down by more than the root of that factor is limited by what is
shared, and that is compared with the predicted limit (L3 and DRAM, or not). It takes two processors or more, and a quiet machine.
"""


import os
import subprocess
import sys
import tempfile
from statistics import median

from common import DATASETS, HERE, MODELS, Bench, ms, parser, percent, table

SHARED = {"L3", "DRAM"}
# A slowdown that is told from noise.
LEAST = 1.2
OTHERS = [
    ("gat-cora", "gat/cora.hgnn", "cora"),
    ("gcn-cora", "gcn/cora.hgnn", "cora"),
    ("gin-cora", "gin/cora.hgnn", "cora"),
    ("sage-cora", "sage/cora.hgnn", "cora"),
    ("hgt-acm", "hgt/acm.hgnn", "acm"),
    ("simple_hgn-acm", "simple_hgn/acm.hgnn", "acm"),
]
NEIGHBOUR = """
import sys
a, b = bytearray(1 << 28), bytearray(1 << 28)
print("ready", flush=True)
while True:
    a[:] = b
"""


class Neighbour:
    """A process that takes the shared caches and the memory."""

    def __enter__(self):
        self.process = subprocess.Popen([sys.executable, "-c", NEIGHBOUR], stdout=subprocess.PIPE, text=True)
        self.process.stdout.readline()
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()


def kernels(profile):
    """The kernels over 1 % of the time, by number."""
    wanted = ("kernel", "rows", "stage", "phase", "kind", "measured_ms", "predicted_ms", "bound", "share", "stores")
    return {str(k["kernel"]): {w: k[w] for w in wanted} for k in profile["kernels"] if k["share"] >= 0.01}


def rates(bench):
    """Bytes per second of each level in order, of one thread, measured now."""
    model, dataset = OTHERS[1][1:]
    with tempfile.TemporaryDirectory() as folder:
        # Where nothing is kept, the machine is measured anew.
        before = os.environ.get("HGNNC_CACHE")
        os.environ["HGNNC_CACHE"] = folder
        try:
            profile = bench.profile(HERE.parent.parent / "examples" / model, bench.dataset(dataset), 1)
        finally:
            if before is None:
                del os.environ["HGNNC_CACHE"]
            else:
                os.environ["HGNNC_CACHE"] = before
    return {level["name"]: level["stream_bytes_per_s"] for level in profile["machine"]["levels"]}


def reference(bench):
    """By what the neighbour slows down reading from L3 in order: the median of three."""
    if (bench.args.threads or 2) < 2:
        return None
    threads, bench.args.threads = bench.args.threads, 1
    try:
        for turn in range(3):
            bench.once(f"rates alone {turn}", lambda: rates(bench))
            with Neighbour():
                bench.once(f"rates beside {turn}", lambda: rates(bench))
    finally:
        bench.args.threads = threads
    pairs = [(bench.runs.get(f"rates alone {turn}", {}), bench.runs.get(f"rates beside {turn}", {})) for turn in range(3)]
    factors = [alone["L3"] / beside["L3"] for alone, beside in pairs if "L3" in alone and "L3" in beside]
    return median(factors) if factors else None


def measure(bench, name, model, dataset, epochs):
    folder = bench.dataset(dataset)
    profile = lambda *options: kernels(bench.profile(model, folder, epochs, *options))
    bench.once(f"{name} all", lambda: profile())
    if (bench.args.threads or 2) < 2:
        return
    threads, bench.args.threads = bench.args.threads, 1
    try:
        bench.once(f"{name} alone", lambda: profile())

        def beside():
            with Neighbour():
                return profile()

        bench.once(f"{name} beside", beside)
    finally:
        bench.args.threads = threads


def error(kernel):
    return abs(kernel["predicted_ms"] - kernel["measured_ms"]) / kernel["measured_ms"]


def limits(bench, name, least):
    """Each kernel that was measured alone and beside the neighbour: what limits it, predicted and measured."""
    alone, beside = bench.runs.get(f"{name} alone", {}), bench.runs.get(f"{name} beside", {})
    for number, kernel in alone.items():
        if isinstance(kernel, dict) and isinstance(beside.get(number), dict):
            factor = beside[number]["measured_ms"] / kernel["measured_ms"]
            yield kernel, factor, kernel["bound"] in SHARED, factor > least


def page(bench, names, slowdown):
    least = max(slowdown or 1.0, 1.0) ** 0.5
    # Times differ by a few percent from run to run.
    tells = least >= LEAST
    yield "# What is predicted of kernels, and what they take"
    yield ""
    yield "{about}"
    yield ""
    yield "The prediction stands in `hgnnc profile` and `hgnnc build --emit bounds` beside every kernel, and explains decisions. How it is made:"
    yield "[what is counted](../compiler/passes/src/bounds/mod.rs) and [what it costs](../compiler/machine/src/predict.rs)."
    yield ""
    every, ways, rows = [], [], []
    for name in names:
        found = [k for k in bench.runs.get(f"{name} all", {}).values() if isinstance(k, dict)]
        if not found:
            continue
        known = list(limits(bench, name, least)) if tells else []
        every += [(name, kernel) for kernel in found]
        ways += [(name, *way) for way in known]
        close = sum(error(k) < 0.3 for k in found)
        right = sum(predicted == measured for _, _, predicted, measured in known)
        ratio = median(k["measured_ms"] / k["predicted_ms"] for k in found)
        of_limits = f"{right} of {len(known)}" if known else "not measured"
        rows.append([name, len(found), percent(median(map(error, found))), close, f"{ratio:.2f}", of_limits])
    if not every:
        return
    errors = [error(kernel) for _, kernel in every]
    right = sum(predicted == measured for _, _, _, predicted, measured in ways)
    yield f"**{len(every)} kernels over 1 % of an epoch: the median error is {percent(median(errors))}; {sum(e < 0.3 for e in errors)}"
    if tells:
        yield f"are predicted within 30 %.** What limits them (the shared memory or the core itself) is right for {right} of {len(ways)}."
    else:
        reads = f"slows down reading from L3 by {100 * (slowdown - 1):.0f} % only" if slowdown else "was not there"
        yield f"are predicted within 30 %.** What limits them could not be told on this machine: the process beside {reads}."
    yield ""
    heads = ["model", "kernels", "median error", "within 30 %", "measured over predicted, median", "limit right"]
    yield from table(heads, rows)
    yield ""
    yield "## Every kernel"
    yield ""
    if tells:
        yield f"*Beside* is the time on one thread beside a process that copies memory, over the time without it. Reading from L3 in order takes"
        yield f"{slowdown:.2f} times as long there; a kernel above {least:.2f}, the root of that, is limited by what both share."
    yield ""
    beside = {(name, kernel["kernel"]): (factor, predicted == measured) for name, kernel, factor, predicted, measured in ways}
    lines = []
    for name, kernel in every:
        factor, fits = beside.get((name, kernel["kernel"]), (None, None))
        stores = kernel["stores"] if isinstance(kernel["stores"], str) else ", ".join(kernel["stores"][:2])
        lines.append(
            [
                name,
                f"k{kernel['kernel']} {kernel['rows']}",
                stores[:40],
                f"{kernel['stage']} {kernel['phase']}",
                percent(kernel["share"]),
                ms(kernel["measured_ms"]),
                ms(kernel["predicted_ms"]),
                f"{kernel['measured_ms'] / kernel['predicted_ms']:.2f}",
                kernel["bound"],
                "" if factor is None else f"{factor:.2f}{'' if fits else ' (wrong)'}",
            ]
        )
    heads = ["model", "kernel", "stores", "stage", "share", "measured", "predicted", "ratio", "limit", "beside"]
    yield from table(heads, lines)


def main():
    made = parser(__doc__)
    made.add_argument("models", nargs="*", metavar="MODEL")
    args = made.parse_args()
    every = [(f"{m}-{d}", HERE / f"{m}-{d}.hgnn", d) for m in MODELS for d in DATASETS]
    every += [(name, HERE.parent.parent / "examples" / model, data) for name, model, data in OTHERS]
    wanted = [one for one in every if not args.models or {one[0], one[0].split("-")[0]} & set(args.models)]
    if not wanted:
        sys.exit(f"no such model; there are {', '.join(name for name, _, _ in every)}")
    bench = Bench(args, "prediction")
    try:
        slowdown = reference(bench)
        for name, model, dataset in wanted:
            measure(bench, name, model, dataset, 5 if args.quick else 15)
            bench.say(name)
            bench.write(page(bench, [name for name, _, _ in wanted], slowdown))
    finally:
        bench.save()
    bench.done()


if __name__ == "__main__":
    main()

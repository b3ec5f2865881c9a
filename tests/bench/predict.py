#!/usr/bin/env python3
"""Compares what is predicted of every kernel with what it takes, and writes docs/prediction.md.

    tests/bench/predict.py [--quick] [MODEL...]       a model is `han`, `han-acm`, ...

Every kernel over 1 % of an epoch counts. Its time is compared with the prediction, and so is what limits it: on one thread each
kernel also runs with all that it touches folded into the caches of its core (`hgnnc profile --in-cache`). It does the same work
then, and waits for nothing that cores share. A kernel is limited by shared memory where more than half of its time goes away,
and that is compared with the limit that is predicted on one thread (L3 and DRAM, or not).
"""


import sys
from statistics import median

from common import DATASETS, HERE, MODELS, Bench, ms, parser, percent, table

SHARED = {"L3", "DRAM"}
# Waiting for more than this part of its time limits a kernel.
HALF = 0.5
OTHERS = [
    ("gat-cora", "gat/cora.hgnn", "cora"),
    ("gcn-cora", "gcn/cora.hgnn", "cora"),
    ("gin-cora", "gin/cora.hgnn", "cora"),
    ("sage-cora", "sage/cora.hgnn", "cora"),
    ("hgt-acm", "hgt/acm.hgnn", "acm"),
    ("simple_hgn-acm", "simple_hgn/acm.hgnn", "acm"),
    ("rgcn-mag", "rgcn/mag.hgnn", "mag"),
    ("rgat-mag", "rgat/mag.hgnn", "mag"),
]
# Of ogbn-mag: larger than any cache, and small enough to be measured in a minute.
SCALE = "0.2"


def kernels(profile):
    """The kernels over 1 % of the time, by number."""
    wanted = ("kernel", "rows", "stage", "phase", "kind", "measured_ms", "predicted_ms", "bound", "share", "stores", "in_cache_ms")
    return {str(k["kernel"]): {w: k.get(w) for w in wanted} for k in profile["kernels"] if k["share"] >= 0.01}


def graph(bench, dataset):
    """The folder of a dataset."""
    if dataset != "mag":
        return bench.dataset(dataset)
    bench.graphs["mag"] = "synthetic"
    folder = bench.work / "graphs" / f"mag-{SCALE}"
    if not (folder / "dataset.toml").exists():
        bench.command("data", "synth", "mag", folder, "--scale", SCALE, measured=False)
    return folder


def measure(bench, name, model, dataset, epochs):
    folder = graph(bench, dataset)
    epochs = epochs if dataset != "mag" else max(3, epochs // 3)
    bench.once(f"{name} all", lambda: kernels(bench.profile(model, folder, epochs)))
    threads, bench.args.threads = bench.args.threads, 1
    try:
        bench.once(f"{name} in cache", lambda: kernels(bench.profile(model, folder, epochs, "--in-cache")))
    finally:
        bench.args.threads = threads


def error(kernel):
    return abs(kernel["predicted_ms"] - kernel["measured_ms"]) / kernel["measured_ms"]


def waits(kernel):
    """The part of its time that a kernel waits for what cores share."""
    return max(0.0, 1.0 - kernel["in_cache_ms"] / kernel["measured_ms"])


class Limits:
    """What limits kernels, as predicted and as measured."""

    def __init__(self, kernels, half=HALF):
        known = [(k["bound"] in SHARED, waits(k) > half) for k in kernels]
        self.all, self.right = len(known), sum(predicted == measured for predicted, measured in known)
        self.shared, self.found = sum(m for _, m in known), sum(p and m for p, m in known)

    def __str__(self):
        return f"{self.right} of {self.all}" if self.all else "not measured"


def one_thread(bench, name):
    """The kernels that were run in the caches of their core as well."""
    found = bench.runs.get(f"{name} in cache", {}).values()
    return [k for k in found if isinstance(k, dict) and k["in_cache_ms"] is not None]


def page(bench, names):
    yield "# What is predicted of kernels, and what they take"
    yield ""
    yield "{about}"
    yield ""
    yield "The prediction stands in `hgnnc profile` and `hgnnc build --emit bounds` beside every kernel, and explains decisions. How it is made:"
    yield "[what is counted](../compiler/analysis/src/cost/mod.rs) and [what it costs](../compiler/machine/src/predict.rs)."
    yield ""
    every, single, rows = [], [], []
    for name in names:
        found = [k for k in bench.runs.get(f"{name} all", {}).values() if isinstance(k, dict)]
        if not found:
            continue
        alone = one_thread(bench, name)
        every += [(name, kernel) for kernel in found]
        single += alone
        close = sum(error(k) < 0.3 for k in found)
        ratio = median(k["measured_ms"] / k["predicted_ms"] for k in found)
        waiting = percent(median(map(waits, alone))) if alone else ""
        rows.append([name, len(found), percent(median(map(error, found))), close, f"{ratio:.2f}", waiting, str(Limits(alone))])
    if not every:
        return
    errors = [error(kernel) for _, kernel in every]
    limits = Limits(single)
    yield f"**{len(every)} kernels over 1 % of an epoch: the median error is {percent(median(errors))}; {sum(e < 0.3 for e in errors)}"
    yield f"are predicted within 30 %. What limits them, the core or memory that cores share, is right for {limits} on one thread.**"
    yield ""
    yield "What limits a kernel was measured: it also ran with all that it touches folded into the caches of its core (`hgnnc profile"
    yield "--in-cache`), where it does the same work and waits for nothing that cores share. Memory limits it where more than half of"
    yield f"its time goes away. That is so for {limits.shared} kernels, of which {limits.found} are predicted, and {limits.all - limits.right - (limits.shared - limits.found)}"
    others = [(half, Limits(single, half)) for half in (1 / 3, 2 / 3)]
    at = " and ".join(f"{found.right} at {percent(half)}" for half, found in others)
    yield f"others are said to be. The border is a matter of words: with the same predictions, {at} of its time would be right."
    yield "Sums over paths are not folded, and have no such figure."
    yield ""
    heads = ["model", "kernels", "median error", "within 30 %", "measured over predicted, median", "waits, median", "limit right"]
    yield from table(heads, rows)
    yield ""
    yield "## Every kernel"
    yield ""
    yield "Times are of all threads, *waits* and *limit* of one: the part of its time that goes away with its data in the caches of its core,"
    yield "and what is predicted to limit it."
    yield ""
    lines = []
    alone = {(name, k["kernel"]): k for name in names for k in one_thread(bench, name)}
    for name, kernel in every:
        single = alone.get((name, kernel["kernel"]))
        stores = kernel["stores"] if isinstance(kernel["stores"], str) else ", ".join(kernel["stores"][:2])
        wrong = single and (single["bound"] in SHARED) != (waits(single) > HALF)
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
                percent(waits(single)) if single else "",
                (single or kernel)["bound"] + (" (wrong)" if wrong else ""),
            ]
        )
    heads = ["model", "kernel", "stores", "stage", "share", "measured", "predicted", "ratio", "waits", "limit"]
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
        for name, model, dataset in wanted:
            measure(bench, name, model, dataset, 5 if args.quick else 15)
            bench.say(name)
            bench.write(page(bench, [name for name, _, _ in wanted]))
    finally:
        bench.save()
    bench.done()


if __name__ == "__main__":
    main()

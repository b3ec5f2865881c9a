#!/usr/bin/env python3
"""Answers the published findings on training heterogeneous graph neural networks for this compiler, and writes
docs/characterization.md.

    tests/bench/characterize.py [--quick]

HAN, RGCN and RGAT of this folder on ACM, IMDB and the synthetic DBLP: as they are compiled, and as they are written (without
any pass or fusion); on batches; and HAN over metapaths that get longer, and over more and more of them.
"""

import re
import subprocess
from statistics import mean

from common import DATASETS, HERE, MIB, MODELS, Bench, Failed, ms, parser, percent, sized, table

NAMES = [f"{model}-{dataset}" for model in MODELS for dataset in DATASETS]
STAGES = ["FP", "NA", "SF", "LC", "PU"]
# Published figures: Characterization of HGNN training, arXiv 2407.11790; A100, DGL 1.0.2, FP32.
SOURCE = "arXiv 2407.11790; A100, DGL 1.0.2"
# Metapaths of ACM by number of vertices, and in the order in which the sweep over their number adds them.
LONGER = ["PAP", "PAPAP", "PAPAPAP", "PAPAPAPAP"]
MORE = ["PAP", "PSP", "PAPAP", "PAPSP", "PSPAP", "PAPAPAP", "PAPSPAP", "PSPAPSP"]
BATCH, FANOUT = 256, 10


class Characterization(Bench):
    def profiled(self, key, model, data, *options, epochs=None, limit=None):
        epochs = epochs or (3 if self.args.quick else 10)
        return self.once(key, lambda: shown(self.profile(model, data, epochs, *options, limit=limit)))

    def whole(self):
        """Each model on the whole graph."""
        for name in NAMES:
            model, data = HERE / f"{name}.hgnn", self.dataset(name.split("-")[1])
            self.profiled(name, model, data)
            self.once(f"{name} report", lambda: reported(self.train(model, data, 5)))
            words = self.without_passes_and_fusions(model, data)
            self.profiled(f"{name} as written", model, data, *words, epochs=2, limit=240)
            self.say(f"{name} on the whole graph is done")

    def without_passes_and_fusions(self, model, data):
        """Options that disable all of them."""
        options = []
        for option in ("--disable-pass", "--disable-fusion"):
            words = [self.args.hgnnc, "train", model, "--data", data, option, "?"]
            done = subprocess.run([str(word) for word in words], capture_output=True, text=True)
            listed = re.findall(r"`([^`]+)`", done.stderr.split("help:")[-1])
            options += [word for name in listed if name != "value:NAME" for word in (option, name)]
        return options

    def batches(self):
        """Each model on batches: sampling beside computing."""
        for name in NAMES:
            model, data = HERE / f"{name}.hgnn", self.dataset(name.split("-")[1])
            text = model.read_text()
            hops = len(re.findall(r"= .*Conv\(hidden", text))
            lines = f"    batch     {BATCH}\n    fanout    [{', '.join([str(FANOUT)] * hops)}]\n}}\n"
            made = self.made(f"{name}-batches", re.sub(r"\}\s*\Z", lines, text))
            number = "10" if self.args.quick else "40"
            self.profiled(f"{name} batches", made, data, "--batches", number, epochs=1)
        graph = self.work / "graphs" / "mag-small"
        self.command("data", "synth", "mag", graph, "--scale", "0.1", measured=False)
        text = (HERE.parent.parent / "examples" / "han" / "mag.hgnn").read_text()
        text = re.sub(r"\n    stop .*", "", text)
        made = self.made("han-mag-batches", re.sub(r"\}\s*\Z", "    batch     1024\n    fanout    [25]\n}\n", text))
        self.profiled("han-mag batches", made, graph, "--batches", "10" if self.args.quick else "40", epochs=1)
        self.say("batches are done")

    def metapaths(self):
        """HAN on ACM over metapaths that get longer, and over more of them."""
        data, text = self.dataset("acm"), (HERE / "han-acm.hgnn").read_text()
        for names in sweeps(self.args.quick):
            declared = "\n".join(f"    metapath {name} = {path(name)}" for name in names)
            changed = re.sub(r"(?m)^    metapath .*\n", "", text).replace(
                'from "paper-subject"\n', f'from "paper-subject"\n\n{declared}\n', 1
            )
            changed = re.sub(r"over \[[^\]]*\] of Paper.x", f"over [{', '.join(names)}] of Paper.x", changed)
            key = "+".join(names)
            self.profiled(f"metapaths {key}", self.made(f"han-acm-{key}", changed), data)
        self.say("metapaths are done")

    def made(self, name, text):
        folder = self.work / "models"
        folder.mkdir(exist_ok=True)
        file = folder / f"{name}.hgnn"
        file.write_text(text)
        return file


def sweeps(quick):
    lengths = [[name] for name in (LONGER[::3] if quick else LONGER)]
    numbers = [MORE[:count] for count in ((1, 8) if quick else (1, 2, 4, 6, 8))]
    return lengths + [names for names in numbers if names not in lengths]


def path(name):
    """The steps of a metapath of ACM that is named by its vertices."""
    types, relations = {"P": "Paper", "A": "Author", "S": "Subject"}, {"A": "written_by", "S": "about"}
    steps = "Paper"
    for before, after in zip(name, name[1:]):
        steps += (
            f" -{relations[after]}-> {types[after]}" if before == "P" else f" <-{relations[before]}- {types[after]}"
        )
    return steps


def shown(profile):
    """What is kept of a profile."""
    kept = (
        "rows",
        "stage",
        "phase",
        "kind",
        "measured_ms",
        "predicted_ms",
        "bound",
        "fits",
        "flops",
        "footprint_bytes",
        "moved_bytes",
        "shares",
    )
    steps = (profile["memory"] or {}).get("steps", [])
    peak = max(steps, key=lambda step: sum(step["bytes"].values()), default={"bytes": {}})
    return {
        "run_ms": profile["run_ms"],
        "epoch_ms": profile["epoch_ms"],
        "stages": profile["stages"],
        "phases": profile["phases"],
        "kinds": profile["kinds"],
        "batch": profile["batch"],
        "once": profile["once"],
        "kernels": [{key: kernel[key] for key in kept} for kernel in profile["kernels"]],
        "peak": peak["bytes"],
        "fixed": (profile["memory"] or {}).get("fixed_bytes", 0),
        "machine": profile["machine"],
    }


def reported(report):
    return {
        key: report[key]
        for key in (
            "arena_bytes",
            "infer_arena_bytes",
            "sgb_s",
            "load_s",
            "epoch_ms",
            "semantic_graphs",
            "peak_rss_bytes",
        )
    }


def page(bench):
    runs = {key: run for key, run in bench.runs.items() if "failed" not in run}
    yield "# Published findings, and what becomes of them here"
    yield ""
    yield "{about}"
    yield ""
    yield f"What was found of heterogeneous graph neural networks in libraries is from *Characterization of HGNN training* ({SOURCE}), as the project's notes quote it. The models"
    yield "are those of `tests/bench`; *as written* is the same program with all passes and fusions disabled, in"
    yield "kernels of one operation each (edge values are not stored even then). Stages: FP projects features, NA aggregates over"
    yield "neighbours, SF fuses semantic graphs, LC is the loss, PU updates parameters. In HAN and RGAT each semantic graph has a projection"
    yield "of its own, as in the peers' models, which is written within the aggregation and counted as NA: FP is next to nothing there."
    for part in (aggregation, directions, limits, memory, lengths, numbers, sampling, building, elsewhere):
        yield ""
        yield from part(bench, runs)


def present(runs, suffix=""):
    return [(name, runs[f"{name}{suffix}"]) for name in NAMES if f"{name}{suffix}" in runs]


def share(run, stage, phase):
    """Part of a direction that a stage takes."""
    whole = run["phases"][phase]["measured_ms"]
    return run["stages"][stage][f"{phase}_ms"] / whole if whole else 0.0


def between(values, show=percent):
    values = list(values)
    return f"{show(min(values))} to {show(max(values))}" if values else "nothing"


def aggregation(bench, runs):
    yield "## Aggregation takes most of the time"
    yield ""
    yield f"Published: NA is 77.8 % of forward and 77.5 % of backward time ({SOURCE})."
    yield ""
    rows = []
    for name, run in present(runs):
        written = runs.get(f"{name} as written")
        cells = [name, ms(run["run_ms"]), percent(share(run, "NA", "forward")), percent(share(run, "NA", "backward"))]
        if written:
            cells += [
                ms(written["run_ms"]),
                percent(share(written, "NA", "forward")),
                percent(share(written, "NA", "backward")),
            ]
        rows.append(cells + [""] * (7 - len(cells)))
    yield from table(
        ["model", "an epoch", "NA of forward", "NA of backward", "as written", "NA of forward", "NA of backward"], rows
    )
    yield ""
    both = [(run, runs[f"{name} as written"]) for name, run in present(runs) if f"{name} as written" in runs]
    if both:
        mean_of = lambda which, phase: mean(share(pair[which], "NA", phase) for pair in both)
        yield f"On average NA is {percent(mean_of(0, 'forward'))} of forward and {percent(mean_of(0, 'backward'))} of backward, as written"
        yield f"{percent(mean_of(1, 'forward'))} and {percent(mean_of(1, 'backward'))}. What changed: scores and projections stand on vertices, sums over the"
        yield "edges of the same rows share a pass, weights of a softmax are not stored, and where pairs of a metapath have one path each, sums"
        times = [pair[1]["run_ms"] / pair[0]["run_ms"] for pair in both]
        yield f"go along the paths. An epoch takes {between(times, lambda x: f'{x:.1f}')} times less than as written."


def directions(bench, runs):
    yield "## Forward against backward"
    yield ""
    yield f"Published: forward is 48.3 %, backward 42.4 % of the time ({SOURCE})."
    yield ""
    rows = []
    for name, run in present(runs):
        rows.append([name] + [percent(run["phases"][phase]["share"]) for phase in ("forward", "backward", "update")])
    yield from table(["model", "forward", "backward", "update"], rows)
    found = [
        run["phases"]["backward"]["measured_ms"] / run["phases"]["forward"]["measured_ms"] for _, run in present(runs)
    ]
    yield ""
    yield f"Backward takes {between(found, lambda x: f'{x:.2f}')} times forward. What changed: backward stores nothing of edges and computes their"
    yield "weights again from one number per row and head, so part of the time that forward saved stands there; it adds without"
    yield "atomics, row by row in the other direction. A sum over semantic graphs has no backward kernel: its gradient is the same memory."


def limits(bench, runs):
    yield "## What limits the kernels"
    yield ""
    yield f"Published ({SOURCE}): FP forward is dense products at 111.75 FLOP/B and 56 % of peak; NA forward is 84 % SpMM at 2.19 FLOP/B and 53 % of"
    yield "the DRAM's bandwidth; NA backward is 48.6 % SpMM and 46.2 % SDDMM; SF is 46 to 52 % dense products, the rest element-wise,"
    yield "copies and reductions."
    yield ""
    rows = []
    for name, run in present(runs):
        for stage in ("FP", "NA", "SF"):
            for phase in ("forward", "backward"):
                kernels = [
                    k for k in run["kernels"] if k["stage"] == stage and k["phase"] == phase and k["measured_ms"] > 0
                ]
                total = sum(k["measured_ms"] for k in kernels)
                if total < 0.01 * run["run_ms"]:
                    continue
                bound = {}
                for k in kernels:
                    bound[k["bound"]] = bound.get(k["bound"], 0.0) + k["measured_ms"] / total
                limit, part = max(bound.items(), key=lambda item: item[1])
                flops, moved = sum(k["flops"] for k in kernels), sum(k["footprint_bytes"] for k in kernels)
                reached = sum(k["predicted_ms"] for k in kernels) / total
                rows.append(
                    [
                        name,
                        f"{stage} {phase}",
                        ms(total),
                        len(kernels),
                        f"{limit} ({percent(part)})",
                        f"{flops / max(moved, 1):.1f}",
                        percent(reached),
                    ]
                )
    yield from table(
        ["model", "stage", "time", "kernels", "what limits most of it", "FLOP/B", "of what the machine allows"], rows
    )
    yield ""
    na = [row for row in rows if row[1].startswith("NA")]
    compute = sum(row[4].startswith("compute") for row in na)
    yield f"Of {len(na)} parts of NA, {compute} are limited by arithmetic and {len(na) - compute} by memory or by their size. FLOP/B counts each distinct byte once."
    yield "What changed: rows that several edges gather come from a cache, edge values stay in registers and near caches, so aggregation has"
    yield "more arithmetic for each byte than SpMM and SDDMM one after another; dense projections of sparse features are sums of rows here, and"
    yield "are limited by gathering them. The last column is the roofline with gathers apart: [profile.md](profile.md)."


def memory(bench, runs):
    yield "## Training needs more memory than inference"
    yield ""
    yield f"Published: 1.92 times as much (DBLP), NA holds 66.6 % of it ({SOURCE})."
    yield ""
    rows, ratios = [], []
    for name, run in present(runs, " report"):
        ratio = run["arena_bytes"] / max(run["infer_arena_bytes"], 1)
        ratios.append(ratio)
        peak = runs.get(name, {}).get("peak", {})
        whole = sum(peak.values())
        rows.append(
            [
                name,
                f"{run['arena_bytes'] / MIB:.1f} MiB",
                f"{run['infer_arena_bytes'] / MIB:.1f} MiB",
                f"{ratio:.2f}",
                percent(peak.get("NA", 0) / whole) if whole else "",
            ]
        )
    yield from table(["model", "arena, training", "arena, inference", "ratio", "NA of values at the peak"], rows)
    yield ""
    yield f"Training takes {between(ratios, lambda x: f'{x:.2f}')} times inference. What changed: nothing of the size of the edges is kept, attention keeps one number"
    yield "per row and head, and what backward needs besides is kept or computed again by a minimum cut; the arena is planned before anything runs."


def sweep(bench, runs, names_of, what):
    rows, first = [], None
    for names in names_of:
        run = runs.get(f"metapaths {'+'.join(names)}")
        if run is None:
            failed = bench.runs.get(f"metapaths {'+'.join(names)}", {}).get("failed")
            if failed:
                rows.append([what(names), failed] + [""] * 5)
            continue
        first = first or run
        cells = [what(names), ms(run["run_ms"])]
        for stage in ("FP", "NA", "SF"):
            now, then = run["stages"][stage]["measured_ms"], first["stages"][stage]["measured_ms"]
            cells.append(f"{ms(now)}, {now / then:.2f} x" if then > 0.005 else ms(now))
        rows.append([*cells, f"{run['once']['sgb_ms']:.0f} ms"])
    return rows


def growth(rows, runs, first, last):
    ends = [runs.get(f"metapaths {'+'.join(names)}") for names in (first, last)]
    if None in ends:
        return None
    return ends[1]["stages"]["NA"]["measured_ms"] / ends[0]["stages"]["NA"]["measured_ms"]


def lengths(bench, runs):
    yield "## Longer metapaths"
    yield ""
    yield f"Published: from a length of 3 to 9, NA takes 4.12 times as long ({SOURCE}; of which metapaths, the notes do not say)."
    yield ""
    names = [found for found in sweeps(bench.args.quick) if len(found) == 1]
    rows = sweep(bench, runs, names, lambda found: f"{len(found[0])}: {found[0]}")
    yield "HAN on ACM over one metapath:"
    yield ""
    yield from table(["vertices: metapath", "an epoch", "FP", "NA", "SF", "SGB, once"], rows)
    times = growth(rows, runs, names[0], names[-1])
    if times:
        yield ""
        yield f"NA grows {times:.2f} times: a longer path through the same relations joins more pairs. What the compiler changed is the cost of a pair"
        yield "(the first table), and that of SGB, which is done once."


def numbers(bench, runs):
    yield "## More metapaths"
    yield ""
    yield f"Published: from 1 to 8 metapaths, FP takes 4.71, NA 9.34 and SF 1.40 times as long ({SOURCE}; of which metapaths, the notes do not say)."
    yield ""
    names = [found for found in sweeps(bench.args.quick) if found == MORE[: len(found)]]
    rows = sweep(bench, runs, names, lambda found: str(len(found)))
    yield f"HAN on ACM over the first of {', '.join(MORE)}:"
    yield ""
    yield from table(["metapaths", "an epoch", "FP", "NA", "SF", "SGB, once"], rows)
    yield ""
    yield "Each metapath has its own projection, as in the peers' model, and its own pairs: neither is shared. What changed: kernels of metapaths"
    yield "that do not need each other share a launch, semantic fusion reads each of them once, and metapaths whose pairs have one path each (PSP)"
    yield "are factored."


def sampling(bench, runs):
    yield "## Sampling takes most of an epoch on batches"
    yield ""
    yield f"Published: 51 % of the time on average, 88.9 % for HAN on MAG ({SOURCE})."
    yield ""
    rows, shares, waits = [], [], []
    for name in [*NAMES, "han-mag"]:
        run = runs.get(f"{name} batches")
        if run is None or not run["batch"]:
            failed = bench.runs.get(f"{name} batches", {}).get("failed")
            if failed:
                rows.append([name, failed] + [""] * 4)
            continue
        batch = run["batch"]
        made = batch["sampling_ms"] + batch["features_ms"] + batch["graphs_ms"]
        computed = run["run_ms"] - batch["waiting_ms"]
        shares.append(batch["sampling_ms"] / (made + computed))
        waits.append(batch["waiting_ms"] / run["run_ms"])
        rows.append(
            [name, ms(batch["sampling_ms"]), ms(made), ms(computed), percent(shares[-1]), f"{100 * waits[-1]:.1f} %"]
        )
    heads = [
        "model",
        "sampling a batch",
        "with graphs and features",
        "all else",
        "sampling, one after the other",
        "waiting of the time",
    ]
    yield from table(heads, rows)
    if shares:
        yield ""
        yield f"Batches of {BATCH} (1024 on MAG, here a tenth of its size, over PAP and citations, fan-out 25), {FANOUT} in-edges for each semantic graph and hop. One after the other,"
        yield f"sampling would be {between(shares)} of the time. What changed: samplers are machine code for the fan-outs of a model, and batches are made"
        yield f"while others are trained: training waits {between(waits, lambda x: f'{100 * x:.1f} %')} of the time."


def building(bench, runs):
    yield "## Building semantic graphs"
    yield ""
    yield f"Published: about 11.46 epochs ({SOURCE})."
    yield ""
    rows, epochs = [], []
    for name, run in present(runs, " report"):
        ratio = run["sgb_s"] * 1e3 / run["epoch_ms"]["median"]
        epochs.append(ratio)
        edges = sum(graph["edges"] for graph in run["semantic_graphs"])
        rows.append([name, sized(edges), f"{run['sgb_s'] * 1e3:.1f} ms", ms(run["epoch_ms"]["median"]), f"{ratio:.2f}"])
    yield from table(["model", "edges of semantic graphs", "SGB", "an epoch", "SGB in epochs"], rows)
    if epochs:
        yield ""
        yield f"It takes {between(epochs, lambda x: f'{x:.2f}')} epochs ({mean(epochs):.2f} on average), of epochs that are shorter than those of a library. What changed: a metapath is built in one"
        yield "pass where there is room, palindromes are mirrored, and factored metapaths are not materialized."


def elsewhere(bench, runs):
    yield "## What is answered elsewhere, or not"
    yield ""
    yield "- Stalls and hit rates of caches (published: 33 % of cycles stall, 74 % of that on memory; the second-level cache hits 23.7, 3.6 and 4.3 points"
    yield "  less in backward FP, NA and SF): `hgnnc profile` counts cycles, instructions and misses where the processor lets it."
    yield "- Full-batch MAG does not fit in a memory of 80 GB (published): [growth.md](growth.md) trains a narrow RGCN on a graph of almost five times its"
    yield "  edges in the memory of a processor."
    yield "- Several devices (published: MAG 1.66 and 2.13 times faster on two and four, DBLP slower): there is one device here."
    yield "- Sampling on a graphics processor (published: 1.21 to 8.62 times faster than on a processor): samplers run on the processor here."


def main():
    args = parser(__doc__).parse_args()
    bench = Characterization(args, "characterization")
    for part in (bench.whole, bench.metapaths, bench.batches):
        try:
            part()
        except Failed as failure:
            bench.say(f"{part.__name__}: {failure}")
        bench.write(page(bench))
    bench.done()


if __name__ == "__main__":
    main()

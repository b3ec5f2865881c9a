#!/usr/bin/env python3
"""Disables one pass, fusion rule or kernel feature after another, and writes docs/ablation.md:
what each is worth in time and memory, and which fusions pay most and least.

    tests/bench/ablate.py [--quick] [MODEL...]      a model is `han`, `han-acm`, ...

Names are those that the options list. A switch that leaves the kernels of a model as they are is not run. The whole model is
measured before and after every few runs; what differs less than these runs do among themselves is not called a difference.
"""

import re
import subprocess
import sys

from common import DATASETS, HERE, MIB, MODELS, Bench, Failed, ms, parser, percent, table

# The runs between two of the whole model.
TURN = 6
# A run takes about so many milliseconds of epochs.
RUN_MS = 900
# A difference is at least so large, however quiet the machine was.
LEAST = 0.02
# Differences that are measured twice: what is smaller is none, and what is larger is one.
AGAIN = (0.02, 1.0)
LEAST_BYTES = 4096
OPTIONS = ("--disable-pass", "--disable-fusion", "--disable-kernel")


class Ablation(Bench):
    def refusal(self, *words):
        """What the help of a refusal lists."""
        done = subprocess.run([str(word) for word in (self.args.hgnnc, *words)], capture_output=True, text=True)
        # The list of names: `the passes are ...`, `the kernels that can be split up store ...`
        return re.split(r" (?:(?:passes|fusions|features) are|split up store) ", done.stderr)[-1]

    def kernels(self, model, data, *options):
        return self.command("build", model, "--data", data, "--emit", "kernels", *options, measured=False)

    def model(self, name):
        """All runs of one model on one dataset."""
        model, data = HERE / f"{name}.hgnn", self.dataset(name.split("-")[1])
        whole = self.once(f"{name} epochs", lambda: {"ms": self.train(model, data, 5)["epoch_ms"]["median"]})
        if "failed" in whole:
            return
        epochs = 3 + max(3, min(30, round(RUN_MS / (2 if self.args.quick else 1) / whole["ms"])))
        limit = max(60, 60 * epochs * whole["ms"] / 1000)

        def train(key, *options):
            def once():
                found = self.train(model, data, epochs, *options, limit=limit)
                return {
                    "ms": found["epoch_ms"]["min"],
                    "median": found["epoch_ms"]["median"],
                    "arena": found["arena_bytes"],
                    "loss": found["losses"][2],
                }

            def run():
                found, best = once(), whole_of(self.runs, name)
                # What looks like a small difference is measured once more.
                if options and best and AGAIN[0] < abs(found["ms"] / best["ms"] - 1) < AGAIN[1]:
                    found = min(found, once(), key=lambda run: run["ms"])
                return found

            return self.once(f"{name} {key}", run)

        kind = self.switches(model, data)
        before = self.kernels(model, data)
        same = self.runs.setdefault(f"{name} same", [])
        turn = 0
        for switch in kind:
            option = [kind[switch], switch]
            if switch in same:
                continue
            if kind[switch] != "--disable-kernel" and f"{name} without {switch}" not in self.runs:
                try:
                    # An order of vertices is chosen when data is bound, and changes no kernel.
                    if switch != "reorder_vertices" and self.kernels(model, data, *option) == before:
                        same.append(switch)
                        continue
                except Failed as failure:
                    self.runs[f"{name} without {switch}"] = {"failed": str(failure)}
            if turn % TURN == 0:
                train(f"whole {turn // TURN}")
            train(f"without {switch}", *option)
            turn += 1
        train(f"whole {turn // TURN + 1}")
        self.fusions(name, model, data, epochs)
        self.say(f"{name} is done")

    def switches(self, model, data):
        """The names of all options, each with its option."""
        kind = {}
        for option in OPTIONS:
            listed = re.findall(r"`([^`]+)`", self.refusal("train", model, "--data", data, option, "?"))
            kind |= {name: option for name in listed if name != "value:NAME"}
        if not {"cse", "in_place", "jit"} <= kind.keys():
            sys.exit("this build has other names of passes, fusions or kernel features than this script expects")
        return kind

    def fusions(self, name, model, data, epochs):
        """Splits up the longest kernels of several values, one after another."""
        known = re.findall(r"`([^`]+)`", self.refusal("train", model, "--data", data, "--disable-fusion", "value:?"))
        whole = self.once(f"{name} profile", lambda: shown(self.profile(model, data, epochs)))
        if "failed" in whole:
            return
        most = 4 if self.args.quick else 10
        names = [[name for name in kernel["stores"].split(", ") if name in known] for kernel in whole["kernels"]]
        several = [(kernel, found[0]) for kernel, found in zip(whole["kernels"], names) if found]
        for kernel, stored in several[:most]:

            def run():
                apart = shown(self.profile(model, data, epochs, "--disable-fusion", f"value:{stored}"))
                return {"kernel": kernel, "run_ms": whole["run_ms"]} | difference(whole, apart)

            self.once(f"{name} value:{stored}", run)


def shown(profile):
    """What is kept of a profile."""
    kept = ("rows", "stores", "stage", "phase", "measured_ms", "predicted_ms")
    kernels = [{key: kernel[key] for key in kept} for kernel in profile["kernels"]]
    return {"run_ms": profile["run_ms"], "kernels": kernels}


def difference(whole, apart):
    """Times of the kernels that only one of two profiles has: measured and predicted, in ms."""
    name = lambda kernel: (kernel["rows"], kernel["stores"], kernel["stage"], kernel["phase"])
    sides = [{name(kernel): kernel for kernel in side["kernels"]} for side in (whole, apart)]
    only = [[side[key] for key in side if key not in other] for side, other in (sides, sides[::-1])]
    total = lambda kernels, key: sum(kernel[key] for kernel in kernels)
    return {
        "kernels": len(only[1]),
        "measured": [total(side, "measured_ms") for side in only],
        "predicted": [total(side, "predicted_ms") for side in only],
    }


def whole_of(runs, name):
    """Time of the whole model, the part by which runs of it differ, and its memory."""
    found = [run for key, run in runs.items() if re.fullmatch(re.escape(name) + r" whole \d+", key) and "ms" in run]
    if not found:
        return None
    times = sorted(run["ms"] for run in found)
    # Of four runs or more, one that something disturbed does not count.
    kept = times[:-1] if len(times) > 3 else times
    return {"ms": times[0], "noise": max(LEAST, kept[-1] / times[0] - 1), "arena": found[0]["arena"]}


def page(bench, wanted):
    runs = bench.runs
    models = [name for name in wanted if whole_of(runs, name)]
    if not models:
        return
    whole = {name: whole_of(runs, name) for name in models}
    cells = {}
    for name in models:
        for key, run in runs.items():
            if key.startswith(f"{name} without ") and "ms" in run:
                cells[key.removeprefix(f"{name} without "), name] = run
    switches = sorted({switch for switch, _ in cells})

    def ratio(switch, name):
        run = cells.get((switch, name))
        return run and run["ms"] / whole[name]["ms"]

    def time(switch, name):
        found = ratio(switch, name)
        if found is None:
            return "–" if f"{name} without {switch}" not in runs else "failed"
        return "·" if abs(found - 1) <= whole[name]["noise"] else f"{found:.2f}"

    def memory(switch, name):
        run = cells.get((switch, name))
        if run is None or abs(run["arena"] - whole[name]["arena"]) < LEAST_BYTES:
            return "·" if run else "–"
        return f"{run['arena'] / whole[name]['arena']:.2f}"

    def matters(cell):
        return lambda switch: any(cell(switch, name)[0].isdigit() or cell(switch, name) == "failed" for name in models)

    worth = lambda switch: max((ratio(switch, name) or 0) for name in models)
    yield "# Ablation of passes, fusions and kernel features"
    yield ""
    yield "{about}"
    yield ""
    yield "Each row disables one pass, fusion or kernel feature (`hgnnc train --disable-pass`, `--disable-fusion`, `--disable-kernel`;"
    yield "[profile.md](profile.md#passes-fusions-and-kernel-features) explains the names). All models learn the same without it: a test holds losses to 1e-4."
    yield ""
    yield "## Time of an epoch"
    yield ""
    yield "The shortest epoch without it over the shortest with all. `·`: no difference beyond what runs of the whole model differ by; `–`: the"
    yield "kernels of this model are the same without it."
    yield ""
    rows = [["*all: an epoch*"] + [ms(whole[name]["ms"]) for name in models]]
    rows += [["*differences among runs*"] + [f"± {percent(whole[name]['noise'])}" for name in models]]
    for switch in sorted(filter(matters(time), switches), key=worth, reverse=True):
        rows.append([f"`{switch}`"] + [time(switch, name) for name in models])
    yield from table(["without", *models], rows)
    without = [f"`{switch}`" for switch in switches if not matters(time)(switch)]
    if without:
        yield ""
        yield f"No difference anywhere: {', '.join(without)}."
    nowhere = sorted({s for name in models for s in runs.get(f"{name} same", [])} - set(switches))
    if nowhere:
        yield ""
        yield f"Change no kernel of these models on a processor: {', '.join(f'`{switch}`' for switch in nowhere)}."
    yield ""
    yield "## Memory for values (arena)"
    yield ""
    yield "Bytes without it over bytes with all."
    yield ""
    rows = [["*all: arena*"] + [f"{whole[name]['arena'] / MIB:.1f} MiB" for name in models]]
    for switch in filter(matters(memory), switches):
        rows.append([f"`{switch}`"] + [memory(switch, name) for name in models])
    yield from table(["without", *models], rows)
    yield ""
    yield "## What does not pay"
    yield ""
    slow = []
    for switch, name in cells:
        found = ratio(switch, name)
        if found < 1 - whole[name]["noise"]:
            less = cells[switch, name]["arena"] / whole[name]["arena"]
            memory_text = f", memory {less:.2f}" if abs(less - 1) > 0.005 else ""
            slow.append((found, f"- `{switch}`: {name} takes {found:.2f} of the time without it{memory_text}"))
    yield from [line for _, line in sorted(slow)] or [
        "Nothing: no model is faster without anything, beyond differences among runs."
    ]
    yield ""
    yield "## Single fusions"
    yield ""
    yield "A kernel that computes several values is split up (`--disable-fusion value:NAME`, with a value that it stores), and each is"
    yield "computed by a kernel of its own. *Gain*: what these kernels take more, measured and predicted, and the measured gain as"
    yield "a part of an epoch. The longest kernels of each model were split up."
    yield ""
    fusions = []
    for name in models:
        for key, run in runs.items():
            if key.startswith(f"{name} value:") and "measured" in run:
                gain = [run[of][1] - run[of][0] for of in ("measured", "predicted")]
                kernel = run["kernel"]
                what = f"`{key.removeprefix(f'{name} value:')}` ({kernel['rows']}; {kernel['stage']} {kernel['phase']})"
                part = gain[0] / run["run_ms"]
                fusions.append((part, [name, what, run["kernels"], *map(ms, gain), percent(part)]))
    fusions.sort(key=lambda fusion: fusion[0])
    heads = ["model", "kernel", "kernels apart", "gain, measured", "gain, predicted", "of an epoch"]
    half = min(8, (len(fusions) + 1) // 2)
    yield "The best:"
    yield ""
    yield from table(heads, [row for _, row in fusions[::-1][:half]])
    yield ""
    yield "The worst:"
    yield ""
    yield from table(heads, [row for _, row in fusions[: len(fusions) - half][:8]])


def main():
    made = parser(__doc__)
    made.add_argument("models", nargs="*", metavar="MODEL")
    args = made.parse_args()
    every = [f"{model}-{dataset}" for model in MODELS for dataset in DATASETS]
    wanted = [name for name in every if not args.models or {name, name.split("-")[0]} & set(args.models)]
    if not wanted:
        sys.exit(f"no such model; there are {', '.join(every)}")
    bench = Ablation(args, "ablation")
    try:
        for name in wanted:
            bench.model(name)
            bench.write(page(bench, wanted))
    finally:
        bench.save()
    bench.done()


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Trains one model on synthetic graphs of 10^5 to 10^8 edges, and writes docs/growth.md: how time and memory grow.

    tests/bench/grow.py [--quick] [--most EDGES] [--memory GIB]

The graphs have the shape of ogbn-mag (`hgnnc data synth mag --scale S`), are made one after another and deleted when they
have been measured (`--keep` leaves them). The largest takes 3 GB of disk and a few minutes; its runs may take no more address
space than `--memory` GiB. The picture needs matplotlib; without it the page has the table only.
"""

import resource
import shutil
import time
from pathlib import Path

from common import GIB, HERE, MIB, Bench, ms, parser, sized, table

# Edges of ogbn-mag, of which the generator makes so many times as many.
MAG_EDGES = 21_111_007
SIZES = [100_000, 300_000, 1_000_000, 3_000_000, 10_000_000, 30_000_000, 100_000_000]
QUICK = [100_000, 1_000_000, 10_000_000, 100_000_000]
MODEL = HERE / "grow" / "rgcn-mag.hgnn"
# What is aimed at.
MOST_TIMES = 1.5
MOST_GIB = 20


class Growth(Bench):
    def size(self, edges):
        """Times and memory on a graph of about so many edges."""
        folder = self.work / "graphs" / f"mag-{edges}"

        def run():
            before = time.time()
            self.command("data", "synth", "mag", folder, "--scale", f"{edges / MAG_EDGES:.6g}", measured=False)
            made_s = time.time() - before
            bytes_ = sum(file.stat().st_size for file in folder.iterdir())
            # After three epochs that are not measured; few where one takes many seconds.
            least, work = (1, 10_000_000) if self.args.quick else (2, 60_000_000)
            epochs = 3 + max(least, min(20, work // edges))
            found = self.train(MODEL, folder, epochs)
            graphs = found["semantic_graphs"]
            return {
                "edges": sum(graph["edges"] for graph in graphs if not graph["name"].startswith("reverse_")),
                "ms": found["epoch_ms"]["median"],
                "arena": found["arena_bytes"],
                "infer_arena": found["infer_arena_bytes"],
                "rss": found["peak_rss_bytes"],
                "load_s": found["load_s"],
                "sgb_s": found["sgb_s"],
                "compile_s": found["compile_s"],
                "made_s": made_s,
                "bytes": bytes_,
                "loss": found["losses"][-1],
            }

        found = self.once(str(edges), run)
        if folder.exists() and not self.args.keep:
            shutil.rmtree(folder)
        return found

    def train(self, model, data, epochs, *options, limit=None):
        most, hard = int(self.args.memory * GIB), resource.getrlimit(resource.RLIMIT_AS)[1]
        most = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(resource.RLIMIT_AS, (most, hard))
        return super().train(model, data, epochs, *options, limit=limit)


def page(bench, sizes, picture):
    found = [(edges, bench.runs[str(edges)]) for edges in sizes if str(edges) in bench.runs]
    points = [run for _, run in found if "ms" in run]
    yield "# Growth: from 10^5 to 10^8 edges"
    yield ""
    yield "{about}"
    yield ""
    yield "RGCN of two layers and width 16 (`tests/bench/grow/rgcn-mag.hgnn`), full batch, on graphs in the shape of ogbn-mag: vertices"
    yield "and edges of all types grow alike. An epoch is forward, backward and update; every edge is gone along in both directions,"
    yield f"in both layers. Runs may take {bench.args.memory:g} GiB of address space."
    yield ""
    rows = []
    for edges, run in found:
        if "failed" in run:
            rows.append([sized(edges), run["failed"]] + [""] * 8)
            continue
        per = lambda value: value / run["edges"]
        rows.append(
            [
                sized(run["edges"]),
                ms(run["ms"]),
                f"{per(run['ms'] * 1e6):.1f} ns",
                f"{run['arena'] / MIB:.0f} MiB",
                f"{per(run['arena']):.0f} B",
                f"{run['rss'] / MIB:.0f} MiB",
                f"{run['load_s']:.2f} s",
                f"{run['sgb_s']:.2f} s",
                f"{per(run['sgb_s'] * 1e9):.1f} ns",
                f"{run['sgb_s'] * 1e3 / run['ms']:.2f}",
            ]
        )
    heads = [
        "edges",
        "an epoch",
        "per edge",
        "arena",
        "per edge",
        "resident",
        "loading",
        "SGB",
        "per edge",
        "SGB in epochs",
    ]
    yield from table(heads, rows)
    yield ""
    if len(points) > 1:
        per_edge = [run["ms"] / run["edges"] for run in points]
        best, last = min(per_edge), per_edge[-1]
        at = sized(points[per_edge.index(best)]["edges"])
        times, gib = last / best, points[-1]["rss"] / GIB
        held = "held" if times <= MOST_TIMES else "not held"
        yield f"At {sized(points[-1]['edges'])} edges an edge takes {times:.2f} times what it takes at {at}, the best size (at most {MOST_TIMES:g}"
        # Beyond the last-level cache, sizes are compared with one another.
        far = [run["ms"] / run["edges"] for run in points if run["arena"] > 4 * bench.cache]
        if len(far) > 1:
            beyond = far[-1] / min(far)
            held = "held" if beyond <= MOST_TIMES else "not held"
            yield f"were aimed at once a graph is out of cache), and {beyond:.2f} times the best of those with an arena of more than four times the"
            yield f"last-level cache ({bench.cache / MIB:.0f} MiB): {held}."
        else:
            yield f"were aimed at): {held}."
        memory = "held" if gib <= MOST_GIB else "not held"
        yield f"Resident memory at the end is {gib:.1f} GiB (at most {MOST_GIB} were aimed at): {memory}."
    if picture:
        yield ""
        yield f"![Time and memory for each edge]({picture})"


def cache_bytes():
    """The last-level cache, as the system tells; 32 MiB where it does not."""
    try:
        # Not `getconf`, which on a virtual machine has the cache of the whole processor.
        size = Path("/sys/devices/system/cpu/cpu0/cache/index3/size").read_text().strip()
        return int(size.removesuffix("K")) * 1024 if size.endswith("K") else 32 * MIB
    except (OSError, ValueError):
        return 32 * MIB


def draw(bench, sizes, file):
    """The picture, if there is matplotlib."""
    try:
        import matplotlib
    except ImportError:
        bench.say("no matplotlib: the page has no picture")
        return False
    matplotlib.use("svg")
    # The same figures give the same file.
    matplotlib.rcParams.update({"svg.hashsalt": "growth", "font.size": 9, "svg.fonttype": "path"})
    from matplotlib import pyplot

    points = [bench.runs[str(edges)] for edges in sizes if "ms" in bench.runs.get(str(edges), {})]
    if len(points) < 2:
        return False
    edges = [run["edges"] for run in points]
    figure, axes = pyplot.subplots(1, 2, figsize=(8, 3), layout="constrained")
    axes[0].plot(edges, [run["ms"] * 1e6 / run["edges"] for run in points], "o-", label="an epoch")
    axes[0].plot(edges, [run["sgb_s"] * 1e9 / run["edges"] for run in points], "s--", label="SGB, once")
    axes[0].plot(edges, [run["load_s"] * 1e9 / run["edges"] for run in points], "^:", label="loading, once")
    axes[0].set(title="time for each edge", ylabel="ns")
    axes[1].plot(edges, [run["arena"] / run["edges"] for run in points], "o-", label="arena, training")
    axes[1].plot(edges, [run["infer_arena"] / run["edges"] for run in points], "s--", label="arena, inference")
    axes[1].plot(edges, [run["rss"] / run["edges"] for run in points], "^:", label="resident")
    axes[1].set(title="memory for each edge", ylabel="bytes", yscale="log")
    for axis in axes:
        axis.set(xscale="log", xlabel="edges")
        axis.set_ylim(bottom=0 if axis is axes[0] else None)
        axis.grid(alpha=0.3)
        axis.legend()
    figure.savefig(file, metadata={"Date": None})
    return True


def main():
    made = parser(__doc__)
    made.add_argument("--most", type=float, default=1e8, help="the largest number of edges")
    made.add_argument("--memory", type=float, default=MOST_GIB, help="GiB of address space for a run")
    made.add_argument("--keep", action="store_true", help="leave the graphs where they are")
    args = made.parse_args()
    sizes = [edges for edges in (QUICK if args.quick else SIZES) if edges <= args.most]
    bench = Growth(args, "growth")
    bench.cache = cache_bytes()
    picture = bench.docs.with_suffix(".svg")
    for edges in sizes:
        found = bench.size(edges)
        if "ms" in found:
            bench.say(
                f"{sized(edges)} edges: {ms(found['ms'])}, resident {found['rss'] / GIB:.2f} GiB, made in {found['made_s']:.0f} s"
            )
        bench.write(page(bench, sizes, picture.name if draw(bench, sizes, picture) else None))
    bench.done()


if __name__ == "__main__":
    main()

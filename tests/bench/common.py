"""What the scripts of this folder share: runs of the command, datasets, results that survive an interruption, tables.

Results are kept in one JSON file for each script, run by run. A script that is started again with the same build on the
same machine takes what is there and measures the rest; `--fresh` measures everything anew.
"""

import argparse
import hashlib
import json
import os
import platform
import shlex
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).absolute()
MIB = 2**20
GIB = 2**30
MODELS = ["han", "rgcn", "rgat"]
DATASETS = ["acm", "imdb", "dblp"]


def parser(doc):
    """The options of every script."""
    made = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--hgnnc", type=Path, default=TARGET / "release" / "hgnnc", help="the command")
    made.add_argument("--data", type=Path, default=ROOT.parent / "shared" / "data", help="folder with acm and imdb")
    made.add_argument("--threads", type=int, default=os.cpu_count())
    made.add_argument("--quick", action="store_true", help="fewer epochs, fewer points")
    made.add_argument("--fresh", action="store_true", help="measure again what is kept of an earlier run")
    made.add_argument("--json", type=Path, help="where results are kept (target/bench/SCRIPT.json)")
    made.add_argument("--work", type=Path, default=TARGET / "bench", help="folder for generated graphs and models")
    made.add_argument(
        "--runner", default="", help="a command that every measured run is started with, such as `taskset -c 0-3`"
    )
    made.add_argument("--docs", type=Path, help="the page that is written (docs/SCRIPT.md)")
    return made


class Failed(Exception):
    """A run that did not end well."""


class Bench:
    """Runs of one script, and what they gave."""

    def __init__(self, args, name):
        self.args, self.name, self.start = args, name, time.time()
        if not args.hgnnc.exists():
            sys.exit(f"there is no `{args.hgnnc}`: `cargo build --release` makes it, or name one with `--hgnnc`")
        args.hgnnc, args.data = args.hgnnc.resolve(), args.data.resolve()
        self.work = args.work.resolve()
        self.work.mkdir(parents=True, exist_ok=True)
        self.file = (args.json or self.work / f"{name}.json").resolve()
        self.docs = (args.docs or ROOT / "docs" / f"{name}.md").resolve()
        self.about = {
            "machine": machine(),
            "threads": args.threads,
            "build": build(),
            "binary": hashlib.sha256(args.hgnnc.read_bytes()).hexdigest()[:12],
            "quick": args.quick,
        }
        kept = json.loads(self.file.read_text()) if self.file.exists() and not args.fresh else {}
        self.runs = kept.get("runs", {}) if kept.get("about") == self.about else {}
        if self.runs:
            self.say(f"{len(self.runs)} runs are taken from {self.file}")
        self.graphs = {}
        self.measured, self.seconds = 0, kept.get("seconds", 0.0) if self.runs else 0.0

    def say(self, text):
        print(f"[{time.time() - self.start:6.1f} s] {text}", file=sys.stderr, flush=True)

    def once(self, key, run):
        """What `run` gives, or gave when it ran before; a failure is kept as what it says."""
        if key not in self.runs:
            before = time.time()
            try:
                self.runs[key] = run()
            except Failed as failure:
                self.runs[key] = {"failed": str(failure)}
                self.say(f"{key}: {failure}")
            self.measured += 1
            self.seconds += time.time() - before
            self.save()
        return self.runs[key]

    def save(self):
        self.file.parent.mkdir(parents=True, exist_ok=True)
        beside = self.file.with_suffix(".part")
        beside.write_text(
            json.dumps({"about": self.about, "seconds": self.seconds, "runs": self.runs}, indent=1) + "\n"
        )
        beside.rename(self.file)

    def command(self, *words, measured=True, limit=None):
        """Runs the command; its standard output."""
        runner = shlex.split(self.args.runner) if measured else []
        words = [*runner, self.args.hgnnc, *words]
        try:
            done = subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=limit)
        except subprocess.TimeoutExpired:
            raise Failed(f"took longer than {limit:g} s") from None
        if done.returncode != 0:
            raise Failed((done.stderr.strip() or f"exit code {done.returncode}").splitlines()[0])
        return done.stdout

    def train(self, model, data, epochs, *options, limit=None):
        """The report of a training."""
        with tempfile.TemporaryDirectory(dir=self.work) as folder:
            report = Path(folder) / "report.json"
            words = ["train", model, "--data", data, "--epochs", str(epochs), "--threads", str(self.args.threads)]
            # Building is measured, and folders with data stay as they are.
            words.append("--no-graph-cache")
            self.command(*words, "--quiet", "--report", report, *options, limit=limit)
            return json.loads(report.read_text())

    def profile(self, model, data, epochs, *options, limit=None):
        """The `profile.json` of a training."""
        with tempfile.TemporaryDirectory(dir=self.work) as folder:
            words = ["profile", model, "--data", data, "--epochs", str(epochs), "--threads", str(self.args.threads)]
            words.append("--no-graph-cache")
            self.command(*words, "-o", folder, *options, limit=limit)
            return json.loads((Path(folder) / "profile.json").read_text())

    def dataset(self, name):
        """The folder of a dataset: a real one where there is one, but for DBLP, which is synthetic in all benchmarks."""
        real = self.args.data / name
        if real.exists() and name != "dblp":
            self.graphs[name] = "real"
            return real
        self.graphs[name] = "synthetic"
        folder = self.work / "graphs" / name
        self.command("data", "synth", name, folder, measured=False)
        return folder

    def write(self, lines):
        """Writes the page, with the lines that say where its figures are from."""
        about = self.about
        head = [
            f"Written by `tests/bench/{Path(sys.argv[0]).name}`{' --quick' if about['quick'] else ''} on {date.today()}; no figure"
            " here is typed by hand.",
            f"Machine: {about['machine']}. Threads: {about['threads']}. Build: {about['build']}. Measuring took"
            f" {self.seconds / 60:.1f} minutes.",
        ]
        if self.graphs:
            of = lambda kind: ", ".join(sorted(name for name, found in self.graphs.items() if found == kind))
            head.append(f"Graphs: {'; '.join(f'{of(kind)} ({kind})' for kind in ('real', 'synthetic') if of(kind))}.")
        text = "\n".join(lines).replace("{about}", "\n".join(head)) + "\n"
        self.docs.parent.mkdir(parents=True, exist_ok=True)
        self.docs.write_text(text)

    def done(self):
        self.say(
            f"{self.measured} runs in {time.time() - self.start:.0f} s; {self.docs} is written, figures are in {self.file}"
        )


def machine():
    """The processor and its system, in a few words."""
    name = platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [
            line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if line.startswith("model name")
        ]
        name = names[0] if names else name
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / GIB if hasattr(os, "sysconf") else 0
    return f"{name}, {os.cpu_count()} logical processors, {memory:.0f} GiB, {platform.system()}"


def build():
    """The commit of the sources, with a mark where they differ from it."""

    def git(*words):
        done = subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True)
        return done.stdout.strip() if done.returncode == 0 else ""

    commit = git("rev-parse", "--short", "HEAD") or "unknown"
    changed = git("status", "--porcelain", "--untracked-files=no", "--", "compiler", "runtime", "stdlib", "Cargo.lock")
    return f"release, commit {commit}{' with changes' if changed else ''}"


def table(heads, rows):
    """Lines of a table."""
    yield f"| {' | '.join(heads)} |"
    yield f"| {' | '.join('---' for _ in heads)} |"
    for row in rows:
        yield f"| {' | '.join(str(cell) for cell in row)} |"


def ms(value):
    return f"{value:.2f} ms" if value < 10 else f"{value:.1f} ms" if value < 1000 else f"{value / 1000:.2f} s"


def percent(part):
    return f"{100 * part:.0f} %"


def sized(count):
    """A number of things, in units of a thousand or a million."""
    for unit, name in ((1e6, " M"), (1e3, " k")):
        if count >= unit:
            return f"{count / unit:.3g}{name}"
    return f"{count:.0f}"


def count_of(count):
    """`1e6` as `10^6` where it is a power of ten, in digits otherwise."""
    return f"{count:,}".replace(",", " ")

#!/usr/bin/env python3
"""Trains a model with `--tensorboard` and `--log`, and compares what the `tensorboard` package reads with the log.

    python3 tests/read_events.py target/debug/hgnnc        # pip install tensorboard
"""

import json
import pathlib
import subprocess
import sys
import tempfile

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError:
    sys.exit("skipped: `pip install tensorboard` is needed")

MODEL = pathlib.Path(__file__).parent.parent / "examples/gcn/cora.hgnn"


def main(hgnnc):
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        log, events, checkpoint = place / "log.jsonl", place / "events", place / "checkpoint"
        train = [hgnnc, "train", MODEL, "--quiet", "--log", log, "--tensorboard", events, "--checkpoint", checkpoint]
        # The second run begins after the first: TensorBoard has to take both files as one run.
        subprocess.run([*train, "--epochs", "5"], check=True)
        subprocess.run([*train, "--epochs", "8", "--resume"], check=True)
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        found = EventAccumulator(str(events))
        found.Reload()
        tags = sorted(found.Tags()["scalars"])
        expected = {"loss/step": lambda line: line["loss"], "time/epoch_ms": lambda line: line["ms"]}
        for part in ("train", "val"):
            for metric in lines[0][part]:
                expected[f"{metric}/{part}"] = lambda line, part=part, metric=metric: line[part][metric]
        assert tags == sorted(expected), tags
        for tag, value in expected.items():
            scalars = found.Scalars(tag)
            assert [scalar.step for scalar in scalars] == [line["epoch"] for line in lines], tag
            for scalar, line in zip(scalars, lines):
                assert abs(scalar.value - value(line)) <= 1e-6 * abs(value(line)), (tag, scalar, line)
        print(f"{len(lines)} epochs, {len(tags)} scalars: {', '.join(tags)}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])

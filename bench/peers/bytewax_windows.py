"""Bytewax: the windows of ``bench.components.computing``: records of each user and second, then of each second.

``PYTHON bytewax_windows.py LINES STATE``: recovery on, a snapshot every 10 s, backup interval 0, one process.
"""

import os
import subprocess
import sys
from pathlib import Path

import bytewax.operators as op
import orjson
from bytewax.connectors.files import DirSource, FileSink
from bytewax.dataflow import Dataflow

LINES, STATE = "BENCH_LINES", "BENCH_STATE"


def _parsed(line):
    record = orjson.loads(line)
    return record["foreign"]["user"], record["event_time_ns"] // 1_000_000_000


def _counted(state, second):
    """The second before is complete with the first record of a later one: the lines are in order."""
    known, count = state or (second, 0)
    if known == second:
        return (second, count + 1), []
    return (second, 1), [(known, count)]


def _summed(state, count):
    return (state or 0) + count, (state or 0) + count


def flow():
    """Read by ``python -m bytewax.run bytewax_windows:flow``."""
    made = Dataflow("windows")
    lines = op.input("lines", made, DirSource(Path(os.environ[LINES]), "*.jsonl", batch_size=1000))
    counts = op.flat_map_value(
        "counts", op.stateful_map("count", op.map("parse", lines, _parsed), _counted), lambda each: each
    )
    by_second = op.map("by second", counts, lambda each: (str(each[1][0]), each[1][1]))
    sums = op.stateful_map("sum", by_second, _summed)
    out = op.map("text", sums, lambda each: (each[0], f"{each[0]} {each[1]}"))
    op.output("out", out, FileSink(Path(os.environ[STATE]) / "out"))
    return made


if __name__ == "__main__":
    store = Path(sys.argv[2]) / "recovery"
    store.mkdir(parents=True)
    environment = {**os.environ, LINES: sys.argv[1], STATE: sys.argv[2], "PYTHONPATH": str(Path(__file__).parent)}
    subprocess.run([sys.executable, "-m", "bytewax.recovery", str(store), "2"], check=True)
    command = ["-m", "bytewax.run", "bytewax_windows:flow()", "-r", str(store), "-s", "10", "-b", "0"]
    raise SystemExit(subprocess.run([sys.executable, *command], env=environment, check=False).returncode)

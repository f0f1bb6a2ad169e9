"""Bytewax: totals or windows of a key, in one process; with ``BENCH_RECOVERY`` a snapshot every 10 s."""

import os
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import bytewax.operators as op
import bytewax.operators.windowing as win
import orjson
from bytewax.connectors.files import DirSink, DirSource
from bytewax.dataflow import Dataflow

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _parsed(line):
    record = orjson.loads(line)
    return record["key"], record


def _added(kept, record):
    return kept[0] + 1, kept[1] + record["cents"]


def _merged(one, other):
    return one[0] + other[0], one[1] + other[1]


def _shown(key, begin_ns, kept):
    found = {"key": key, "from_ns": begin_ns, "n": kept[0], "cents": kept[1]}
    return key, orjson.dumps(found).decode()


def _time(record):
    return datetime.fromtimestamp(record["at"] / 1e6, UTC)


def flow():
    """Makes the dataflow that ``python -m bytewax.run`` runs."""
    made = Dataflow("compute")
    lines = op.input("in", made, DirSource(Path(os.environ["BENCH_RECORDS"]), "*.log", batch_size=1000))
    records = op.map("parse", lines, _parsed)
    if os.environ["BENCH_TASK"] == "totals":
        totals = op.fold_final("totals", records, lambda: (0, 0), _added)
        shown = op.map("show", totals, lambda each: _shown(each[0], 0, each[1]))
    else:
        clock = win.EventClock(_time, wait_for_system_duration=timedelta(seconds=10))
        windower = win.TumblingWindower(length=timedelta(minutes=1), align_to=EPOCH)
        windows = win.fold_window("windows", records, clock, windower, lambda: (0, 0), _added, _merged)
        shown = op.map("show", windows.down, lambda each: _shown(each[0], each[1][0] * 60_000_000_000, each[1][1]))
    op.output("out", shown, DirSink(Path(os.environ["BENCH_OUTPUT"]), 1))
    return made


def main():
    """Runs the flow."""
    command = [sys.executable, "-m", "bytewax.run", "bytewax_compute:flow()"]
    if os.environ.get("BENCH_RECOVERY"):
        store = Path(os.environ["BENCH_OUTPUT"]).parent / "recovery"
        store.mkdir()
        subprocess.run([sys.executable, "-m", "bytewax.recovery", str(store), "1"], check=True)
        command += ["-r", str(store), "-s", "10", "-b", "0"]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    raise SystemExit(subprocess.run(command, env=environment, check=False).returncode)


if __name__ == "__main__":
    main()

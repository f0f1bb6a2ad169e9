"""Bytewax: keyed state on the query's id, files as input and output.

``BENCH_RECOVERY`` in the environment: recovery on, a snapshot every 10 s, backup interval 0, one process. Otherwise
``--processes`` of them without recovery. A repeated click finds itself in the state of its query.
"""

import os
import subprocess
import sys
from pathlib import Path

import bytewax.operators as op
import orjson
from bytewax.connectors.files import DirSink, DirSource
from bytewax.dataflow import Dataflow

CLICK, QUERY = "BENCH_CLICKS", "BENCH_QUERIES"


class Joined:
    """The state of one query id: the query, the clicks waiting for it, the ids of joined clicks."""

    __slots__ = ("query", "seen", "waiting")

    def __init__(self):
        self.query, self.waiting, self.seen = None, [], set()


def _parsed(line):
    record = orjson.loads(line)
    return record["query_id"], record


def _join(state, record):
    if state is None:
        state = Joined()
    out = []
    click_id = record.get("click_id")
    if click_id is None:
        if state.query is None:
            state.query = record
            out, state.waiting = state.waiting, []
    elif click_id not in state.seen:
        state.seen.add(click_id)
        if state.query is None:
            state.waiting.append(record)
        else:
            out = [record]
    return state, [orjson.dumps({"click": click, "query": state.query}).decode() for click in out]


def flow():
    """Makes the dataflow that ``python -m bytewax.run bytewax_flow:flow`` runs."""
    made = Dataflow("join")
    sides = []
    for name in (QUERY, CLICK):
        lines = op.input(name, made, DirSource(Path(os.environ[name]), "*.log", batch_size=1000))
        sides.append(op.map(f"parse {name}", lines, _parsed))
    records = op.merge("both", *sides)
    pairs = op.flat_map_value("one", op.stateful_map("join", records, _join), lambda found: found)
    op.output("out", pairs, DirSink(Path(os.environ["BENCH_OUTPUT"]), 2))
    return made


def main():
    """Runs the flow in separate processes."""
    from options import parse

    given = parse()
    environment = {
        **os.environ,
        CLICK: str(given.clicks), QUERY: str(given.queries), "BENCH_OUTPUT": str(given.output),
        "PYTHONPATH": str(Path(__file__).parent),
    }  # fmt: skip
    if os.environ.get("BENCH_RECOVERY"):
        store = given.state / "recovery"
        store.mkdir()
        subprocess.run([sys.executable, "-m", "bytewax.recovery", str(store), "2"], check=True)
        command = ["-m", "bytewax.run", "bytewax_flow:flow()", "-r", str(store), "-s", "10", "-b", "0"]
    else:
        command = ["-m", "bytewax.testing", "bytewax_flow:flow()", "-p", str(given.processes)]
    raise SystemExit(subprocess.run([sys.executable, *command], env=environment, check=False).returncode)


if __name__ == "__main__":
    main()

"""Cost of the hot path per event, in calls and messages instead of seconds: ``python -m bench.counts [--accept]``.

Each stage works through a small fixed set in one process; cProfile counts calls of Photon's functions, and the calls
they make to anything else (library, built-in). Three registry replicas over memory count turns, frames, messages and
syncs, of an entry and of a second at rest. A loop that runs once per event and not once per batch shows at once,
however busy the machine. Work inside library calls and in other threads is not seen.
``tests/unit/bench/test_counts.py`` compares with ``bench/counts.json``; ``--accept`` rewrites it.
"""

from __future__ import annotations

import argparse
import asyncio
import cProfile
import json
import platform
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import CodeType

import numpy as np

import photon
from bench import stages
from photon.eventstore.segments import CACHE_BYTES_MAX, CacheEventStore
from photon.idregistry.api import Answer, token_of
from photon.idregistry.core import commands as c
from photon.idregistry.core.sharding import single_range
from photon.idregistry.core.state_machine import BatchAnswers, ShardMachine
from photon.idregistry.raft.api import Applied

BASELINE = Path(__file__).with_name("counts.json")
TOLERANCE = 0.05  # permitted share of calls above the baseline. Idle turns of an event loop move it by a thousandth.
EVENTS = 10_000
BATCH = 1_000
OWN = str(Path(photon.__file__).parent) + "/"


def python() -> str:
    """The version of Python without its patch level. Counts differ between versions."""
    return ".".join(platform.python_version_tuple()[:2])


def calls_of(work: Callable[[], object]) -> int:
    """Counts the calls of Photon's functions while ``work`` runs, and their calls of other functions."""
    profile = cProfile.Profile()
    profile.enable()
    try:
        work()
    finally:
        profile.disable()
    return sum(entry.callcount + _foreign(entry.calls or ()) for entry in profile.getstats() if _own(entry.code))


def _own(code: CodeType | str) -> bool:
    return not isinstance(code, str) and code.co_filename.startswith(OWN)


def _foreign(calls: object) -> int:
    return sum(call.callcount for call in calls if not _own(call.code))  # type: ignore[attr-defined]


def _primary_reader(base: Path) -> None:
    stages.read_all(base, CacheEventStore(stages.adapter()), stages.NoMap())


def _look_ups(base: Path, keys: list[bytes], size: int) -> float:
    """Counts calls per key; half of the batches have their records in the cache, the others in a log."""
    requests, calls = stages.look_up_requests(keys, size, EVENTS // 10 // size), 0
    for what, cache_bytes in (("cache", CACHE_BYTES_MAX), ("log", 1)):
        with stages.event_store(base / "queries", base / what, cache_bytes) as store:
            stages.look_up(store, requests[:1])
            calls += calls_of(lambda: stages.look_up(store, requests))
    return round(calls / (2 * len(requests) * size), 3)


def _registry(commands: list[bytes], machine: ShardMachine) -> None:
    for index, command in enumerate(commands, 3):
        answers = machine.apply(index, command)
        assert isinstance(answers, BatchAnswers)
        assert (answers.inserts.outcomes == Answer.COMMITTED).all(), "or nothing was counted"


def _replicated(base: Path, command: bytes, entries: int = 50) -> dict[str, float]:
    """Counts the work of three replicas for an entry (at 20 a second), and for a second in which all groups rest."""
    group = stages.ReplicaGroup(base, {name: {1: _machine(), 2: _Idle(), 3: _Idle()} for name in "abc"})

    def stream(count: int) -> None:
        for _ in range(count):
            group.propose(command)
            group.rest(0.05)

    try:
        group.rest(5.0)
        stream(2)
        begun = group.counts()
        stream(entries)
        streamed = group.counts()
        group.rest(5.0)
        resting = group.counts()
        group.rest(float(entries))
        rested = group.counts()
    finally:
        group.close()
    assert sum(isinstance(each, Applied) for each in group.outcomes) == 2 + entries
    found = {f"registry, {what} an entry": (streamed[what] - begun[what]) / entries for what in begun}
    return found | {f"registry, {what} a second at rest": (rested[what] - resting[what]) / entries for what in begun}


class _Idle:
    """The state machine of a group that never gets an entry."""

    def apply(self, index: int, command: bytes) -> None: ...

    def snapshot(self) -> list[bytes]:
        return []

    def restore(self, chunks: Iterable[bytes]) -> None: ...


def _machine() -> ShardMachine:
    machine = ShardMachine()
    machine.apply(1, c.encode(c.Configure(1, single_range(1))))
    machine.apply(2, c.encode(c.Announce("slot", "dc", [1])))
    return machine


def _commands() -> list[bytes]:
    rng = np.random.default_rng(1)
    return [
        c.encode(
            c.Batch(
                callers=[(1, BATCH)],
                digests=rng.bytes(16 * BATCH),
                times=np.full(BATCH, 1_700_000_000 * 10**9, "<i8").tobytes(),
                tokens=np.full(BATCH, token_of(1, number), "<u8").tobytes(),
                kinds=b"\x01" * BATCH,
                tags=bytes(4 * BATCH),
            )
        )
        for number in range(EVENTS // BATCH)
    ]


def count() -> dict[str, float]:
    """Counts the calls per event of each stage."""
    with tempfile.TemporaryDirectory() as name:
        base = Path(name)
        keys = stages.write_queries(base / "queries", EVENTS)
        stages.write_clicks(base / "clicks", 10, EVENTS // 10)
        commands, machine = _commands(), _machine()
        work_of: dict[str, Callable[[], object]] = {
            "primary reader and cache, a query": lambda: _primary_reader(base / "queries"),
            "dispatcher, a click": lambda: asyncio.run(stages.dispatch(base / "clicks", base / "d", EVENTS)),
            "joiner, a click": lambda: asyncio.run(stages.join(EVENTS, BATCH, base / "j")),
            "registry, an id": lambda: _registry(commands, machine),
        }
        counts = {stage: round(calls_of(work) / EVENTS, 3) for stage, work in work_of.items()}
        counts["event store, a key of a batch"] = _look_ups(base, keys, BATCH)
        counts["event store, a key alone"] = _look_ups(base, keys, 1)
        return counts | _replicated(base / "replicas", commands[0])


def regressions(found: Mapping[str, float], baseline: Mapping[str, float]) -> list[str]:
    """Returns a line for each stage that makes too many calls or that the baseline lacks."""
    out = []
    for stage, calls in found.items():
        before = baseline.get(stage)
        if before is None:
            out.append(f"{stage}: {calls:g}, but it has no baseline")
        elif calls > before * (1 + TOLERANCE):
            more = f"{calls / before - 1:.0%} more than" if before else "and not"
            out.append(f"{stage}: {calls:g}, {more} the {before:g} accepted")
    return out


def baseline() -> dict[str, float] | None:
    """Returns the baseline of this version of Python; ``None`` if there is none."""
    found: dict[str, dict[str, float]] = json.loads(BASELINE.read_text()) if BASELINE.exists() else {}
    return found.get(python())


def main() -> int:
    """Compares counts with the baseline. Exit code 3 if a stage makes too many calls."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--accept", action="store_true", help="accept these counts as the new baseline")
    given = parser.parse_args()
    found = count()
    for stage, calls in found.items():
        print(f"{stage:<40}{calls:10.3f}")
    if given.accept:
        kept = json.loads(BASELINE.read_text()) if BASELINE.exists() else {}
        BASELINE.write_text(json.dumps({**kept, python(): found}, indent=1, sort_keys=True) + "\n")
        return 0
    worse = regressions(found, baseline() or {})
    for line in worse:
        print(line)
    return 3 if worse else 0


if __name__ == "__main__":
    sys.exit(main())

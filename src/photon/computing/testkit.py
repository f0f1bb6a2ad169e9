"""Runs a computation or a topology over records and watermarks in users' tests, as the engine does.

from photon.computing.testkit import run

ran = run(Spend(), [Record({"advertiser": "a", "cents": 5}, time_ns=…)], watermarks=[hour_ns],
          outputs=["spend"], key="advertiser")
assert [each.value for each in ran["spend"]] == [{"cents": 5}]
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from photon.computing.engine import Engine
from photon.computing.intervals import even
from photon.computing.model import Computation, Record
from photon.computing.row import decode, fresh, taken_of
from photon.computing.stage import Fault
from photon.computing.store import in_memory
from photon.computing.topology import Topology
from photon.computing.wire import PUBLISH, Ack, Input, Watermark

INPUT = "input"
# A record, or the watermark that follows: nanoseconds; all records before it have arrived
Step = Record | int | Watermark


@dataclass(frozen=True, slots=True)
class Ran:
    """The results of a run."""

    produced: Mapping[str, Sequence[Record]]
    states: Mapping[tuple[str, str], Any]  # by computation and key
    faults: Sequence[Fault]

    @property
    def state(self) -> Mapping[str, Any]:
        """Returns the state by key, if there is one computation."""
        return {key: state for (_, key), state in self.states.items()}

    def __getitem__(self, stream: str) -> Sequence[Record]:
        return self.produced[stream]


def run(
    computation: Computation,
    records: Iterable[Record],
    watermarks: Iterable[int | Watermark] = (),
    *,
    outputs: Iterable[str],
    key: str | Callable[[Record], str] = "key",
    now_ns: int = 0,
) -> Ran:
    """Runs all records, then the watermarks in turn. ``key``: a function of the record, or a field of its value.
    ``now_ns``: the wall clock for the whole run."""
    return run_steps(computation, [*records, *watermarks], outputs=outputs, key=key, now_ns=now_ns)


def run_steps(
    computation: Computation,
    steps: Iterable[Step],
    *,
    outputs: Iterable[str],
    key: str | Callable[[Record], str] = "key",
    now_ns: int = 0,
) -> Ran:
    """Like ``run``, but with watermarks between records."""
    field = key if isinstance(key, str) else ""
    key_of: Callable[[Record], str] = (lambda record: str(record.value[field])) if isinstance(key, str) else key
    topology = Topology("test")
    topology.add(computation, {topology.source(INPUT): key_of}, outputs)
    return run_topology(topology, {INPUT: steps}, now_ns=now_ns)


def run_topology(topology: Topology, inputs: Mapping[str, Iterable[Step]], *, now_ns: int = 0) -> Ran:
    """Runs the inputs, given by source, one after another. Returns the productions of every stream."""
    published = topology.published
    topology.published = {stream: "" for part in topology.parts.values() for stream in part.outputs}
    intervals = even(1)
    store = in_memory(intervals.all[0])
    engine = Engine(topology, store, intervals)
    produced: dict[str, list[Record]] = {stream: [] for stream in topology.published}
    for source, steps in inputs.items():
        for number, step in enumerate(steps):
            records = [record for record, _ in fresh(taken_of([step]))] if isinstance(step, Record) else []
            mark = step if isinstance(step, Watermark) else None
            mark = Watermark(step, step) if isinstance(step, int) else mark
            engine.take(Input(source, engine.position(source), str(number).encode(), records, mark), now_ns)
            _drain(engine, produced, now_ns)
    if not inputs:
        _drain(engine, produced, now_ns)
    topology.published = published
    states = {
        (row.computation, row.key): decode(row.data or b"", row.key).state
        for row in store.scan()
        if "/" not in row.computation
    }
    return Ran(produced, states, engine.faults())


def _drain(engine: Engine, produced: dict[str, list[Record]], now_ns: int) -> None:
    more = True
    while more:
        more = engine.advance(now_ns)
        engine.commit()
        for message in engine.outgoing():
            stream = message.target.removeprefix(PUBLISH)
            produced[stream] += [Record(item.decoded(), item.time_ns, stream) for item in message.items]
            engine.acknowledged(Ack(message.sender, message.target, message.upto))

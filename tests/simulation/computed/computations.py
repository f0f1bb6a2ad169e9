"""The computations over the joined output here, and the result each must have, derived from that output alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from photon.computing import SECOND_NS, Computation, Context, Record, Timer, Topology
from photon.outputs.cursor import OutputLog, Position
from photon.outputs.watermarks import Pair

WINDOW_NS = 4 * SECOND_NS
USERS = 4
JOINED = "joined"
STREAMS = ("windows", "corrections", "finals", "lates", "sums", "ledger", "woken")


def user_of(event_id: str) -> str:
    return f"u{int(event_id[1:]) % USERS}"


def begin_of(time_ns: int) -> int:
    return time_ns - time_ns % WINDOW_NS


class Windows(Computation):
    """A user's events in a window, by the percentile watermark: later events cause a correction."""

    name = "windows"
    late_to = "corrections"

    def process_record(self, ctx: Context, record: Record) -> None:
        event_id, begin = record.value["event_id"], begin_of(record.time_ns)
        if ctx.is_late(begin + WINDOW_NS):
            ctx.produce(self.late_to, [ctx.key, begin, event_id])
            return
        ctx.state.setdefault(begin, []).append(event_id)
        ctx.set_timer("end", begin + WINDOW_NS)

    def process_timer(self, ctx: Context, timer: Timer) -> None:
        _not_early(ctx, timer)
        begin = timer.time_ns - WINDOW_NS
        ctx.produce("windows", [ctx.key, begin, ctx.state.pop(begin), timer.waiting])


class Exact(Windows):
    """The same by the exact watermark: only events that break the promise come later."""

    name = "exact"
    late_to = "lates"

    def process_timer(self, ctx: Context, timer: Timer) -> None:
        _not_early(ctx, timer)
        begin = timer.time_ns - WINDOW_NS
        ctx.produce("finals", [ctx.key, begin, ctx.state.pop(begin)])


class Totals(Computation):
    """Totals over all users, one after the other."""

    name = "totals"

    def process_record(self, ctx: Context, record: Record) -> None:
        if ctx.is_late(record.time_ns + 1):
            raise AssertionError(f"a final window came late: {record}")
        ctx.state["n"] = ctx.state.get("n", 0) + len(record.value[2])
        ctx.set_timer("total", record.time_ns + 1)

    def process_timer(self, ctx: Context, timer: Timer) -> None:
        _not_early(ctx, timer)
        ctx.produce("sums", [int(ctx.key), ctx.state.pop("n")])


class Echo(Computation):
    name = "echo"

    def process_record(self, ctx: Context, record: Record) -> None:
        ctx.produce("echoes", record.value["event_id"])
        if "woken" not in ctx.state:
            ctx.state["woken"] = False
            ctx.set_wall_timer("wake", ctx.now_ns + 5 * SECOND_NS)

    def process_timer(self, ctx: Context, timer: Timer) -> None:
        if ctx.now_ns < timer.time_ns or ctx.state["woken"]:
            raise AssertionError(f"a wall timer was called early, or twice: {timer}")
        ctx.state["woken"] = True
        ctx.produce("woken", ctx.key)


class WeakEcho(Echo):
    idempotent = True


class Ledger(Computation):
    """How often each event came."""

    name = "ledger"

    def __init__(self, *, stands_twice: bool) -> None:
        self._stands_twice = self.idempotent = stands_twice

    def process_record(self, ctx: Context, record: Record) -> None:
        if self._stands_twice and ctx.state:
            return  # it comes from a weak production
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        ctx.produce("ledger", [ctx.key, ctx.state["n"]])


def _not_early(ctx: Context, timer: Timer) -> None:
    if timer.time_ns > ctx.watermark_ns:
        raise AssertionError(f"a timer was called early: {timer}")


def made(*, weak: bool) -> Topology:
    topology = Topology("world")
    joined = topology.source(JOINED)
    by_user = {joined: lambda record: user_of(record.value["event_id"])}
    topology.add(Windows(), by_user, ["windows", "corrections"])
    topology.add(Exact(), by_user, ["finals", "lates"], watermark="exact")
    topology.add(Totals(), {"finals": lambda record: str(record.value[1])}, ["sums"], watermark="exact")
    topology.add(WeakEcho() if weak else Echo(), by_user, ["echoes", "woken"])
    topology.add(Ledger(stands_twice=weak), {"echoes": lambda record: str(record.value)}, ["ledger"])
    for stream in STREAMS:
        topology.publish(stream, stream)
    return topology


# -- what must have come of it ---------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Shown:
    """A published line of a stream."""

    log: OutputLog
    at: Position  # position of its first byte
    time_ns: int
    value: Any


@dataclass(frozen=True)
class Joined:
    """The world's joined output."""

    times: Mapping[str, int]  # event id -> its time
    late: frozenset[str]  # they stand behind a pair whose exact watermark is newer: these are counted
    # Events behind a pair whose percentile is newer and for which none waits: not read by then.
    unforeseen: frozenset[str]


Streams = Mapping[str, Sequence[Shown]]


def findings(joined: Joined, streams: Streams, said: Mapping[str, Sequence[Pair]]) -> Iterator[str]:
    """Broken promises. ``said``: the watermarks of the published streams."""
    truth = Counter((user_of(name), begin_of(time_ns), name) for name, time_ns in joined.times.items())
    yield from _same("the ledger", Counter((name, 1) for name in joined.times), _values(streams["ledger"]))
    yield from _windows(joined, streams, truth)
    yield from _finals(joined, streams, truth)
    woken = Counter(each.value for each in streams["woken"])
    yield from _same("wall timers", Counter({user_of(name) for name in joined.times}), woken)
    for stream, exact in (("windows", False), ("finals", True), ("sums", True)):
        yield from _below(stream, streams[stream], said.get(stream, ()), exact=exact)


def _windows(joined: Joined, streams: Streams, truth: Counter[Any]) -> Iterator[str]:
    ends = Counter((user, begin) for user, begin, _, _ in _raw(streams["windows"]))
    counted = Counter((user, begin, name) for user, begin, names, _ in _raw(streams["windows"]) for name in names)
    corrected = _values(streams["corrections"])
    yield from _same("windows and corrections", truth, counted + corrected)
    yield from _ended_once(ends)
    final = {(user, begin) for user, begin, _, waiting in _raw(streams["windows"]) if waiting == 0}
    for user, begin, name in corrected:
        if (user, begin) in final and name not in joined.unforeseen:
            yield f"called final: the window {user}, {begin}, before {name} came, which waited"


def _finals(joined: Joined, streams: Streams, truth: Counter[Any]) -> Iterator[str]:
    ends = Counter((user, begin) for user, begin, _ in _raw(streams["finals"]))
    counted = Counter((user, begin, name) for user, begin, names in _raw(streams["finals"]) for name in names)
    late = _values(streams["lates"])
    yield from _same("final windows and late ones", truth, counted + late)
    yield from _ended_once(ends)
    if early := sorted(name for _, _, name in late if name not in joined.late):
        yield f"early: windows ended before {early} came, which kept the promise"
    sums = Counter[int]()
    for _, begin, _ in counted.elements():
        sums[begin] += 1
    yield from _same("sums", Counter(sums.items()), _values(streams["sums"]))


def _ended_once(ends: Counter[Any]) -> Iterator[str]:
    if twice := [each for each, n in ends.items() if n > 1]:
        yield f"twice: windows ended: {twice}"


def _below(stream: str, lines: Sequence[Shown], said: Sequence[Pair], *, exact: bool) -> Iterator[str]:
    for line in lines:
        for pair in said:
            mark_ns = pair.exact_ns if exact else pair.percentile_ns
            if (
                mark_ns is not None
                and line.time_ns < mark_ns
                and pair.cursor.positions.get(line.log, (0, 0)) <= line.at
            ):
                yield f"below: {line} of {stream} was published after its watermark {mark_ns} was said"
                return


def _raw(lines: Sequence[Shown]) -> list[Any]:
    return [each.value for each in lines]


def _values(lines: Sequence[Shown]) -> Counter[Any]:
    return Counter(tuple(each.value) for each in lines)


def _same(what: str, truth: Counter[Any], found: Counter[Any]) -> Iterator[str]:
    if lost := truth - found:
        yield f"lost: {what}: {list(lost.items())[:4]}, extra {list((found - truth).items())[:4]}"
    elif extra := found - truth:
        yield f"twice: {what}: {list(extra.items())[:4]}"

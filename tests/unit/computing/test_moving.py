"""Splits and merges on files; in all orders with faults: ``tests/simulation/computing``."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from photon.computing import Computation, Context, Record, Timer, Topology
from photon.computing import standing as standings
from photon.computing.engine import Engine
from photon.computing.errors import ComputingError, Fenced, Retired
from photon.computing.intervals import HASHES, Interval, Intervals, even, hash_of
from photon.computing.moving import merge, split
from photon.computing.row import decode
from photon.computing.store import Store, in_file, in_memory
from photon.computing.wire import ENDED_NS, Input, Message, Watermark


class Keep(Computation):
    def process_record(self, ctx: Context, record: Record) -> None:
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        ctx.produce("out", [ctx.key, ctx.state["n"]])


class WeakKeep(Keep):
    name = "keep"
    idempotent = True


class Count(Computation):
    def process_record(self, ctx: Context, record: Record) -> None:
        ctx.state["n"] = ctx.state.get("n", 0) + 1


def topology(keep: Computation | None = None) -> Topology:
    made = Topology("t")
    made.add(keep or Keep(), {made.source("in"): lambda record: record.value}, ["out"])
    count = Count()
    count.idempotent = keep is not None and keep.idempotent  # it is not, but what is lost or doubled is to be seen
    made.add(count, {"out": lambda record: str(record.value[0])[::-1]})
    return made


TWO = even(2)


@pytest.fixture
def stores(tmp_path: Path) -> list[Store]:
    """Stores of two intervals."""
    return [in_file(tmp_path / f"{each.id}.db", each) for each in TWO.all]


@pytest.fixture
def new_store(tmp_path: Path) -> Callable[[Interval], Store]:
    def new(interval: Interval) -> Store:
        for path in tmp_path.glob(f"{interval.id}.db*"):
            path.unlink()
        return in_file(tmp_path / f"{interval.id}.db", interval)

    return new


def feed(engine: Engine, values: list[object], at: int) -> None:
    records = [Record(value, 1, "in") for value in values]
    begin = str(at - 1).encode() if at > 1 else None
    engine.take(Input("in", begin, str(at).encode(), records, Watermark(at, at)), 0)
    engine.commit()


def test_a_split_shares_the_keys_and_a_merge_puts_them_together(
    tmp_path: Path, new_store: Callable[[Interval], Store]
) -> None:
    keys = [f"key{n}" for n in range(40)]
    whole = even(1)
    old = Engine(topology(), in_file(tmp_path / "i0.db", whole.all[0]), whole)
    feed(old, [*keys, 5], 1)
    halves = split(in_file(tmp_path / "i0.db"), HASHES // 2, ("a", "b"), new_store)
    with pytest.raises(Retired, match="its keys are now in a, b"):
        feed(old, ["x"], 2)
    two = Intervals(halves)
    engines = [Engine(topology(), in_file(tmp_path / f"{half.id}.db"), two) for half in halves]
    for engine in engines:
        assert engine.position("in") == b"1"
        feed(engine, list(keys), 2)
    stores = (in_file(tmp_path / "a.db"), in_file(tmp_path / "b.db"))
    feed(engines[0], [], 3)
    with pytest.raises(ComputingError, match="a and b have read in up to different positions"):
        merge(stores, "c", new_store, topology())
    with pytest.raises(Fenced):
        feed(engines[1], [], 3)
    feed(Engine(topology(), in_file(tmp_path / "b.db"), two), [], 3)
    merged = merge(stores, "c", new_store, topology())
    assert merge(stores, "c", new_store, topology()) == merged == Interval(0, HASHES, "c")
    one = Intervals([merged])
    store = in_file(tmp_path / "c.db")
    engine = Engine(topology(), store, one)
    engine.advance(0)
    engine.commit()
    rows = {(row.computation, row.key) for row in store.scan()}
    assert len(rows) == 40 + 40 + 2, "what has no key is put aside in a row more"
    assert engine.counts().aside == 2, "the record without a key"
    counts = {
        row.key: decode(row.data or b"", row.key).state["n"] for row in store.scan() if row.computation == "count"
    }
    assert counts == {key[::-1]: 2 for key in keys}, "what the halves had sent each other as well"


def test_what_an_interval_had_sent_before_its_split_is_acknowledged_to_its_heir(
    tmp_path: Path, new_store: Callable[[Interval], Store], stores: list[Store]
) -> None:
    feed(Engine(topology(), stores[0], TWO), [f"key{n}" for n in range(40)], 1)
    halves = split(in_file(tmp_path / "i0.db"), HASHES // 4, ("a", "b"), new_store)
    three = Intervals([*halves, TWO.all[1]])
    heir = Engine(topology(), in_file(tmp_path / "a.db"), three)
    other = Engine(topology(), stores[1], three)
    (left,) = (each for each in heir.outgoing() if (each.sender, each.target) == ("i0", "i1"))
    assert (left.owner, left.successors, len(left.items) > 0) == ("a", ("a", "b"), True)
    _taken(other, left)
    (ack,) = other.acks()
    assert ack.to == "a"
    assert heir.awaits("i1")
    heir.acknowledged(ack)
    heir.commit()
    assert not [each for each in in_file(tmp_path / "a.db").chunks() if each.target == "i1"]


def test_what_does_not_split_is_refused(tmp_path: Path, new_store: Callable[[Interval], Store]) -> None:
    store = in_file(tmp_path / "i0.db", even(1).all[0])
    three = [in_file(tmp_path / f"t{n}.db", each) for n, each in enumerate(even(3, "t").all)]
    for wrong, why in (
        (lambda: split(store, 0, ("a", "b"), new_store), "cannot split the interval i0"),
        (lambda: Intervals([Interval(0, 5, "a"), Interval(6, HASHES, "b")]), "overlap or leave a gap"),
        (lambda: Intervals([Interval(0, 5, "a")]), "end at"),
        (lambda: merge((three[0], three[2]), "c", new_store, topology()), "t0 and t2 are not neighbours"),
    ):
        with pytest.raises(ComputingError, match=why):
            wrong()


def test_weak_productions_leave_before_the_commit_and_are_not_stored_when_acknowledged(
    stores: list[Store],
) -> None:
    one, other = (Engine(topology(WeakKeep()), store, TWO) for store in stores)
    one.take(Input("in", None, b"1", [Record(f"key{n}", 1, "in") for n in range(40)]), 0)
    assert not one.ready(0), "it waits for acknowledgements"
    (message,) = one.weak()
    assert one.weak() == []
    assert len(message.weak) == len(message.items) > 0
    taken = _taken(other, message)
    assert taken == len(message.items)
    assert _taken(other, message) == taken, "they came twice"
    for ack in other.acks():
        one.acknowledged(ack)
    assert one.ready(0)
    one.commit()
    assert list(stores[0].chunks()) == []


def test_two_who_send_each_other_weak_productions_do_not_wait_for_each_other() -> None:
    engines = {each.id: Engine(topology(WeakKeep()), in_memory(each), TWO) for each in TWO.all}
    for engine in engines.values():
        engine.take(Input("in", None, b"1", [Record(f"key{n}", 1, "in") for n in range(40)]), 0)
    for message in [each for engine in engines.values() for each in engine.weak()]:
        engines[message.target].receive(message, 0)
    assert all(engine.ready(0) for engine in engines.values())
    before = {name: engine.counts().records for name, engine in engines.items()}
    for _ in range(3):
        for engine in engines.values():
            engine.commit()
            for ack in engine.acks():
                engines[ack.to].acknowledged(ack)
            for message in engine.outgoing():
                engines[message.target].receive(message, 0)
    assert {name: engine.counts().records for name, engine in engines.items()} == before, "they came once"


def test_weak_productions_that_are_not_acknowledged_are_stored_and_come_once(stores: list[Store]) -> None:
    one, other = (Engine(topology(WeakKeep()), store, TWO) for store in stores)
    one.take(Input("in", None, b"1", [Record(f"key{n}", 1, "in") for n in range(40)]), 0)
    (weak,) = one.weak()
    assert not one.ready(10**9 - 1)
    assert one.ready(10**9)
    taken = _taken(other, weak)
    one.commit()
    (strong,) = (each for each in one.outgoing() if each.target == other.id)
    assert len(strong.items) == len(weak.items)
    assert _taken(other, strong) == taken


def _taken(engine: Engine, message: Message) -> int:
    """Number of records it has run, after this one."""
    assert engine.receive(message, 0)
    engine.commit()
    return engine.counts().records


def test_who_is_sent_nothing_hears_of_a_split_and_takes_what_a_changed_topology_sends(
    tmp_path: Path, new_store: Callable[[Interval], Store], stores: list[Store]
) -> None:
    alone = Topology("t")
    alone.add(Keep(), {alone.source("in"): lambda record: record.value}, ["out"])
    keys: list[object] = [f"key{n}" for n in range(40)]
    feed(Engine(alone, stores[0], TWO), keys, 1)
    halves = split(in_file(tmp_path / "i0.db"), HASHES // 4, ("a", "b"), new_store)
    three = Intervals([*halves, TWO.all[1]])
    stores = [in_file(tmp_path / f"{each.id}.db", each) for each in three.all]
    engines = {store.interval.id: Engine(alone, store, three) for store in stores}

    def exchange() -> None:
        for _ in range(5):
            for message in [message for each in engines.values() for message in each.outgoing()]:
                if engines[message.target].receive(message, 0):
                    engines[message.target].commit()
                    for ack in engines[message.target].acks():
                        engines[ack.to].acknowledged(ack)
                else:
                    engines[message.owner or message.sender].resend(message.target)
            for each in engines.values():
                each.commit()

    exchange()
    assert not any(each.inherits for each in engines.values())
    for each in engines.values():
        each.change(topology())
    for name, each in engines.items():
        feed(each, keys, 1 if name == "i1" else 2)
    exchange()
    counted = [row for store in stores for row in store.scan() if row.computation == "count"]
    assert len(counted) == 40


class Windows(Computation):
    """A record for an ended window is late, and does not end it a second time."""

    def process_record(self, ctx: Context, record: Record) -> None:
        if ctx.is_late(record.time_ns):
            ctx.state["late"] = ctx.state.get("late", 0) + 1
        else:
            ctx.set_timer("end", record.time_ns)

    def process_timer(self, ctx: Context, timer: Timer) -> None:
        ctx.state["ended"] = ctx.state.get("ended", 0) + 1


@pytest.mark.parametrize("ended", [False, True])
def test_no_key_s_watermark_goes_back_by_a_merge(ended: bool) -> None:
    """One owner was ahead, or already at the end of time; a window's end stays as it was called."""
    made = Topology("t")
    made.add(Windows(), {made.source("in"): lambda record: record.value}, [])
    low, high = TWO.all
    ahead = next(key for key in map(str, range(99)) if hash_of(key) in high)
    behind = next(key for key in map(str, range(99)) if hash_of(key) in low)
    stores: dict[str, Store] = {}

    def new(interval: Interval) -> Store:
        return stores.setdefault(interval.id, in_memory(interval))

    def take(engine: Engine, at: int, times: Sequence[int], watermark_ns: int) -> None:
        records = [Record(key, time_ns, "in") for key in (ahead, behind) for time_ns in times]
        mark = Watermark(watermark_ns, watermark_ns)
        assert engine.take(Input("in", engine.position("in"), b"%d" % at, records, mark), 0)
        engine.commit()

    def states(interval: Interval) -> dict[str, object]:
        return {row.key: decode(row.data or b"", row.key).state for row in new(interval).scan()}

    for each, watermark_ns in ((low, 5), (high, 10)):
        engine = Engine(made, new(each), TWO)
        take(engine, 1, [7], watermark_ns)
        if ended and each is high:
            take(engine, 2, [], ENDED_NS)
    if ended:
        take(Engine(made, new(low), TWO), 2, [], 6)
    one = merge((new(low), new(high)), "c", new, made)
    assert states(one)[ahead] == {"ended": 1}
    assert states(one)[behind] == {}
    halves = split(new(one), HASHES // 3, ("d", "e"), new)  # and so it is in its results
    whole = merge((new(halves[0]), new(halves[1])), "f", new, made)
    engine = Engine(made, new(whole), Intervals([whole]))
    take(engine, 3, [7], 6)
    assert states(whole) == {ahead: {"ended": 1, "late": 1}, behind: {}}
    take(engine, 4, [12], 11)
    assert states(whole) == {ahead: {"ended": 1, "late": 1}, behind: {"ended": 1}}
    assert not standings.decode(new(whole).standing(), "f").floors["windows"]
    take(engine, 5, [], 12)
    assert states(whole) == {ahead: {"ended": 2, "late": 1}, behind: {"ended": 2}}

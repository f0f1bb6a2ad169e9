"""The engine on real stores: restarts, limits, changes while it runs. Faults in all orders: ``tests/simulation``."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from photon.adapters.containment import Hung, Watched
from photon.computing import SECOND_NS, Computation, Context, Record, Timer, Topology, stage, standing
from photon.computing.engine import Engine, Limits
from photon.computing.errors import ComputingError, Fenced, TopologyError
from photon.computing.guarding import Unguarded
from photon.computing.intervals import even
from photon.computing.store import Commit, in_file, in_memory
from photon.computing.wire import ENDED_NS, PUBLISH, Ack, Input, Message, Watermark, decode_ack, decode_message

ONE = even(1)
TraceFunction = Callable[[FrameType, str, object], object]


class Count(Computation):
    broken = False

    def process_record(self, ctx: Context, record: Record) -> None:
        if self.broken:
            raise ValueError("broken")
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        ctx.set_timer("end", record.time_ns + 10)

    def process_timer(self, ctx: Context, timer: Timer) -> None:
        ctx.produce("counts", [ctx.key, timer.time_ns, ctx.state["n"]])


class Pass(Computation):
    def process_record(self, ctx: Context, record: Record) -> None:
        ctx.produce("passed", record.value)


class Sum(Computation):
    def process_record(self, ctx: Context, record: Record) -> None:
        ctx.state["n"] = ctx.state.get("n", 0) + record.value[2]
        ctx.produce("sums", ctx.state["n"])


def key(record: Record) -> str:
    return str(record.value)


def topology(count: Computation | None = None) -> Topology:
    made = Topology("t")
    made.add(count or Count(), {made.source("in"): key}, ["counts"])
    made.publish("counts", "out")
    return made


def new_engine(computation: Computation | None = None, made: Topology | None = None, **limits: int) -> Engine:
    return Engine(made or topology(computation), in_memory(ONE.all[0]), ONE, limits=Limits(**limits))


def with_sums(key: Callable[[Record], str] = lambda record: "all", **more: str) -> Topology:
    made = topology()
    made.add(Sum(), {"counts": key}, ["sums"], **more)  # type: ignore[arg-type]
    return made


def feed(
    engine: Engine, values: list[Any], watermark: int | None = None, source: str = "in", time_ns: int = 1
) -> bool:
    mark = None if watermark is None else Watermark(watermark, watermark)
    begin = engine.position(source)
    end = str(int(begin or b"0") + 1).encode()
    return engine.take(Input(source, begin, end, [Record(value, time_ns, source) for value in values], mark), 0)


def commit(engine: Engine, values: list[Any], watermark: int | None = None, time_ns: int = 1) -> None:
    feed(engine, values, watermark, time_ns=time_ns)
    engine.commit()


def values(engine: Engine, *, answered: bool = True) -> list[Any]:
    """Currently published values."""
    out = []
    for message in engine.outgoing():
        assert decode_message(message.encode()) == message
        out += [item.decoded() for item in message.items]
        if answered:
            ack = Ack(message.sender, message.target, message.upto)
            assert decode_ack(ack.encode()) == ack
            engine.acknowledged(ack)
    return out


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def test_what_was_committed_is_there_after_a_kill_and_what_was_not_is_done_again(path: Path) -> None:
    engine = Engine(topology(), in_file(path, ONE.all[0]), ONE)
    commit(engine, ["a", "b"])
    feed(engine, ["a"])
    engine = Engine(topology(), in_file(path), ONE)
    assert engine.position("in") == b"1"
    commit(engine, ["a"], 11)
    assert values(engine, answered=False) == [["a", 11, 2], ["b", 11, 1]]
    less = topology()
    less.published.clear()
    with pytest.raises(TopologyError, match="'counts' is not completely published"):
        Engine(less, in_file(path), ONE)
    engine = Engine(topology(), in_file(path), ONE)
    assert values(engine) == [["a", 11, 2], ["b", 11, 1]]
    assert values(engine) == []
    assert engine.watermarks()["count"] == Watermark(11, 11, 0)


def test_a_repetition_is_dropped() -> None:
    engine = new_engine()
    batch = Input("in", None, b"1", [Record("a", 1, "in")], Watermark(11, 11))
    assert engine.take(batch, 0)
    assert engine.take(batch, 0)
    engine.commit()
    assert values(engine) == [["a", 11, 1]]
    assert engine.counts().repeated == 1


class Changes(Computation):
    """Changes its input, and fails on changed input."""

    def __init__(self, name: str, bad: int = -1) -> None:
        self.name, self.bad = name, bad

    def process_record(self, ctx: Context, record: Record) -> None:
        assert record.value["seen"] == [], "changed by another call"
        record.value["seen"].append(self.name)
        record.value["n"] *= 100
        if record.value["n"] == self.bad * 100:
            raise ValueError("bad")
        ctx.produce(self.name, [self.name, record.value["n"]])
        record.value["n"] = 0


def changing_key(known: set[str]) -> Callable[[Record], str]:
    def key_of(record: Record) -> str:
        if record.value["k"] not in known:
            record.value["n"] += 1
            raise ValueError("no key")
        return str(record.value["k"])

    return key_of


def test_what_user_code_changes_in_a_record_is_its_own() -> None:
    """Neither another consumer sees it, nor a second try, nor a later start; applies to sources and to produced
    records."""
    made, parts = Topology("t"), [Changes("one", 2), Changes("two"), Changes("three", 2)]
    known = {"a"}
    stream = made.source("in")
    made.add(Pass(), {stream: changing_key(known)}, ["passed"])
    made.add(parts[0], {stream: changing_key(known)}, ["one"])
    for part in parts[1:]:
        made.add(part, {"passed": lambda record: "a"}, [part.name])
    for part in parts:
        made.publish(part.name, part.name)
    store = in_memory(ONE.all[0])
    engine = Engine(made, store, ONE)
    feed(engine, [{"k": k, "n": n, "seen": []} for n, k in enumerate("aaaba")])
    engine.commit()
    found = values(engine)
    engine.commit()
    known.add("b")
    for part in parts:
        part.bad = -1
    engine = Engine(made, store, ONE)
    engine.retry(0)
    engine.commit()
    found += values(engine)
    assert sorted(found) == sorted([part.name, n * 100] for part in parts for n in range(5))


def test_a_zombie_ends(path: Path) -> None:
    zombie = Engine(topology(), in_file(path, ONE.all[0]), ONE)
    feed(zombie, ["a"], 11)
    Engine(topology(), in_file(path), ONE)
    with pytest.raises(Fenced):
        zombie.commit()


def test_what_was_put_aside_is_run_when_the_computation_is_mended() -> None:
    store = in_memory(ONE.all[0])
    broken = Count()
    broken.broken = True
    engine = Engine(topology(broken), store, ONE)
    feed(engine, ["a"])
    commit(engine, ["a"], 5)
    assert engine.counts().aside == 3
    engine = Engine(topology(), store, ONE)
    feed(engine, ["a"], 8)
    engine.retry(0)
    commit(engine, [], 11)
    assert values(engine) == [["a", 11, 3]]
    assert engine.counts().aside == 0


class Bill(Computation):
    """Fails on the records and timers in ``bad``."""

    def __init__(self) -> None:
        self.bad: set[int] = set()
        self.told: list[tuple[int, int]] = []

    def process_record(self, ctx: Context, record: Record) -> None:
        if record.time_ns in self.bad:
            raise ValueError("bad")
        end = record.time_ns // 10 * 10 + 10
        if ctx.is_late(end):
            ctx.produce("counts", ["late", record.time_ns, ctx.watermark_ns])
            return
        ctx.state[end] = ctx.state.get(end, 0) + 1
        ctx.set_timer("end", end)

    def process_timer(self, ctx: Context, timer: Timer) -> None:
        if timer.time_ns in self.bad:
            raise ValueError("bad")
        ctx.produce("counts", [timer.time_ns, ctx.state.pop(timer.time_ns), timer.waiting])


def bills(engine: Engine, *steps: tuple[int, int]) -> Engine:
    for at, mark in steps:
        commit(engine, ["a"] if at else [], mark, time_ns=at)
    return engine


def test_a_blocked_key_holds_its_watermark() -> None:
    """A repaired key is as if nothing had failed, for each record or timer that fails."""
    steps = ((1, 1), (2, 3), (4, 5), (6, 12), (13, 15), (17, 28), (0, 100))
    whole = values(bills(new_engine(Bill()), *steps))
    assert whole == [[10, 4, 0], [20, 2, 0]]
    for bad in ({1}, {2}, {6}, {10}, {13}, {20}, {2, 17}, {10, 17}):
        store, bill = in_memory(ONE.all[0]), Bill()
        bill.bad = bad
        engine = bills(Engine(topology(bill), store, ONE), *steps)
        assert engine.counts().aside
        found = values(engine)
        engine.commit()
        for some in sorted(bad):  # one fix after the other, each with a start
            bill.bad.remove(some)
            engine = Engine(topology(bill), store, ONE)
            engine.retry(0)
            engine.commit()
            found += values(engine)
            engine.commit()
        assert found == whole, bad
        assert engine.counts().aside == 0


def test_a_record_that_came_late_to_a_blocked_key_is_late_for_the_timers_that_were_called() -> None:
    bill = Bill()
    bill.bad = {20}
    engine = bills(new_engine(bill), (1, 1), (11, 12), (0, 25), (2, 26))
    assert values(engine) == [[10, 1, 0]]
    bill.bad = set()
    engine.retry(0)
    engine.commit()
    assert values(engine) == [[20, 1, 0], ["late", 2, 25]]


def test_what_failed_at_the_end_of_time_does_not_stay_there() -> None:
    store, bill = in_memory(ONE.all[0]), Bill()
    bill.bad = {20}
    engine = bills(Engine(topology(bill), store, ONE), (1, 1), (11, 12), (0, ENDED_NS))
    assert values(engine) == [[10, 1, 0]]
    engine.commit()
    known = standing.decode(store.standing(), "i0")
    known.reopen()
    store.commit(store.acquire("reopening"), Commit(standing=known.encode()))
    bill.bad = set()
    engine = Engine(topology(bill), store, ONE)
    engine.retry(0)
    assert values(bills(engine, (12, 12), (0, 30))) == [[20, 2, 0]], "what comes in the next run is in time"


def test_no_window_is_final_while_a_record_has_no_key() -> None:
    made = Topology("t")
    made.add(Bill(), {made.source("in"): lambda record: record.value or None}, ["counts"])  # type: ignore[arg-type,return-value]
    made.publish("counts", "out")
    engine = new_engine(made=made)
    commit(engine, ["", "a"])
    commit(engine, [], 11)
    assert values(engine) == [[10, 1, 1]]


def test_a_key_that_cannot_be_had_is_tried_again() -> None:
    made = Topology("t")
    known: dict[str, str] = {}
    made.add(Count(), {made.source("in"): lambda record: known[record.value]}, ["counts"])
    made.publish("counts", "out")
    engine = new_engine(made=made)
    commit(engine, ["a"])
    known["a"] = "it"
    engine.retry(0)
    commit(engine, [], 11)
    assert values(engine) == [["it", 11, 1]]


def test_a_computation_that_hangs_is_ended() -> None:
    class Hangs(Count):
        name = "count"
        time_limit_s = 0.05

        def process_record(self, ctx: Context, record: Record) -> None:
            while record.value == "b":
                pass
            super().process_record(ctx, record)

    engine = Engine(topology(Hangs()), in_memory(ONE.all[0]), ONE, guards=Watched)
    commit(engine, ["a", "b", "c"], 11)
    assert values(engine) == [["a", 11, 1], ["c", 11, 1]]
    (fault,) = engine.faults()
    assert "computation count, key 'b': it did not return within 0.05 s" in fault.line
    assert "test_engine.py" in fault.line


class CutOff(Unguarded):
    """Ends guarded code before the line of this number in stage.py."""

    line = 0
    on = False

    def __enter__(self) -> None:
        CutOff.on = True

    def __exit__(self, *error: object) -> None:
        CutOff.on = False

    @staticmethod
    def trace(frame: FrameType, event: str, arg: object) -> TraceFunction | None:
        if frame.f_code.co_filename != stage.__file__ or frame.f_code.co_name == "keys_of":
            return None  # a record without key may run after its key's timers
        if CutOff.on and event == "line":
            CutOff.line -= 1
            if CutOff.line == 0:
                raise Hung
        return CutOff.trace


def test_a_time_limit_at_any_line_leaves_all_effects_or_none() -> None:
    waits = False

    class Sees(Count):
        name = "count"

        def process_record(self, ctx: Context, record: Record) -> None:
            if waits and ctx.key == "bad":
                raise ValueError("broken")
            super().process_record(ctx, record)
            ctx.list_of("seen").append(ctx.state["n"])
            ctx.produce("counts", [ctx.key, ctx.state["n"]])

        def process_timer(self, ctx: Context, timer: Timer) -> None:
            ctx.produce("counts", [ctx.key, timer.time_ns, list(ctx.list_of("seen"))])

    def ran(line: int) -> list[Any]:
        nonlocal waits
        waits = True
        engine = Engine(topology(Sees()), in_memory(ONE.all[0]), ONE, guards=CutOff)
        CutOff.line, before = line, sys.gettrace()
        sys.settrace(CutOff.trace)
        try:
            feed(engine, ["a", "bad", "b", "a"])
            feed(engine, ["bad", "a", "c"], 11)
        finally:
            sys.settrace(before)
        waits = False
        engine.retry(0)
        engine.commit()
        return sorted(values(engine), key=repr)

    expected, line = ran(0), 0
    assert ["a", 11, [1, 2, 3]] in expected
    while CutOff.line <= 0:
        line += 1
        assert ran(line) == expected, f"cut off before line {line}"
    assert line > 200


def test_input_is_held_back_while_productions_are_not_acknowledged() -> None:
    engine = new_engine(outbox_bytes=3)
    assert feed(engine, ["a"], 11)
    engine.commit()
    assert not feed(engine, ["a"])
    assert "are not acknowledged yet" in engine.held
    values(engine)
    assert feed(engine, ["a"])
    assert engine.held == ""


def test_input_is_held_back_while_too_much_is_put_aside() -> None:
    broken = Count()
    broken.broken = True
    engine = new_engine(broken, aside=2)
    assert feed(engine, ["a", "b"])
    assert not feed(engine, ["a"])
    assert "fix the computations" in engine.held


def test_a_source_that_is_far_ahead_is_held_back_but_never_the_last() -> None:
    made = Topology("t")
    made.add(Count(), {made.source("in"): key, made.source("slow"): key}, ["counts"])
    engine = new_engine(made=made, skew_ns=5 * SECOND_NS)
    assert feed(engine, ["a"], SECOND_NS, "slow")
    assert feed(engine, ["a"], 2 * SECOND_NS)
    assert not feed(engine, ["a"], 9 * SECOND_NS, time_ns=8 * SECOND_NS)
    assert engine.held == "in is 7 s ahead of slow"
    assert feed(engine, ["a"], 20 * SECOND_NS, "slow", time_ns=19 * SECOND_NS)
    assert feed(engine, ["a"], 9 * SECOND_NS, time_ns=8 * SECOND_NS)


def test_parts_are_added_and_taken_out_while_it_runs() -> None:
    engine = new_engine()
    feed(engine, ["a"], 11)
    more = with_sums()
    more.publish("sums", "sums")
    engine.change(more)
    less = topology()
    less.published.clear()
    with pytest.raises(TopologyError, match="'counts' is not completely published"):
        engine.change(less)
    values(engine)
    commit(engine, ["a"], 20, time_ns=12)
    commit(engine, [], 22)
    assert values(engine) == [["a", 22, 2], 2]
    engine.change(topology())
    commit(engine, ["a"], 50, time_ns=30)
    assert values(engine) == [["a", 40, 3]]
    engine.change(more)
    commit(engine, ["a"], 70, time_ns=51)
    assert values(engine) == [["a", 61, 4], 6], "its state was kept"


def test_it_remembers_what_is_published_where(path: Path) -> None:
    engine = Engine(topology(), in_file(path, ONE.all[0]), ONE)
    commit(engine, ["a"], 11)
    assert engine.shown("i0", "out") == -1
    values(engine)
    assert engine.has_acknowledgements
    engine.commit()
    assert not engine.has_acknowledgements
    last = engine.shown("i0", "out")
    assert 0 < last <= engine.committed
    engine = Engine(topology(), in_file(path), ONE)
    assert engine.shown("i0", "out") == last
    assert values(engine) == []
    elsewhere = topology()
    elsewhere.published["counts"] = "elsewhere"
    commit(engine, ["a"], 30, time_ns=12)
    values(engine)
    engine.change(elsewhere)
    commit(engine, ["a"], 50, time_ns=31)
    values(engine)
    engine.commit()
    assert last < engine.shown("i0", "out") < engine.shown("i0", "elsewhere")


def test_rows_that_are_needed_next_stay_in_the_cache(path: Path) -> None:
    engine = Engine(topology(), in_file(path, ONE.all[0]), ONE, limits=Limits(cache_bytes=4_000))
    for n in range(100):
        commit(engine, [f"k{n}"], time_ns=1000 - n)
    (stage,) = engine._stages
    assert stage.cached <= 4_000
    kept = [int(name[1:]) for name in stage.cache]
    assert 3 < len(kept) < 20
    assert min(kept) > 80
    commit(engine, [], 2000)
    assert len(values(engine)) == 100
    for row in list(stage.cache):
        stage.forget(row)
    assert stage.cached == 0


def test_timers_are_called_in_parts_with_commits_between() -> None:
    engine = new_engine(timers_at_once=10)
    feed(engine, [f"k{n}" for n in range(25)])
    for n in range(25):
        feed(engine, [f"late{n}"], time_ns=2 + n)
    engine.commit()
    feed(engine, [], 100)
    rounds = 0
    while engine.advance(0):
        engine.commit()
        rounds += 1
    engine.commit()
    assert rounds >= 2
    found = values(engine)
    assert len(found) == 50
    assert [each[1] for each in found] == sorted(each[1] for each in found)


def test_timers_of_one_time_are_called_in_parts_and_before_their_keys_later_records() -> None:
    engine = new_engine(timers_at_once=10)
    commit(engine, [f"k{n}" for n in range(25)])
    commit(engine, [], 100)
    found = values(engine)
    assert len(found) == 10
    assert "k9" not in {key for key, _, _ in found}
    feed(engine, ["k9"], time_ns=95)
    while engine.advance(0):
        engine.commit()
    engine.commit()
    found += values(engine)
    assert sorted(found) == sorted([f"k{n}", 11, 1] for n in range(25))


def test_owners_of_two_intervals_send_each_other_what_is_the_others() -> None:
    two = even(2)
    made = with_sums(lambda record: str(record.value[0])[::-1])
    made.publish("sums", "sums")
    engines = {each.id: Engine(made, in_memory(each), two) for each in two.all}
    sums: list[Any] = []
    for engine in engines.values():
        commit(engine, [f"k{n}" for n in range(20)], 11)
    assert sum(engine.counts().timers for engine in engines.values()) == 20
    for _ in range(3):
        for engine in engines.values():
            for message in engine.outgoing():
                if message.target.startswith(PUBLISH):
                    sums += [item.decoded() for item in message.items if message.target == PUBLISH + "sums"]
                    engine.acknowledged(Ack(message.sender, message.target, message.upto))
                    continue
                receiver = engines[message.target]
                assert receiver.receive(message, 0)
                assert receiver.receive(message, 0)
                assert receiver.acks() == []
                receiver.commit()
                for ack in receiver.acks():
                    engines[ack.sender].acknowledged(ack)
    assert sums == [1] * 20
    assert all(engine.watermarks()["sum"].exact_ns == 11 for engine in engines.values())


def test_a_late_message_does_not_say_that_nothing_is_waited_for() -> None:
    two = even(2)
    engine = Engine(with_sums(), in_memory(two.all[0]), two)
    for upto, at, waiting in ((5, 20, 3), (3, 10, 0)):
        engine.receive(Message("i1", "i0", upto, (), {"counts": Watermark(at, at, waiting)}), 0)
    feed(engine, [], 30)
    assert engine.watermarks()["sum"] == Watermark(20, 20, 3)


def test_what_follows_the_percentile_is_exact_only_as_far_as_its_input_is() -> None:
    made = with_sums(watermark="exact")
    broken = Count()
    for count, exact_ns in ((Count(), 15), (broken, 0)):
        broken.broken = True
        made.parts["count"] = topology(count).parts["count"]
        store = in_memory(ONE.all[0])
        engine = Engine(made, store, ONE)
        engine.take(Input("in", None, b"1", [], Watermark(0, 0)), 0)
        engine.take(Input("in", b"1", b"2", [Record("a", 1, "in")], Watermark(15, 30, 2)), 0)
        assert engine.watermarks()["count"].percentile_ns == 30
        assert engine.watermarks()["sum"].exact_ns == exact_ns, "what is put aside may come yet"
        engine.commit()
        (message,) = engine.outgoing()
        assert message.watermarks["counts"][:2] == (exact_ns, 30)
    broken.broken = False
    engine.retry(0)
    assert engine.watermarks()["sum"].exact_ns == 15
    broken.broken = True
    engine.take(Input("in", b"2", b"3", [Record("b", 1, "in")], Watermark(ENDED_NS, ENDED_NS)), 0)
    assert engine.watermarks()["sum"].exact_ns == ENDED_NS


def test_messages_of_others_are_not_taken() -> None:
    engine = new_engine()
    assert not engine.receive(Message("x", "elsewhere", 1, ()), 0)
    assert not engine.receive(Message("x", engine.id, 1, (), topology=5), 0)
    assert not engine.receive(Message("x", engine.id, 1, (), parents=("before",)), 0)
    for wrong, why in (
        (lambda: decode_message(b"x"), "not a valid message"),
        (lambda: decode_ack(b"x"), "not a valid acknowledgement message"),
        (lambda: feed(engine, [], source="other"), "no source 'other'"),
    ):
        with pytest.raises(ComputingError, match=why):
            wrong()


class Breaks(Computation):
    """Does something irreparable, in the record ``bad``; ``how`` does it."""

    def __init__(self, how: Callable[[Context], object], *, timer: bool) -> None:
        self._how, self._timer = how, timer

    def process_record(self, ctx: Context, record: Record) -> None:
        if record.value == "bad" and not self._timer:
            self._how(ctx)
        ctx.set_timer("end", 10)

    def process_timer(self, ctx: Context, timer: Timer) -> None:
        if ctx.key == "bad":
            self._how(ctx)
        ctx.produce("counts", ctx.key)


def raising(error: BaseException) -> Callable[[Context], object]:
    def raise_it(ctx: Context) -> None:
        raise error

    return raise_it


@pytest.mark.parametrize("timer", [False, True])
@pytest.mark.parametrize(
    "how",
    [
        lambda ctx: ctx.produce("counts", 1, time_ns=2**70),
        lambda ctx: ctx.produce("counts", 1, time_ns=ENDED_NS),
        lambda ctx: ctx.produce("counts", 1, time_ns=-(2**63)),
        lambda ctx: ctx.produce("counts", 2**70),
        lambda ctx: ctx.produce("counts", "\ud800"),
        lambda ctx: ctx.set_timer("x", 2**63 - 1),
        lambda ctx: ctx.set_wall_timer("\ud800", 2**62),
        lambda ctx: ctx.state.update(n=2**70),
        lambda ctx: ctx.state.update({(1, 2): 3}),
        raising(SystemExit(5)),
        raising(KeyboardInterrupt()),
        raising(GeneratorExit()),
        raising(BaseException("of its own")),
        raising(MemoryError()),
        raising(RecursionError()),
    ],
)
def test_what_user_code_does_costs_its_key_only(how: Callable[[Context], object], timer: bool) -> None:
    before = signal.signal(signal.SIGINT, lambda number, frame: None)  # like photon compute
    try:
        engine = new_engine(Breaks(how, timer=timer))
        commit(engine, ["a", "bad", "b"])
        commit(engine, ["c", "bad"], 11)
        assert [decode_message(each.encode()) for each in engine.outgoing()]
        engine.resend(PUBLISH + "counts")
        assert sorted(each for each in values(engine) if each != "bad") == ["a", "b", "c"]
    finally:
        signal.signal(signal.SIGINT, before)


def test_ctrl_c_ends_a_program_that_does_not_handle_it() -> None:
    engine = new_engine(Breaks(raising(KeyboardInterrupt()), timer=False))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            feed(engine, ["bad"])
    finally:
        signal.signal(signal.SIGINT, before)

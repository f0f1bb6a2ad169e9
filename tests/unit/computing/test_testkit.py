"""User code, as its own tests would run it: what it may do, and the results of its errors."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import orjson
import pytest

from photon.computing import (
    MINUTE_NS,
    SECOND_NS,
    Computation,
    Context,
    Limits,
    Record,
    Timer,
    Topology,
    minutes,
    stage,
)
from photon.computing.engine import Engine
from photon.computing.errors import TopologyError
from photon.computing.intervals import even
from photon.computing.publisher import Publisher
from photon.computing.row import decode
from photon.computing.standing import decode as decode_standing
from photon.computing.store import Commit, Store, in_memory
from photon.computing.testkit import Ran, run, run_steps
from photon.computing.wire import ENDED_NS, Ack, Input, Watermark
from photon.config.disk import RealDisk
from photon.library import Output


class Spend(Computation):
    def process_record(self, ctx: Context, record: Record) -> None:
        begin = minutes(record.time_ns)
        cents = ctx.state.setdefault("cents", {})
        cents[begin] = cents.get(begin, 0) + record.value["cents"]
        if ctx.is_late(begin + MINUTE_NS):
            ctx.produce("corrections", cents.pop(begin))
        else:
            ctx.set_timer("end", begin + MINUTE_NS)

    def process_timer(self, ctx: Context, timer: Timer) -> None:
        cents = ctx.state["cents"].pop(timer.time_ns - MINUTE_NS)
        ctx.produce("spend", [ctx.key, timer.time_ns, cents, timer.waiting])


def spent(who: str, cents: object, time_ns: int) -> Record:
    return Record({"who": who, "cents": cents}, time_ns)


def test_a_minute_ends_with_the_watermark() -> None:
    records = [spent("a", 5, 10), spent("a", 6, MINUTE_NS), spent("b", 7, 20), spent("a", 1, 30)]
    ran = run(Spend(), records, [MINUTE_NS - 1, MINUTE_NS], outputs=["spend", "corrections"], key="who")
    assert [each.value for each in ran["spend"]] == [["a", MINUTE_NS, 6, 0], ["b", MINUTE_NS, 7, 0]]
    assert ran.state["a"] == {"cents": {MINUTE_NS: 6}}


def test_what_is_late_is_known_to_be_so_and_what_waits_is_counted() -> None:
    steps = [spent("a", 5, 10), Watermark(0, MINUTE_NS, 2), spent("a", 3, 20)]
    ran = run_steps(Spend(), steps, outputs=["spend", "corrections"], key="who")
    assert [each.value for each in ran["spend"]] == [["a", MINUTE_NS, 5, 2]]
    assert [each.value for each in ran["corrections"]] == [3]


class Does(Computation):
    """Does what the record says."""

    def process_record(self, ctx: Context, record: Record) -> None:
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        action = ACTIONS.get(record.value["do"])
        if action is not None:
            action(ctx)
        ctx.produce("out", [ctx.key, record.value["do"]])

    def process_timer(self, ctx: Context, timer: Timer) -> None:
        if timer.tag == "again":
            ctx.set_timer("again", timer.time_ns - 1)
        if timer.tag == "raise":
            raise ValueError("in a timer")
        ctx.produce("out", [ctx.key, timer.tag, timer.time_ns])


def _nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"a": value}
    return value


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError


def _unprintable(ctx: Context) -> None:
    raise Unprintable


def _unstorable(ctx: Context) -> None:
    raise ValueError("\udcff" + "x" * (2 << 20))


class Key(msgspec.Struct, frozen=True):
    n: int


def _raises(ctx: Context) -> None:
    ctx.state["n"] = 99
    raise ValueError("two\nlines")


def _recursive(ctx: Context) -> None:
    ctx.state["me"] = ctx.state


def _no_dict(ctx: Context) -> None:
    ctx.state = ["a"]  # type: ignore[assignment]


ACTIONS: dict[str, Any] = {
    "raise": _raises,
    "object": lambda ctx: ctx.state.update(what=object()),
    "unsent": lambda ctx: ctx.produce("out", object()),
    "no JSON": lambda ctx: ctx.produce("out", {b"key": 1}),
    "nested": lambda ctx: ctx.produce("out", _nested(254)),
    "struct key": lambda ctx: ctx.produce("out", {Key(1): 1}),
    "unprintable": _unprintable,
    "unstorable": _unstorable,
    "much": lambda ctx: ctx.produce("out", "x" * (2 << 20)),
    "large": lambda ctx: ctx.state.update(what="x" * (2 << 20)),
    "tuple": lambda ctx: ctx.state.update(what=[1, {"a": (1, 2)}]),
    "set key": lambda ctx: ctx.state.update({(1, 2): {frozenset({1}): 1}}),
    "date": lambda ctx: ctx.state.update(what=datetime(2026, 1, 1)),
    "recursive": _recursive,
    "no dict": _no_dict,
    "unknown": lambda ctx: ctx.produce("nowhere", 1),
    "no time": lambda ctx: ctx.produce("out", 1, 1.5),
    "no tag": lambda ctx: ctx.set_timer(1, 1),
    "no moment": lambda ctx: ctx.set_timer("a", 1 << 70),
    "surrogate": lambda ctx: ctx.produce("out", "\ud800"),
    "past": lambda ctx: ctx.set_timer("past", 50),
    "future": lambda ctx: ctx.set_timer("future", 150),
    "cancel": lambda ctx: ctx.cancel_timer("future", 150),
    "again": lambda ctx: ctx.set_timer("again", 50),
    "timer": lambda ctx: ctx.set_timer("raise", 50),
}


def does(*steps: str | int) -> Ran:
    """Records for the key k, with others among them; numbers are watermarks."""
    all_steps: list[Record | int] = []
    for step in steps:
        if isinstance(step, str):
            all_steps += [Record({"key": "k", "do": step}, 1), Record({"key": "other", "do": ""}, 1)]
        else:
            all_steps.append(step)
    return run_steps(Does(), all_steps, outputs=["out"])


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("raise", "ValueError: two lines"),
        ("object", "TypeError: Encoding objects of type object is unsupported"),
        ("unsent", "TypeError: Encoding objects of type object is unsupported"),
        ("no JSON", "its production to 'out' cannot be written as JSON: Dict key must"),
        ("nested", "its production to 'out' cannot be written as JSON: Recursion limit reached"),
        ("struct key", "DecodeError"),
        ("unprintable", "Unprintable: which cannot be printed"),
        ("unstorable", "ValueError: \\udcffxxx"),
        ("much", "its production to 'out' has 2097157 bytes, more than 1048576"),
        ("large", "bytes; the limit is 1048576"),
        ("recursive", "RecursionError"),
        ("no dict", "its state must be a dict, not a list"),
        ("tuple", "its state has a tuple, which would be read back as another type"),
        ("set key", "its state has a frozenset, which"),
        ("date", "its state has a datetime, which"),
        ("unknown", "it has no output 'nowhere', only out"),
        ("no time", "must be an int of nanoseconds, not 1.5"),
        ("no tag", "the tag of a timer must be a str, not int"),
        ("no moment", "the time of the timer 'a' must be an int of nanoseconds"),
        ("surrogate", "UnicodeEncodeError"),
        ("timer", "ValueError: in a timer"),
        ("again", "10001 timers were called at once; it keeps setting timers in the past"),
    ],
)
def test_wrong_user_code_is_one_line_and_harms_its_key_only(what: str, said: str) -> None:
    ran = does("first", 100, what, "last", 200)
    assert len(ran.faults) == 1
    line = ran.faults[0].line
    assert line.startswith("computation does, key 'k': ")
    assert said in line
    assert "\n" not in line
    assert len(line) < 3000
    assert [each.value[1] for each in ran["out"] if each.value[0] == "k"] == ["first"]
    assert [each.value[1] for each in ran["out"] if each.value[0] == "other"] == ["", "", ""]
    assert ran.state["k"] == {"n": 1}


def test_a_production_that_its_consumers_could_not_read_harms_its_key_only() -> None:
    made = Topology("t")
    made.add(Does(), {made.source("in"): "key"}, ["out"])
    made.add(Spend(), {"out": lambda record: record.value[0]}, ["spend", "corrections"])
    engine = Engine(made, in_memory(even(1).all[0]), even(1))
    engine.take(Input("in", None, b"1", [Record({"key": "k", "do": "struct key"}, 1, "in")]), 0)
    assert [(fault.computation, fault.key) for fault in engine.faults()] == [("does", "k")]


def test_a_record_without_a_key_is_put_aside() -> None:
    ran = run(Does(), [Record({}, 1), Record({"key": "k", "do": ""}, 1)], outputs=["out"])
    assert [fault.line for fault in ran.faults] == [
        "computation does, a record without key: KeyError: 'key'; put aside, to be retried"
    ]
    assert len(ran["out"]) == 1


def test_a_timer_in_the_past_is_called_at_once() -> None:
    ran = does(100, "past", "future", 149, 150)
    mine = [each.value[1:] for each in ran["out"] if each.value[0] == "k"]
    assert mine == [["past"], ["past", 50], ["future"], ["future", 150]]


def test_a_timer_can_be_cancelled() -> None:
    ran = does("future", "cancel", 200)
    assert [each.value[1] for each in ran["out"] if each.value[0] == "k"] == ["future", "cancel"]


def test_wall_timers_and_one_of_the_watermark_in_the_past() -> None:
    class Wakes(Computation):
        def process_record(self, ctx: Context, record: Record) -> None:
            ctx.set_wall_timer("wake", ctx.now_ns)
            ctx.set_wall_timer("later", ctx.now_ns + 1)

        def process_timer(self, ctx: Context, timer: Timer) -> None:
            ctx.produce("out", [timer.tag, timer.wall])
            if timer.wall and record.time_ns > 100:
                ctx.set_timer("past", 50)

    for record, expected in ((Record({"key": "k"}, 1), []), (Record({"key": "k"}, 101), [["past", False]])):
        ran = run_steps(Wakes(), [100, record], outputs=["out"], now_ns=77)
        assert [each.value for each in ran["out"]] == [["wake", True], *expected]


def test_more_timers_may_come_due_at_once_than_one_may_set_in_the_past() -> None:
    n = Limits().timers_of_key + 1

    class Each(Computation):
        def process_record(self, ctx: Context, record: Record) -> None:
            for at in range(n):
                ctx.set_timer("end", 10 + at)

        def process_timer(self, ctx: Context, timer: Timer) -> None:
            ctx.state["n"] = ctx.state.get("n", 0) + 1

    ran = run(Each(), [Record({"key": "k"}, 1)], [10 + n], outputs=[])
    assert (ran.faults, ran.state) == ([], {"k": {"n": n}})


def test_timers_that_set_the_next_one_may_come_a_long_way() -> None:
    n = 2 * Limits().timers_of_key + 7

    class Ticks(Computation):
        def process_record(self, ctx: Context, record: Record) -> None:
            ctx.set_timer("tick", 1)

        def process_timer(self, ctx: Context, timer: Timer) -> None:
            ctx.state["n"] = ctx.state.get("n", 0) + 1
            if timer.time_ns < n:
                ctx.set_timer("tick", timer.time_ns + 1)
            else:
                ctx.produce("out", timer.time_ns)

    for records in ([Record({"key": "k"}, 0)], [Record({"key": "k"}, 0), Record({"key": "other"}, 0)]):
        ran = run(Ticks(), records, [n + 1], outputs=["out"])
        assert (ran.faults, [each.value for each in ran["out"]]) == ([], [n] * len(records))
        assert ran.state == {record.value["key"]: {"n": n} for record in records}


def test_one_that_is_killed_on_the_way_goes_on_and_its_stream_waits() -> None:
    made = Topology("t", limits=Limits(timers_of_key=10))

    class Ticks(Computation):
        def process_record(self, ctx: Context, record: Record) -> None:
            ctx.set_timer("tick", 1)

        def process_timer(self, ctx: Context, timer: Timer) -> None:
            ctx.set_timer("tick", timer.time_ns + 1)
            ctx.produce("out", timer.time_ns)

    made.add(Ticks(), {made.source("in"): lambda record: "k"}, ["out"])
    made.publish("out", "out")
    store, seen = in_memory(even(1).all[0]), list[int]()
    Engine(made, store, even(1)).commit()
    more, marks = True, list[int]()
    while more:
        engine = Engine(made, store, even(1))
        engine.take(Input("in", None, b"1", [Record(0, 0)], Watermark(35, 35)), 0)
        more = engine.advance(0)
        engine.commit()
        for message in engine.outgoing():
            seen += [item.decoded() for item in message.items]
            marks += [mark.percentile_ns for mark in message.watermarks.values()]
            engine.acknowledged(Ack(message.sender, message.target, message.upto))
        engine.commit()
    assert seen == list(range(1, 36))
    assert [mark for mark in marks if mark > 0] == [35]


def test_what_is_put_aside_is_added_to_at_the_price_of_what_is_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stage, "CHUNK_BYTES", 10)
    mended = False

    class Waits(Computation):
        def process_record(self, ctx: Context, record: Record) -> None:
            if not mended:
                raise ValueError("not yet")
            ctx.state.setdefault("seen", []).append(record.value)

    made = Topology("t")
    made.add(Waits(), {made.source("in"): lambda record: "k"})
    store = in_memory(even(1).all[0])
    engine = Engine(made, store, even(1))
    written = []

    def commit(sequencer: int, commit: Commit) -> None:
        written.append(sum(len(row.data or b"") for row in commit.rows))
        Store.commit(store, sequencer, commit)

    store.commit = commit  # type: ignore[method-assign]
    for n in range(50):
        assert engine.take(Input("in", engine.position("in"), b"%d" % n, [Record(n, n, "in")]), 0)
        engine.commit()
    assert written[-1] <= written[1] + 10
    assert engine.counts().aside == 51
    again = Engine(made, store, even(1))
    again.retry(0)
    again.commit()
    assert again.counts().aside == 51
    assert max(len(row.data or b"") for row in store.scan()) < 150, "not all of them in one row"
    mended = True
    again.retry(0)
    again.commit()
    assert again.counts().aside == 0
    (row,) = store.scan()
    assert decode(row.data or b"", "k").state == {"seen": list(range(50))}


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"cache_bytes": 0}, "cache_bytes must be an int of at least 1, not 0"),
        ({"skew_ns": 1.5}, "skew_ns must be an int of at least 0, not 1.5"),
        ({"aside": None}, "aside must be an int"),
    ],
)
def test_limits_are_checked(wrong: dict[str, Any], why: str) -> None:
    with pytest.raises(TopologyError, match=why):
        Limits(**wrong)


def test_a_topology_has_limits_and_says_when_input_is_held_back() -> None:
    made = Topology("t", limits=Limits(skew_ns=10 * SECOND_NS, state_bytes=100))

    class Keeps(Computation):
        def process_record(self, ctx: Context, record: Record) -> None:
            ctx.state["kept"] = record.value

    made.add(Keeps(), dict.fromkeys((made.source("fast"), made.source("slow")), lambda record: "k"))
    engine = Engine(made, in_memory(even(1).all[0]), even(1))
    assert engine.take(Input("fast", None, b"1", [], Watermark(0, 0)), 0)
    assert not engine.take(Input("fast", b"1", b"2", [Record("x", 60 * SECOND_NS)]), 0)
    assert "fast is " in engine.held
    assert engine.held.endswith("s ahead of slow")
    mark = Watermark(55 * SECOND_NS, 55 * SECOND_NS)
    assert engine.take(Input("slow", None, b"1", [Record("x" * 100, 0)], mark), 0)
    assert ["the limit is 100" in fault.line for fault in engine.faults()] == [True]


def test_a_timer_that_is_set_between_two_that_are_due_comes_between_them() -> None:
    class Ticks(Computation):
        def process_record(self, ctx: Context, record: Record) -> None:
            for at in record.value["at"]:
                ctx.set_timer("tick", at)

        def process_timer(self, ctx: Context, timer: Timer) -> None:
            ctx.produce("out", timer.time_ns)
            if timer.time_ns < 60:
                ctx.set_timer("tick", timer.time_ns + 10)

    ran = run(Ticks(), [Record({"key": "k", "at": [10, 15, 40, 41]}, 0)], [100], outputs=["out"])
    assert [each.value for each in ran["out"]] == [10, 15, 20, 25, 30, 35, 40, 41, 45, 50, 51, 55, 60, 61, 65]


def test_after_the_end_of_time_the_watermark_is_that_of_before_however_many_steps_it_took() -> None:
    class Ends(Computation):
        def process_record(self, ctx: Context, record: Record) -> None:
            ctx.set_timer("end", 10 + record.time_ns)

    made = Topology("t", limits=Limits(timers_at_once=1))
    made.add(Ends(), {made.source("in"): lambda record: str(record.time_ns)})
    store = in_memory(even(1).all[0])
    engine = Engine(made, store, even(1))
    engine.take(Input("in", None, b"1", [Record(0, at) for at in range(5)], Watermark(7, 7)), 0)
    engine.take(Input("in", b"1", b"2", [], Watermark(ENDED_NS, ENDED_NS)), 0)
    while engine.advance(0):
        engine.commit()
    engine.commit()
    assert (engine.counts().timers, engine.has_ended("in")) == (5, True)
    standing = decode_standing(store.standing(), "i0")
    assert standing.lows == {"ends": (ENDED_NS, 0)}
    standing.reopen()
    assert (standing.lows, standing.heard) == ({"ends": (7, 0)}, {"i0": {}})


class Picky(Computation):
    def process_record(self, ctx: Context, record: Record) -> None:
        ctx.produce("paid", 100 // record.value["cents"])


def test_what_the_code_fails_on_is_a_stream_of_errors_once_for_each_failure() -> None:
    topology = Topology("test")
    topology.add(Picky(), {topology.source("in"): "who"}, ["paid"])
    topology.publish("picky.errors", "errors")
    store = in_memory(even(1).all[0])
    values: list[dict[str, object]] = [{"who": "a", "cents": n} for n in (1, 0, 5)]
    records = [Record(each, n, "in") for n, each in enumerate([*values, {"cents": 1}])]

    def errors(engine: Engine) -> list[tuple[int, Any]]:
        engine.commit()
        return [(item.time_ns, item.decoded()) for message in engine.outgoing() for item in message.items]

    engine = Engine(topology, store, even(1))
    engine.take(Input("in", None, b"1", records), 0)
    (at, first), (also_at, keyless) = errors(engine)
    assert (at, first["key"], first["stream"], first["record"]) == (1, "a", "in", values[1])
    assert "ZeroDivisionError" in first["reason"]
    assert (also_at, keyless["key"], keyless["record"]) == (3, "", {"cents": 1})
    again = Engine(topology, store, even(1))  # what was not acknowledged, and what fails again
    again.retry(0)
    assert [each["key"] for _, each in errors(again)] == ["a", "", "a", ""]


def test_a_record_without_a_key_of_an_input_that_was_removed_is_dropped() -> None:
    made, without = Topology("t"), Topology("t")
    made.add(Picky(), {made.source("in"): "who", made.source("old"): "who"}, ["paid"])
    without.add(Picky(), {without.source("in"): "who"}, ["paid"])
    store = in_memory(even(1).all[0])
    engine = Engine(made, store, even(1))
    for stream in ("in", "old"):
        engine.take(Input(stream, None, b"1", [Record({"cents": 1}, 1, stream)]), 0)
    engine.commit()
    again = Engine(without, store, even(1))
    again.retry(0)
    again.commit()
    assert again.counts()[-2:] == (1, 2)
    assert [fault.line for fault in again.faults()] == [
        "computation picky, a record without key: KeyError: 'who'; put aside, to be retried",
        "computation picky, a record without key: its input stream old was removed; dropped",
    ]


@pytest.mark.parametrize(
    ("other", "said"),
    [
        ({b"bytes": 1}, "left out, as it cannot be written as JSON: Dict key must"),
        (_nested(252), "left out, as it cannot be written as JSON: Recursion limit reached"),
        ("x" * (1 << 20), "left out, as it has 1048"),
        (_nested(251), None),
    ],
)
def test_a_record_that_cannot_be_published_is_left_out_of_the_stream_of_errors(
    tmp_path: Path, other: object, said: str | None
) -> None:
    topology = Topology("test")
    topology.add(Picky(), {topology.source("in"): "who"}, ["paid"])
    topology.publish("picky.errors", "errors")
    record = {"who": "a", "cents": 0, "other": other}
    engine = Engine(topology, in_memory(even(1).all[0]), even(1))
    engine.take(Input("in", None, b"1", [Record(record, 1, "in")]), 0)
    engine.commit()
    publisher = Publisher(RealDisk(), tmp_path, "i0")
    assert [publisher.publish(message.items) for message in engine.outgoing()] == [1]
    publisher.close()
    (batch,) = Output.of_join(tmp_path).batches()
    found = orjson.loads(batch.data)["foreign"]
    assert "ZeroDivisionError" in found["reason"]
    assert found["record"] == record if said is None else found["record"].startswith(said)

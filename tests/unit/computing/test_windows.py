"""Windows: what they hold, when they are said, and how they are corrected."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from photon.computing import MINUTE_NS, SECOND_NS, Record, Topology
from photon.computing.errors import TopologyError
from photon.computing.testkit import Ran, run, run_steps, run_topology
from photon.computing.windows import (
    ACCURACY,
    Aggregate,
    Each,
    Windows,
    collect,
    count,
    max_of,
    min_of,
    quantile,
    session,
    sliding,
    sum_of,
    top,
    tumbling,
)

END = (1 << 62) - 1


def value(record: Record) -> Any:
    return record.value["v"]


def at(second: float, v: object = 1, key: str = "a") -> Record:
    return Record({"key": key, "v": v}, round(second * SECOND_NS))


def ran(windows: Windows, *steps: Record | float) -> Ran:
    """Numbers are watermarks, in seconds."""
    done = run_steps(windows, [s if isinstance(s, Record) else round(s * SECOND_NS) for s in steps], outputs=[])
    assert not done.faults, done.faults[0].line
    return done


def said(records: Sequence[Record], *fields: str) -> list[tuple[Any, ...]]:
    """Each window: its begin and end in seconds, and the fields."""
    return [
        (each.value["from_ns"] / SECOND_NS, each.value["to_ns"] / SECOND_NS, *(each.value[name] for name in fields))
        for each in records
    ]


def test_a_minute_is_said_once_it_is_over() -> None:
    windows = Windows("w", tumbling(MINUTE_NS), {"n": count(), "sum": sum_of(value)})
    done = ran(windows, at(1, 5), at(59, 7), at(60, 2), 59, 60, at(61, 3), 200)
    assert said(done["w"], "n", "sum") == [(0, 60, 2, 12), (60, 120, 2, 5)]
    assert [each.time_ns for each in done["w"]] == [MINUTE_NS - 1, 2 * MINUTE_NS - 1]
    assert done["w"][0].value == {"key": "a", "from_ns": 0, "to_ns": MINUTE_NS, "waiting": 0, "n": 2, "sum": 12}
    assert done.state == {}


def test_a_window_of_windows_has_its_own() -> None:
    topology = Topology("t")
    source = topology.source("in")
    topology.add(
        Windows("minutes", tumbling(MINUTE_NS), {"n": count()}), {source: lambda record: record.value["key"]}
    )
    hours = Windows("hours", tumbling(60 * MINUTE_NS), {"n": sum_of(lambda record: record.value["n"])})
    topology.add(hours, {"minutes": lambda record: record.value["key"]})
    done = run_topology(topology, {"in": [at(0), at(3599.9), at(3600), END]})
    assert said(done["hours"], "n") == [(0, 3600, 2), (3600, 7200, 1)]


def test_an_offset_is_where_a_day_begins() -> None:
    done = ran(Windows("w", tumbling(MINUTE_NS, offset_ns=-10 * SECOND_NS), {"n": count()}), at(49), at(50), 300)
    assert said(done["w"], "n") == [(-10, 50, 1), (50, 110, 1)]


def test_a_record_is_in_all_windows_that_slide_over_it() -> None:
    done = ran(
        Windows("w", sliding(30 * SECOND_NS, 10 * SECOND_NS), {"all": collect(value)}), at(5, 1), at(21, 2), 99
    )
    assert said(done["w"], "all") == [
        (-20, 10, [1]), (-10, 20, [1]), (0, 30, [1, 2]), (10, 40, [2]), (20, 50, [2]),
    ]  # fmt: skip


def test_a_session_ends_when_nothing_came_for_its_gap() -> None:
    windows = Windows("w", session(10 * SECOND_NS), {"n": count(), "all": collect(value)})
    done = ran(windows, at(0, "a"), at(9, "b"), at(30, "c"), at(39.9, "d"), at(19, "e"), 100)
    assert said(done["w"], "n") == [(0, 19, 2), (19, 29, 1), (30, 49.9, 2)]


def test_a_record_makes_two_sessions_one() -> None:
    windows = Windows("w", session(10 * SECOND_NS), {"all": collect(value)})
    done = ran(windows, at(0, "a"), at(15, "c"), at(8, "b"), 24, 25)
    assert said(done["w"], "all") == [(0, 25, ["b", "a", "c"])] or said(done["w"], "all") == [
        (0, 25, ["a", "c", "b"])
    ]
    assert done.state == {}


def test_what_comes_late_corrects_its_window_and_what_comes_later_still_is_shown() -> None:
    windows = Windows("w", tumbling(MINUTE_NS), {"n": count()}, lateness_ns=10 * SECOND_NS)
    done = ran(windows, at(1), 60, at(2), at(3), 69, at(4), 70, at(5), 80)
    assert said(done["w"], "n") == [(0, 60, 1)]
    assert said(done["w.corrections"], "n") == [(0, 60, 2), (0, 60, 3), (0, 60, 4)]
    assert all(each.value["replaces"] == [[0, MINUTE_NS]] for each in done["w.corrections"])
    assert [each.value for each in done["w.late"]] == [{"key": "a", "v": 1}]
    assert done.state == {}


def test_a_correction_names_all_sessions_that_it_replaces() -> None:
    windows = Windows("w", session(10 * SECOND_NS), {"n": count()}, lateness_ns=MINUTE_NS)
    done = ran(windows, at(0), at(15), 30, at(8), at(20), 31, at(200), 300)
    assert said(done["w"], "n") == [(0, 10, 1), (15, 25, 1), (200, 210, 1)]
    assert said(done["w.corrections"], "n") == [(0, 25, 3), (0, 30, 4)]
    first, second = (each.value["replaces"] for each in done["w.corrections"])
    assert first == [[0, 10 * SECOND_NS], [15 * SECOND_NS, 25 * SECOND_NS]]
    assert second == [[0, 25 * SECOND_NS]]
    assert done.state == {}


def test_a_session_that_a_late_record_makes_longer_than_the_watermark_is_corrected_at_its_end() -> None:
    windows = Windows("w", session(10 * SECOND_NS), {"n": count()}, lateness_ns=MINUTE_NS)
    done = ran(windows, at(0), 12, at(9), 18, 19)
    assert said(done["w"], "n") == [(0, 10, 1)]
    assert said(done["w.corrections"], "n") == [(0, 19, 2)]


def test_early_results_are_of_unfinished_windows_with_new_records() -> None:
    windows = Windows("w", tumbling(MINUTE_NS), {"n": count()}, early_ns=10 * SECOND_NS)
    done = ran(windows, at(1), at(12), 10, 20, 30, at(31), 35, 59, 60)
    assert said(done["w.early"], "n") == [(0, 60, 2), (0, 60, 3)]
    assert [each.time_ns for each in done["w.early"]] == [10 * SECOND_NS - 1, 40 * SECOND_NS - 1]
    assert said(done["w"], "n") == [(0, 60, 3)]


def test_aggregates() -> None:
    longest = Aggregate(str, lambda kept, record: max(kept, "x" * value(record)), max, len)
    aggregates = {
        "min": min_of(value), "max": max_of(value), "top": top(2, value), "all": collect(value), "own": longest
    }  # fmt: skip
    for shape in (tumbling(MINUTE_NS), session(5 * SECOND_NS)):
        done = ran(Windows("w", shape, aggregates), at(4, 3), at(12, 1), at(8, 2), 99)
        (only,) = done["w"]
        assert {name: only.value[name] for name in aggregates if name != "all"} == {
            "min": 1, "max": 3, "top": [3, 2], "own": 3,
        }  # fmt: skip
        assert sorted(only.value["all"]) == [1, 2, 3]


@given(st.lists(st.floats(-1e12, 1e12, allow_subnormal=False), min_size=1), st.sampled_from([0.0, 0.5, 0.99, 1.0]))
def test_a_quantile_is_right_within_its_accuracy(numbers: list[float], share: float) -> None:
    each = quantile(share, value)
    halves: list[Any] = [each.start(), each.start()]
    for n, number in enumerate(numbers):
        halves[n % 2] = each.add(halves[n % 2], Record({"v": number}, 0))
    true = sorted(numbers)[max(-(-len(numbers) * round(share * 100) // 100), 1) - 1]
    assert abs(each.result(each.merge(*halves)) - true) <= abs(true) * ACCURACY * 1.001


@given(st.integers(0, 1 << 30), st.sampled_from([1, 7]), st.sampled_from([0, 25]))
def test_what_was_produced_and_not_replaced_is_what_came(seed: int, gap: int, lateness: int) -> None:
    """Sessions and minutes over records and watermarks in any order."""
    rng = random.Random(seed)
    for shape in (session(gap * SECOND_NS), tumbling(gap * SECOND_NS), sliding(2 * gap * SECOND_NS, gap * SECOND_NS)):
        windows = Windows("w", shape, {"ns": collect(value)}, lateness_ns=lateness * SECOND_NS)
        low, steps = 0.0, list[Record | float]()
        for n in range(30):
            low += rng.choice([0, 0, 0, 1, 2])
            steps += [at(low + rng.randint(-5, 15), n), low]
        done = ran(windows, *steps, 1000.0)
        stands: dict[tuple[int, int], list[int]] = {}
        for each in sorted((*done["w"], *done["w.corrections"]), key=lambda record: max(record.value["ns"])):
            for replaced in each.value.get("replaces", ()):
                assert stands.pop(tuple(replaced)) is not None
            where = (each.value["from_ns"], each.value["to_ns"])
            assert where not in stands
            stands[where] = each.value["ns"]
        late = {each.value["v"] for each in done["w.late"]}
        truth = defaultdict[tuple[int, int], set[int]](set)
        for step in sorted((s for s in steps if isinstance(s, Record)), key=lambda each: each.time_ns):
            if shape.every_ns:
                for end in shape.ends(step.time_ns):
                    truth[end - shape.size_ns, end].add(value(step))
            else:
                end, last = step.time_ns + shape.size_ns, next(reversed(truth), None)
                if last is not None and step.time_ns < last[1]:
                    truth[last[0], end] = truth.pop(last) | {value(step)}
                else:
                    truth[step.time_ns, end] = {value(step)}
        if lateness:  # enough for all of them; otherwise a session may be over that a record would have gone on with
            assert not late
            assert {where: set(ns) for where, ns in stands.items()} == truth
        counted = sorted(n for ns in stands.values() for n in ns)
        if shape.every_ns != shape.size_ns // 2:
            assert counted == sorted({*range(30)} - late)
        assert done.state == {}


def test_words_of_a_line_are_records_of_their_own() -> None:
    topology = Topology("words")
    lines = topology.source("lines")
    topology.add(Each("words", lambda line: line.value.split()), {lines: lambda line: line.value})
    topology.add(Windows("counts", tumbling(MINUTE_NS), {"n": count()}), {"words": lambda word: word.value})
    done = run_topology(topology, {"lines": [Record("to be or not to be", 5), END]})
    assert {each.value["key"]: each.value["n"] for each in done["counts"]} == {"to": 2, "be": 2, "or": 1, "not": 1}


def test_an_error_in_a_users_function_names_its_line() -> None:
    windows = Windows("w", tumbling(MINUTE_NS), {"n": sum_of(lambda record: record.value["none"])})
    (fault,) = run(windows, [at(1)], outputs=[]).faults
    assert "KeyError: 'none'" in fault.line
    assert "test_windows.py:" in fault.line


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        (lambda: tumbling(0), "size must be at least 1 ns"),
        (lambda: session(-1), "size must be at least 1 ns"),
        (lambda: sliding(5, 6), "at least one and at most 1000"),
        (lambda: sliding(5000, 1), "at least one and at most 1000"),
        (lambda: Windows("w", tumbling(1), {"key": count()}), "windows w: rename key"),
        (lambda: Windows("w", tumbling(1), {}, lateness_ns=-1), "must not be negative"),
    ],
)
def test_what_cannot_be_is_refused(wrong: Any, why: str) -> None:
    with pytest.raises(TopologyError, match=why):
        wrong()

"""Verifications without problems that are not judged."""

from __future__ import annotations

from typing import Any

import pytest

from photon.spark.classes import Class
from photon.spark.verify import coverage
from photon.spark.verify.coverage import Looked
from photon.spark.verify.days import Hours
from photon.spark.verify.figures import ClassCount, CoverageRow, LedgerLine
from photon.spark.verify.nights import Night, Nights

DAY, NEXT = (24, 48), (48, 72)
SOME = {"foreign": 2, "primary": 2, "output": 2}
BOTH = {"east": SOME, "west": SOME}
NONE = Nights([])
RIGHT = [ClassCount(30, "east", Class.CORRECT, 60), ClassCount(31, "west", Class.CORRECT, 40)]
BEFORE = Nights([Night(begin=0, end=24, events={"east": 100, "west": 90}, files=BOTH, closed=True)])


def looked(**more: Any) -> Looked:
    events = {DAY: {"east": 100, "west": 100}}
    return Looked(**({"pieces": [DAY], "counts": RIGHT, "events": events, "files": BOTH, "ledger": [],
                      "known": ("east", "west")} | more))  # fmt: skip


def reasons(of: Looked, nights: Nights) -> list[str]:
    empty = [said for each in coverage.empty(of, nights).values() for said in each]
    return [*coverage.too_pending(of), *coverage.missing(of, nights), *empty]


def without(side: str, at: str = "west") -> dict[str, dict[str, int]]:
    return BOTH | {at: SOME | {side: 0}}


def pending(count: int, hour: int | None = 30) -> list[ClassCount]:
    return [*RIGHT, ClassCount(hour, "west", Class.PENDING, count)]


READ = [
    LedgerLine(30, "west", {"read": 7}),
    LedgerLine(99, "west", {"read": 5}),
    LedgerLine(None, "west", {"read": 1}),
]
HALF = {DAY: {"east": 100, "west": 0}}
NOTHING: dict[Hours, dict[str, int]] = {DAY: {"east": 0, "west": 0}}


@pytest.mark.parametrize(
    ("of", "nights", "said"),
    [
        (looked(), NONE, []),
        (looked(), BEFORE, []),
        (looked(counts=pending(1)), NONE, []),
        (looked(counts=pending(2)), NONE, ["2 of 102 events are pending"]),
        (looked(counts=pending(1), overdue=["west: a.log waits"]), NONE, ["west: a.log waits"]),
        (looked(overdue=["west: a.log waits"]), NONE, []),  # it was joined elsewhere: all is judged
        (looked(counts=[ClassCount(30, "west", Class.PENDING, 3)]), NONE, ["3 of 3 events are pending"]),
        (looked(files=without("foreign"), events=HALF), NONE, []),  # a datacentre that never had one
        (looked(files=without("foreign")), BEFORE, ["west: no foreign file exists, but earlier nights had some"]),
        (looked(files=without("output")), BEFORE, ["west: no output file exists, but earlier nights had some"]),
        (looked(files=without("output")), NONE, []),  # all its events are another's
        (looked(files=without("primary")), NONE, ["west: no primary file exists, but foreign events do"]),
        (looked(files=without("primary"), events=HALF), NONE, []),
        (looked(events=HALF), NONE, []),
        (looked(events=HALF), BEFORE, ["1970-01-02: west: 0 events, usually 90"]),
        (looked(events=HALF, allow_empty=True), BEFORE, []),
        (looked(events=HALF, ledger=READ), NONE, ["1970-01-02: west: 0 events, but its dispatcher has read 7"]),
        (looked(events=NOTHING, counts=[]), NONE, []),  # logs are there, and the dispatchers agree
        (looked(events=NOTHING, counts=[], known=["east"]), NONE, [
            "0 events: west: there is no foreign log, or no dispatcher's state to confirm it"]),
        (looked(events=NOTHING, counts=[], files=without("foreign")), NONE, [
            "0 events: west: there is no foreign log, or no dispatcher's state to confirm it"]),
        (looked(events=NOTHING, counts=[], known=(), allow_empty=True), NONE, []),
    ],
)  # fmt: skip
def test_what_is_not_judged(of: Looked, nights: Nights, said: list[str]) -> None:
    assert reasons(of, nights) == said


def test_rows_stand_next_to_what_is_usual() -> None:
    assert coverage.coverage(looked(counts=pending(3)), BEFORE) == [
        CoverageRow("east", 100, 100, 60, 0, SOME), CoverageRow("west", 100, 90, 40, 3, SOME)
    ]  # fmt: skip
    two = looked(pieces=[DAY, NEXT], events={DAY: {"east": 5}, NEXT: {"east": 6}})
    assert [(row.events, row.usual) for row in coverage.coverage(two, BEFORE)] == [(11, 200), (0, 180)]
    assert [row.usual for row in coverage.coverage(two, NONE)] == [None, None]
    assert coverage.pointed_at(looked(events={DAY: {"east": 49, "west": 45}}), BEFORE) == [
        "1970-01-02: east: 49 events, usually 100"
    ]


def test_what_was_not_looked_at() -> None:
    of = looked(known=["east"], files=without("primary"))
    assert coverage.unlooked(of, registry=False) == [
        "the registry", "west: the dispatcher's state", "west: primary: no file"
    ]  # fmt: skip
    assert coverage.unlooked(looked(), registry=True) == []


@pytest.mark.parametrize(
    ("of", "verified", "before", "open_", "blind", "closed"),
    [
        (looked(), [DAY], NONE, {}, False, True),
        (looked(counts=pending(1)), [DAY], NONE, {}, False, False),
        (looked(counts=pending(1, None)), [DAY], NONE, {}, False, False),  # a line without a time
        (looked(), [DAY], NONE, {DAY: ["0 events"]}, False, False),
        (looked(), [DAY], NONE, {}, True, False),
        (looked(), [], NONE, {}, True, False),
        (looked(), [], Nights([Night(begin=24, end=48, events={}, files={}, closed=True)]), {}, True, True),
        (looked(), [DAY], Nights([Night(begin=24, end=48, events={}, files={}, closed=True)]), {}, True, False),
    ],
)
def test_which_days_are_closed(
    of: Looked, verified: list[Hours], before: Nights, open_: dict[Hours, list[str]], blind: bool, closed: bool
) -> None:
    (night,) = coverage.judged_nights(of, before, verified, open_, blind)
    assert (night.begin, night.end, night.closed) == (*DAY, closed)
    assert (night.events, night.files) == ({"east": 100, "west": 100}, BOTH)


def test_only_the_day_with_something_pending_stays_open() -> None:
    of = looked(pieces=[DAY, NEXT], events={DAY: {}, NEXT: {}}, counts=pending(1))
    assert [night.closed for night in coverage.judged_nights(of, NONE, [DAY, NEXT], {}, False)] == [False, True]


def test_days_with_problems_stay_open() -> None:
    lost = ClassCount(DAY[0] + 3, "east", Class.LOST_CLEARED, 2)
    of = looked(pieces=[DAY, NEXT], events={DAY: {}, NEXT: {}}, counts=[lost])
    assert coverage.with_problems(of, []) == {DAY: "problems"}
    assert coverage.with_problems(of, [NEXT[0]]) == {DAY: "problems", NEXT: "problems"}
    open_ = coverage.with_problems(of, [])
    assert [night.closed for night in coverage.judged_nights(of, NONE, [DAY, NEXT], open_, False)] == [False, True]


def test_lines_are_summed_by_piece() -> None:
    lines = {(24, "east"): 1, (47, "east"): 2, (48, "west"): 3, (72, "east"): 9, (None, "east"): 9, (30, "gone"): 9}
    found = coverage.events_of([DAY, NEXT], lines, ["east", "west"])
    assert found == {DAY: {"east": 3, "west": 0}, NEXT: {"east": 0, "west": 3}}

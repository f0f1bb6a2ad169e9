"""What is asked of whom about each kind of finding."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from photon.idregistry.api import Answer
from photon.spark.classes import Class
from photon.spark.recover.planning import Before, Finding, Way, ways, young
from tests.unit.spark.recover.rows import lost

ABSENT, PRESENT, BELOW, UNKNOWN = Answer.ABSENT, Answer.PRESENT, Answer.BELOW_BOUNDARY, Answer.UNKNOWN
C = Class


def way(finding: Finding, answer: Answer, before: Before = Before.NOT_ASKED, *, also_unmatched: bool = False) -> Way:
    [found] = ways([finding], np.array([answer], np.uint8), [before], also_unmatched=also_unmatched)
    return found


@pytest.mark.parametrize(
    ("kind", "state", "answer", "expected"),
    [
        (C.LOST_CLEARED, "cleared", PRESENT, Way.REOPEN),
        (C.LOST_CLEARED, "cleared", BELOW, Way.REOPEN_BELOW),
        (C.LOST_CLEARED, "cleared", ABSENT, Way.CHANGED),
        (C.LOST_CLEARED, "cleared", UNKNOWN, Way.UNKNOWN),
        (C.LOST_OWNED, "owned", PRESENT, Way.SLOT_DOWN),
        (C.LOST_OWNED, "owned", ABSENT, Way.SLOT_DOWN),
        (C.LOST_RETIRED, "owned", PRESENT, Way.REOPEN_RETIRED),
        (C.LOST_RETIRED, "owned", ABSENT, Way.CHANGED),
        (C.LOST_RETIRED, "reopened", ABSENT, Way.LISTED),
        (C.LOST_RETIRED, "reopened", PRESENT, Way.CHANGED),
        (C.LOST_UNREGISTERED, None, ABSENT, Way.REPLAY),
        (C.LOST_UNREGISTERED, None, BELOW, Way.REOPEN_BELOW),
        (C.LOST_UNREGISTERED, None, PRESENT, Way.CHANGED),
        (C.LOST_UNREGISTERED, None, UNKNOWN, Way.UNKNOWN),
    ],
)
def test_losses(kind: Class, state: str | None, answer: Answer, expected: Way) -> None:
    assert way(lost(1, kind, state), answer) is expected


@pytest.mark.parametrize(
    ("state", "answer", "expected"),
    [
        ("cleared", PRESENT, Way.REOPEN),
        ("owned", PRESENT, Way.NOT_CLEARED),
        ("reopened", ABSENT, Way.LISTED),
        (None, BELOW, Way.REOPEN_BELOW),
        (None, ABSENT, Way.CHANGED),
    ],
)
def test_unmatched_only_by_the_operators_word(state: str | None, answer: Answer, expected: Way) -> None:
    finding = lost(1, Class.PRIMARY_EXISTS, state)
    assert way(finding, answer) is Way.NOT_ASKED
    assert way(finding, answer, also_unmatched=True) is expected


def test_an_unmatched_line_beside_another_record_is_left_to_a_person() -> None:
    """Its id may be that of a joined line."""
    for changes in ({"only_record": False}, {"written_token": 7}, {"written_token": None}):
        finding = replace(lost(1, Class.PRIMARY_EXISTS), **changes)
        assert way(finding, PRESENT, also_unmatched=True) is Way.OTHER_RECORDS
    collected = replace(lost(1, Class.PRIMARY_EXISTS, None), only_record=False)
    assert way(collected, BELOW, also_unmatched=True) is Way.OTHER_RECORDS


def test_what_stands_in_no_log_is_not_given_back() -> None:
    for kind, state in ((C.LOST_CLEARED, "cleared"), (C.LOST_RETIRED, "owned"), (C.LOST_UNREGISTERED, None)):
        assert way(lost(1, kind, state, log=None), PRESENT) is Way.NO_INPUT


def test_what_a_backfill_wrote_is_left_alone() -> None:
    for state in ("cleared", "owned"):
        kind = C.LOST_CLEARED if state == "cleared" else C.LOST_OWNED
        assert way(lost(1, kind, state, slot="backfill-east-12ab"), PRESENT) is Way.BACKFILLED


def test_asked_before() -> None:
    """Where the registry compares it is asked again, where it cannot it is not."""
    cleared, absent = lost(1), lost(1, C.LOST_UNREGISTERED, None)
    assert way(cleared, PRESENT, Before.ASKED_YOUNG) is Way.REOPEN
    assert way(cleared, BELOW, Before.ASKED_YOUNG) is Way.IN_DOUBT
    assert way(cleared, PRESENT, Before.ASKED_OLD) is Way.IN_DOUBT
    assert way(absent, BELOW, Before.ASKED_OLD) is Way.IN_DOUBT
    assert way(absent, ABSENT, Before.ASKED_OLD) is Way.REPLAY  # the registry leaves alone what it knows
    assert way(lost(1, C.LOST_OWNED, "owned"), PRESENT, Before.ASKED_OLD) is Way.SLOT_DOWN


def test_young() -> None:
    assert young(0, 10**18, None, 10)
    assert young(91, 100, 20, 10)
    assert not young(90, 100, 20, 10)

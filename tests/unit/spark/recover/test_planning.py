"""The request, and its addressee, for each kind of finding."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from photon.idregistry.api import Answer
from photon.spark.classes import Class
from photon.spark.recover.planning import EarlierRepairs, RepairWay, ReportedProblem, ways, young
from tests.unit.spark.recover.rows import lost

ABSENT, PRESENT, BELOW, UNKNOWN = Answer.ABSENT, Answer.PRESENT, Answer.BELOW_BOUNDARY, Answer.UNKNOWN
C = Class


def way(
    finding: ReportedProblem,
    answer: Answer,
    before: EarlierRepairs = EarlierRepairs.NOT_ASKED,
    *,
    also_unmatched: bool = False,
) -> RepairWay:
    [found] = ways([finding], np.array([answer], np.uint8), [before], also_unmatched=also_unmatched)
    return found


@pytest.mark.parametrize(
    ("kind", "state", "answer", "expected"),
    [
        (C.LOST_CLEARED, "cleared", PRESENT, RepairWay.REOPEN),
        (C.LOST_CLEARED, "cleared", BELOW, RepairWay.REOPEN_BELOW),
        (C.LOST_CLEARED, "cleared", ABSENT, RepairWay.CHANGED),
        (C.LOST_CLEARED, "cleared", UNKNOWN, RepairWay.UNKNOWN),
        (C.LOST_OWNED, "owned", PRESENT, RepairWay.SLOT_DOWN),
        (C.LOST_OWNED, "owned", ABSENT, RepairWay.SLOT_DOWN),
        (C.LOST_RETIRED, "owned", PRESENT, RepairWay.REOPEN_RETIRED),
        (C.LOST_RETIRED, "owned", ABSENT, RepairWay.CHANGED),
        (C.LOST_RETIRED, "reopened", ABSENT, RepairWay.LISTED),
        (C.LOST_RETIRED, "reopened", PRESENT, RepairWay.CHANGED),
        (C.LOST_UNREGISTERED, None, ABSENT, RepairWay.REPLAY),
        (C.LOST_UNREGISTERED, None, BELOW, RepairWay.REOPEN_BELOW),
        (C.LOST_UNREGISTERED, None, PRESENT, RepairWay.CHANGED),
        (C.LOST_UNREGISTERED, None, UNKNOWN, RepairWay.UNKNOWN),
    ],
)
def test_losses(kind: Class, state: str | None, answer: Answer, expected: RepairWay) -> None:
    assert way(lost(1, kind, state), answer) is expected


@pytest.mark.parametrize(
    ("state", "answer", "expected"),
    [
        ("cleared", PRESENT, RepairWay.REOPEN),
        ("owned", PRESENT, RepairWay.NOT_CLEARED),
        ("reopened", ABSENT, RepairWay.LISTED),
        (None, BELOW, RepairWay.REOPEN_BELOW),
        (None, ABSENT, RepairWay.CHANGED),
    ],
)
def test_unmatched_only_by_the_operators_word(state: str | None, answer: Answer, expected: RepairWay) -> None:
    finding = lost(1, Class.PRIMARY_EXISTS, state)
    assert way(finding, answer) is RepairWay.NOT_ASKED
    assert way(finding, answer, also_unmatched=True) is expected


def test_an_unmatched_line_beside_another_record_is_left_to_a_person() -> None:
    """Its id may be that of a joined line."""
    for changes in ({"only_record": False}, {"written_token": 7}, {"written_token": None}):
        finding = replace(lost(1, Class.PRIMARY_EXISTS), **changes)
        assert way(finding, PRESENT, also_unmatched=True) is RepairWay.OTHER_RECORDS
    collected = replace(lost(1, Class.PRIMARY_EXISTS, None), only_record=False)
    assert way(collected, BELOW, also_unmatched=True) is RepairWay.OTHER_RECORDS


def test_what_stands_in_no_log_is_not_given_back() -> None:
    for kind, state in ((C.LOST_CLEARED, "cleared"), (C.LOST_RETIRED, "owned"), (C.LOST_UNREGISTERED, None)):
        assert way(lost(1, kind, state, log=None), PRESENT) is RepairWay.NO_INPUT


def test_what_a_backfill_wrote_is_left_alone() -> None:
    for state in ("cleared", "owned"):
        kind = C.LOST_CLEARED if state == "cleared" else C.LOST_OWNED
        assert way(lost(1, kind, state, slot="backfill-east-12ab"), PRESENT) is RepairWay.BACKFILLED


def test_asked_before() -> None:
    """If the registry compares it is asked again, otherwise not."""
    cleared, absent = lost(1), lost(1, C.LOST_UNREGISTERED, None)
    assert way(cleared, PRESENT, EarlierRepairs.ASKED_YOUNG) is RepairWay.REOPEN
    assert way(cleared, BELOW, EarlierRepairs.ASKED_YOUNG) is RepairWay.IN_DOUBT
    assert way(cleared, PRESENT, EarlierRepairs.ASKED_OLD) is RepairWay.IN_DOUBT
    assert way(absent, BELOW, EarlierRepairs.ASKED_OLD) is RepairWay.IN_DOUBT
    # The registry leaves known ids alone.
    assert way(absent, ABSENT, EarlierRepairs.ASKED_OLD) is RepairWay.REPLAY
    assert way(lost(1, C.LOST_OWNED, "owned"), PRESENT, EarlierRepairs.ASKED_OLD) is RepairWay.SLOT_DOWN


def test_young() -> None:
    assert young(0, 10**18, None, 10)
    assert young(91, 100, 20, 10)
    assert not young(90, 100, 20, 10)

"""Differences between the dispatchers' ledger and a verification's counts, with their explanations."""

from __future__ import annotations

import pytest

from photon.spark.classes import Class
from photon.spark.ledger_check import CountedGroup, CountedHour, compare, folded, unexplained
from photon.spark.verify.figures import ClassCount, LedgerLine

RIGHT = {"read": 100, "joined": 60, "unmatched": 2, "filtered": 3, "late": 1, "rejected": 4, "elsewhere": 30}
# Records filtered by the foreign side alone leave no line.
RECORDS = {"joined": 60, "unmatched": 2, "late": 1, "rejected": 4}


def differing(
    counted: CountedHour, *findings: ClassCount, **ledger: int
) -> list[tuple[str, int, int, dict[str, int], int]]:
    line = LedgerLine(5, "east", RIGHT | ledger)
    found = compare([line], {(5, "east"): counted}, findings)
    return [(each.name, each.ledger, each.counted, dict(each.explained), each.unexplained) for each in found]


def test_what_agrees_is_not_told() -> None:
    assert differing(CountedHour(100, 0, RECORDS)) == []
    assert differing(CountedHour(100, 0, RECORDS | {"filtered": 2})) == []
    assert compare([], {(5, "east"): CountedHour(7)}, []) == [], "no ledger, nothing to compare with"


def test_a_missing_record_is_a_finding_unless_the_verification_found_it_lost() -> None:
    fewer = CountedHour(100, 0, RECORDS | {"joined": 57})
    assert differing(fewer) == [("joined", 60, 57, {}, 3)]
    lost = ClassCount(5, "west", Class.LOST_CLEARED, 2)
    assert differing(fewer, lost) == [("joined", 60, 57, {"lost or pending": 2}, 1)]
    assert differing(fewer, lost, ClassCount(5, "east", Class.PENDING, 1))[0][4] == 0
    assert differing(fewer, reread=3)[0][3:] == ({"read again": 3}, 0)
    assert differing(fewer, ClassCount(6, "east", Class.LOST_CLEARED, 3))[0][4] == 3, "of another hour"


@pytest.mark.parametrize(
    ("counted", "ledger", "why"),
    [
        (CountedHour(100, 0, RECORDS | {"joined": 63}, fresh=3), {}, "written since"),
        (CountedHour(100, 0, RECORDS | {"joined": 63}), {"pending": 3, "elsewhere": 27}, "pending"),
        (CountedHour(100, 0, RECORDS | {"joined": 63}), {"reread": 3}, "read again"),
        (CountedHour(100, 0, RECORDS | {"joined": 63}, backfilled=3), {}, "backfilled"),
        (CountedHour(100, 0, RECORDS | {"joined": 63}, unnamed=3), {}, "in unlisted files"),
    ],
)
def test_more_records_than_the_ledger_has(counted: CountedHour, ledger: dict[str, int], why: str) -> None:
    [(_, _, _, explained, left)] = differing(counted, **ledger)
    assert (explained, left) == ({why: 3}, 0)
    more = CountedHour(100, 0, RECORDS | {"joined": 66}, fresh=counted.fresh)
    assert differing(more, **ledger)[0][4] >= 3


def test_a_record_that_somebody_changed_stands_in_another_hour_or_log() -> None:
    fewer, more = (CountedHour(100, 0, RECORDS | {"joined": count}) for count in (59, 61))
    here = ClassCount(5, "east", Class.WRONGLY_JOINED, 1), ClassCount(5, "east", Class.PRIMARY_EXISTS, 1)
    for changed in (*here, ClassCount(6, "east", Class.WRONGLY_JOINED, 1)):
        [(_, _, _, explained, left)] = differing(more, changed)
        assert (explained, left) == ({"written otherwise": 1}, 0)
        assert differing(fewer, changed)[0][4] == (0 if changed in here else 1)
    assert differing(more, ClassCount(6, "east", Class.PRIMARY_EXISTS, 1))[0][4] == 1


def test_what_was_given_back_may_be_joined_elsewhere() -> None:
    """East lost three records that west has joined again; only west has read them again."""
    ledger = [LedgerLine(5, "east", RIGHT), LedgerLine(5, "west", RIGHT | {"reread": 3})]
    fewer, more = CountedHour(100, 0, RECORDS | {"joined": 57}), CountedHour(100, 0, RECORDS | {"joined": 63})
    found = compare(ledger, {(5, "east"): fewer, (5, "west"): more}, [])
    assert [(each.datacentre, each.explained, each.unexplained) for each in found] == [
        ("east", {"read again": 3}, 0), ("west", {"read again": 3}, 0),
    ]  # fmt: skip


def test_lines_that_were_not_read() -> None:
    assert differing(CountedHour(110, 10, RECORDS)) == [("read", 100, 110, {"not read yet": 10}, 0)]
    assert differing(CountedHour(110, 4, RECORDS)) == [("read", 100, 110, {"not read yet": 4}, 6)], "skipped?"
    assert differing(CountedHour(40, 0, RECORDS)) == [], "the log was deleted since"


def test_an_hour_that_the_ledger_does_not_know() -> None:
    lines = [LedgerLine(4, "east", RIGHT)]
    found = compare(lines, {(5, "east"): CountedHour(7), (5, "west"): CountedHour(9)}, [])
    assert [(each.datacentre, each.name, each.unexplained) for each in found] == [("east", "read", 7)]


def test_rows_are_counted_by_hour_and_datacentre() -> None:
    found = folded([
        CountedGroup(5, "east", 0, "joined", False, None, None, None, 90),
        CountedGroup(5, "east", 0, "unmatched", True, None, None, None, 10),
        CountedGroup(5, "east", 1, "joined", None, False, None, True, 60),
        CountedGroup(5, "east", 1, "joined", None, True, None, None, 3),
        CountedGroup(5, "east", 2, "joined", None, None, None, None, 70),
        CountedGroup(5, None, 1, "joined", None, None, None, None, 1),
        CountedGroup(6, "west", 1, "late", None, None, None, None, 2),
    ])  # fmt: skip
    assert found == {
        (5, "east"): CountedHour(100, 10, {"joined": 63}, 0, 3, 60),
        (6, "west"): CountedHour(0, 0, {"late": 2}, 0, 0),
    }


def test_a_ledger_that_does_not_balance() -> None:
    found = compare(
        [LedgerLine(5, "east", RIGHT | {"elsewhere": 29})], {(5, "east"): CountedHour(100, 0, RECORDS)}, []
    )
    assert [(each.name, each.unexplained) for each in unexplained(found)] == [("balance", 1)]

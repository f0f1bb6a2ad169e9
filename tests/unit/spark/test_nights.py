"""The record left by nights, and the day from which the next one starts."""

from __future__ import annotations

import time
from itertools import pairwise
from pathlib import Path

import pytest

from photon.cli.units import given_ns
from photon.config.disk import RealDisk
from photon.config.errors import UsageError
from photon.spark.verify.days import pieces_of
from photon.spark.verify.figures import HOURS_A_DAY, piece_text
from photon.spark.verify.nights import FIRST_DAYS_MAX, Night, Nights, chosen, files_by_side, latest_hour

DAY = 20_600
FILES = {"east": {"foreign": 3, "primary": 2, "output": 0}}


def hour(day: float) -> int:
    return int((DAY + day) * HOURS_A_DAY)


def night(begin: float, end: float, *, closed: bool = True, events: int = 10) -> Night:
    return Night(begin=hour(begin), end=hour(end), events={"east": events}, files=FILES, closed=closed)


def nights(*each: Night) -> Nights:
    found = Nights([])
    found.add(each)
    return found


@pytest.mark.parametrize(
    ("known", "first"),
    [
        ([], None),
        ([night(0, 1)], 1),
        ([night(0, 1), night(1, 2)], 2),
        ([night(0, 1), night(1, 2, closed=False), night(2, 3)], 1),
        ([night(0, 1), night(3, 4)], 1),  # days that no night was asked for
        ([night(0, 1, closed=False)], 0),
        ([night(0, 1, closed=False), night(0, 1)], 1),  # judged again
        ([night(0, 1), night(0, 1, closed=False)], 0),  # something is pending that was right
        ([night(0, 0.5), night(0.5, 1)], 1),
        ([night(0, 1), night(0.25, 0.5, closed=False)], 0.25),
        ([night(0.25, 0.5, closed=False), night(0, 1)], 1),
    ],
)  # fmt: skip
def test_the_oldest_open_day(known: list[Night], first: float | None) -> None:
    found = Nights([])
    for each in known:
        found.add([each])
    assert found.first_open() == (None if first is None else hour(first))


NOON = hour(5.5)
OPEN = nights(night(0, 1), night(1, 2, closed=False), night(2, 3))
CLOSED = nights(night(0, 5))


@pytest.mark.parametrize(
    ("begin", "end", "known", "ledgers", "expected", "why"),
    [
        (None, None, OPEN, [], (1, 5), "oldest day that is not closed"),
        (None, None, nights(night(0, 1.5)), [], (1, 5), "oldest day that is not closed"),
        (None, 4, OPEN, [], (1, 4), "oldest day that is not closed"),
        (None, None, CLOSED, [], (4, 5), "all days are closed"),
        (None, None, nights(), [], (4, 5), "without a dispatcher's ledger"),
        (None, None, nights(), [hour(2.5), hour(3)], (2, 5), "ledgers begin there"),
        (None, None, nights(), [hour(5.25)], (4, 5), "ledgers begin there"),
        (None, None, nights(), [0], (5 - FIRST_DAYS_MAX, 5), "1970-01-01 00:00: name --from"),
        (5, None, OPEN, [], (5, 5.5), ""),  # the last hour that can be judged
        (0, 5.5, OPEN, [], (0, 5.5), ""),
    ],
)
def test_what_a_night_takes(
    begin: float | None, end: float | None, known: Nights, ledgers: list[int], expected: tuple[float, float], why: str
) -> None:
    given = (None if each is None else hour(each) for each in (begin, end))
    found = chosen(*given, NOON, known, ledgers)
    assert (found.begin, found.end) == tuple(map(hour, expected))
    assert why in found.why
    assert bool(why) == bool(found.why)


@pytest.mark.parametrize(
    ("begin", "end", "said"),
    [
        (None, 5.75, r"--to 2026-06-01 18:00: .* name 2026-06-01T12:00 or earlier"),
        (4, 6, "may still wait"),
        (3, 3, "--from 2026-05-30 00:00: must be before"),
        (6, None, "must be before"),
    ],
)
def test_what_cannot_be_judged_is_refused(begin: float | None, end: float | None, said: str) -> None:
    given = (None if each is None else hour(each) for each in (begin, end))
    with pytest.raises(UsageError, match=said):
        chosen(*given, NOON, CLOSED, [])


def test_the_last_hour_that_can_be_judged() -> None:
    assert latest_hour(10 * 3600 * 10**9, 0) == 9
    assert latest_hour(10 * 3600 * 10**9, 1) == 8
    assert latest_hour(10 * 3600 * 10**9, 2 * 3600) == 7


def test_what_is_usual_is_the_median_of_closed_days_before() -> None:
    known = nights(*(night(day, day + 1, events=10 * day) for day in (1, 2, 9)), night(3, 4, closed=False, events=0))
    assert known.usual((hour(10), hour(11)), "east") == 20
    assert known.usual((hour(3), hour(4)), "east") == 15, "nothing later"
    assert known.usual((hour(10), hour(10.5)), "east") is None, "nothing as short"
    assert known.usual((hour(10), hour(11)), "west") is None
    assert known.had_files("east", "foreign")
    assert not known.had_files("east", "output")
    assert not known.had_files("west", "foreign")


def test_nights_are_kept(tmp_path: Path) -> None:
    assert Nights.known(tmp_path).nights == []
    known = nights(night(0, 1), night(1, 2, closed=False))
    known.write(RealDisk(), tmp_path / "kept")
    assert Nights.known(tmp_path / "kept") == known
    (tmp_path / "nights.json").write_bytes(b"{")
    with pytest.raises(UsageError, match=r"nights\.json: .*cannot be read.*--from"):
        Nights.known(tmp_path)


def test_files_are_counted_by_side() -> None:
    found = files_by_side([("foreign", "east"), ("foreign", "east"), ("registry", ""), ("output", "gone")], ["east"])
    assert found == {"east": {"foreign": 2, "primary": 0, "output": 0}}


@pytest.mark.parametrize("days", [
    ["2026-03-28", "2026-03-29", "2026-03-30"], ["2026-10-24", "2026-10-25", "2026-10-26"],
    ["2028-02-28", "2028-02-29", "2028-03-01"], ["2027-02-28", "2027-03-01"],
])  # fmt: skip
def test_days_have_24_hours_wherever_it_runs(monkeypatch: pytest.MonkeyPatch, days: list[str]) -> None:
    """Clocks change on two of them, and one is a leap day."""
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        hours = [given_ns("--from", day, 1 << 62) // 3_600_000_000_000 for day in days]
        assert pieces_of(hours[0], hours[-1]) == list(pairwise(hours))
        assert [piece_text(*at) for at in pairwise(hours)] == days[:-1]
    finally:
        monkeypatch.undo()
        time.tzset()

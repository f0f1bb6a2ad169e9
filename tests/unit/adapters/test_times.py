"""Event times: exact, range-checked, and independent of the machine's own zone."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from photon.adapters import times
from photon.adapters.contract import LogFile
from photon.adapters.times import (
    Iso8601Time,
    NumberTime,
    PatternTime,
    YearlessTime,
    rfc3339_us,
    zone_named,
)
from photon.config.clock import NEVER_NS


@given(st.integers(-(2**70), 2**70))
@settings(deadline=None)
def test_integers_keep_the_range_of_int64(value: int) -> None:
    reader = NumberTime("ns")
    if -NEVER_NS <= value < NEVER_NS:
        assert reader.from_int(value) == reader.from_text(b"%d" % value) == value
    else:
        with pytest.raises(ValueError, match="out of the range"):
            reader.from_int(value)


@given(st.integers(0, 9_223_372_035), st.integers(0, 999_999_999))
@settings(deadline=None)
def test_any_nine_digits_are_exact(seconds: int, ns: int) -> None:
    assert NumberTime("s").from_text(b"%d.%09d" % (seconds, ns)) == seconds * 10**9 + ns


@given(
    st.sampled_from(["2024-03-01T10:00:00", "20240301T100000.123"]),
    st.lists(
        st.sampled_from([".", ",", ".5", ".123456789", ".0000000019", "Z", "z", "+02:00", " ", "x"]), max_size=4
    ),
)
@example("20240301T100000.123", [".5", "Z"])
def test_a_second_that_was_met_before_is_read_as_ever(known: str, behind: list[str]) -> None:
    met = Iso8601Time()
    met.from_text(b"2024-03-01T10:00:00.5Z")
    met.from_text(b"20240301T100000.123Z")
    text = "".join([known, *behind]).encode()
    try:
        expected = Iso8601Time().from_text(text)
    except ValueError as error:
        with pytest.raises(ValueError, match=re.escape(str(error))):
            met.from_text(text)
    else:
        assert met.from_text(text) == expected


@given(st.datetimes(datetime(1700, 1, 1), datetime(2200, 1, 1)), st.integers(-14 * 60, 14 * 60))
@settings(deadline=None)
def test_iso_and_pattern_agree_with_datetime(at: datetime, minutes: int) -> None:
    aware = at.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    expected = (aware - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 1000
    assert Iso8601Time().from_text(aware.isoformat().encode()) == expected
    text = aware.strftime("%d/%b/%Y:%H:%M:%S.%f %z").encode()
    assert PatternTime("%d/%b/%Y:%H:%M:%S.%f %z").from_text(text) == expected


def test_caches_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(times, "CACHED_SECONDS_MAX", 3)
    reader = PatternTime("%Y-%m-%d")
    days = [b"2018-02-%02d" % day for day in range(1, 20)]
    first = [reader.from_text(day) for day in days]
    assert [reader.from_text(day) for day in days] == first
    assert len(reader._seconds) <= 3


def test_zones() -> None:
    assert zone_named("UTC") is UTC
    assert zone_named("-03:30").utcoffset(None) == timedelta(hours=-3, minutes=-30)
    for name in ("Europa/Berlin", "", "../etc/passwd", "+99:00"):
        with pytest.raises(ValueError, match=r"tzdata|out of range"):
            zone_named(name)


def test_counts_of_100_ns_from_their_own_origins() -> None:
    ns = 1_709_280_309_123_456_000
    assert NumberTime("filetime").from_text(b"133537539091234560") == ns
    assert NumberTime("ticks").many([638_448_771_091_234_560]) == [ns]


def of(first: bytes, text: bytes, year: int | None, path: str = "messages") -> str:
    reader = YearlessTime("%b %e %H:%M:%S", UTC, year).of_file(LogFile(path, first))
    return rfc3339_us(reader.from_text(text))[:10]


def test_a_month_before_the_first_lines_is_of_the_next_year() -> None:
    first = b"Nov 30 23:59:59 gate sshd[1]: x"
    assert [of(first, text, 2025) for text in (b"Nov  1 00:00:00", b"Dec 31 23:59:59", b"Jan  1 00:00:00")] == [
        "2025-11-01", "2025-12-31", "2026-01-01",
    ]  # fmt: skip
    with pytest.raises(ValueError, match=r"has no year, and its file's first line, 'started', has no month"):
        of(b"started", b"Jan  1 00:00:00", 2025)


def test_the_date_in_a_files_name_gives_the_nearest_year() -> None:
    for path in ("syslog-20260102", "old/syslog.2026-01-02.gz", "syslog-2026010213", "syslog_202601.log"):
        assert [of(b"", text, None, path) for text in (b"Dec 31 23:59:59", b"Jan  1 00:00:00")] == [
            "2025-12-31", "2026-01-01",
        ]  # fmt: skip
    assert of(b"", b"Jan  1 00:00:00", None, "syslog-20251231") == "2026-01-01"
    with pytest.raises(ValueError, match=r"there is no date in the name 'a2026/messages'"):
        of(b"", b"Jan  1 00:00:00", None, "a2026/messages")


def test_a_leap_day_is_one_only_in_its_year() -> None:
    assert of(b"Dec  1 00:00:00", b"Feb 29 00:00:00", 2023) == "2024-02-29"
    with pytest.raises(ValueError, match="is not a date"):
        of(b"Dec  1 00:00:00", b"Feb 29 00:00:00", 2024)


def test_written_times_have_microseconds() -> None:
    assert rfc3339_us(1_588_206_048_592_985_999) == "2020-04-30T00:20:48.592985Z"
    assert rfc3339_us(-1) == "1969-12-31T23:59:59.999999Z"
    assert rfc3339_us(0) == "1970-01-01T00:00:00.000000Z"

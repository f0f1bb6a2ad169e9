"""Event times: exact, range-checked, and independent of the machine's own zone."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from photon.adapters import times
from photon.adapters.contract import LogFile
from photon.adapters.times import (
    Iso8601Time,
    NumberTime,
    PatternTime,
    Tai64nTime,
    YearlessTime,
    origin_ns,
    rfc3339_us,
    zone_named,
)
from photon.config.clock import NEVER_NS

NEW_YORK = zone_named("America/New_York")
MIDNIGHT = 1_340_251_200_000_000_000  # 2012-06-21 00:00 in New York


@pytest.mark.parametrize(
    ("unit", "text", "ns"),
    [
        ("s", b"1588206048.592985", 1_588_206_048_592_985_000),
        ("s", b"1588316991.3176439", 1_588_316_991_317_643_900),
        ("s", b"1588206048", 1_588_206_048_000_000_000),
        ("s", b"0.1234567899", 123_456_789),
        ("s", b"-1.5", -1_500_000_000),
        ("s", b"+2", 2_000_000_000),
        ("s", b"3.", 3_000_000_000),
        ("s", b"1.5e3", 1_500_000_000_000),
        ("s", b"15E-1", 1_500_000_000),
        ("ms", b"1588206048592.985", 1_588_206_048_592_985_000),
        ("us", b"1588206048592985", 1_588_206_048_592_985_000),
        ("us", b"1.0009", 1000),
        ("ns", b"1588206048592985001", 1_588_206_048_592_985_001),
        ("ns", b"7.9", 7),
    ],
)
def test_numbers_are_read_to_the_nanosecond_and_cut_there(unit: str, text: bytes, ns: int) -> None:
    assert NumberTime(unit).from_text(text) == ns


@pytest.mark.parametrize("text", [b"34200.00426064", b"35821.088778456004", b"35615.6065", b"34200.004241176"])
def test_seconds_after_midnight_in_new_york(text: bytes) -> None:
    whole, fraction = text.split(b".")
    expected = MIDNIGHT + int(whole) * 10**9 + int((fraction + b"0" * 9)[:9])
    assert NumberTime("s", origin_ns("2012-06-21", NEW_YORK)).from_text(text) == expected


@pytest.mark.parametrize(
    "text", [b"", b"abc", b"1,5", b"1.2.3", b"0x10", b"1e99999", b"1e31", b"nan", b"1 ", b"9" * 81]
)
def test_what_is_no_number_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"number|range|longer"):
        NumberTime("s").from_text(text)


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


@pytest.mark.parametrize(
    ("text", "iso"),
    [
        (b"2018-02-26", "2018-02-26T00:00:00+00:00"),
        (b"2018-02-26 19:58:54", "2018-02-26T19:58:54+00:00"),
        (b"2018-02-26T19:58", "2018-02-26T19:58:00+00:00"),
        (b"2018-02-26T19:58:54Z", "2018-02-26T19:58:54+00:00"),
        (b"2018-02-26T19:58:54.25+02:00", "2018-02-26T17:58:54.250000+00:00"),
        (b"2018-02-26 19:58:54,125 -0530", "2018-02-27T01:28:54.125000+00:00"),
        (b"1969-12-31T23:59:59.5Z", "1969-12-31T23:59:59.500000+00:00"),
        (b"2016-12-31T23:59:60Z", "2017-01-01T00:00:00+00:00"),
    ],
)
def test_iso_8601(text: bytes, iso: str) -> None:
    expected = (datetime.fromisoformat(iso) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 1000
    reader = Iso8601Time()
    assert reader.from_text(text) == expected
    assert reader.from_text(text) == expected  # now from the cache


@pytest.mark.parametrize(
    "text",
    [b"", b"2018-13-01", b"2018-02-30", b"2018-2-3", b"2018-02-26T25:00", b"2018-02-26T10:61", b"2018-02-26T10:00:61",
     b"2018-02-26T10:00.5", b"20180226", b"2018-02-26Tx", b"9999-01-01", b"2018-02-26T10:00+99:00", b"0000-01-01"],
)  # fmt: skip
def test_what_is_no_iso_8601_is_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match=r"ISO 8601|no date|no time|fraction|range"):
        Iso8601Time().from_text(text)


def test_digits_below_the_nanosecond_are_cut() -> None:
    assert Iso8601Time().from_text(b"1970-01-01T00:00:00.123456789999Z") == 123_456_789


@given(
    st.lists(st.sampled_from([".", ",", ".5", ".123456789", ".0000000019", "Z", "z", "+02:00", " ", "x"]), max_size=4)
)
def test_a_second_that_was_met_before_is_read_as_ever(behind: list[str]) -> None:
    met = Iso8601Time()
    met.from_text(b"2024-03-01T10:00:00.5Z")
    text = "".join(["2024-03-01T10:00:00", *behind]).encode()
    try:
        expected = Iso8601Time().from_text(text)
    except ValueError as error:
        with pytest.raises(ValueError, match=re.escape(str(error))):
            met.from_text(text)
    else:
        assert met.from_text(text) == expected


def test_naive_times_are_in_the_configured_zone() -> None:
    reader = Iso8601Time(NEW_YORK)
    assert reader.from_text(b"2012-06-21") == MIDNIGHT
    assert reader.from_text(b"2012-01-21T00:00:00") == 1_327_122_000 * 10**9  # winter
    assert reader.from_text(b"2012-06-21T00:00:00Z") == MIDNIGHT - 4 * 3600 * 10**9
    # 01:30 occurs twice on the day clocks are set back: the first one counts.
    assert reader.from_text(b"2012-11-04T01:30:00") == 1_352_007_000 * 10**9


@given(st.datetimes(datetime(1700, 1, 1), datetime(2200, 1, 1)), st.integers(-14 * 60, 14 * 60))
@settings(deadline=None)
def test_iso_and_pattern_agree_with_datetime(at: datetime, minutes: int) -> None:
    aware = at.replace(tzinfo=timezone(timedelta(minutes=minutes)))
    expected = (aware - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1) * 1000
    assert Iso8601Time().from_text(aware.isoformat().encode()) == expected
    text = aware.strftime("%d/%b/%Y:%H:%M:%S.%f %z").encode()
    assert PatternTime("%d/%b/%Y:%H:%M:%S.%f %z").from_text(text) == expected


@pytest.mark.parametrize(
    ("pattern", "text", "iso"),
    [
        ("%Y-%m-%d %H:%M:%S", b"2018-02-26 19:58:54", "2018-02-26T19:58:54"),
        ("%d/%b/%Y:%H:%M:%S %z", b"10/Oct/2000:13:55:36 -0700", "2000-10-10T20:55:36"),
        ("%F %T", b"2018-02-26 19:58:54", "2018-02-26T19:58:54"),
        ("%m/%d/%y %I:%M %p", b"2/6/18 12:05 AM", "2018-02-06T00:05:00"),
        ("%m/%d/%y %I:%M %p", b"2/6/70 12:05 pm", "1970-02-06T12:05:00"),
        ("%a %b %e %H:%M:%S %Y", b"Mon Feb  5 10:00:00 2018", "2018-02-05T10:00:00"),
        ("%Y%j", b"2020366", "2020-12-31T00:00:00"),
        ("100%% %Y.%m.%d", b"100% 2020.12.31", "2020-12-31T00:00:00"),
    ],
)
def test_patterns(pattern: str, text: bytes, iso: str) -> None:
    expected = int((datetime.fromisoformat(iso) - datetime(1970, 1, 1)).total_seconds()) * 10**9
    reader = PatternTime(pattern)
    assert reader.from_text(text) == expected
    assert reader.from_text(text) == expected


@pytest.mark.parametrize(
    ("pattern", "text"),
    [("%Y-%m-%d", b"2018-02-31"), ("%Y-%m-%d", b"2018-02-3x"), ("%Y%j", b"2019366"), ("%Y%j", b"2019000"),
     ("%Y-%m-%d", b""), ("%Y-%m-%d", b"2018-02-03" + b" " * 60)],
)  # fmt: skip
def test_what_a_pattern_does_not_fit_is_refused(pattern: str, text: bytes) -> None:
    with pytest.raises(ValueError, match=r"does not have the format|no date"):
        PatternTime(pattern).from_text(text)


@pytest.mark.parametrize(
    ("pattern", "why"),
    [("%Y-%m", "whole date"), ("%H:%M", "whole date"), ("%Y-%m-%d %Q", "%Q"), ("%Y-%m-%d%", "which is not"),
     ("%Y %Y-%m-%d", "twice"), ("%Y-%m-%d %I", "%p together")],
)  # fmt: skip
def test_wrong_patterns_are_refused_at_once(pattern: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        PatternTime(pattern)


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


@pytest.mark.parametrize(
    ("text", "iso"),
    [
        (b"20240301T080509Z", "2024-03-01T08:05:09+00:00"),
        (b"20240301T090509.5+0100", "2024-03-01T08:05:09.500000+00:00"),
        (b"2024-03-01t08:05:09z", "2024-03-01T08:05:09+00:00"),
        (b"2024-03-01T09:05:09.25+01:00[Europe/Paris]", "2024-03-01T08:05:09.250000+00:00"),
    ],
)
def test_other_forms_of_iso_8601(text: bytes, iso: str) -> None:
    assert Iso8601Time().from_text(text) == round(datetime.fromisoformat(iso).timestamp() * 1000) * 10**6


@pytest.mark.parametrize("text", [b"20240301", b"2024030108", b"20240301T0805", b"2024-03-01T08:05:09[Europe/Paris]"])
def test_forms_that_may_mean_something_else_are_refused(text: bytes) -> None:
    with pytest.raises(ValueError, match="is not ISO 8601"):
        Iso8601Time().from_text(text)


def test_counts_of_100_ns_from_their_own_origins() -> None:
    ns = 1_709_280_309_123_456_000
    assert NumberTime("filetime").from_text(b"133537539091234560") == ns
    assert NumberTime("ticks").many([638_448_771_091_234_560]) == [ns]


def test_tai64n_is_as_multilog_writes_it() -> None:
    # multilog's label of 2024-03-01T08:05:09.123456: 2**62 + 10 + the Unix time
    text = b"@%016x%08x" % ((1 << 62) + 10 + 1_709_280_309, 123_456_000)
    assert Tai64nTime().from_text(text) == 1_709_280_309_123_456_000
    assert Tai64nTime().from_text(text[:17]) == 1_709_280_309_000_000_000
    for wrong in (b"4000000065e18c7f075bca00", b"@4000000065e18c7fffffffff", b"@c000000065e18c7f075bca00"):
        with pytest.raises(ValueError, match="is not TAI64N"):
            Tai64nTime().from_text(wrong)


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
    with pytest.raises(ValueError, match="is no date"):
        of(b"Dec  1 00:00:00", b"Feb 29 00:00:00", 2024)


def test_written_times_have_microseconds() -> None:
    assert rfc3339_us(1_588_206_048_592_985_999) == "2020-04-30T00:20:48.592985Z"
    assert rfc3339_us(-1) == "1969-12-31T23:59:59.999999Z"
    assert rfc3339_us(0) == "1970-01-01T00:00:00.000000Z"

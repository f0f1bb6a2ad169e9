"""Texts that are times, judged by their format and the names of their fields."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence

from photon.adapters.side import TimeConfig
from photon.adapters.times import UNIT_EXPONENTS, UNIT_ORIGINS_NS, Iso8601Time, PatternTime
from photon.config.clock import NS_PER_S

NAMES = ("event_time", "eventtime", "@timestamp", "timestamp", "ts", "time", "datetime", "date", "at")
_SUFFIX = re.compile(
    r"(?i:(?:^|[_.@-])(?:at|on|ts|time|date|datetime|timestamp|created|occurred|logged)(?:_?(?:s|ms|us|ns))?$)|"
    r"[a-z](?:At|On|Time|Date|Timestamp)(?:Ms|Us|Ns)?$"
)
_TYPE = re.compile(r"(?<=.)(?:\.(?:[SN]|\$(?:date|oid|uuid|timestamp|number[A-Z][a-z]+)))+$")
_PATTERNS = (
    "%d/%b/%Y:%H:%M:%S %z",
    "%Y/%m/%d %H:%M:%S",
    "%m/%d/%Y %H:%M:%S",
    "%d/%m/%Y %H:%M:%S",
    "%d.%m.%Y %H:%M:%S",
    "%a, %d %b %Y %H:%M:%S %z",
    "%a, %d %b %Y %H:%M:%S GMT",
    "%d/%b/%Y:%H:%M:%S.%f",
    "%a %b %e %H:%M:%S %Y",
    "%a %b %e %H:%M:%S.%f %Y",
    "%Y-%m-%d %H:%M:%S UTC",
    "%Y-%m-%d %H:%M:%S.%f %z UTC",
)
_YEARLESS = ("%b %e %H:%M:%S", "%b %e %H:%M:%S.%f", "%d %b %H:%M:%S", "%m/%d %H:%M:%S", "%m-%d %H:%M:%S.%f")
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_TEXT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ].*)?|[0-9]{1,2}[/.][0-9A-Za-z]{2,3}[/.][0-9]{4}[: ].*")
EPOCH_S = (631_152_000, 2_524_608_000)  # from 1990 to 2050
# Ticks before nanoseconds: those from 2000 to 2050 would be nanoseconds of the first half of 1990.
_UNITS = ("s", "ms", "us", "filetime", "ticks", "ns")
_SINCE_S = {"ticks": 946_684_800}  # 2000
DAY_S = 86_400
RISING_SHARE = 0.95


def is_moment(text: str) -> bool:
    """True if ``text`` is almost certainly a time."""
    return _TEXT.fullmatch(text) is not None and format_of([text]) != ()


def time_like(values: Sequence[str]) -> bool:
    """True if all values can be read as times in a known way."""
    return bool(values) and (unit_of(values) is not None or format_of(values) != ())


def untyped(name: str) -> str:
    """Returns a field's name without the type that MongoDB and DynamoDB put below it: ``at.$date``, ``at.N``."""
    return _TYPE.sub("", name)


def is_named_time(name: str) -> bool:
    name = untyped(name)
    leaf = name.rpartition(".")[2]
    return leaf.lower() in NAMES or _SUFFIX.search(name) is not None


def time_of(name: str, values: Sequence[str]) -> TimeConfig | None:
    """Returns how to read a field's values as times; ``None`` if they are not times, or can be read in two ways."""
    if (unit := unit_of(values)) is not None:
        return TimeConfig(field=name, unit=unit)
    formats = format_of(values)
    return TimeConfig(field=name, format=formats[0]) if len(formats) == 1 else None


def seconds_of_a_day(values: Sequence[str]) -> bool:
    """True for increasing numbers that seem to be seconds since a midnight. Their day has to be configured."""
    if not values or not all(map(_NUMBER.fullmatch, values)) or not any("." in value for value in values):
        return False
    return rises(values) and all(float(value) < DAY_S for value in values) and float(values[-1]) > 60


def unit_of(values: Sequence[str]) -> str | None:
    if not all(map(_NUMBER.fullmatch, values)):
        return None
    low, high = (int(pick(float(value) for value in values)) for pick in (min, max))
    for unit in _UNITS:
        power, origin_ns = 10 ** UNIT_EXPONENTS[unit], UNIT_ORIGINS_NS.get(unit, 0)
        since_ns, until_ns = _SINCE_S.get(unit, EPOCH_S[0]) * NS_PER_S, EPOCH_S[1] * NS_PER_S
        if since_ns <= low * power + origin_ns and high * power + origin_ns <= until_ns:
            return unit
    return None


def yearless(values: Sequence[str]) -> str:
    """Returns the format of times without a year, as in classic syslog; empty for other values."""
    return next(
        (each for each in _YEARLESS if values and _all_read(PatternTime(each, year_of=_leap).from_text, values)), ""
    )


def format_of(values: Sequence[str]) -> tuple[str, ...]:
    """Returns all formats that fit every value."""
    if not values or _NUMBER.fullmatch(values[0]):
        return ()
    if _all_read(Iso8601Time().from_text, values):
        return ("iso8601",)
    return tuple(pattern for pattern in _PATTERNS if _all_read(PatternTime(pattern).from_text, values))


def _leap(month: int) -> int:
    return 2024


def _all_read(read: Callable[[bytes], int], values: Sequence[str]) -> bool:
    try:
        for value in values:
            read(value.encode("utf-8", "surrogateescape"))
    except ValueError:
        return False
    return True


def goes_up(values: Sequence[str]) -> bool:
    """True if the values hardly ever decrease."""
    numbers = list(map(float, values))
    up = sum(one <= other for one, other in itertools.pairwise(numbers))
    return len(numbers) > 2 and up >= RISING_SHARE * (len(numbers) - 1)


def rises(values: Sequence[str]) -> bool:
    """True if the values behave like a log's times: they hardly ever decrease, and do not count by ones."""
    numbers = list(map(float, values))
    counts = sum(other - one == 1 for one, other in itertools.pairwise(numbers))
    return goes_up(values) and counts < 0.8 * (len(numbers) - 1)

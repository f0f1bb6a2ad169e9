"""Event times: converts the text of a field to int64 nanoseconds UTC, exactly.

No float is ever involved: numbers are read as decimal text ("34200.00426064"), and digits beyond the nanosecond are
cut off (towards zero), so every datacentre derives the same time from the same bytes. Times that int64 nanoseconds
cannot hold (before 1677, after 2262) are errors of the record.

Readers raise ValueError with a reason that follows "time field NAME ...".
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from typing import TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from photon.batch.files import LogFile
from photon.config.clock import NEVER_NS, NS_PER_S

# unit -> power of ten that converts it to nanoseconds
UNIT_EXPONENTS = {"s": 9, "ms": 6, "us": 3, "ns": 0, "filetime": 2, "ticks": 2}
# Origins of units that have one of their own: 1601-01-01 (Windows), 0001-01-01 (.NET)
UNIT_ORIGINS_NS = {"filetime": -11_644_473_600 * NS_PER_S, "ticks": -62_135_596_800 * NS_PER_S}

NO_TIME_NS = 0  # 1970-01-01T00:00:00Z
WITHOUT_TIME = (
    "no event time: every event counts as 1970-01-01T00:00:00Z, which is the same for every reader (with "
    'time = "primary" its record has the primary event\'s time); so ids are kept permanently (registry.retention is '
    "not possible), and the output has no watermark"
)

TIME_TEXT_CHARS_MAX = 80  # no sensible time is longer; bounds the arithmetic on hostile input
EXPONENT_MAX = 30
ZEEK_MS_MIN = 10**11  # the year 5138 as seconds, 1973 as milliseconds
CACHED_SECONDS_MAX = 65_536  # size of a reader's cache of whole seconds: many events of one log share a second

FILES_MAX = 1024  # files whose year is remembered

_FRACTION_DIGITS = 9
_NUMBER = re.compile(rb"([+-]?)([0-9]+)(?:\.([0-9]*))?(?:[eE]([+-]?[0-9]{1,4}))?")
_OFFSET = re.compile(r"([+-])(\d\d):?(\d\d)?(?::?(\d\d))?")
_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
_ISO = re.compile(
    rb"([0-9]{4}-[0-9]{2}-[0-9]{2})(?:[Tt ]([0-9]{2}:[0-9]{2}(?::[0-9]{2})?)(?:[.,]([0-9]+))?)?"
    # Java repeats the offset as a zone's name, which adds nothing.
    rb" ?(?:(Z|z|[+-][0-9]{2}(?::?[0-9]{2})?)(?:\[[A-Za-z0-9/_+-]+\])?)?"
)
_ISO_BASIC = re.compile(rb"([0-9]{4})([0-9]{2})([0-9]{2})[Tt]([0-9]{2})([0-9]{2})([0-9]{2})(.*)")
_TAI64N = re.compile(rb"@(4[0-9a-f]{15})([0-9a-f]{8})?")
_TAI_EPOCH = (1 << 62) + 10  # as daemontools, runit and s6 write it: no leap seconds after 1972
_NAMED_DATE = re.compile(
    r"(?<![0-9])((?:19|20)[0-9]{2})[-_.]?(0[1-9]|1[0-2])(?:[-_.]?(?:0[1-9]|[12][0-9]|3[01])(?:[0-9]{2,6})?)?(?![0-9])"
)
_Place = TypeVar("_Place")
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")


class TimeReader(ABC):
    """Reads one field's text. A reader is built once from the configuration and keeps a bounded cache."""

    accepts_numbers: bool  # the field may hold a JSON number

    @abstractmethod
    def from_text(self, text: bytes) -> int:
        """Converts a field's text to nanoseconds UTC. Raises ValueError."""

    def from_int(self, value: int) -> int:
        """Converts an integer that was already parsed. Raises ValueError."""
        return self.from_text(b"%d" % value)

    def of_file(self, file: LogFile) -> TimeReader:
        """Returns the reader for one file's records."""
        return self

    def many(self, values: Sequence[int | str]) -> list[int]:
        """Converts a column of numbers and texts. Raises ValueError."""
        if not self.accepts_numbers and int in set(map(type, values)):
            raise ValueError("is a number")
        return [self.from_int(each) if type(each) is int else self.from_text(str(each).encode()) for each in values]


def zone_named(name: str) -> tzinfo:
    """Returns a time zone: "UTC", an offset such as "+02:00", or a name of the tz database. Raises ValueError."""
    if name in ("UTC", "Z", "GMT", "Etc/UTC"):
        return UTC
    offset = _OFFSET.fullmatch(name)
    if offset:
        return timezone(timedelta(seconds=_offset_seconds(name)))
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ValueError(
            f"{name!r} is not a time zone this machine knows; correct it (as in 'Europe/Berlin', 'UTC', '+02:00')"
            " or install the tz database (apt-get install tzdata, or pip install tzdata)"
        ) from None


def origin_ns(text: str, zone: tzinfo) -> int:
    """Returns the instant that numbers count from: a day ("2012-06-21", local midnight) or a local date and time."""
    try:
        return Iso8601Time(zone).from_text(text.encode())
    except ValueError:
        raise ValueError(f"{text!r} is not a day or time such as '2012-06-21' or '2012-06-21T09:30:00'") from None


class NumberTime(TimeReader):
    """A number of units since an origin (the epoch, or the local midnight of a given day).

    Counting from a local midnight means elapsed time: on a day with a clock change it differs from the wall clock.
    """

    accepts_numbers = True

    def __init__(self, unit: str, origin: int = 0) -> None:
        self._exponent = UNIT_EXPONENTS[unit]
        self._factor = 10**self._exponent
        self._unit = unit
        self._origin = origin + UNIT_ORIGINS_NS.get(unit, 0)

    def from_int(self, value: int) -> int:
        return _checked(value * self._factor + self._origin)

    def many(self, values: Sequence[int | str]) -> list[int]:
        factor, origin = self._factor, self._origin
        numbers = [each * factor + origin for each in values if type(each) is int]
        if len(numbers) < len(values):
            return super().many(values)
        _checked(min(numbers, default=0))
        _checked(max(numbers, default=0))
        return numbers

    def from_text(self, text: bytes) -> int:
        if len(text) > TIME_TEXT_CHARS_MAX:
            raise ValueError(f"is longer than {TIME_TEXT_CHARS_MAX} characters")
        whole, dot, fraction = text.partition(b".")
        if self._exponent == _FRACTION_DIGITS and whole.isdigit() and (fraction.isdigit() or not dot):
            # The common case, several times faster than the pattern: plain seconds.
            return _checked(int(whole) * NS_PER_S + int(fraction[:9].ljust(9, b"0")) + self._origin)
        match = _NUMBER.fullmatch(text)
        if match is None:
            raise ValueError(f"= {shown(text)} is not a number of {self._unit}")
        sign, whole, fraction, exponent = match.groups()
        fraction = fraction or b""
        power = int(exponent or 0)
        if abs(power) > EXPONENT_MAX:
            raise ValueError(f"= {shown(text)} is out of range")
        digits = int(whole + fraction)
        shift = self._exponent + power - len(fraction)
        ns = digits * 10**shift if shift >= 0 else digits // 10**-shift
        return _checked((-ns if sign == b"-" else ns) + self._origin)


class FoundTime(TimeReader):
    """A time that is part of the field's text: the first group of a pattern, or the pattern's whole match."""

    def __init__(self, pattern: re.Pattern[bytes], time: TimeReader) -> None:
        self._pattern, self._time = pattern, time
        self.accepts_numbers = time.accepts_numbers

    def from_text(self, text: bytes) -> int:
        match = self._pattern.search(text)
        found = None if match is None else match[1] if self._pattern.groups else match[0]
        if found is None:
            raise ValueError(f"= {shown(text)} does not match its pattern")
        return self._time.from_text(found)

    def of_file(self, file: LogFile) -> TimeReader:
        return FoundTime(self._pattern, self._time.of_file(file))


class NoTime(TimeReader):
    """The event time of logs without times: ``NO_TIME_NS``, the same for every reader at any moment."""

    accepts_numbers = True

    def from_text(self, text: bytes) -> int:
        return NO_TIME_NS

    def many(self, values: Sequence[int | str]) -> list[int]:
        return [NO_TIME_NS] * len(values)


class Iso8601Time(TimeReader):
    """``2018-02-26``, ``2018-02-26 19:58:54``, ``2018-02-26T19:58:54.123456789+02:00``, ``…Z``.

    Also in lower case, in the basic form ``20180226T195854Z``, and with ``[Europe/Paris]`` after an offset.
    """

    accepts_numbers = False

    def __init__(self, zone: tzinfo = UTC) -> None:
        self._zone = zone
        self._seconds: dict[tuple[bytes, bytes | None, bytes | None], int] = {}
        self._utc: dict[bytes, int] = {}  # the text before the fraction -> times in UTC

    def from_text(self, text: bytes) -> int:
        known = self._utc.get(text[:19])
        if known is not None and len(text) <= 30 and text[-1:] == b"Z" and text[19:20] == b".":
            fraction = text[20:-1]
            if fraction.isdigit():  # most times of most logs, in a third of the time
                return _checked(known * NS_PER_S + int(fraction.ljust(9, b"0")))
        match = _ISO.fullmatch(text) if len(text) <= TIME_TEXT_CHARS_MAX else None
        if match is None and (basic := _ISO_BASIC.fullmatch(text[:TIME_TEXT_CHARS_MAX])):
            match = _ISO.fullmatch(b"%b-%b-%bT%b:%b:%b%b" % basic.groups())
        if match is None:
            raise ValueError(f"= {shown(text)} is not ISO 8601 (2018-02-26T19:58:54.123Z)")
        day, clock, fraction, zone = match.groups()
        place = (day, clock, zone)
        seconds = self._seconds.get(place)
        if seconds is None:
            seconds = self._whole_seconds(day, clock, zone, text)
            _remember(self._seconds, place, seconds)
        ns = seconds * NS_PER_S
        if fraction is not None:
            # ISO 8601 reads "12:30.5" as half a minute; nobody writes that on purpose.
            if clock is None or len(clock) < 8:
                raise ValueError(f"= {shown(text)} has a fraction without seconds")
            ns += int(fraction[:9].ljust(9, b"0"))
            if zone == b"Z" and len(day) + len(clock) == 18 and text[10:11] in b"Tt ":
                _remember(self._utc, text[:19], seconds)
        return _checked(ns)

    def _whole_seconds(self, day: bytes, clock: bytes | None, zone: bytes | None, text: bytes) -> int:
        parts = [int(part) for part in day.split(b"-")]
        times = [int(part) for part in clock.split(b":")] if clock else []
        times += [0] * (3 - len(times))
        offset = None if zone is None else _offset_seconds(zone.decode())
        return _seconds_utc((parts[0], parts[1], parts[2]), (times[0], times[1], times[2]), offset, self._zone, text)


class ZeekTime(TimeReader):
    """Zeek's formats: seconds since the epoch with a fraction, whole milliseconds (from ZEEK_MS_MIN), ISO 8601."""

    accepts_numbers = True

    def __init__(self) -> None:
        self._seconds = NumberTime("s")
        self._ms = NumberTime("ms")
        self._iso = Iso8601Time()

    def from_int(self, value: int) -> int:
        return (self._ms if value >= ZEEK_MS_MIN else self._seconds).from_int(value)

    def from_text(self, text: bytes) -> int:
        if text.isdigit() and len(text) <= TIME_TEXT_CHARS_MAX:
            return self.from_int(int(text))
        return (self._iso if b"-" in text[1:5] else self._seconds).from_text(text)


class Tai64nTime(TimeReader):
    """``@4000000065e18c7f075bca00``: seconds and nanoseconds in hexadecimal, as multilog, svlogd and s6-log write."""

    accepts_numbers = False

    def from_text(self, text: bytes) -> int:
        match = _TAI64N.fullmatch(text)
        ns = int(match[2] or b"0", 16) if match else NS_PER_S
        if match is None or ns >= NS_PER_S:
            raise ValueError(f"= {shown(text)} is not TAI64N (@4000000065e18c7f075bca00)")
        return _checked((int(match[1], 16) - _TAI_EPOCH) * NS_PER_S + ns)


class PatternTime(TimeReader):
    """A strptime-like pattern, e.g. ``%d/%b/%Y:%H:%M:%S %z``.

    Directives: %Y %y %m %d %j %b %B %a %A %H %I %p %M %S %f (any number of digits) %z (+0200, +02:00, Z) %T %D %F %%.
    Names of months and days are English in any locale. Without %z the configured zone applies.
    """

    accepts_numbers = False

    def __init__(self, pattern: str, zone: tzinfo = UTC, year_of: Callable[[int], int] | None = None) -> None:
        """``year_of`` returns the year of a month, for a pattern without a year."""
        self._source = pattern
        self._pattern = compile_pattern(pattern, has_year=year_of is None)
        self._year_of = year_of
        self._zone = zone
        self._has_fraction = "f" in self._pattern.groupindex
        self._seconds: dict[bytes, int] = {}

    def from_text(self, text: bytes) -> int:
        if not self._has_fraction:
            known = self._seconds.get(text)
            if known is not None:
                return known * NS_PER_S
        match = self._pattern.fullmatch(text) if len(text) <= TIME_TEXT_CHARS_MAX else None
        if match is None:
            raise ValueError(f"= {shown(text)} does not have the format {self._source!r}")
        fraction_ns = 0
        place = text
        if self._has_fraction:
            begin, end = match.span("f")
            fraction_ns = int(text[begin:end][:9].ljust(9, b"0"))
            # The marker keeps "1" + "2" apart from "12" + "".
            place = text[:begin] + b"\0" + text[end:]
        seconds = self._seconds.get(place)
        if seconds is None:
            seconds = self._whole_seconds(match, text)
            _remember(self._seconds, place, seconds)
        return _checked(seconds * NS_PER_S + fraction_ns)

    def _whole_seconds(self, match: re.Match[bytes], text: bytes) -> int:
        got = {name: value.decode() for name, value in match.groupdict().items() if value is not None}
        if "j" in got:
            month, day = 1, 1
        else:
            month, day = _month(got), int(got["d"])
        if self._year_of is not None:
            year = self._year_of(month)
        else:
            year = int(got["Y"]) if "Y" in got else _century(int(got["y"]))
        hour = int(got.get("H", "0"))
        if "I" in got:
            hour = int(got["I"]) % 12 + (12 if got["p"].lower() == "pm" else 0)
        clock = (hour, int(got.get("M", "0")), int(got.get("S", "0")))
        offset = _offset_seconds(got["z"]) if "z" in got else None
        if "j" not in got:
            return _seconds_utc((year, month, day), clock, offset, self._zone, text)
        try:
            at = date(year, 1, 1) + timedelta(days=int(got["j"]) - 1)
        except (ValueError, OverflowError):
            raise ValueError(f"= {shown(text)} is not a date") from None
        if at.year != year:
            raise ValueError(f"= {shown(text)} is not a date")
        return _seconds_utc((at.year, at.month, at.day), clock, offset, self._zone, text)


class YearlessTime(TimeReader):
    """A pattern with month and day but no year, as in classic syslog's ``Dec 31 23:59:59``.

    ``year`` is the year of the file's first line (``LogFile.header``); an earlier month than that line's belongs to
    the next year. Without ``year``, the file's name holds a date, and a line has the year that brings its month
    nearest to that date. Both depend only on the file's bytes and name; its age would differ between datacentres.
    """

    accepts_numbers = False

    def __init__(self, pattern: str, zone: tzinfo = UTC, year: int | None = None, why: str = "") -> None:
        """``why``: the reason shown if a file has no year."""
        self._source, self._zone, self._year, self._why = pattern, zone, year, why
        self._pattern = compile_pattern(pattern, has_year=False)
        self._known: dict[LogFile, TimeReader] = {}

    def from_text(self, text: bytes) -> int:
        raise ValueError(f"= {shown(text)} has no year{self._why}")

    def of_file(self, file: LogFile) -> TimeReader:
        found = self._known.get(file)
        if found is None:
            year_of = self._year_of(file)
            if isinstance(year_of, str):
                found = YearlessTime(self._source, why=year_of)
            else:
                found = PatternTime(self._source, self._zone, year_of)
            if len(self._known) >= FILES_MAX:
                self._known.clear()
            self._known[file] = found
        return found

    def _year_of(self, file: LogFile) -> Callable[[int], int] | str:
        if self._year is None:
            named = _NAMED_DATE.search(file.path.rpartition("/")[2])
            if named is None:
                return f", and there is no date in the name {shown(file.path.encode())}: write the first line's year"
            at = 12 * int(named[1]) + int(named[2]) - 1
            return lambda month: (at - month + 1 + 6) // 12
        first = self._pattern.search(file.header)
        if first is None:
            return f", and its file's first line, {shown(file.header)}, has no month"
        year, begins = self._year, _month({name: text.decode() for name, text in first.groupdict().items() if text})
        return lambda month: year + (month < begins)


_DIRECTIVES = {
    "Y": rb"(?P<Y>[0-9]{4})",
    "y": rb"(?P<y>[0-9]{2})",
    "m": rb"(?P<m>[0-9]{1,2})",
    "d": rb"(?P<d>[0-9]{1,2})",
    "e": rb" ?(?P<d>[0-9]{1,2})",
    "j": rb"(?P<j>[0-9]{1,3})",
    "b": rb"(?P<b>(?i:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec))",
    "B": rb"(?P<b>(?i:january|february|march|april|may|june|july|august|september|october|november|december))",
    "a": rb"(?i:mon|tue|wed|thu|fri|sat|sun)",
    "A": rb"(?i:monday|tuesday|wednesday|thursday|friday|saturday|sunday)",
    "H": rb"(?P<H>[0-9]{1,2})",
    "I": rb"(?P<I>[0-9]{1,2})",
    "p": rb"(?P<p>(?i:am|pm))",
    "M": rb"(?P<M>[0-9]{1,2})",
    "S": rb"(?P<S>[0-9]{1,2})",
    "f": rb"(?P<f>[0-9]+)",
    "z": rb"(?P<z>[Zz]|[+-][0-9]{2}:?[0-9]{2})",
    "%": rb"%",
}
_SHORT = {"T": "%H:%M:%S", "F": "%Y-%m-%d", "D": "%m/%d/%y", "R": "%H:%M"}


def compile_pattern(pattern: str, *, has_year: bool = True) -> re.Pattern[bytes]:
    """Compiles a strptime-like pattern to one over bytes. Raises ValueError that says what is wrong with it."""
    source = pattern
    parts: list[bytes] = []
    at = 0
    while at < len(pattern):
        if pattern[at] != "%":
            parts.append(re.escape(pattern[at].encode()))
            at += 1
            continue
        letter = pattern[at + 1 : at + 2]
        if letter in _SHORT:
            pattern = pattern[:at] + _SHORT[letter] + pattern[at + 2 :]
            continue
        if letter not in _DIRECTIVES:
            raise ValueError(f"{source!r} has %{letter}, which is not one of %{' %'.join([*_DIRECTIVES, *_SHORT])}")
        parts.append(_DIRECTIVES[letter])
        at += 2
    try:
        compiled = re.compile(b"".join(parts))
    except re.error as error:
        raise ValueError(f"{source!r} names a part twice ({error})") from None
    has = compiled.groupindex
    dated = "d" in has and ("m" in has or "b" in has)
    if not has_year:
        if "Y" in has or "y" in has or not dated:
            raise ValueError(f"{source!r} may have a separate year only if it has month and day, and no year")
    elif not (("Y" in has or "y" in has) and ("j" in has or dated)):
        without = "; without a year in the text write year = 2026 (of the log's first line)" if dated else ""
        raise ValueError(f"{source!r} gives no whole date; it needs a year, a month and a day{without}")
    if ("I" in has) != ("p" in has):
        raise ValueError(f"{source!r} needs %I and %p together (12-hour clock)")
    return compiled


def shown(text: bytes) -> str:
    """Returns a field's value for an error message: quoted, short, on one line."""
    head = text[:TIME_TEXT_CHARS_MAX].decode("utf-8", "backslashreplace")
    return repr(head) + ("…" if len(text) > TIME_TEXT_CHARS_MAX else "")


def _checked(ns: int) -> int:
    # The two ends of int64 are reserved for the sentinels (NEVER_NS, WAIT_NS).
    if -NEVER_NS <= ns < NEVER_NS:
        return ns
    raise ValueError("is out of the range of int64 nanoseconds (years 1678 to 2262)")


def _remember(cache: dict[_Place, int], place: _Place, seconds: int) -> None:
    if len(cache) >= CACHED_SECONDS_MAX:
        cache.clear()
    cache[place] = seconds


def _month(got: Mapping[str, str]) -> int:
    """Returns 1 to 12 from a pattern's groups; another number if the text has no such month."""
    return int(got["m"]) if "m" in got else _MONTHS.index(got["b"][:3].lower()) + 1


def _century(year: int) -> int:
    return year + (2000 if year < 69 else 1900)  # as POSIX


def _offset_seconds(text: str) -> int:
    if text in ("Z", "z"):
        return 0
    match = _OFFSET.fullmatch(text)
    if match is None:
        raise ValueError(f"= {text!r} is not an offset such as '+02:00'")
    sign, hours, minutes, seconds = match.groups()
    if int(hours) > 23 or int(minutes or 0) > 59 or int(seconds or 0) > 59:
        raise ValueError(f"has the offset {text!r}, which is out of range")
    total = int(hours) * 3600 + int(minutes or 0) * 60 + int(seconds or 0)
    return -total if sign == "-" else total


def _seconds_utc(
    day: tuple[int, int, int], clock: tuple[int, int, int], offset: int | None, zone: tzinfo, text: bytes
) -> int:
    """Returns seconds since the epoch. A leap second (:60) is the first second of the next minute, as in POSIX.

    If a local time occurs twice (clocks set back), the first one counts. If it never occurs (clocks set forward), the
    offset before the change applies.
    """
    hour, minute, second = clock
    if second > 60 or minute > 59 or hour > 23:
        raise ValueError(f"= {shown(text)} is not a time of day")
    try:
        days = date(*day).toordinal() - _EPOCH_ORDINAL
    except ValueError:
        raise ValueError(f"= {shown(text)} is not a date") from None
    if offset is None:
        if zone is UTC:
            offset = 0
        else:
            local = datetime(*day, hour, minute, min(second, 59), tzinfo=zone).utcoffset()
            offset = 0 if local is None else round(local.total_seconds())
    return days * 86_400 + hour * 3600 + minute * 60 + second - offset


def rfc3339_us(ns: int) -> str:
    """Returns UTC as ISO 8601 with microseconds, ``2024-01-31T12:00:00.000001Z``; truncated, not rounded."""
    seconds, rest = divmod(ns, NS_PER_S)
    at = datetime(1970, 1, 1) + timedelta(seconds=seconds)
    return f"{at:%Y-%m-%dT%H:%M:%S}.{rest // 1000:06d}Z"

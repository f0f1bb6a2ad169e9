"""Finds the field of the event time, and its format. Values show which fields are times; names decide among them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Sequence

from photon.adapters.inference.rows import Side
from photon.adapters.inference.time_texts import (
    EPOCH_S,
    NAMES,
    format_of,
    goes_up,
    is_named_time,
    rises,
    seconds_of_a_day,
    time_of,
    untyped,
    yearless,
)
from photon.adapters.side import ZEEK_TIME, TimeConfig, time_reader
from photon.adapters.times import UNIT_EXPONENTS, UNIT_ORIGINS_NS, rfc3339_us
from photon.config.clock import NS_PER_S, utc

# Names of times that are not the event's.
_OTHER = re.compile(
    r"birth|dob$|expir|valid|(?:^|[_.])due|until|schedul|deadline|eta(?:_|$)|run_?time|uptime", re.IGNORECASE
)
YEAR_S = 366 * 86_400
OLDER_MOST_S, NEWER_MOST_S = 28 * YEAR_S, YEAR_S  # largest distance of times from their file's last write
_TAI64N = re.compile(r"@4[0-9a-f]{15}(?:[0-9a-f]{8})?")
_CLOCK = re.compile(r"[0-9]{1,2}:[0-9]{2}(?::[0-9]{2}(?:[.,][0-9]+)?)?(?: ?[AaPp][Mm])?")
_DAY = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}|[0-9]{1,2}[/.][0-9]{1,2}[/.][0-9]{4}|[0-9]{4}/[0-9]{2}/[0-9]{2}")
SWIFT_S = 978_307_200  # 2001-01-01
ZONE_PAIRS_MIN = 10
ZONE_LAG_S = 300
ZONE_SHARE = 0.9
_ZONE = re.compile(r"[0-9](?:Z|z| ?[+-][0-9]{2}:?(?:[0-9]{2})?)$")


def tai64n_times(side: Side) -> list[TimeConfig]:
    found = [name for name in side.names() if (v := side.values(name)) and all(map(_TAI64N.fullmatch, v))]
    return [TimeConfig(field=name, format="tai64n") for name in found]


def find_time(side: Side) -> TimeConfig | str | None:
    """Returns the event time, a text that says why it is unclear, or ``None`` if no field looks like a time."""
    if side.format == "zeek" and ZEEK_TIME.field in side.names():
        return ZEEK_TIME
    found = _chosen(side)
    days = [found.field] if isinstance(found, TimeConfig) else side.names()
    day = next((name for name in days if all(map(_DAY.fullmatch, side.values(name)))), None)
    clock = day and next((name for name in side.names() if all(map(_CLOCK.fullmatch, side.values(name)))), None)
    if day is None or clock is None:
        return found
    formats = format_of(texts(side, (day, clock)))
    if len(formats) == 1:
        return TimeConfig(fields=(day, clock), format=formats[0])
    which = "month first or day first" if formats else "in an unknown format"
    return (
        f"{day!r} of the foreign logs is a day and {clock!r} a time of day, written {which}; name them together, "
        f'as in time = {{ fields = ["{day}", "{clock}"], format = "%d/%m/%Y %H:%M:%S" }}'
    )


def texts(side: Side, names: Sequence[str]) -> list[str]:
    """Returns the times of the rows that have all these fields, as ``TimeConfig.fields`` joins them."""
    return [
        " ".join(side.value(row, name) for name in names) for row in side.rows if all(row.get(name) for name in names)
    ]


def _chosen(side: Side) -> TimeConfig | str | None:
    found = candidates(side)
    if not found:
        return _none_fits(side)
    exact = sorted((time for time in found if _leaf(time.field) in NAMES), key=_rank)
    if exact:
        rivals = [time for time in exact[1:] if _rank(time) == _rank(exact[0]) and not _same(side, exact[0], time)]
        return exact[0] if not rivals else _several([exact[0], *rivals])
    named = [time for time in found if is_named_time(time.field)] or found
    others = [time for time in named[1:] if not _same(side, named[0], time)]
    return _several(named) if others else named[0]


def candidates(side: Side) -> list[TimeConfig]:
    """Returns fields whose values are times and whose names do not say otherwise.

    An unnamed column of whole numbers is included only if they increase like a log's times.
    """
    found = []
    for name in side.names():
        time = time_of(name, side.values(name))
        if time is None or _OTHER.search(name) or implausible(side, time):
            continue
        nameless = side.columns is not None
        if is_named_time(name) or time.format is not None or (nameless and rises(side.values(name))):
            found.append(time)
    return found


def implausible(side: Side, time: TimeConfig) -> str:
    """Returns why numbers can hardly be Unix times, given when their files were written; empty if they may be."""
    if side.written is None or time.unit is None:
        return ""
    scale, origin_s = 10 ** (9 - UNIT_EXPONENTS[time.unit]), UNIT_ORIGINS_NS.get(time.unit, 0) // NS_PER_S
    seconds = [float(value) / scale + origin_s for value in side.values(time.field)]
    low, high = side.written[0] - OLDER_MOST_S, side.written[1] + NEWER_MOST_S
    if not seconds or (low <= min(seconds) and max(seconds) <= high):
        return ""
    odd = min(seconds) if min(seconds) < low else max(seconds)
    years = round(abs(odd - side.written[1]) / YEAR_S)
    when = f"{years} years {'before' if odd < side.written[1] else 'after'} its file was written"
    swift = all(low <= each + SWIFT_S <= high for each in seconds)
    hint = '; counted from 2001 (Swift, Cocoa) they fit: origin = "2001-01-01"' if swift else ""
    return f"{time.field} as a Unix time in {time.unit} is {utc(int(odd * NS_PER_S))[:10]}, {when}{hint}"


def odd_times(times_ns: Sequence[int], time: TimeConfig | None) -> str:
    """Returns a warning about implausible event times, with a better reading; empty if they are plausible."""
    low, high = (bound * NS_PER_S for bound in EPOCH_S)
    outside = [ns for ns in times_ns if not low <= ns <= high]
    if 2 * len(outside) < len(times_ns):
        return ""
    odd = sorted(outside)[len(outside) // 2]
    said = f"event times of the first foreign records are outside 1990 to 2050, for instance {_moment(odd)}"
    if time is None or time.unit is None or time.origin is not None:
        return f"{said}; is the event time correct?"
    count = (odd - UNIT_ORIGINS_NS.get(time.unit, 0)) // 10 ** UNIT_EXPONENTS[time.unit]
    fits = [
        unit
        for unit, power in UNIT_EXPONENTS.items()
        if low <= count * 10**power + UNIT_ORIGINS_NS.get(unit, 0) <= high
    ]
    would = f'unit = "{fits[0]}" would fit' if fits else "no unit would fit: is this the right field?"
    return f'{said}: {time.field} is read as unit = "{time.unit}", and {would}'


def _moment(ns: int) -> str:
    return rfc3339_us(ns)[:19] + "Z"


def zone_between(primary: Side, foreign: Side, key: str, named: str, time: TimeConfig) -> str:
    """Returns the zone offset that foreign times seem to have, judged by the primary records they belong to.

    Empty if the times name a zone, or may well be UTC.
    """
    other = next((each for each in candidates(primary) if _has_zone(primary, each)), None)
    if other is None or _has_zone(foreign, time):
        return ""
    then = {primary.value(row, key): row for row in primary.rows}
    after, before = time_reader(time, ""), time_reader(other, "")
    apart = []
    for row in foreign.rows:
        known = then.get(foreign.value(row, named))
        if known is not None:
            with contextlib.suppress(ValueError):
                one = before.from_text(primary.value(known, other.field).encode())
                text = " ".join(foreign.value(row, name) for name in time.names)
                apart.append((after.from_text(text.encode()) - one) / 1e9)
    if len(apart) < ZONE_PAIRS_MIN:
        return ""
    offset = round(sorted(apart)[len(apart) // 2] / 1800) * 1800
    near = sum(abs(each - offset) <= ZONE_LAG_S for each in apart)
    if offset == 0 or abs(offset) > 14 * 3600 or near < ZONE_SHARE * len(apart):
        return ""
    return f"{'-' if offset < 0 else '+'}{abs(offset) // 3600:02d}:{abs(offset) // 60 % 60:02d}"


def _has_zone(side: Side, time: TimeConfig) -> bool:
    if time.unit is not None or time.format == "zeek":
        return True
    return all(_ZONE.search(value) is not None for value in texts(side, time.names)[:100])


def ambiguous_times(side: Side) -> list[TimeConfig]:
    """Returns fields whose values can be read in two ways, with the first reading."""
    formats = ((name, format_of(side.values(name))) for name in side.names())
    return [TimeConfig(field=name, format=found[0]) for name, found in formats if len(found) > 1]


def yearless_times(side: Side) -> list[TimeConfig]:
    """Returns times without a year. Their year is guessed from the file's last write, for the user to correct."""
    year = int(utc(int(side.written[0] * NS_PER_S))[:4]) if side.written else 2026
    found = ((name, yearless(side.values(name))) for name in side.names())
    return [TimeConfig(field=name, format=pattern, year=year) for name, pattern in found if pattern]


def _none_fits(side: Side) -> str | None:
    named = [name for name in side.names() if is_named_time(name)]
    rare = [name for name in side.rare_names() if is_named_time(name)]
    risen = [time.field for time in unnamed_times(side)]
    odd = [why for name in named if (time := time_of(name, side.values(name))) and (why := implausible(side, time))]
    of_day = [name for name in side.names() if seconds_of_a_day(side.values(name))]
    ambiguous = ambiguous_times(side)
    if ambiguous:
        which = f"{ambiguous[0].field} may be written month first or day first"
    elif undated := yearless_times(side):
        which = (
            f'{undated[0].field} has no year; name the year of each file\'s first line, or "name" if file names '
            "have a date"
        )
    elif tai := tai64n_times(side):
        which = f"{tai[0].field} looks like TAI64N; if multilog, svlogd or s6-log wrote it, its format is tai64n"
    elif of_day:
        which = f"{of_day[0]} counts the seconds of an unknown day: name its origin and zone"
    elif odd:
        which = odd[0]
    elif named:
        which = f"{', '.join(named[:6])} may be the event time, but have no known unit or format"
    elif rare:
        lacking = 1 - len(side.values(rare[0])) / len(side.rows)
        which = f"{rare[0]} is missing in {lacking:.0%} of the records"
    elif risen:
        which = f"{risen[0]} increases like a time, but is not named like one"
    else:
        return None
    return f"the foreign logs have no field that is clearly the event time ({which}); name field, unit or format"


def unnamed_times(side: Side) -> list[TimeConfig]:
    """Returns fields not named like times whose numbers increase like a log's times and may be Unix times."""
    found = (time_of(name, side.values(name)) for name in side.names() if not is_named_time(name))
    return [
        time
        for time in found
        if time is not None and time.unit and goes_up(side.values(time.field)) and not implausible(side, time)
    ]


def _several(times: Sequence[TimeConfig]) -> str:
    names = ", ".join(time.field for time in times[:6])
    return (
        f"the foreign logs have several times: the event time may be {names}; name the field, and its unit or format"
    )


def _leaf(name: str) -> str:
    return untyped(name).rpartition(".")[2].lower()


def _rank(time: TimeConfig) -> tuple[int, int]:
    """Returns a sort key that ranks outer fields first."""
    return time.field.count("."), NAMES.index(_leaf(time.field))


def _same(side: Side, one: TimeConfig, other: TimeConfig) -> bool:
    """True if both fields hold the same time in every row."""
    readers = [(time.field, time_reader(time, "")) for time in (one, other)]
    try:
        return all(
            len({reader.from_text(str(row.get(name, "")).encode()) // 10**9 for name, reader in readers}) == 1
            for row in side.rows
        )
    except ValueError:
        return False

"""Finds the configuration of two logs in their records, and says what it could not decide.

``keys`` compares values, ``moments`` reads times, ``rows`` tells formats. A guess is only made where one reading
stands out; anything else is ``Unclear`` with what to write: the logs' own fields and format, with the two best
candidates and what speaks for them.

The event id is the most careful guess of all: a field taken for an id that is none would drop real events as
duplicates, so a field must be unique *and* name the event (``id``, ``event_id``, the file's own name,
ServerIP:ProcessID:TimestampMicros values).

Pure: records in, configuration and explanation out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from photon.adapters.inference.keys import KEY_NAME, Candidate, Choice, Keys
from photon.adapters.inference.moments import (
    ambiguous_times,
    candidates,
    find_time,
    is_named_time,
    seconds_of_a_day,
    time_of,
    zone_between,
)
from photon.adapters.inference.rows import NEITHER, Sample, Side, read_side
from photon.adapters.side import ZEEK_TIME, SideConfig, TimeConfig
from photon.config.toml_text import toml_lines, toml_value

PATTERNS = r"""
[join.errors.primary]    # 10.0.0.1 - - [20/Nov/2026:09:00:00 +0100] "GET /cart HTTP/1.1" 500 rid=7f3a
format = "regex"
pattern = '(?P<client>[^ ]+) - - \[(?P<time>[^\]]+)\] "(?P<request>[^"]*)" (?P<status>[0-9]+) rid=(?P<rid>[^ ]+)'
key = "rid"

[join.errors.foreign]    # 2026-11-20 09:00:00,456 ERROR req=7f3a eid=E42 - payment declined
format = "regex"
pattern = '(?P<at>[^ ]+ [^ ]+) (?P<level>[A-Z]+) req=(?P<req>[^ ]+) eid=(?P<eid>[^ ]+) - (?P<text>.*)'
key = "req"
id = "eid"               # leave it out where an event has none of its own
time = { field = "at", format = "%Y-%m-%d %H:%M:%S,%f", zone = "Europe/Berlin" }
"""
"""What to write for lines of any shape: for each side, with a line that it reads."""


_FORM = ("format", "delimiter", "columns", "pattern", "absent")
_EVENT_NAMES = frozenset(
    {"id", "_id", "event_id", "eventid", "uuid", "guid", "event_uuid", "record_id", "message_id"}
)
_EVENT = re.compile(r"(?:.*\.)?(?:event|message)\.(?:id|uuid)|.*\.(?:event_?id|event_?uuid)", re.IGNORECASE)
_EVENT_ID_VALUE = re.compile(r"[0-9.:a-fA-F]+:[0-9]+:[0-9]{13,}")
_PLAIN_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")


@dataclass(frozen=True, slots=True)
class Inferred:
    """A configuration that fits. ``explanation``: one line for each choice. ``toml``: to keep and correct."""

    primary: SideConfig
    foreign: SideConfig
    explanation: tuple[str, ...]
    toml: str


@dataclass(frozen=True, slots=True)
class Unclear:
    """No single reading stands out. ``problem`` and ``todo`` are one line each, ``example`` is a file: of the logs'
    own fields where they can be read at all.
    """

    problem: str
    todo: str
    example: str


@dataclass(frozen=True, slots=True)
class Told:
    """What is known of the two sides already, and is not looked for."""

    primary_key: str | None = None
    foreign_key: str | None = None
    id: str | None = None
    time: TimeConfig | str | None = None
    """A text: the field alone."""


NOTHING = Told()


def infer(primary: Sample, foreign: Sample, *, whole: bool = True, told: Told = NOTHING) -> Inferred | Unclear:
    """The two sides' configuration, or why it cannot be told. ``whole``: ``primary`` has all records that there are;
    else a bound was met, and values that are missing may stand elsewhere.
    """
    sides = []
    for role, sample in (("primary", primary), ("foreign", foreign)):
        side = read_side(sample)
        if isinstance(side, str):
            example = PATTERNS if side.startswith(NEITHER) else _template()
            return Unclear(f"the {role} logs {side}", _todo("as below, for instance"), example)
        sides.append(side)
    first, second = sides
    time = _time(second, told.time)
    choice = Keys(first, second, whole=whole, told=(told.primary_key, told.foreign_key)).choose()
    best = choice.best
    if isinstance(time, str) or best is None:
        why = [choice.why, time if isinstance(time, str) else ""]
        example = _proposal(first, second, choice, None if isinstance(time, str) else time, told)
        return Unclear("; ".join(filter(None, why)), _todo("these fields, say"), example)
    known = isinstance(told.time, TimeConfig)
    if not known and (zone := zone_between(first, second, best.primary, best.foreign, time)):
        time = msgspec.structs.replace(time, zone=zone)
        problem = f"{time.field!r} names no zone, and is {zone} away from the times of the primary records"
        return Unclear(problem, _todo("these fields, say"), _proposal(first, second, choice, time, told))
    event_id, id_why = _event_id(second, best.foreign, time, told)
    primary_config = first.config(best.primary)
    foreign_config = second.config(best.foreign, event_id, time)
    lines = (
        f"primary: {_shown(first)}, foreign: {_shown(second)}",
        _key_line(first, best),
        id_why,
        f"event time = {time.field!r} ({time.format or 'unit ' + str(time.unit)}, UTC where no zone is given)",
    )
    return Inferred(primary_config, foreign_config, lines, toml_of(primary_config, foreign_config))


def describe(sample: Sample, told: Mapping[str, Any], *, foreign: bool) -> dict[str, Any] | str:
    """One side's table: what is told of it, its key at least, and what its records say of the rest. ``told["time"]``
    may be a field's name alone. A text: why it is unclear."""
    table = dict(told)
    side = read_side(sample)
    if "format" not in table:
        if isinstance(side, str):
            return f"the {'foreign' if foreign else 'primary'} logs {side}"
        found = side.config(table["key"] if isinstance(table["key"], str) else "")
        for name in _FORM:
            if (value := getattr(found, name)) is not None:
                table.setdefault(name, value)
    if not foreign:
        return table
    time = table.get("time")
    zeek = time is None and told.get("format") in ("zeek", "zeek-json")
    if not zeek and not isinstance(time, Mapping):
        if isinstance(side, str):
            return f"the foreign logs {side}; give time a unit or a format"
        read = _time(side, time)
        if isinstance(read, str):
            return read
        table["time"] = {"field": read.field, "unit" if read.unit else "format": read.unit or read.format}
    if "id" not in table and not isinstance(side, str) and _is_read_so(side, table):
        field = ZEEK_TIME.field if zeek else str(table["time"].get("field", ""))
        event_id, _ = _find_id(side, *_key_fields(table["key"]), field)
        table |= {} if event_id is None else {"id": event_id}
    return table


def _is_read_so(side: Side, table: Mapping[str, Any]) -> bool:
    """Whether the table reads the side's records as they were read here: else its fields have other names."""
    found = side.config("")
    told = {name: tuple(value) if isinstance(value, list) else value for name, value in table.items()}
    return all(told.get(name) == getattr(found, name) for name in ("format", "delimiter", "columns", "pattern"))


def _key_fields(key: Any) -> list[str]:
    parts = [key] if isinstance(key, str | Mapping) else key
    return [part if isinstance(part, str) else str(part.get("field", "")) for part in parts]


def _time(side: Side, told: TimeConfig | str | None) -> TimeConfig | str:
    if isinstance(told, TimeConfig):
        return told
    if told is None:
        return find_time(side)
    if told not in side.names():
        names = ", ".join(side.names()[:12])
        return f"the foreign logs have no field {told!r} for the event time; they have {names}"
    if (read := time_of(told, side.values(told))) is not None:
        return read
    return f"the foreign logs have values of no known unit or format in {told!r}; give time a unit or a format"


def toml_of(primary: SideConfig, foreign: SideConfig, name: str = "join", notes: tuple[str, ...] = ()) -> str:
    """``notes``: comments at the top."""
    out = [f"# {note}" for note in notes]
    for role, side in (("primary", primary), ("foreign", foreign)):
        out.append(f"[join.{name}.{role}]")
        for field in (*_FORM, "key", "id"):
            value = getattr(side, field)
            if value is not None:
                out += toml_lines({field: value})
        if side.time is not None:
            told = {key: value for key, value in msgspec.to_builtins(side.time).items() if value not in (None, "UTC")}
            out += toml_lines({"time": told})
        out.append("")
    return "\n".join(out)


def _todo(what: str) -> str:
    return (
        f"write a configuration file ({what}), try it with photon adapter test, and name it with --config "
        "(formats: jsonl, csv, tsv, regex, logfmt, zeek, zeek-json or protobuf; examples of each stand on the "
        "documentation's page Adapters)"
    )


def _template() -> str:
    return toml_of(
        SideConfig(format="jsonl", key="query_id"),
        SideConfig(format="jsonl", key="query_id", id="click_id", time=TimeConfig(field="ts", unit="ms")),
    )


def _shown(side: Side) -> str:
    return f"{side.format} without header" if side.columns else side.format


def _key_line(primary: Side, best: Candidate) -> str:
    if best.primary == best.foreign:
        what = f"key = {best.primary!r}: on both sides"
    else:
        what = f"key = {best.primary!r} of the primary records, {best.foreign!r} of the foreign ones"
    named = ", told by the names" if best.bits == 0 else ""
    return (
        f"{what}, unique among primaries, {best.contained:.0%} of the sampled foreign values ({best.overlap:,}) are "
        f"among the sampled primaries ({len(primary.rows):,}){named}"
    )


def _proposal(primary: Side, foreign: Side, choice: Choice, time: TimeConfig | None, told: Told) -> str:
    """A file of the logs' own fields that can be used as it stands, and corrected."""
    notes = ["Made of the logs' own fields; correct what is wrong."]
    shown = [choice.best] if choice.best else list(choice.shown)
    for number, each in enumerate(shown, 1):
        pair = f"primary key = {toml_value(each.primary)}, foreign key = {toml_value(each.foreign)}"
        notes.append(f"{number}. {pair}: {each.evidence(len(primary.rows))}"[:300])
    if shown:
        first, second = shown[0].primary, shown[0].foreign
    else:
        notes.append("No pair of fields has values in common: both keys are guessed by their names.")
        first, second = _likely_keys(primary, foreign)
    first, second = told.primary_key or first, told.foreign_key or second
    if time is None:
        time = _likely_time(foreign)
        notes.append(
            f"The event time is a guess, {toml_value(time.field)}: see that field, unit, format and zone are right."
        )
    event_id, _ = _event_id(foreign, second, time, told)
    return toml_of(primary.config(first), foreign.config(second, event_id, time), notes=tuple(map(_one_line, notes)))


def _one_line(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in text)


def _likely_keys(primary: Side, foreign: Side) -> tuple[str, str]:
    def rank(side: Side, name: str) -> tuple[bool, bool, bool]:
        return not side.is_unique(name), is_named_time(name), KEY_NAME.search(name) is None

    names, others = primary.names() or list(primary.rows[0]), foreign.names() or list(foreign.rows[0])
    first = min(names, key=lambda name: rank(primary, name))
    same = [name for name in others if name == first]
    return first, (same or sorted(others, key=lambda name: rank(foreign, name)[1:]))[0]


def _likely_time(side: Side) -> TimeConfig:
    """A field that can at least be read as a time, where there is one."""
    if found := candidates(side):
        return found[0]
    names = side.names() or list(side.rows[0])
    if ambiguous := ambiguous_times(side):
        return ambiguous[0]
    numbers = [name for name in names if all(map(_PLAIN_NUMBER.fullmatch, side.values(name)))]
    named = [name for name in numbers if is_named_time(name)]
    of_day = [name for name in names if seconds_of_a_day(side.values(name))]
    if of_day:
        return TimeConfig(field=of_day[0], unit="s", origin="1970-01-01")
    if numbers:
        return TimeConfig(field=(named or numbers)[0], unit="s")
    return TimeConfig(field=next(filter(is_named_time, names), names[0]), format="iso8601")


def _event_id(side: Side, key: str, time: TimeConfig, told: Told) -> tuple[str | None, str]:
    if told.id is not None:
        return told.id, f"event id = {told.id!r}: as told"
    return _find_id(side, key, time.field)


def _find_id(side: Side, *taken: str) -> tuple[str | None, str]:
    """(the field that is the event's own id or None, why). ``taken``: key and time."""
    unique = [
        name
        for name in side.names()
        if name not in taken and KEY_NAME.search(name) and side.is_unique(name) and len(side.rows) > 1
    ]
    sure = [
        name
        for name in unique
        if _names_the_event(side, name) or all(map(_EVENT_ID_VALUE.fullmatch, side.values(name)))
    ]
    if len(sure) == 1:
        return sure[0], f"event id = {sure[0]!r}: unique, and named as the event's own"
    what = (
        f"; unique in the sample are {', '.join(unique[:6])}: write id = … if one is the event's own"
        if unique
        else ""
    )
    return None, f"event id = the line's place and content{what}"


def _names_the_event(side: Side, name: str) -> bool:
    """Fields of something nested are its own, but for what is called the event."""
    if "." in name:
        return _EVENT.fullmatch(name) is not None
    stem = re.sub(r"[^a-z]", "", re.sub(r"(?i)[_.-]?(?:uuid|guid|uid|id)$", "", name).lower())
    return name.lower() in _EVENT_NAMES or side.is_about(stem)

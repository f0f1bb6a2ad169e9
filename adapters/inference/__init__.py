"""Infers the configuration of two logs from their records, and reports what it could not decide.

``keys`` compares values, ``moments`` reads times, ``rows`` recognises formats. A guess is made only if one reading
stands out; otherwise the result is ``Unclear``, with a configuration to correct: the logs' own fields and format,
with the two best candidates and the evidence for them.

The event id is the most careful guess: if a field that is not an id is taken for one, real events are dropped as
duplicates. So it needs two witnesses: the name (``id``, ``event_id``, ``click_id`` in ``clicks/``) says that it is
the event's own, and the values are unique, no counter, and do not name anything that has several events.

Pure: records in, configuration and explanation out.
"""

from __future__ import annotations

import re
import shlex
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from photon.adapters.conditions import Condition
from photon.adapters.inference.keys import KEY_NAME, Candidate, Choice, Keys, counts_densely
from photon.adapters.inference.moments import (
    ambiguous_times,
    candidates,
    find_time,
    implausible,
    tai64n_times,
    unnamed_times,
    yearless_times,
    zone_between,
)
from photon.adapters.inference.remedies import remedy, said_key
from photon.adapters.inference.rows import TEXT, Sample, Side, Written, read_side
from photon.adapters.inference.time_texts import is_named_time, seconds_of_a_day, time_like, time_of, untyped
from photon.adapters.side import FORMATS, ZEEK_TIME, Key, SideConfig, TimeConfig
from photon.config.toml_text import toml_lines, toml_value
from photon.config.words import many

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
"""  # The configuration to write for lines of any shape: for each side, with a line that it matches


_LAYOUT = ("encoding", "skip_lines", "comment", "begins", "colours", "records", "escape")
_FORM = ("format", *_LAYOUT, "delimiter", "columns", "pattern", "absent")
_EVENT = re.compile(
    r"(?:.*\.)?(?:event|message)[._]?(?:id|uuid|guid)|(?:.*\.)?record_?id|uuid|guid|(?:event|message)\.(?:uu|gu)?id",
    re.IGNORECASE,
)  # names of an event's own id in any log
_OWN = re.compile(r"(?:(?:payload|data|body|detail|record|after)\.)?_?id", re.IGNORECASE)
_CHANGE = re.compile(
    r"(?:.*[_.])?(?:status|state|stage|phase|step|op|operation|action|event|event_?type|event_?name|transition|change|"
    r"version|revision|updated_?at|modified_?at|sequence|attempt)",
    re.IGNORECASE,
)  # fields that change when a thing has several events
_TYPE = re.compile(r"(?:.*[_.])?(?:type|kind)", re.IGNORECASE)
_KIND = re.compile(
    r"(?i:(?:.*[_.])?(?:event|type|kind|category|name|verb|stage|program|process|logger|level))|f[0-9]+"
)
_KIND_RANK = re.compile(r"(?i:event|type|kind|verb)$")
_UNITS_SAID = {
    "filetime": "unit filetime: 18 digits are Windows' 100 ns since 1601; as Unix times they would be in 1974",
    "ticks": "unit ticks: 18 digits are .NET's 100 ns since year 1; as Unix times they would be in 1990",
}
_FEW = 20  # at most this many kinds of events or states
_EVENT_ID_VALUE = re.compile(r"[0-9.:a-fA-F]+:[0-9]+:[0-9]{13,}")
NAMES_PRIMARY_SHARE = 0.5  # a field with at least this share of primary values refers to primary events
_PLAIN_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
_LIKE_AN_ID = re.compile(r"(?=.*[0-9])(?!-?[0-9]+(?:\.[0-9]+)?$)\S+")


@dataclass(frozen=True, slots=True)
class Inferred:
    """A configuration that fits. ``explanation``: one line for each choice. ``toml``: a file to keep and correct."""

    primary: SideConfig
    foreign: SideConfig
    explanation: tuple[str, ...]
    toml: str


@dataclass(frozen=True, slots=True)
class Unclear:
    """No single reading stands out.

    ``problem`` and ``todo`` are one line each. ``example``: a configuration file, with the logs' own fields if they
    could be read. ``words``: equivalent options, if there are any.
    """

    problem: str
    todo: str
    example: str
    words: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Told:
    """Facts about the two sides that are already known, and need not be inferred."""

    primary_key: str | None = None
    foreign_key: str | None = None
    id: str | None = None
    time: TimeConfig | str | None = None  # a string is the field name only


NOTHING = Told()


def infer(
    primary: Sample,
    foreign: Sample,
    *,
    whole: bool = True,
    told: Told = NOTHING,
    written: tuple[Written, Written] = (None, None),
) -> Inferred | Unclear:
    """Infers both sides' configuration, or says why it cannot.

    ``whole``: ``primary`` has all existing records; otherwise reading stopped at a limit, and missing values may be
    elsewhere. ``written``: see ``Side``.
    """
    sides = []
    for role, sample, when in (("primary", primary, written[0]), ("foreign", foreign, written[1])):
        side = read_side(sample, when)
        if isinstance(side, str):
            example = PATTERNS if side.startswith(TEXT) else _template()
            return Unclear(f"the {role} logs {side}", _todo("as below, for instance"), example)
        sides.append(side)
    first, second = sides
    for role, side, key in (("primary", first, told.primary_key), ("foreign", second, told.foreign_key)):
        if key is not None and not side.has(key):
            return Unclear(no_field(role, side, key, "the key"), _todo("these fields, say"), _template())
    time = _time(second, told.time)
    keys = Keys(first, second, whole=whole, told=(told.primary_key, told.foreign_key))
    choice = keys.choose()
    if choice.hopeless and told.primary_key is None and told.foreign_key is None:
        choice = remedy(first, second, whole=whole) or choice
    best = choice.best
    if isinstance(time, str) or best is None:
        why = [choice.why, time if isinstance(time, str) else ""]
        example = _proposal(first, second, choice, time, told)
        return _unclear("; ".join(filter(None, why)), example, _words(first, second, choice, time, told))
    known = isinstance(told.time, TimeConfig)
    if time is not None and not known and (zone := zone_between(first, second, best.primary, best.foreign, time)):
        time = msgspec.structs.replace(time, zone=zone)
        problem = f"{' '.join(time.names)!r} has no zone, and differs by {zone} from the times of the primary records"
        example = _proposal(first, second, choice, time, told)
        return _unclear(problem, example, _words(first, second, choice, time, told))
    naming = {each.foreign for each in keys.candidates if each.contained >= NAMES_PRIMARY_SHARE}
    event_id, id_why = _event_id(second, best.foreign, time, told, naming)
    keyed = choice.keys or (best.primary, best.foreign)
    primary_config = first.config(keyed[0])
    foreign_config = second.config(keyed[1], event_id, time)
    lines = (
        f"primary: {_shown(first)}, foreign: {_shown(second)}",
        *(f"primary: {note}" for note in first.notes),
        *(f"foreign: {note}" for note in second.notes),
        _key_line(first, best, *keyed),
        id_why,
        *(() if time is None else (_time_line(time),)),
    )
    return Inferred(primary_config, foreign_config, lines, toml_of(primary_config, foreign_config))


def one_log(sample: Sample) -> Unclear:
    """Returns why one log cannot be both sides: it is unknown which of its records are primary."""
    side = read_side(sample)
    counted = None if isinstance(side, str) else _kinds(side)
    kinds, example = "", _template()
    if not isinstance(side, str) and counted is not None:
        kinds = f", whose records are of several kinds ({_shown_kinds(*counted)})"
        example = _split(side, *counted)
    return Unclear(
        f"--primary and --foreign name the same logs{kinds}, and it is unclear which of the records are primary",
        "name different logs, or write a configuration file that separates them with skip, and pass it with --config",
        example,
    )


def _split(side: Side, kind: str, counts: Counter[str]) -> str:
    """Returns a configuration file in which both sides read the same log, and each skips all kinds but one."""
    (first, _), (second, _) = counts.most_common(2)
    keys = [name for name in side.names() if KEY_NAME.search(name) and name != kind]
    key = min(keys or side.names(), key=lambda name: side.is_unique(name))
    primary, foreign = side.config(key), side.config(key, time=_likely_time(side))
    return toml_of(
        msgspec.structs.replace(primary, skip=(Condition(field=kind, differs=first),)),
        msgspec.structs.replace(foreign, skip=(Condition(field=kind, differs=second),)),
        notes=("The key, and which kinds of records are primary, are guesses.",),
    )


def _shown_kinds(name: str, counts: Counter[str]) -> str:
    shown = ", ".join(f"{value} {count:,}" for value, count in counts.most_common(6))
    return f"{name}: {shown}{', …' if len(counts) > 6 else ''}"


def _kinds(side: Side) -> tuple[str, Counter[str]] | None:
    """Returns the field that best distinguishes kinds of records, and the number of records of each kind."""
    found = [(name, Counter(side.values(name))) for name in side.names()]
    found = [(name, counts) for name, counts in found if 1 < len(counts) <= _FEW and _KIND.fullmatch(name)]
    return min(found, key=lambda each: (each[0].count("."), _KIND_RANK.search(each[0]) is None), default=None)


def _time_line(time: TimeConfig) -> str:
    what = time.format or _UNITS_SAID.get(str(time.unit), f"unit {time.unit}")
    return f"event time = {' and '.join(map(repr, time.names))} ({what}, UTC where no zone is given)"


def describe(
    sample: Sample, told: Mapping[str, Any], *, foreign: bool, written: Written = None
) -> tuple[dict[str, Any], tuple[str, ...]] | str:
    """Returns one side's table: the given parts, at least its key, and the rest inferred from its records.

    ``told["time"]`` may be a field's name alone, or have only a unit. Also returns a line for each choice. If the
    side is unclear, returns a text that says why.
    """
    table, role, lines = dict(told), "foreign" if foreign else "primary", list[str]()
    side = read_side(sample, written)
    if not isinstance(side, str) and _is_read_so(side, table):
        own = _key_fields(table.get("id", ()))
        if wrong := next((name for name in [*_key_fields(table["key"]), *own] if not side.has(name)), None):
            return no_field(role, side, wrong, "the event id" if wrong in own else "the key")
    if "format" not in table:
        if isinstance(side, str):
            return f"the {role} logs {side}"
        found = side.config("")
        for name in _FORM:
            if value := getattr(found, name):
                table.setdefault(name, value)
    so = not isinstance(side, str) and _is_read_so(side, table)
    if not foreign:
        return table | (_absent(side, table) if so else {}), ()
    time = table.get("time")
    zeek = time is None and told.get("format") in ("zeek", "zeek-json")
    if not zeek and not isinstance(time, Mapping):
        if isinstance(side, str):
            return f"the foreign logs {side}; give time a unit or a format"
        read = _time(side, time)
        if isinstance(read, str):
            return read
        if read is None:
            table.pop("time", None)
        else:
            table["time"] = msgspec.to_builtins(read)
            lines.append(_time_line(read))
    if "id" not in table and not isinstance(side, str) and so:
        fields = _time_fields(ZEEK_TIME if zeek else table.get("time"))
        event_id, why = _find_id(side, *_key_fields(table["key"]), *fields)
        table |= {} if event_id is None else {"id": event_id}
        lines.append(why)
    return table | (_absent(side, table) if so else {}), tuple(lines)


def _absent(side: Side | str, table: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the ``absent`` setting: marks of absent values found in the fields that the table names."""
    if isinstance(side, str) or "absent" in table:
        return {}
    named = [*_key_fields(table["key"]), *_key_fields(table.get("id", ())), *_time_fields(table.get("time"))]
    met = side.absent_in([name for name in named if name])
    return {"absent": list(met)} if met else {}


def no_field(role: str, side: Side, name: str, what: str) -> str:
    known = ", ".join(side.all_names()[:12])
    return f"the {role} logs have no field {name!r} for {what}; they have {known}"


def _is_read_so(side: Side, table: Mapping[str, Any]) -> bool:
    """True if the table reads records in the format that this module found; otherwise fields may differ in name."""
    found = side.config("")
    told = {name: tuple(value) if isinstance(value, list) else value for name, value in table.items()}
    if "format" not in told:
        return True
    return all(told.get(name) == getattr(found, name) for name in ("format", "delimiter", "columns", "pattern"))


def _key_fields(key: Any) -> list[str]:
    parts = [key] if isinstance(key, str | Mapping) else key
    return [part if isinstance(part, str) else str(part.get("field", "")) for part in parts]


def _time_fields(time: Any) -> tuple[str, ...]:
    if isinstance(time, Mapping):
        time = msgspec.convert(time, TimeConfig)
    return time.names if isinstance(time, TimeConfig) else (time,) if time else ()


def _time(side: Side, told: TimeConfig | str | None) -> TimeConfig | str | None:
    """Returns the event time, a text that says why it is unclear, or ``None`` if the records have no time."""
    if isinstance(told, TimeConfig):
        return told
    if told is None:
        return find_time(side)
    if not side.has(told):
        return no_field("foreign", side, told, "the event time")
    if (read := time_of(told, side.values(told))) is not None:
        why = implausible(side, read)
        return f"{why}; give time a unit" if why else read
    return f"the foreign logs have values of unknown unit or format in {told!r}; give time a unit or a format"


def toml_of(primary: SideConfig, foreign: SideConfig, name: str = "join", notes: tuple[str, ...] = ()) -> str:
    """Formats a configuration file for both sides. ``notes``: comments at the top."""
    out = [f"# {note}" for note in notes]
    for role, side in (("primary", primary), ("foreign", foreign)):
        out.append(f"[join.{name}.{role}]")
        for field in (*_FORM, "key", "id"):
            value = getattr(side, field)
            if value:
                out += toml_lines({field: msgspec.to_builtins(value)})
        if side.skip:
            tests = [msgspec.to_builtins(each) for each in side.skip]
            out += toml_lines({"skip": [{k: v for k, v in test.items() if v is not None} for test in tests]})
        if side.time is not None:
            out += toml_lines({"time": msgspec.to_builtins(side.time)})
        out.append("")
    return "\n".join(out)


def _todo(what: str) -> str:
    return (
        f"write a configuration file ({what}), try it with photon adapter test, and pass it with --config "
        f"(formats: {', '.join(FORMATS)}; the page Adapters of the documentation has examples)"
    )


def _template() -> str:
    return toml_of(
        SideConfig(format="jsonl", key="query_id"),
        SideConfig(format="jsonl", key="query_id", id="click_id", time=TimeConfig(field="ts", unit="ms")),
    )


def _shown(side: Side) -> str:
    return f"{side.format} without header" if side.columns else side.format


def _key_line(primary: Side, best: Candidate, first: Key, second: Key) -> str:
    one, other = (repr(key) if isinstance(key, str) else said_key("", key)[1] for key in (first, second))
    sides = " on both sides" if one == other else f" of the primary records, {other} of the foreign ones"
    what = f"key = {one}{sides}"
    named = ", judged by their names" if best.bits == 0 else ""
    return (
        f"{what}, unique among primaries; {best.contained:.0%} of the sampled foreign values ({best.overlap:,}) are "
        f"among the sampled primaries ({len(primary.rows):,}){named}"
    )


def _words(
    primary: Side, foreign: Side, choice: Choice, time: TimeConfig | str | None, told: Told
) -> tuple[str, ...]:
    """Returns the options of ``photon join`` that decide the unclear parts, following the best guess."""
    if choice.best or choice.shown:
        best = choice.best or choice.shown[0]
        first, second = best.primary, best.foreign
    elif told.primary_key and told.foreign_key:
        first, second = told.primary_key, told.foreign_key
    else:
        return ()  # no value in common: there is no evidence for any pair
    if choice.keys is not None:
        primary_key, foreign_key = choice.keys
    else:
        primary_key, foreign_key = told.primary_key or first, told.foreign_key or second
    if primary_key == foreign_key:
        words = said_key("--key", primary_key)
    else:
        words = said_key("--primary-key", primary_key) + said_key("--foreign-key", foreign_key)
    words += ["--id", told.id] if told.id is not None else []
    if isinstance(time, str):
        time = _likely_time(foreign)
        if time is None or time.origin is not None:
            return ()  # the field, or the day it counts from, cannot be guessed
    if time is None:
        return tuple(words)
    if time.zone != "UTC" or time.origin is not None or time.fields or time.year is not None:
        return (*words, "--time", toml_value(msgspec.to_builtins(time)))
    read_so = time_of(time.field, foreign.values(time.field)) == time and not implausible(foreign, time)
    return (*words, "--time", time.field, *(() if read_so else ("--unit", str(time.unit or time.format))))


def _unclear(problem: str, example: str, words: tuple[str, ...]) -> Unclear:
    if not words:
        return Unclear(problem, _todo("these fields, say"), example)
    todo = (
        f"if it is right, add {shlex.join(words)}; if not, correct the configuration below, try it with "
        "photon adapter test, and pass it with --config"
    )
    return Unclear(problem.replace("; name the key", ""), todo, example, words)


def _proposal(primary: Side, foreign: Side, choice: Choice, time: TimeConfig | str | None, told: Told) -> str:
    """Returns a configuration file with the logs' own fields, for the user to correct."""
    notes = ["Made from the logs' own fields; correct any mistakes."]
    shown = [choice.best] if choice.best else list(choice.shown)
    for number, each in enumerate(shown, 1):
        pair = f"primary key = {toml_value(each.primary)}, foreign key = {toml_value(each.foreign)}"
        notes.append(f"{number}. {pair}: {each.evidence(len(primary.rows))}"[:300])
    if shown:
        first, second = shown[0].primary, shown[0].foreign
    else:
        notes.append("No pair of fields has values in common: both keys are guessed by their names.")
        first, second = _likely_keys(primary, foreign)
    keys: tuple[Key, Key] = choice.keys or (told.primary_key or first, told.foreign_key or second)
    if isinstance(time, str):
        time = _likely_time(foreign)
        if time is not None:
            field = toml_value(" ".join(time.names))
            notes.append(f"The event time is a guess, {field}: check field, unit, format and zone.")
    event_id, why = _event_id(foreign, second, time, told)
    if event_id is None:
        notes.append(why)
    sides = primary.config(keys[0]), foreign.config(keys[1], event_id, time)
    text = toml_of(*sides, notes=tuple(map(_one_line, notes)))
    if choice.missing is None:
        return text
    skip = toml_lines({"skip": [{"field": f"foreign.{choice.missing}", "missing": True}]})
    return "\n".join([text, "[join.join.shape]", *skip, ""])


def _one_line(text: str) -> str:
    return "".join(character if character.isprintable() else " " for character in text)


def _likely_keys(primary: Side, foreign: Side) -> tuple[str, str]:
    def rank(side: Side, name: str) -> tuple[bool, bool, bool]:
        return not side.is_unique(name), is_named_time(name), KEY_NAME.search(name) is None

    names, others = primary.all_names(), foreign.all_names()
    first = min(names, key=lambda name: rank(primary, name))
    same = [name for name in others if name == first]
    return first, (same or sorted(others, key=lambda name: rank(foreign, name)[1:]))[0]


def _likely_time(side: Side) -> TimeConfig | None:
    """Returns a field that can at least be read as a time, if there is one."""
    if found := candidates(side):
        return found[0]
    names = side.all_names()
    if ambiguous := ambiguous_times(side):
        return ambiguous[0]
    if undated := [*yearless_times(side), *tai64n_times(side)]:
        return undated[0]
    numbers = [name for name in names if all(map(_PLAIN_NUMBER.fullmatch, side.values(name)))]
    named = [name for name in numbers if is_named_time(name)]
    if unnamed := unnamed_times(side):
        return unnamed[0]
    if named and (read := time_of(named[0], side.values(named[0]))):
        return read
    of_day = [name for name in names if seconds_of_a_day(side.values(name))]
    if of_day:
        return TimeConfig(field=of_day[0], unit="s", origin="1970-01-01")
    if numbers:
        return TimeConfig(field=(named or numbers)[0], unit="s")
    other = next(filter(is_named_time, names), None)
    return None if other is None else TimeConfig(field=other, format="iso8601")


def _event_id(
    side: Side, key: str, time: TimeConfig | None, told: Told, naming: Collection[str] = ()
) -> tuple[str | None, str]:
    if told.id is not None:
        return told.id, f"event id = {told.id!r}: as given"
    return _find_id(side, key, *(time.names if time else ()), naming=naming)


def _find_id(side: Side, *taken: str, naming: Collection[str] = ()) -> tuple[str | None, str]:
    """Returns (the field that is the event's own id or ``None``, why).

    ``taken``: key and time; ``naming``: fields whose values refer to primary events.
    """
    unique = [
        name
        for name in side.names()
        if name not in taken
        and KEY_NAME.search(name)
        and side.is_unique(name)
        and 1 < len(side.rows) == len(side.values(name))
    ]
    named = [
        name
        for name in unique
        if _names_the_event(side, name) or all(map(_EVENT_ID_VALUE.fullmatch, side.values(name)))
    ]
    doubts = {name: why for name in named if (why := _doubt(side, name, naming))}
    sure = [name for name in named if name not in doubts]
    if len(sure) == 1:
        return sure[0], f"event id = {sure[0]!r}: unique, and named as the event's own"
    said = (
        "No event id found: every line counts as its own event, so a repeated line is joined twice "
        f"({many(side.repeated, 'repeated line')} in the sample)"
    )
    if len(sure) > 1:
        said += f"; {' and '.join(map(repr, sure[:3]))} could each be the id"
    elif doubts:
        said += f"; {' and '.join(f'{name!r} {why}' for name, why in list(doubts.items())[:3])}"
    if first := next(iter((*sure, *named, *unique, *_like_ids(side, taken))), None):
        return None, f"{said}. If {first} identifies an event, give --id {first}"
    return None, f"{said}. If a field identifies an event, name it with --id"


def _like_ids(side: Side, taken: Collection[str]) -> Iterator[str]:
    """Yields fields whose values could be ids, under any name: unique, without spaces, each with a digit."""
    for name in side.names():
        values = side.values(name)
        like_ids = side.is_unique(name) and all(map(_LIKE_AN_ID.fullmatch, values))
        if name not in taken and like_ids and not (is_named_time(name) or time_like(values[:200])):
            yield name


def _names_the_event(side: Side, name: str) -> bool:
    """True if a nested field holds an id of the event itself, or of the thing that the log is named after."""
    name = untyped(name)
    if _EVENT.fullmatch(name) or _OWN.fullmatch(name):
        return True
    leaf = name.rpartition(".")[2]
    stem = re.sub(r"(?i)[_.-]?(?:uuid|guid|uid|id)$", "", leaf)
    return stem != leaf and side.is_about(re.sub(r"[^a-z]", "", stem.lower()))


def _doubt(side: Side, name: str, naming: Collection[str]) -> str:
    """Returns why a field named like the event's own id may be another id; empty if there is no reason."""
    values = side.values(name)
    if all(map(_EVENT_ID_VALUE.fullmatch, values)):
        return ""
    sure = _EVENT.fullmatch(name) is not None
    if counts_densely(values) and not (sure and not any(map(str.isdigit, values))):
        return "is a counter, and may restart"
    if name in naming:
        return "names primary events"
    if not sure and (change := next(filter(partial(_changes, side), side.names()), None)):
        return f"may name a thing that changes, judging by {change!r}"
    return ""


def _changes(side: Side, name: str) -> bool:
    """True if a field holds one of a few states of a thing, so that several events may name the same thing."""
    values = set(side.values(name))
    if not _CHANGE.fullmatch(name):
        return _TYPE.fullmatch(name) is not None and len(values) == 1  # only one type so far, but others may follow
    return is_named_time(name) or (
        len(values) <= _FEW and not all(len(value) == 3 and value.isdigit() for value in values)
    )

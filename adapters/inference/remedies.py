"""Finds keys when no whole field is a key: a part of a field, values that differ in spelling, or two fields. A part
is used like a field. The others are only suggested: whether "ab" and "AB" are equal is for the user to decide.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import msgspec

from photon.adapters.formats.part_rules import HEADERS, KeyPart
from photon.adapters.inference.keys import (
    BITS_MIN,
    CONTAINED_MIN,
    NAMED_CONTAINED_MIN,
    NAMED_OVERLAP_MIN,
    OVERLAP_MIN,
    Candidate,
    Choice,
    Keys,
)
from photon.adapters.inference.rows import READABLE_SHARE, Side
from photon.adapters.side import Key
from photon.config.toml_text import toml_lines, toml_value

Words = Mapping[str, Any]
WRITINGS: tuple[tuple[Words, str], ...] = (
    ({"trim": True}, "if white space around it does not matter"),
    ({"case": "fold"}, "if upper and lower case are equal"),
    ({"as": "number"}, "if its values are compared as numbers"),
    ({"as": "uuid"}, "if its values are compared as UUIDs"),
    ({"trim": True, "case": "fold"}, "if neither white space around it nor case matters"),
    ({"trim": True, "as": "number"}, "if its values are compared as numbers, without white space"),
)
ROWS_MAX = 12_000
PAIRS_MAX = 12  # pairs of fields that are combined
MEMBERS_MAX = 12  # names in a URL's query
MEMBERS_ROWS = 200  # records in which they are looked for
_MEMBER = re.compile(r"[?&]([A-Za-z0-9_.~-]{1,64})=")


def remedy(primary: Side, foreign: Side, *, whole: bool) -> Choice | None:
    """Returns the first key that stands out: a part of a field, a field with normalised values, or two fields.

    Looks at no more than ``ROWS_MAX`` primary records.
    """
    few = replace(primary, rows=primary.rows[:ROWS_MAX], _values={}, _names=[])
    every = whole and len(few.rows) == len(primary.rows)
    for first, second, said in _words(few, foreign):
        one = few.rewritten(first) if first else None
        other = foreign.rewritten(second) if second else None
        if one is None and other is None:  # nothing is changed
            continue
        keys = Keys(one or few, other or foreign, whole=every)
        best = keys.choose(explain=False).best
        if best is None and (first or second).get("part") in HEADERS:
            best = _trace(keys, few, one, foreign, other)
        if best is not None:
            pair = _key(best.primary, first), _key(best.foreign, second)
            if not said:
                return Choice(best, "", (best,), keys=pair)
            words = ", ".join(toml_lines(first))
            why = f"{_pair(best.primary, best.foreign)} could be the key {said} ({words})"
            return Choice(None, why, (best,), keys=pair)
    return _together(primary, few, foreign, whole=every)


def _words(primary: Side, foreign: Side) -> Iterator[tuple[Words, Words, str]]:
    """Yields settings to try for the primary and the foreign key, and what the user must confirm about them."""
    yield from ((words, words, said) for words, said in WRITINGS)
    for side in (foreign, primary):
        for part in (*HEADERS, *(f"?{name}" for name in _members(side))):
            words = {"part": part}
            yield ({}, words, "") if side is foreign else (words, {}, "")


def _trace(keys: Keys, primary: Side, one: Side | None, foreign: Side, other: Side | None) -> Candidate | None:
    """Returns the only pair in which one field has ids from trace headers, and nearly all values of the other field.

    The form of such a header is evidence, as a name would be, because its ids are made to be unique.
    """
    found = [
        each
        for each in keys.candidates
        if each.unique == 1
        and each.contained >= NAMED_CONTAINED_MIN
        and each.overlap >= NAMED_OVERLAP_MIN
        and (
            (one is not None and one.values(each.primary) != primary.values(each.primary))
            or (other is not None and other.values(each.foreign) != foreign.values(each.foreign))
        )
    ]
    return found[0] if len(found) == 1 else None


def _members(side: Side) -> list[str]:
    """Returns the names of members of a URL's query that most records have in some field."""
    found = Counter(
        name
        for row in side.rows[:MEMBERS_ROWS]
        for name in {name for value in row.values() if isinstance(value, str) for name in _MEMBER.findall(value)}
    )
    least = READABLE_SHARE * min(len(side.rows), MEMBERS_ROWS)
    return [name for name, count in found.most_common(MEMBERS_MAX) if count >= least]


def _together(primary: Side, few: Side, foreign: Side, *, whole: bool) -> Choice | None:
    found = Keys(few, foreign, whole=whole).pairs(NAMED_CONTAINED_MIN if whole else CONTAINED_MIN)[:PAIRS_MAX]
    place = {name: at for at, name in enumerate(primary.names())}
    for two in itertools.combinations(found, 2):
        one, other = sorted(two, key=lambda each: place[each.primary])
        if one.primary == other.primary or one.foreign == other.foreign:
            continue
        named = all(each.primary == each.foreign or each.alike >= 2 for each in (one, other))
        if not named and max(one.bits, other.bits) < BITS_MIN:
            continue
        if not (_names_one(few, one.primary, other.primary) and _names_one(primary, one.primary, other.primary)):
            continue
        known = set(_both(primary, one.primary, other.primary))
        distinct = set(_both(foreign, one.foreign, other.foreign))
        common = sum(each in known for each in distinct)
        if common < max(OVERLAP_MIN, CONTAINED_MIN * len(distinct)):
            continue
        both = f"{_pair(one.primary, one.foreign)} and {_pair(other.primary, other.foreign)}"
        why = (
            f"no single field is a key, but {both} together could be it: {common:,} of {len(distinct):,} foreign "
            "pairs of values are among the primary ones, where each occurs once"
        )
        keys_of = ((one.primary, other.primary), (one.foreign, other.foreign))
        return Choice(None, why, (one, other), keys=keys_of)
    return None


def _names_one(side: Side, one: str, other: str) -> bool:
    """True if two fields together are unique, and nearly all rows have them."""
    there = _both(side, one, other)
    return len(set(there)) == len(there) >= READABLE_SHARE * len(side.rows)


def _both(side: Side, one: str, other: str) -> list[tuple[str, str]]:
    found = ((side.value(row, one), side.value(row, other)) for row in side.rows)
    return [each for each in found if all(each)]


def _key(field: str, words: Words) -> Key:
    return msgspec.convert({"field": field, **words}, KeyPart) if words else field


def _pair(primary: str, foreign: str) -> str:
    return repr(primary) if primary == foreign else f"{primary!r} with foreign {foreign!r}"


def said_key(option: str, key: Key) -> list[str]:
    """Formats a key as options of ``photon join``."""
    parts = key if isinstance(key, tuple) else (key,)
    written = (part if isinstance(part, str) else toml_value(msgspec.to_builtins(part)) for part in parts)
    return [word for each in written for word in (option, each)]

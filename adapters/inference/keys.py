"""Finds the field of the foreign records that refers to the primary ones, from the values.

A candidate is a pair of fields: the primary one is unique, and foreign values are among its values. Whether that is
evidence depends on how likely it is by chance. Thirty-two hex digits never match by chance; any counter is a subset
of the numbers 1 to 1,000. So each foreign value is weighted with the *density* of primary values around it, and a
candidate counts if the overlap exceeds that expected by chance by ``BITS_MIN`` bits (the divergence of the two
shares, times the values). For values as dense as counters, only names are evidence, and only if no other candidate
objects.

Two candidates with the same primary field are one answer if they name the same record in every foreign one. If two
use different primary fields, even for the same records, one may still be wrong tomorrow: a customer's address is
unique on the first day. Names decide between them, or nothing does.
"""

from __future__ import annotations

import itertools
import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import gcd, log2

from photon.adapters.inference.rows import Side
from photon.adapters.inference.time_texts import is_named_time, time_like
from photon.adapters.side import Key

BITS_MIN = 50.0
OVERLAP_MIN = 3  # distinct values
PARTIAL_OVERLAP_MIN = 20  # used if only a part of the primary records was read
CONTAINED_MIN = 0.5
PARTIAL_CONTAINED_MIN = 0.1
NAMED_CONTAINED_MIN = 0.98  # if names decide, nearly every value must be among the primary ones
NAMED_OVERLAP_MIN = 10  # used if the names are similar but not equal
# Used if only a part of the primary records was read: with fewer, many fields are unique.
NAMED_PARTIAL_RECORDS = 1000
RIVAL_SHARE = 0.5  # a candidate with less than this share of the better one's containment does not object
SAME_SHARE = 0.99
NEAR_UNIQUE = 0.9  # shown to people, never chosen
NEIGHBOURS = 8
DENSE_STEPS = 10  # the usual gap of a counter, in steps; a sample need not have every number
# Two sides that put at least this many equal letters before their numbers mean the same kind of thing.
PREFIX_CHARS = 3

KEY_NAME = re.compile(
    r"(?i:(?:^|[_.@-])(?:id|uid|uuid|guid|key|hash|number|no|ref)$)|[a-z](?:Id|ID|Key|Uuid|No|Ref)$"
)
_NUMBERED = re.compile(r"(?P<before>.*?)(?P<digits>[0-9]{1,18})(?P<after>[^0-9]*)")
_FRACTION = re.compile(r"[+-]?[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?")
_WORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
# Words that mark a field as a reference, not the thing it refers to.
_MARKS = frozenset(
    {"id", "uid", "uuid", "guid", "key", "ref", "reference", "no", "nr", "number", "code", "hash", "fk"}
)
# Words for numbers that count within something, not references.
_COUNTS = re.compile(
    "line|row|seq|sequence|page|item|index|record|entry|step|attempt|retry|port|version|batch|rank|position|offset|"
    "shard|partition|worker|thread|process|pid|tid|status|error|count|size|level|priority"
)
LEAST_CHANCE = 2.0**-40
EXAMPLES = 3
PLACE = re.compile(r"[cf][0-9]+")  # names given to columns without one


@dataclass(frozen=True, slots=True)
class Candidate:
    primary: str
    foreign: str
    distinct: int  # foreign values
    overlap: int  # how many of them are among the primary ones
    unique: float  # share of distinct values among the primary ones
    bits: float  # evidence that the overlap exceeds chance
    alike: int  # similarity of the names: 3 equal and meaningful, 2 similar, 1 a word in common, 0 none
    counter: bool  # the foreign values may number the foreign records themselves
    prefixed: bool  # both sides' values have the same letters before a number
    about: bool  # the foreign field is named after the subject of the primary logs: ``order_id`` for ``orders.csv``
    examples: tuple[str, ...]

    @property
    def same(self) -> bool:
        """True if both fields have one meaningful name, and the primary one holds all foreign values."""
        return self.alike == 3 and self.overlap == self.distinct

    @property
    def keyed(self) -> bool:
        """True if one of the two fields is named like a key."""
        return KEY_NAME.search(self.primary) is not None or KEY_NAME.search(self.foreign) is not None

    @property
    def contained(self) -> float:
        return self.overlap / self.distinct if self.distinct else 0.0

    def evidence(self, primaries: int) -> str:
        """Describes the evidence in one line, for display."""
        unique = "unique there" if self.unique == 1 else f"{self.unique:.1%} of its values there are unique"
        chance = "; chance could explain this" if self.bits < BITS_MIN else ""
        return (
            f"{self.contained:.0%} of {self.distinct:,} foreign values ({self.overlap:,}) are among the "
            f"{primaries:,} primary records read, {unique}; for instance {', '.join(self.examples) or 'none'}{chance}"
        )


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen key. ``best`` is ``None`` if nothing stands out; ``why`` says what is missing.

    ``shown``: the two best candidates. ``missing``: the foreign field that would be the key if more records had it.
    ``hopeless``: no field is usable as a key as written.
    """

    best: Candidate | None
    why: str
    shown: tuple[Candidate, ...]
    missing: str | None = None
    hopeless: bool = False
    keys: tuple[Key, Key] | None = None  # of primary and foreign, to be proposed instead of the shown one's fields


class Keys:
    """The candidates of two sides.

    ``whole``: the sample holds all existing primary records. ``told``: the primary and the foreign key, if one is
    known.
    """

    def __init__(
        self, primary: Side, foreign: Side, *, whole: bool, told: tuple[str | None, str | None] = (None, None)
    ) -> None:
        self._told = told
        self._primary = primary
        self._foreign = foreign
        self._whole = whole
        self._places: dict[str, Mapping[str, int]] = {}

    @cached_property
    def candidates(self) -> list[Candidate]:
        """Returns all pairs of fields that have a value in common, best first."""
        primary, named = self._told
        return self._found(_fields(self._primary, primary), _fields(self._foreign, named))

    def _found(self, primaries: Sequence[str], foreigners: Sequence[str]) -> list[Candidate]:
        fields = {name: _Field(self._primary.values(name)) for name in primaries}
        fields = {name: each for name, each in fields.items() if each.unique >= NEAR_UNIQUE}
        found = []
        for foreign in foreigners:
            values = self._foreign.values(foreign)
            distinct = dict.fromkeys(values)
            for name, each in fields.items():
                if not each.distinct.isdisjoint(distinct):
                    found.append(self._weighed(name, each, foreign, values, list(distinct)))
        return sorted(found, key=_order)

    def choose(self, *, explain: bool = True) -> Choice:
        """Returns the candidate that stands out; if none does and ``explain`` is set, why."""
        found = self.candidates
        shown = tuple(found[:2])
        sure = [each for each in found if each.unique == 1 and self._is_sure(each)]
        named = [each for each in found if each.unique == 1 and self._is_named(each) and each not in sure]
        if not sure:
            named = named or [each for each in found if each.unique == 1 and self._is_same(each)]
            return self._by_name(named, shown) if named or explain else Choice(None, "", shown, hopeless=True)
        best = max(sure, key=lambda each: (each.contained, each.bits))
        close = [each for each in sure if each.contained >= RIVAL_SHARE * best.contained]
        best = max(close, key=lambda each: (each.about, each.alike >= 2, each.alike == 3, each.contained, each.bits))
        objecting = [each for each in named if each.alike > max(best.alike, 1) and not self._agree(best, each)]
        for rival in [*close, *objecting]:
            if rival is not best and not self._wins(best, rival):
                return Choice(None, _either(best, rival), (best, rival))
        return Choice(best, "", (best,))

    def _by_name(self, named: Sequence[Candidate], shown: tuple[Candidate, ...]) -> Choice:
        """Chooses the only pair whose names are evidence. Used if the values are no evidence."""
        if not named:
            left_out, missing = self._left_out()
            if left_out:
                return Choice(None, left_out[1], (left_out[0],), missing)
            return Choice(None, self._nothing(), shown, hopeless=True)
        first, *others = sorted(named, key=lambda each: (-each.alike, -each.contained))
        if others and others[0].alike == first.alike:
            return Choice(None, _either(first, others[0]), (first, others[0]))
        return Choice(first, "", (first,))

    def _is_sure(self, each: Candidate) -> bool:
        if each.bits < BITS_MIN or each.counter:
            return False
        if self._whole:
            return each.overlap >= OVERLAP_MIN and each.contained >= CONTAINED_MIN
        least = PARTIAL_CONTAINED_MIN / 2 if each.alike >= 2 else PARTIAL_CONTAINED_MIN
        return each.overlap >= PARTIAL_OVERLAP_MIN and each.contained >= least

    def _is_named(self, each: Candidate) -> bool:
        """True if the values may match by chance, but the names, or the letters before the numbers, are evidence."""
        if each.contained < NAMED_CONTAINED_MIN or each.counter:
            return False
        if not self._whole and len(self._primary.rows) < NAMED_PARTIAL_RECORDS:
            return False
        if each.alike == 3:
            return True
        return each.overlap >= NAMED_OVERLAP_MIN and (each.alike == 2 or each.prefixed)

    def _is_same(self, each: Candidate) -> bool:
        return each.same and (self._whole or len(self._primary.rows) >= NAMED_PARTIAL_RECORDS)

    def _wins(self, best: Candidate, rival: Candidate) -> bool:
        if self._agree(best, rival):
            if best.primary == rival.primary or best.about > rival.about:
                return True
            return best.alike >= 2 and best.keyed and not rival.keyed
        return best.alike == 3 and best.keyed and rival.alike < 2 and best.contained >= rival.contained

    def _left_out(self) -> tuple[tuple[Candidate, str] | None, str | None]:
        """Returns the pair that would be the key if all fields were considered, and why one of them is not.

        Also returns the foreign field that too many records lack.
        """
        if any(self._told):
            return None, None
        sides = self._primary, self._foreign
        usual = [_fields(side, None) for side in sides]
        others = [[*(name for name in side.names() if name not in kept), *side.rare_names()]
                  for side, kept in zip(sides, usual, strict=True)]  # fmt: skip
        found = self._found(usual[0] + others[0], others[1]) + self._found(others[0], usual[1])
        fits = [each for each in found if each.unique == 1 and (self._is_sure(each) or self._is_named(each))]
        rare = {*sides[0].rare_names(), *sides[1].rare_names()}
        fits = [each for each in fits if not self.candidates or rare & {each.primary, each.foreign}]
        fits = [each for each in fits if self._reason(each) is not None]
        if not fits:
            return None, None
        best = min(fits, key=_order)
        missing = best.foreign if best.foreign in self._foreign.rare_names() else None
        return (best, f"{_pair(best)} could be the key, but {self._reason(best)}"), missing

    def _reason(self, each: Candidate) -> str | None:
        for role, side, name in (("foreign", self._foreign, each.foreign), ("primary", self._primary, each.primary)):
            if name in side.rare_names():
                lacking = 1 - len(side.values(name)) / len(side.rows)
                leave = f'; to leave such records out, write skip = [{{ field = "foreign.{name}", missing = true }}]'
                return f"{name!r} is missing in {lacking:.0%} of the {role} records" + leave * (role == "foreign")
            if name not in _fields(side, None):
                values = set(side.values(name))
                what = "has only one value" if len(values) < 2 else "looks like a time or a measurement"
                return f"{name!r} {what} in the {role} records"
        return None

    def pairs(self, contained: float) -> list[Candidate]:
        """Returns pairs of fields, unique or not, where primary values include at least the share ``contained`` of
        foreign ones; pairs with similar names come first.
        """
        fields = {name: _Field(self._primary.values(name)) for name in _fields(self._primary, None)}
        found = []
        for foreign in _fields(self._foreign, None):
            values = self._foreign.values(foreign)
            distinct = dict.fromkeys(values)
            for name, each in fields.items():
                if sum(value in each.distinct for value in distinct) >= contained * len(distinct):
                    found.append(self._weighed(name, each, foreign, values, list(distinct)))
        return sorted(found, key=lambda each: (each.primary != each.foreign, -each.alike, -each.bits))

    def _agree(self, one: Candidate, other: Candidate) -> bool:
        """True if both refer to the same primary record in nearly all foreign records in which both refer to one."""
        both = same = 0
        known, others = self._place(one.primary), self._place(other.primary)
        for row in self._foreign.rows:
            at = known.get(self._foreign.value(row, one.foreign))
            there = others.get(self._foreign.value(row, other.foreign))
            if at is not None and there is not None:
                both += 1
                same += at == there
        return both >= OVERLAP_MIN and same >= SAME_SHARE * both

    def _place(self, name: str) -> Mapping[str, int]:
        if name not in self._places:
            rows = enumerate(self._primary.rows)
            self._places[name] = {value: at for at, row in rows if (value := self._primary.value(row, name))}
        return self._places[name]

    def _weighed(
        self, primary: str, field: _Field, foreign: str, values: Sequence[str], distinct: Sequence[str]
    ) -> Candidate:
        there = [value for value in distinct if value in field.distinct]
        chance = [min(1.0, max(LEAST_CHANCE, field.density(value))) for value in distinct]
        return Candidate(
            primary=primary,
            foreign=foreign,
            distinct=len(distinct),
            overlap=len(there),
            unique=field.unique,
            bits=_bits(len(there), len(distinct), sum(chance)),
            alike=_alike(primary, foreign, self._primary, there) if self._telling(primary, foreign) else 0,
            counter=_counts(values) or self._names_own(foreign, there),
            prefixed=bool(there) and all(_prefix(value) == _prefix(there[0]) != "" for value in there),
            about=self._primary.is_about("".join(_subject(_words(foreign)))),
            examples=tuple(there[:EXAMPLES]),
        )

    def _telling(self, primary: str, foreign: str) -> bool:
        """True if the logs contain the names; False if the names are made from positions in a line."""
        sides = ((self._primary, primary), (self._foreign, foreign))
        return not any(side.columns or (side.pattern and PLACE.fullmatch(name)) for side, name in sides)

    def _names_own(self, foreign: str, there: Sequence[str]) -> bool:
        """True if these dense values also occur in another, unique foreign field: they may name foreign records."""
        if not all(_NUMBERED.fullmatch(value) for value in there):
            return False
        own = self._foreign.values(foreign)
        wanted = set(own)
        return any(
            self._foreign.is_unique(name) and wanted <= set(values) and values != own
            for name in self._foreign.names()
            for values in [self._foreign.values(name)]
        )

    def _nothing(self) -> str:
        reverse = Keys(self._foreign, self._primary, whole=True).swapped() if self._whole else ""
        if reverse:
            return f"no foreign field refers to primary records, but {reverse}: are the sides swapped?"
        if not any(self._primary.is_unique(name) for name in _fields(self._primary, self._told[0])):
            return "no field is unique among the primary records; name the key"
        if not self.candidates:
            sides = (self._primary, self._told[0]), (self._foreign, self._told[1])
            primary, foreign = (", ".join(_fields(side, told)[:6]) or "none" for side, told in sides)
            return (
                "no foreign field has a value in common with a field that is unique in the primary records (the "
                f"foreign fields {foreign} were compared with the primary fields {primary}); name the key"
            )
        best = self.candidates[0]
        if best.unique < 1:
            return f"{best.primary!r} could be the key, but is not unique among the primary records; name the key"
        if best.counter:
            return (
                f"{_pair(best)} could be the key, but {best.foreign!r} may number the foreign records; name the key"
            )
        if best.bits < BITS_MIN:
            return f"{_pair(best)} could be the key, but with so few values the match may be chance; name the key"
        return f"only {best.overlap:,} of {best.distinct:,} values of {_pair(best)} are in common; name the key"

    def swapped(self) -> str:
        """Describes the pair that would be the key if the sides were swapped; empty if there is none."""
        best = next((each for each in self.candidates if each.unique == 1 and self._is_sure(each)), None)
        return (
            f"{best.primary!r} of the foreign records is referred to by {best.foreign!r} of the primary ones"
            if best
            else ""
        )


class _Field:
    """A primary field's values, and their density."""

    def __init__(self, values: Sequence[str]) -> None:
        self.distinct = set(values)
        self.unique = len(self.distinct) / len(values) if values else 0.0
        self._numbers: dict[tuple[str, str], tuple[list[int], int]] = {}
        self._capacities: dict[int, float] = {}

    @cached_property
    def _ready(self) -> bool:
        groups: dict[tuple[str, str], list[int]] = {}
        lengths: dict[int, list[str]] = {}
        for value in self.distinct:
            if match := _NUMBERED.fullmatch(value):
                groups.setdefault((match["before"], match["after"]), []).append(int(match["digits"]))
            lengths.setdefault(len(value), []).append(value)
        for name, numbers in groups.items():
            if len(numbers) > NEIGHBOURS:
                numbers.sort()
                step = gcd(*(other - one for one, other in itertools.pairwise(numbers)))
                self._numbers[name] = numbers, max(step, 1)
        for length, same in lengths.items():
            room = sum(log2(len(set(characters))) for characters in zip(*same, strict=True))
            self._capacities[length] = min(1.0, len(same) / 2.0 ** min(room, 1000.0))
        return True

    def density(self, value: str) -> float:
        """Returns the probability that a value of this form is among the field's values by chance."""
        assert self._ready
        match = _NUMBERED.fullmatch(value)
        group = self._numbers.get((match["before"], match["after"])) if match else None
        if match is None or group is None:
            return self._capacities.get(len(value), 0.0)
        numbers, step = group
        number = int(match["digits"])
        if not numbers[0] <= number <= numbers[-1]:
            return 0.0
        at = bisect_left(numbers, number)
        low, high = max(0, at - NEIGHBOURS), min(len(numbers) - 1, at + NEIGHBOURS)
        return (high - low) * step / (numbers[high] - numbers[low])


def _bits(overlap: int, distinct: int, expected: float) -> float:
    """Returns the bits of evidence that the overlap is not due to chance, which would give ``expected``."""
    share, chance = overlap / distinct, min(expected / distinct, 1.0)
    if share <= chance:
        return 0.0
    bits = share * log2(share / chance)
    if share < 1:
        bits += (1 - share) * log2((1 - share) / (1 - chance))
    return distinct * bits


def _fields(side: Side, told: str | None) -> list[str]:
    """Returns the fields that could be keys (no fractions, no times), or the given one."""
    if told is not None:
        return [told]
    out = []
    for name in side.names():
        values = side.values(name)
        if len(set(values)) < 2 < len(values) or any(map(_FRACTION.fullmatch, values[:100])):
            continue
        if is_named_time(name) or (not KEY_NAME.search(name) and time_like(values[:200])):
            continue
        out.append(name)
    return out


def _counts(values: Sequence[str]) -> bool:
    """True for numbers that increase from record to record without gaps."""
    numbers = [int(match["digits"]) for value in values if (match := _NUMBERED.fullmatch(value))]
    if len(numbers) < max(3, len(values)) or len(set(numbers)) < len(numbers):
        return False
    steps = [other - one for one, other in itertools.pairwise(numbers)]
    return sum(step == 1 for step in steps) >= 0.8 * len(steps)


def counts_densely(values: Sequence[str]) -> bool:
    """True for numbers with one prefix that are as dense as a counter's."""
    groups: dict[tuple[str, str], set[int]] = {}
    for value in values:
        if match := _NUMBERED.fullmatch(value):
            groups.setdefault((match["before"], match["after"]), set()).add(int(match["digits"]))
    biggest: set[int] = max(groups.values(), key=len, default=set())
    numbers = sorted(biggest)
    if len(numbers) < max(2, len(values) / 2):
        return False
    gaps = sorted(other - one for one, other in itertools.pairwise(numbers))
    return gaps[len(gaps) // 2] // max(gcd(*gaps), 1) <= DENSE_STEPS


def _prefix(value: str) -> str:
    match = _NUMBERED.fullmatch(value)
    before = match["before"] if match else ""
    return before if sum(map(str.isalpha, before)) >= PREFIX_CHARS else ""


def _alike(primary: str, foreign: str, side: Side, there: Sequence[str]) -> int:
    one, other = _words(primary), _words(foreign)
    if not one or not other:
        return 0
    subject, named = _subject(one), _subject(other)
    counted = all(value.isdigit() for value in there)
    if counted and any(map(_COUNTS.fullmatch, other)):
        return 0
    if one == other and (subject or one == ["uid"]):  # as in Zeek's logs
        return 3 if not counted or KEY_NAME.search(foreign) or side.is_about("".join(subject)) else 1
    if not named:
        return 0
    if (subject == named or (not subject and side.is_about("".join(named)))) and (
        not counted or KEY_NAME.search(foreign)
    ):
        return 2
    return int(bool(set(subject) & set(named)))


def _words(name: str) -> list[str]:
    return [word.lower() for word in _WORDS.findall(name.rpartition(".")[2])]


def _subject(words: Sequence[str]) -> tuple[str, ...]:
    return tuple(word.removesuffix("s") for word in words if word not in _MARKS)


def _order(each: Candidate) -> tuple[bool, bool, float, int, float]:
    strong = each.bits >= BITS_MIN
    return each.unique < 1, each.counter, -(each.contained if strong else each.contained / 4), -each.alike, -each.bits


def _pair(each: Candidate) -> str:
    return repr(each.primary) if each.primary == each.foreign else f"{each.primary!r} with foreign {each.foreign!r}"


def _either(one: Candidate, other: Candidate) -> str:
    return f"the key may be {_pair(one)} or {_pair(other)}: the evidence for both is about equal"

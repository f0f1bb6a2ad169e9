"""Conditions on the fields of a record, as in ``skip`` and ``filter``."""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec

from photon.adapters.contract import AdapterError
from photon.adapters.formats.json_values import MISSING

PATTERN_CHARS_MAX = 8192
NUMBER = re.compile(r"\s*[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?\s*", re.ASCII)
Scalar = str | int | float | bool | None


class Condition(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A condition on one field: all tests that are set must succeed. A missing field fails all but ``missing``."""

    field: str
    # Is this value, or one of these; a number or truth value also as text.
    equals: list[Scalar] | Scalar | msgspec.UnsetType = msgspec.UNSET
    differs: list[Scalar] | Scalar | msgspec.UnsetType = msgspec.UNSET  # is present and not one of these
    matches: str | None = None  # a regular expression that the field's text contains
    below: float | None = None
    above: float | None = None
    missing: bool | None = None  # true: the field is absent or null; false: it is present
    reason: str | None = None  # the reason in the filtered line


def compiled(pattern: str, where: str) -> re.Pattern[str]:
    """Compiles a pattern. Raises AdapterError."""
    if len(pattern) > PATTERN_CHARS_MAX:
        raise AdapterError("the pattern is too long", where, f"keep it below {PATTERN_CHARS_MAX} characters")
    try:
        return re.compile(pattern)
    except re.error as error:
        raise AdapterError(f"pattern {pattern!r}: {error}", where, "correct the regular expression") from None


def check_condition(condition: Condition, where: str) -> None:
    """Refuses a condition that tests nothing, or whose pattern is wrong. Raises AdapterError."""
    if condition.matches is not None:
        compiled(condition.matches, where)
    tests = (condition.matches, condition.below, condition.above, condition.missing)
    if all(each is None for each in tests) and condition.equals is condition.differs is msgspec.UNSET:
        todo = "write equals, differs, matches, below, above or missing"
        raise AdapterError(f"the condition on {condition.field} has no test", where, todo)


def value_test(condition: Condition, where: str) -> Callable[[object], bool]:
    """Returns a function that tests a field's value (``MISSING`` if the record lacks the field)."""
    pattern = None if condition.matches is None else compiled(condition.matches, where)
    equals, differs = _listed(condition.equals), _listed(condition.differs)

    def holds(value: object) -> bool:
        if value is None or value is MISSING:
            nothing = equals is not None and None in equals and value is None
            return condition.missing is True or nothing
        if condition.missing is True:
            return False
        if equals is not None and not any(_same(value, each) for each in equals):
            return False
        if differs is not None and any(_same(value, each) for each in differs):
            return False
        if pattern is not None and not (isinstance(value, str) and pattern.search(value)):
            return False
        return _between(value, condition)

    return holds


def _listed(value: object) -> list[object] | None:
    if value is msgspec.UNSET:
        return None
    return value if isinstance(value, list) else [value]


def _same(value: object, other: object) -> bool:
    """True if the values are equal; 1 does not equal true. Text also equals the number or boolean that it spells,
    because formats such as CSV have only text."""
    if isinstance(value, str) and isinstance(other, bool):
        return value.lower() == str(other).lower()
    if isinstance(value, str) and isinstance(other, int | float):
        return _number(value) == other
    return value == other and isinstance(value, bool) == isinstance(other, bool)


def _between(value: object, condition: Condition) -> bool:
    if condition.below is None and condition.above is None:
        return True
    number = _number(value)
    return (
        number is not None
        and (condition.below is None or number < condition.below)
        and (condition.above is None or number > condition.above)
    )


def _number(value: object) -> int | float | None:
    """Returns a number, or the number that a text spells; otherwise ``None``. Integers may be too big for a float."""
    if isinstance(value, str):
        if not NUMBER.fullmatch(value):
            return None
        try:
            return int(value)
        except ValueError:  # a fraction, or more digits than Python reads
            return float(value)
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None

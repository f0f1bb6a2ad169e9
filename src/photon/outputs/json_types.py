"""Column types for JSON values: infers them from values, widens them, and splits a value into a part that fits and a
rest.

A type is plain data, the same in programs, TOML files and manifests: a name, a dict of fields (a struct), or a list
of one type::

    {"amount": "float", "user": {"id": "int"}, "tags": ["text"]}

Names: bool, int (64 bit), float, text, json (the value's JSON text), time (UTC, microseconds; of ISO 8601 text),
time(s), time(ms), time(us), time(ns) (of numbers since 1970), decimal(P,S); float(comma) and decimal(P,S,comma), of
text such as 1.234,50. Inferred types are bool, int, float, text or json; others must be given. Pure.

No data is lost: ``fitter`` splits a value into a part for the column and a rest, and merging the two restores the
value. Null and absent are treated alike. If an element of a list does not fit, the rest is the whole list, and the
column has null there.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, TypeAlias

from photon.config.decoding import INT64
from photon.config.errors import UsageError

ColumnType: TypeAlias = "str | dict[str, ColumnType] | list[ColumnType]"
Fields: TypeAlias = "dict[str, ColumnType]"
# A value that is not None -> (for the column, the rest); ``NOTHING``: no rest
Fitter: TypeAlias = "Callable[[Any], tuple[Any, Any]]"


class _Nothing:
    """The type of the marker for "no rest", since ``None`` is a value."""


NOTHING: Any = _Nothing()
NULL = "null"  # only null was seen, so there is no column yet
FIELDS_MAX = 512  # of one struct; an object with more uses its keys as data and is one column of JSON text
# A column has the type of at least this share of a sample's values: so that one ``"n/a"`` does not turn a thousand
# numbers into text.
USUAL = 0.95
DEPTH_MAX = 12  # deeper values are JSON text
DECIMAL_DIGITS_MAX = 38
NAMES = (
    "bool",
    "int",
    "float",
    "text",
    "json",
    "time",
    "time(s)",
    "time(ms)",
    "time(us)",
    "time(ns)",
    "decimal(P,S)",
    "float(comma)",
    "decimal(P,S,comma)",
)
_DECIMAL = re.compile(r"decimal\((\d{1,2}),(\d{1,2})(,comma)?\)")
_COMMA = "float(comma)"
_COMMA_TEXT = re.compile(r"([+-]?(?:[0-9]+|[0-9]{1,3}(?:([. '\u00a0\u202f])[0-9]{3})(?:\2[0-9]{3})*))(?:,([0-9]+))?")
_INT_TEXT = re.compile(r"-?[0-9]+")
_WHOLE_TEXT = re.compile(r"[+-]?[0-9]+")
_FLOAT_TEXT = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_FINE = re.compile(r"\.\d{7}")  # text of a time finer than a microsecond
_FOUND = {bool: "bool", float: "float", str: "text"}
_NS = {"time(s)": 10**9, "time(ms)": 10**6, "time(us)": 10**3, "time(ns)": 1}


# -- inferred --------------------------------------------------------------------------------------------------------
def type_of(value: Any, depth: int = 0) -> ColumnType:
    """Returns the type of a JSON value; ``NULL`` for null."""
    if value is None:
        return NULL
    kind = type(value)
    if kind is int:
        return "int" if value in INT64 else "json"
    if kind in _FOUND:
        return _FOUND[kind]
    if depth >= DEPTH_MAX:
        return "json"
    if kind is dict:
        if len(value) > FIELDS_MAX:
            return "json"
        return {name: type_of(each, depth + 1) for name, each in value.items()}
    element: ColumnType = NULL
    for each in value:
        element = widened(element, type_of(each, depth + 1))
    return [element]


def widened(one: ColumnType, other: ColumnType) -> ColumnType:
    """Returns a type that fits values of both types: float for int and float, a struct with the fields of two
    structs, else json.
    """
    if one == other or other == NULL:
        return one
    if one == NULL:
        return other
    if isinstance(one, dict) and isinstance(other, dict):
        fields = {name: widened(kind, other.get(name, NULL)) for name, kind in one.items()}
        fields |= {name: kind for name, kind in other.items() if name not in one}
        return fields if len(fields) <= FIELDS_MAX else "json"
    if isinstance(one, list) and isinstance(other, list):
        return [widened(one[0], other[0])]
    return "float" if {str(one), str(other)} == {"int", "float"} else "json"


def type_of_sample(values: Sequence[Any], depth: int = 0) -> ColumnType:
    """Returns the type of many values: at each place the type of at least a share ``USUAL`` of them, which others may
    not fit; json if there is none.
    """
    by_kind: dict[str, list[Any]] = {}
    for each in values:
        if each is not None:
            by_kind.setdefault(_kind_of(each), []).append(each)
    if not by_kind:
        return NULL
    kind, usual = max(by_kind.items(), key=lambda item: len(item[1]))
    if len(usual) < USUAL * sum(map(len, by_kind.values())):
        return "json"
    if kind == "number":
        return "float" if float in map(type, usual) else "int"
    if kind not in ("object", "list"):
        return kind
    if depth >= DEPTH_MAX:
        return "json"
    if kind == "list":
        return [type_of_sample([element for each in usual for element in each], depth + 1)]
    fields: dict[str, list[Any]] = {}
    for each in usual:
        for name, value in each.items():
            fields.setdefault(name, []).append(value)
    if len(fields) > FIELDS_MAX:
        return "json"
    return {name: type_of_sample(inner, depth + 1) for name, inner in fields.items()}


def _kind_of(value: Any) -> str:
    kind = type(value)
    if kind is int:
        return "number" if value in INT64 else "json"
    return {float: "number", bool: "bool", str: "text", dict: "object"}.get(kind, "list")


def settled(kind: ColumnType) -> ColumnType | None:
    """Returns the type as used for columns; ``None`` if it is unknown, such as a struct without fields or a list
    without elements. Of fields whose names differ only in case, keeps the first: databases treat them as one.
    """
    if isinstance(kind, dict):
        seen: set[str] = set()
        fields: Fields = {}
        for name, each in kind.items():
            inner = settled(each)
            if inner is not None and name and name.casefold() not in seen:
                seen.add(name.casefold())
                fields[name] = inner
        return fields or None
    if isinstance(kind, list):
        element = settled(kind[0])
        return None if element is None else [element]
    return None if kind == NULL else kind


def extended(kind: ColumnType, seen: ColumnType) -> ColumnType:
    """Returns ``kind`` with the settled fields of ``seen`` that it lacks. Existing fields stay unchanged."""
    if isinstance(kind, dict) and isinstance(seen, dict):
        fields = {name: extended(each, seen[name]) if name in seen else each for name, each in kind.items()}
        taken = {name.casefold() for name in fields}
        new = {name: each for name, each in seen.items() if name.casefold() not in taken}
        return fields | new if len(fields) + len(new) <= FIELDS_MAX else fields
    if isinstance(kind, list) and isinstance(seen, list):
        return [extended(kind[0], seen[0])]
    return kind


def shown(kind: ColumnType) -> str:
    if isinstance(kind, dict):
        return "an object"
    return f"a list of {shown(kind[0])}" if isinstance(kind, list) else kind


def leaves(kind: ColumnType, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], ColumnType]]:
    """Yields (path, type) of each column of a struct that is not itself a struct."""
    if isinstance(kind, dict):
        for name, each in kind.items():
            yield from leaves(each, (*path, name))
    else:
        yield path, kind


def changed(kind: ColumnType, seen: ColumnType, path: str = "") -> Iterator[tuple[str, ColumnType, ColumnType]]:
    """Yields (dotted path, type, type seen) where ``seen``, inferred from values that did not fit, differs. In a
    path, ``[]`` means elements.
    """
    if isinstance(kind, dict) and isinstance(seen, dict):
        for name, each in seen.items():
            if name in kind:
                yield from changed(kind[name], each, f"{path}.{name}" if path else name)
    elif isinstance(kind, list) and isinstance(seen, list):
        yield from changed(kind[0], seen[0], f"{path}[]")
    # For lists ``seen`` covers all elements, including fitting ones
    elif seen != NULL and not ("[]" in path and kind == widened(kind, seen)):
        yield path, kind, seen


# -- given -----------------------------------------------------------------------------------------------------------
def given_fields(schema: Mapping[str, Any], where: str = "schema") -> Fields:
    """Parses a user's fields: nested, or dotted names at the first level. Raises UsageError."""
    fields: Fields = {}
    for name, kind in schema.items():
        *above, last = name.split(".")
        table = fields
        for part in above:
            inner = table.setdefault(part, {})
            if not isinstance(inner, dict):
                raise UsageError(f"{where}: {name} is inside {part}, which is {inner}")
            table = inner
        if last in table:
            raise UsageError(f"{where}: {name} occurs twice")
        table[last] = _given(kind, f"{where}: {name}")
    return fields


def _given(kind: Any, where: str) -> ColumnType:
    if isinstance(kind, Mapping):
        if not kind:
            raise UsageError(f"{where}: has no fields")
        return {str(name): _given(each, f"{where}.{name}") for name, each in kind.items()}
    if isinstance(kind, list | tuple) and len(kind) == 1:
        return [_given(kind[0], f"{where}[]")]
    digits = _DECIMAL.fullmatch(kind) if isinstance(kind, str) else None
    right = digits is not None and 1 <= int(digits[1]) <= DECIMAL_DIGITS_MAX and int(digits[2]) <= int(digits[1])
    if not right and (kind not in NAMES or kind.startswith("decimal")):
        raise UsageError(f"{where} = {kind!r}: not a type; there are {', '.join(NAMES)}, {{field = type}} and [type]")
    return str(kind)


def decimal_digits(kind: str) -> tuple[int, int] | None:
    """Returns (precision, scale) of a decimal type; ``None`` for other types."""
    found = _DECIMAL.fullmatch(kind)
    return None if found is None else (int(found[1]), int(found[2]))


# -- fitted ----------------------------------------------------------------------------------------------------------
def fitter(kind: ColumnType, *, reads: bool = False) -> Fitter:
    """Returns a function that splits values for a column. ``reads``, for given types only: parses text as the type
    (``"12.50"`` as a float), and writes other values as text.
    """
    if isinstance(kind, dict):
        return struct_fitter({name: (each, reads) for name, each in kind.items()})
    if isinstance(kind, list):
        return _list_fitter(fitter(kind[0], reads=reads))
    make = _makers(kind, reads=reads)

    def fit(value: Any) -> tuple[Any, Any]:
        made = make(value)
        return (None, value) if made is None else (made, NOTHING)

    return fit


_PLAIN = {"text": str, "bool": bool, "float": float}  # types that need no fitting


def struct_fitter(kinds: Mapping[str, tuple[ColumnType, bool]]) -> Fitter:
    """Like ``fitter`` for a struct, with ``reads`` for each field."""
    fields = {name: (_PLAIN.get(str(kind)), fitter(kind, reads=reads)) for name, (kind, reads) in kinds.items()}

    def fit(value: Any) -> tuple[Any, Any]:
        if type(value) is not dict:
            return None, value
        fitted: dict[str, Any] = {}
        rest: dict[str, Any] = {}
        for name, each in value.items():
            if each is None:
                continue
            field = fields.get(name)
            if field is None:
                rest[name] = each
            elif type(each) is field[0]:
                fitted[name] = each
            else:
                made, left = field[1](each)
                if made is not None:
                    fitted[name] = made
                if left is not NOTHING:
                    rest[name] = left
        return fitted, rest or NOTHING

    return fit


def _list_fitter(element: Fitter) -> Fitter:
    def fit(value: Any) -> tuple[Any, Any]:
        if type(value) is not list:
            return None, value
        pairs = [(None, NOTHING) if each is None else element(each) for each in value]
        whole = all(left is NOTHING for _, left in pairs)
        return [made for made, _ in pairs], NOTHING if whole else value

    return fit


def _makers(kind: str, *, reads: bool) -> Callable[[Any], Any]:
    """Returns a converter from a value to the column's value, or to ``None`` if it does not fit."""
    if kind.startswith("time("):
        return lambda value: _number_time(value, _NS[kind])
    if (digits := decimal_digits(kind)) is not None:
        if kind.endswith("comma)"):
            return lambda value: _decimal(_with_point(value), *digits)
        return lambda value: _decimal(value, *digits)
    if kind == _COMMA:
        return lambda value: _read_float(_with_point(value))
    if kind in ("text", "int", "float", "bool") and reads:
        return {"text": _read_text, "int": _read_int, "float": _read_float, "bool": _read_bool}[kind]
    return {"text": _text, "int": _int, "float": _float, "bool": _bool, "json": json_text, "time": _text_time}[kind]


def json_text(value: Any) -> str:
    """Returns JSON without spaces; integers of any size stay exact."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _text(value: Any) -> str | None:
    return value if type(value) is str else None


def _bool(value: Any) -> bool | None:
    return value if type(value) is bool else None


def _int(value: Any) -> int | None:
    if type(value) is float and value.is_integer():
        value = int(value)
    return value if type(value) is int and value in INT64 else None


def _float(value: Any) -> float | None:
    if type(value) is float:
        return value
    if type(value) is not int or value not in INT64:
        return None
    return float(value) if int(float(value)) == value else None


def _read_text(value: Any) -> str:
    return value if type(value) is str else json_text(value)


def _read_int(value: Any) -> int | None:
    text = type(value) is str and len(value) <= 20 and _INT_TEXT.fullmatch(value)
    return _int(int(value) if text else value)


def _read_float(value: Any) -> float | None:
    if type(value) is not str:
        return _float(value)
    if len(value) > 40 or not _FLOAT_TEXT.fullmatch(value):
        return None
    number = float(value)
    if not math.isfinite(number) or (_WHOLE_TEXT.fullmatch(value) and int(number) != int(value)):
        return None
    return number


def _with_point(value: Any) -> Any:
    """Converts text with a decimal comma, and perhaps grouped thousands, to text with a decimal point; ``None`` for
    other text.
    """
    if type(value) is not str:
        return value
    match = _COMMA_TEXT.fullmatch(value) if len(value) <= 60 else None
    if match is None:
        return None
    whole = match[1] if match[2] is None else match[1].replace(match[2], "")
    return whole if match[3] is None else f"{whole}.{match[3]}"


def looks_like_comma(value: Any) -> bool:
    """True for text that only a type with ``comma`` can read."""
    return type(value) is str and "," in value and _with_point(value) is not None


def _read_bool(value: Any) -> bool | None:
    return {"true": True, "false": False}.get(value) if type(value) is str else _bool(value)


def _text_time(value: Any) -> int | None:
    """Converts text to microseconds UTC; text without a zone is UTC."""
    if type(value) is not str or _FINE.search(value):
        return None
    try:
        at = datetime.fromisoformat(value)
        at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
        since = at - datetime(1970, 1, 1, tzinfo=UTC)
    except (ValueError, OverflowError):
        return None
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _number_time(value: Any, unit_ns: int) -> int | None:
    """Converts a number to microseconds UTC."""
    number = _number(value)
    if number is None:
        return None
    try:
        us = int(number * unit_ns // 1000)
    except ArithmeticError:
        return None
    return us if us in INT64 else None


def _number(value: Any) -> Decimal | None:
    """Returns the value of a number, or of text in plain digits; ``None`` for anything else."""
    if type(value) not in (int, float, str):
        return None
    try:
        text = str(value)
        return Decimal(text) if _FLOAT_TEXT.fullmatch(text) else None
    except (ArithmeticError, ValueError):  # an exponent, or a whole number, of thousands of digits
        return None


def _decimal(value: Any, precision: int, scale: int) -> Decimal | None:
    number = _number(value)
    if number is None:
        return None
    if not number:
        return Decimal(0)
    if number.adjusted() >= precision - scale:
        return None
    fine = number.as_tuple().exponent
    return number if isinstance(fine, int) and -fine <= scale else None

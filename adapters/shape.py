"""The configured shape of a joined record's output: ``[join.NAME.shape]``.

Plain frozen structs and their validation; ``shaping`` applies them. Field names are paths that begin with their side:
``foreign.url``, ``primary.user.email``. Nothing here changes an event's id, key or time.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from photon.adapters.conditions import Condition, Scalar, check_condition, compiled
from photon.adapters.contract import AdapterError

SIDES = ("foreign", "primary")
ENTRIES_MAX = 256  # for each list and table of a shape
KEY_BYTES = (16, 64)


class Derived(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A field derived from others. Left out if one of them is missing and there is no ``default``."""

    name: str
    source: str | None = msgspec.field(name="from", default=None)
    pattern: str | None = None  # extracts from the text the first group, or the whole match
    values: dict[str, Scalar] | None = None  # maps texts to values
    text: str | None = None  # contains ``{foreign.a}`` and ``{primary.b}``; used instead of ``from``
    default: Scalar = None


class Shape(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    skip: list[Condition] = []  # foreign records that are not events, such as blank lines: neither read nor counted
    filter: list[Condition] = []  # pairs not to be joined: registered, and written as one line to ``filtered``
    derive: list[Derived] = []
    redact: dict[str, Literal["drop", "hash", "mask"]] = {}
    # 16 to 64 bytes; the same in every datacentre. ``hash`` needs it: a bare hash of an address can be guessed.
    hash_key_file: str | None = None
    foreign: list[str] | dict[str, str] | None = None  # the fields to keep; or new name = path. Unset: all
    primary: list[str] | dict[str, str] | None = None


def shape_from_table(table: Mapping[str, Any], where: str) -> Shape:
    """Returns a checked shape from a TOML table at ``where`` ("join.clicks.shape"). Raises AdapterError, one line."""
    try:
        shape = msgspec.convert(dict(table), Shape)
    except msgspec.ValidationError as error:
        message, _, path = str(error).partition(" - at ")
        place = where + path.strip("`").removeprefix("$")
        raise AdapterError(f"{message[:1].lower()}{message[1:]}", place, "correct the value") from None
    _check(shape, where)
    return shape


def side_and_path(name: str, where: str) -> tuple[str, str]:
    """Returns ("foreign", "url") for "foreign.url". Raises AdapterError."""
    side, _, path = name.partition(".")
    if side not in SIDES or not path:
        raise AdapterError(f"{name!r} names no field", where, 'write "foreign.NAME" or "primary.NAME"')
    return side, path


def _check(shape: Shape, where: str) -> None:
    for name in ("skip", "filter", "derive", "redact", "foreign", "primary"):
        if len(getattr(shape, name) or ()) > ENTRIES_MAX:
            raise AdapterError(f"more than {ENTRIES_MAX} entries", f"{where}.{name}", "shorten it")
    for kind, conditions in (("skip", shape.skip), ("filter", shape.filter)):
        for each in conditions:
            _check_side(each, f"{where}.{kind}", only_foreign=kind == "skip")
    for derived in shape.derive:
        side_and_path(derived.name, f"{where}.derive")
        if (derived.source is None) == (derived.text is None):
            raise AdapterError(f"{derived.name}: has both from and text", f"{where}.derive", "write one of the two")
        if derived.source is not None:
            side_and_path(derived.source, f"{where}.derive")
        if derived.pattern is not None:
            compiled(derived.pattern, f"{where}.derive")
    for name in shape.redact:
        side_and_path(name, f"{where}.redact")
    if ("hash" in shape.redact.values()) != (shape.hash_key_file is not None):
        todo = "set hash_key_file (a file of 16 to 64 random bytes) if a field is hashed, and only then"
        raise AdapterError("hash and hash_key_file must be used together", f"{where}.redact", todo)


def _check_side(condition: Condition, where: str, *, only_foreign: bool) -> None:
    side, _ = side_and_path(condition.field, where)
    if only_foreign and side != "foreign":
        todo = f"use filter, or write skip in the table of the {side} side"
        what = f"{condition.field}: skip can test foreign fields only; it runs before the primary record is known"
        raise AdapterError(what, where, todo)
    check_condition(condition, where)

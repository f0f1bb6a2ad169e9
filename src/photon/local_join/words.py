"""The options of ``photon join``, or arguments of ``photon.join``, that describe a join in a few words.

Everything else is inferred from the logs. The result is a configuration of one join, ``[join.join]``, with a line for
each choice made.
"""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from photon.adapters.inference import Inferred, Told, Unclear, describe
from photon.adapters.side import TimeConfig
from photon.adapters.times import UNIT_EXPONENTS
from photon.config.errors import UsageError
from photon.config.toml_text import toml_lines, toml_name, toml_value
from photon.local_join.given import Given
from photon.local_join.inferred import inferred, looked_at

NAME = "join"
SIDES = ("primary", "foreign")
Field = str | Mapping[str, Any]  # a name, or a table as in a configuration


@dataclass(frozen=True, slots=True)
class Words:
    """The options with which the user describes the logs; everything else is inferred.

    Keys are lists of fields, each given by its name or as a table.
    """

    key: tuple[Field, ...] = ()  # for both sides
    primary_key: tuple[Field, ...] = ()
    foreign_key: tuple[Field, ...] = ()
    id: str | None = None
    time: str | Mapping[str, Any] | None = None  # a field, or a table as in a configuration
    unit: str | None = None  # unit of the time, or its format
    format: str | Mapping[str, str] | None = None  # one for both sides, or one for each

    def __bool__(self) -> bool:
        return self != Words()

    def check(self) -> None:
        """Raises UsageError if options contradict each other."""
        if self.key and (self.primary_key or self.foreign_key):
            raise UsageError("key is for both sides; give either key, or primary_key and foreign_key")
        if isinstance(self.format, Mapping) and (unknown := set(self.format) - set(SIDES)):
            raise UsageError(f"format: {', '.join(sorted(unknown))} is not a side; use primary or foreign")
        if self.unit is not None and not isinstance(self.time, str):
            raise UsageError("unit requires time: also name the field of the event time")
        _time(self)

    def both(self) -> tuple[tuple[Field, ...], tuple[Field, ...]]:
        return self.primary_key or self.key, self.foreign_key or self.key

    def options(self) -> list[str]:
        """Returns these words as options of ``photon join``."""
        keys = (("--key", self.key), ("--primary-key", self.primary_key), ("--foreign-key", self.foreign_key))
        out = [part for name, fields in keys for field in fields for part in (name, _written(field))]
        out += ["--id", self.id] if self.id is not None else []
        if self.time is not None:
            out += ["--time", _written(self.time)]
        out += ["--unit", self.unit] if self.unit is not None else []
        if isinstance(self.format, Mapping):
            return out + [part for side, name in self.format.items() for part in ("--format", f"{side}={name}")]
        return out + (["--format", self.format] if self.format is not None else [])


NOTHING_SAID = Words()
BY_COMMAND = "# If this is right, these options do the same without a file:"  # heading of a command below an example


def words_of(
    *,
    key: Sequence[str] = (),
    primary_key: Sequence[str] = (),
    foreign_key: Sequence[str] = (),
    id: str | None = None,
    time: str | None = None,
    unit: str | None = None,
    format: Sequence[str] = (),
) -> Words:
    """Parses and checks the options. Raises UsageError."""
    by_side = dict(each.split("=", 1) for each in format if "=" in each)
    plain = [each for each in format if "=" not in each]
    if len(plain) > 1 or (plain and by_side):
        raise UsageError("--format: give one format for both sides, or primary=FORMAT and foreign=FORMAT")
    first, second, third = (
        tuple(_table(name, each, '{ field = "mail", case = "fold" }') for each in fields)
        for name, fields in (("--key", key), ("--primary-key", primary_key), ("--foreign-key", foreign_key))
    )
    table = None if time is None else _table("--time", time, '{ field = "at", unit = "ms" }')
    words = Words(first, second, third, id, table, unit, by_side or (plain[0] if plain else None))
    words.check()
    return words


def _table(option: str, text: str, example: str) -> Field:
    """Parses text in braces as a table; returns other text, a field's name, unchanged. Raises UsageError."""
    if not text.startswith("{"):
        return text
    try:
        table: Mapping[str, Any] = tomllib.loads(f"x = {text}")["x"]
    except tomllib.TOMLDecodeError as error:
        raise UsageError(
            f"{option} {text}: is not a TOML table ({error}); give a field name, or a table such as {example}"
        ) from None
    return table


def _written(field: Field) -> str:
    return field if isinstance(field, str) else toml_value(field)


def described(words: Words, primary: Given, foreign: Given) -> tuple[str, tuple[str, ...]]:
    """Returns the configuration as TOML, and a line for each choice. Raises UsageError, with an example to correct,
    if the logs leave a choice open; ``Refused`` if options can settle it."""
    words.check()
    keys = words.both()
    formats = words.format if isinstance(words.format, Mapping) else dict.fromkeys(SIDES, words.format)
    time = _time(words)
    if not all(keys):
        found, lines = _found(words, primary, foreign)
        tables = {
            side: _merged(found[side], {"format": formats.get(side), "time": time if side == "foreign" else None})
            for side in SIDES
        }
        return config_text(tables), lines
    tables, lines = {}, ()
    for side, logs, key in zip(SIDES, (primary, foreign), keys, strict=True):
        table: dict[str, Any] = {"format": formats.get(side), "key": key[0] if len(key) == 1 else list(key)}
        if side == "foreign":
            table |= {"id": words.id, "time": time}
        told = {name: value for name, value in table.items() if value is not None}
        tables[side], more = _of_side(logs, side, told)
        lines += more
    return config_text(tables), lines


class Refused(UsageError):
    """Raised if the logs leave a choice open. ``words``: options that settle it, if any."""

    def __init__(self, guess: Unclear) -> None:
        super().__init__(f"{guess.problem}; {guess.todo}")
        self.words = guess.words
        self.with_example(guess.example)


def command(options: Mapping[str, Any], words: Sequence[str]) -> str:
    """Formats a command line to paste. ``options``: name -> value; ``True`` for a flag."""
    parts = ["photon", "join"]
    for name, value in options.items():
        if value is True:
            parts.append(name)
        elif value is not None and value is not False:
            parts += [name, str(value)]
    return shlex.join([*parts, *words])


def config_text(table: Mapping[str, Any]) -> str:
    """Returns the text of a configuration file with one join."""
    tables = {name: each for name, each in table.items() if isinstance(each, Mapping)}
    lines = [f"[join.{NAME}]", *toml_lines({name: each for name, each in table.items() if name not in tables})]
    for name, each in tables.items():
        lines += ["", f"[join.{NAME}.{toml_name(name)}]", *toml_lines(each)]
    return "\n".join(lines) + "\n"


def _time(words: Words) -> str | dict[str, Any] | None:
    """Returns the given time: a field name whose unit is to be inferred, or a table. Raises UsageError."""
    time = words.time
    if isinstance(time, str) and words.unit is not None:
        return {"field": time, "unit" if words.unit in UNIT_EXPONENTS else "format": words.unit}
    if isinstance(time, Mapping):
        try:
            msgspec.convert(dict(time), TimeConfig)
        except msgspec.ValidationError as error:
            raise UsageError(f"time: {error}") from None
        return dict(time)
    return time


def _found(words: Words, primary: Given, foreign: Given) -> tuple[dict[str, dict[str, Any]], tuple[str, ...]]:
    """Infers the configuration of both sides, given the user's options."""
    first, second = (_one_field(key) if key else None for key in words.both())
    time = _time(words)
    known = Told(first, second, words.id, msgspec.convert(time, TimeConfig) if isinstance(time, dict) else time)
    guess = inferred(primary, foreign, known)
    if not isinstance(guess, Inferred):
        raise Refused(guess)
    (table,) = tomllib.loads(guess.toml)["join"].values()
    return {side: table[side] for side in SIDES}, guess.explanation


def _one_field(key: Sequence[Field]) -> str:
    if len(key) != 1 or not isinstance(key[0], str):
        raise UsageError(f"the key is {', '.join(map(_written, key))} on one side; give the fields of the other, too")
    return key[0]


def _merged(found: Mapping[str, Any], told: Mapping[str, Any]) -> dict[str, Any]:
    """Merges inferred and given settings. A given format replaces everything inferred for another format. If only the
    field of the time is given, the rest of the time is as inferred."""
    other = told["format"] not in (None, found["format"])
    kept = {name: value for name, value in found.items() if not other or name in ("key", "id", "time")}
    said = {name: value for name, value in told.items() if name != "time" or isinstance(value, Mapping)}
    return kept | {name: value for name, value in said.items() if value is not None}


def _of_side(logs: Given, side: str, table: dict[str, Any]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Completes ``table`` with the format, delimiter, event id and time inferred from the side's records."""
    seen = looked_at(logs)
    if not seen.records and "format" in table:
        return table, ()
    found = describe(seen.records, table, foreign=side == "foreign", written=seen.written)
    if isinstance(found, str):
        raise UsageError(found)
    return found

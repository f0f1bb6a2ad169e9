"""The configuration file of a join that a program describes by a few words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from photon.config.errors import UsageError
from photon.config.toml_text import toml_lines, toml_name
from photon.objects.paths import placed

if TYPE_CHECKING:
    from photon.adapters.side import TimeConfig

NAME = "join"
SIDES = ("primary", "foreign")


def written_config(
    primary: str | Path,
    foreign: str | Path,
    *,
    config: str | Path | Mapping[str, Any] | None,
    key: str | Sequence[str] | None,
    primary_key: str | Sequence[str] | None,
    foreign_key: str | Sequence[str] | None,
    id: str | None,
    time: str | Mapping[str, str] | None,
    format: str | Mapping[str, str] | None,
    more: Mapping[str, Any],
) -> str | None:
    """TOML; None: there is a file, or nothing was said. What was not said of a side is found of its logs.

    Raises UsageError.
    """
    words = {"key": key, "primary_key": primary_key, "foreign_key": foreign_key, "id": id, "time": time,
             "format": format, **more}  # fmt: skip
    said = [name for name, value in words.items() if value is not None]
    if config is not None:
        if said:
            raise UsageError(f"config and {', '.join(said)} say the same; write all of it in one of them")
        return _toml(_with_paths(config)) if isinstance(config, Mapping) else None
    if not said:
        return None
    if key is not None and (primary_key is not None or foreign_key is not None):
        raise UsageError("key is for both sides; give it, or primary_key and foreign_key")
    keys = (primary_key or key, foreign_key or key)
    formats = format if isinstance(format, Mapping) else dict.fromkeys(SIDES, format)
    if unknown := set(formats) - set(SIDES):
        raise UsageError(f"format: {', '.join(sorted(unknown))} is no side; there are primary and foreign")
    found: dict[str, dict[str, Any]] = {side: {} for side in SIDES}
    if None in keys:
        found = _found(placed(Path(), primary), placed(Path(), foreign), keys, id, time)
    tables: dict[str, dict[str, Any]] = {}
    for side, logs, named in zip(SIDES, (primary, foreign), keys, strict=True):
        given = {"format": formats.get(side), "key": named}
        if side == "foreign":
            given |= {"id": id, "time": time}
        table = {name: value for name, value in given.items() if value is not None}
        tables[side] = _merged(found[side], table) if None in keys else _described(placed(Path(), logs), side, table)
    return _toml({**tables, **more})


def _found(
    primary: Path,
    foreign: Path,
    keys: Sequence[str | Sequence[str] | None],
    id: str | None,
    time: str | Mapping[str, str] | None,
) -> dict[str, dict[str, Any]]:
    """Both sides as inferred, given what is told."""
    import tomllib

    from photon.adapters.inference import Told
    from photon.local_join.given import given
    from photon.local_join.inferred import inferred_toml

    first, second = (None if key is None else _one_field(key) for key in keys)
    known = Told(first, second, id, time if time is None or isinstance(time, str) else _time(time))
    toml, _ = inferred_toml(given("primary", primary), given("foreign", foreign), known)
    (table,) = tomllib.loads(toml)["join"].values()
    return {side: table[side] for side in SIDES}


def _one_field(key: str | Sequence[str]) -> str:
    fields = (key,) if isinstance(key, str) else tuple(key)
    if len(fields) != 1:
        raise UsageError(f"the key is {', '.join(map(str, fields))} on one side; name the fields of the other too")
    return fields[0]


def _time(told: Mapping[str, str]) -> TimeConfig:
    from photon.adapters.side import TimeConfig

    try:
        return msgspec.convert(dict(told), TimeConfig)
    except msgspec.ValidationError as error:
        raise UsageError(f"time: {error}") from None


def _merged(found: Mapping[str, Any], told: Mapping[str, Any]) -> dict[str, Any]:
    """What is found of a format goes where another one is told; of a time's field alone the rest is found."""
    other = told.get("format") not in (None, found["format"])
    kept = {name: value for name, value in found.items() if not other or name in ("key", "id", "time")}
    return kept | {name: value for name, value in told.items() if name != "time" or isinstance(value, Mapping)}


def _described(logs: Path, side: str, table: dict[str, Any]) -> dict[str, Any]:
    """``table`` with format, delimiter, and the event's id and time as its records say, where it does not."""
    wants = ("format",) if side == "primary" else ("format", "id", "time")
    if all(name in table and (name != "time" or isinstance(table[name], Mapping)) for name in wants):
        return table
    from photon.adapters.inference import describe
    from photon.local_join.given import given
    from photon.local_join.inferred import looked_at

    found = describe(looked_at(given(side, logs)).records, table, foreign=side == "foreign")
    if isinstance(found, str):
        raise UsageError(found)
    return found


def _with_paths(table: Mapping[str, Any]) -> dict[str, Any]:
    """An adapter's file is relative to the working directory: the configuration lies elsewhere."""
    adapter = table.get("adapter")
    if not isinstance(adapter, str) or ".py:" not in adapter:
        return dict(table)
    file, _, name = adapter.rpartition(":")
    return {**table, "adapter": f"{Path(file).absolute()}:{name}"}


def _toml(table: Mapping[str, Any]) -> str:
    tables = {name: each for name, each in table.items() if isinstance(each, Mapping)}
    lines = [f"[join.{NAME}]", *toml_lines({name: each for name, each in table.items() if name not in tables})]
    for name, each in tables.items():
        lines += ["", f"[join.{NAME}.{toml_name(name)}]", *toml_lines(each)]
    return "\n".join(lines) + "\n"

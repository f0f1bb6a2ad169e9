"""Converts a program's description of a join into a configuration file and options of ``photon join``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from photon.config.errors import UsageError
from photon.config.toml_text import toml_value
from photon.local_join.words import NAME, Field, Words, config_text


def said_words(
    *,
    config: object,
    key: Field | Sequence[Field] | None,
    primary_key: Field | Sequence[Field] | None,
    foreign_key: Field | Sequence[Field] | None,
    id: str | None,
    time: str | Mapping[str, str] | None,
    format: str | Mapping[str, str] | None,
    more: Mapping[str, Any],
) -> Words:
    """Collects and checks the parameters that describe the logs. Raises UsageError."""
    told = {"key": key, "primary_key": primary_key, "foreign_key": foreign_key, "id": id, "time": time,
            "format": format, **more}  # fmt: skip
    said = [name for name, value in told.items() if value is not None]
    if config is not None and said:
        raise UsageError(f"config and {', '.join(said)} both describe the join; use only one of them")
    words = Words(_fields(key), _fields(primary_key), _fields(foreign_key), id, time, None, format)
    words.check()
    return words


def settings_of(more: Mapping[str, Any]) -> list[str]:
    """Converts other keys of the join to the form of ``--set``. Raises UsageError."""
    return [f"join.{NAME}.{name}={toml_value(value)}" for name, value in more.items()]


def config_file(table: Mapping[str, Any]) -> str:
    """Returns the text of a configuration file for the join that a mapping describes. Paths of adapters are resolved
    against the working directory, as the file will be in another directory. Raises UsageError."""
    adapter = table.get("adapter")
    if not isinstance(adapter, str) or ".py:" not in adapter:
        return config_text(table)
    file, _, name = adapter.rpartition(":")
    return config_text({**table, "adapter": f"{Path(file).absolute()}:{name}"})


def _fields(key: Field | Sequence[Field] | None) -> tuple[Field, ...]:
    return () if key is None else (key,) if isinstance(key, str | Mapping) else tuple(key)

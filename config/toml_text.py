"""Formats values as TOML."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import orjson

from photon.config.errors import UsageError

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def toml_lines(table: Mapping[Any, Any]) -> list[str]:
    """Returns ``name = value`` for each member; tables are inline. Raises UsageError for a value unknown to TOML."""
    return [f"{toml_name(str(name))} = {toml_value(value)}" for name, value in table.items()]


def toml_value(value: Any) -> str:
    """Returns the value on one line. Raises UsageError."""
    if isinstance(value, Mapping):
        return f"{{ {', '.join(toml_lines(value))} }}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(toml_value, value)) + "]"
    if isinstance(value, Path):
        return _text(str(value))
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, str | int | float):
        raise UsageError(f"{value!r}: cannot be written in a configuration")
    return _text(value) if isinstance(value, str) else repr(value)


def toml_name(name: str) -> str:
    return name if _BARE.fullmatch(name) else _basic(name)


def _text(text: str) -> str:
    """Formats a string; regular expressions stay unescaped."""
    return f"'{text}'" if "\\" in text and "'" not in text and text.isprintable() else _basic(text)


def _basic(text: str) -> str:
    """Formats a string as JSON, which is also a TOML basic string except for one control character."""
    try:
        return orjson.dumps(text).decode().replace("\x7f", "\\u007f")
    except TypeError:
        raise UsageError(f"{text!r}: is not Unicode text, so it cannot be written in a configuration") from None

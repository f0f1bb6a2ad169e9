"""The option ``columns`` of the data source: fields of the payloads as typed columns. Pure; needs no pyspark.

    columns = "user string from foreign.user.id, price double from primary.items[0].price"

A path begins with foreign or primary; what is not there, or has no value of the type, is null.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from photon.config.errors import UsageError

COLUMNS_MAX = 1000
Path = tuple[str | int, ...]
_COLUMN = re.compile(
    r"\s*(\w+)\s+(\w+)\s+from\s+(foreign|primary)((?:\.(?:[^\s.,\[\]`]+|`[^`]+`)|\[\d{1,9}\])*)\s*(?:,|\Z)"
)
_STEP = re.compile(r"\.(?:`([^`]+)`|([^\s.,\[\]`]+))|\[(\d+)\]")
_INT64 = 2**63


@dataclass(frozen=True, slots=True)
class Pulled:
    """One column. ``kind``: its type in Spark's DDL."""

    name: str
    kind: str
    side: str
    path: Path

    def value(self, payload: Any) -> Any:
        """Of a parsed payload."""
        for step in self.path:
            if isinstance(payload, dict) and isinstance(step, str):
                payload = payload.get(step)
            elif isinstance(payload, list) and isinstance(step, int):
                payload = payload[step] if step < len(payload) else None
            else:
                return None
        return _KINDS[self.kind](payload)


def parse_columns(text: str, taken: Mapping[str, str]) -> list[Pulled]:
    """``taken``: names that are columns already. Raises UsageError."""
    found: list[Pulled] = []
    at = 0
    text = text.strip()
    while at < len(text):
        match = _COLUMN.match(text, at)
        if match is None:
            raise _wrong(text[at : at + 60], 'write "NAME TYPE from foreign.path.to[0].field", separated by commas')
        name, kind, side, path = match.groups()
        if kind.lower() not in _KINDS:
            raise _wrong(f"{name} {kind}", f"a type is one of {', '.join(_KINDS)}")
        if name in taken or name in {each.name for each in found}:
            raise _wrong(name, "there is such a column already; choose another name")
        steps = [int(index) if index else quoted or plain for quoted, plain, index in _STEP.findall(path)]
        found.append(Pulled(name, kind.lower(), side, tuple(steps)))
        at = match.end()
    if len(found) > COLUMNS_MAX:
        raise _wrong(f"{len(found)} columns", f"at most {COLUMNS_MAX}")
    return found


def parsed(payload: bytes | None) -> Any:
    """A payload's value; None where it is none."""
    if payload is None:
        return None
    try:
        return orjson.loads(payload)
    except orjson.JSONDecodeError:
        return None


def _wrong(what: str, todo: str) -> UsageError:
    return UsageError(f"columns: {what!r} is not possible; {todo}")


def _string(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return orjson.dumps(value).decode()


def _bigint(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return value if isinstance(value, int) and -_INT64 <= value < _INT64 else None


def _double(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _boolean(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


_KINDS: Mapping[str, Callable[[Any], Any]] = {
    "string": _string,
    "bigint": _bigint,
    "double": _double,
    "boolean": _boolean,
}

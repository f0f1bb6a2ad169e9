"""Parses durations, sizes and times as users write them: ``5s``, ``128MiB``, ``2026-11-21T09:00``, ``2h`` ago."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from decimal import Decimal

_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ns|us|ms|s|m|min|h|d)")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(B|kB|MB|GB|KiB|MiB|GiB|TiB)?")
_BYTES = {
    None: 1,
    "B": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "TiB": 1 << 40,
}


def seconds(value: str | float) -> float:
    """Parses ``"1h"`` -> 3600.0; a bare number is seconds. Raises ValueError with a correct example."""
    if isinstance(value, bool):
        raise ValueError('a duration is a number of seconds or text such as "500ms", "5s", "1h", "3d"')
    if isinstance(value, int | float):
        number = float(value)
    else:
        match = _DURATION.fullmatch(value.strip())
        if match is None:
            raise ValueError('a duration is a number of seconds or text such as "500ms", "5s", "1h", "3d"')
        number = float(match[1]) * _SECONDS[match[2]]
    if not 0 <= number < 1e10:
        raise ValueError("a duration is at least 0 and less than 300 years")
    return number


def size(value: str | int) -> int:
    """Parses ``"128MiB"`` -> bytes; a bare number is bytes. Raises ValueError with a correct example."""
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise ValueError('a size is a number of bytes or text such as "64KiB", "128MiB", "4GiB"')
    if isinstance(value, int):
        number = value
    else:
        match = _SIZE.fullmatch(value.strip())
        if match is None:
            raise ValueError('a size is a number of bytes or text such as "64KiB", "128MiB", "4GiB"')
        count = int(match[1]) if match[1].isdigit() else min(float(match[1]), 2.0**62)
        number = int(count * _BYTES[match[2]])
    if not 0 <= number < 1 << 62:
        raise ValueError("a size is at least 0 bytes")
    return number


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_SECONDS = re.compile(r"\d{9,11}(?:\.\d{1,9})?")  # 1973 to 5138: not mistaken for a year or 20261121
_MOMENT = (
    'a time is "2026-11-21", "2026-11-21T09:00:00Z" (UTC where no zone is named), seconds since 1970, or "2h" for '
    "two hours ago"
)


def moment_ns(value: str, now_ns: int) -> int:
    """Parses ``"2h"`` (before ``now_ns``), an ISO date or time, or epoch seconds -> nanoseconds UTC.

    Raises ValueError with a correct example; also for a moment after ``now_ns``.
    """
    text = value.strip()
    if _DURATION.fullmatch(text):
        return now_ns - int(seconds(text) * 1e9)
    if _EPOCH_SECONDS.fullmatch(text):
        at = int(Decimal(text).scaleb(9))
    elif "-" not in text:
        raise ValueError(_MOMENT)
    else:
        try:
            parsed = datetime.fromisoformat(text)
        except ValueError:
            raise ValueError(_MOMENT) from None
        since = (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)) - _EPOCH
        at = since // timedelta(microseconds=1) * 1000
    if at > now_ns:
        raise ValueError("this time is in the future")
    return at

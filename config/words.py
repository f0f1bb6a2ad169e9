"""Formats sizes, times, rates and counts for display. ``None``, an unknown value, is ``-``."""

from __future__ import annotations

NONE = "-"


def size(count: float | None) -> str:
    """Formats bytes: ``1.5 MiB``."""
    if count is None:
        return NONE
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:,.0f} {unit}" if unit == "B" else f"{count:,.1f} {unit}"
        count /= 1024
    return f"{count:,.1f} TiB"


def duration(seconds: float | None) -> str:
    """Formats a duration: ``3 min 20 s``."""
    if seconds is None:
        return NONE
    if seconds < 60:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min"


def delay(seconds: float | None) -> str:
    """Formats a short duration or wait: ``20 ms``, ``3.4 s``."""
    if seconds is None:
        return NONE
    return f"{seconds * 1000:.0f} ms" if 0 < seconds < 1 else f"{seconds:,.1f} s"


def rate(per_second: float | None) -> str:
    """Formats a rate: ``1,200/s``."""
    if per_second is None:
        return NONE
    return f"{per_second:,.0f}/s" if per_second >= 10 or not per_second else f"{per_second:.1f}/s"


def number(value: float | None) -> str:
    """Formats a count: ``1,200``."""
    return NONE if value is None else f"{value:,.0f}"


def share(part: float | None) -> str:
    """Formats a fraction: ``97.5%``."""
    return NONE if part is None else f"{part:.1%}"


def many(count: int, one: str, several: str = "") -> str:
    """Formats a count with its noun: ``1 log``, ``2 logs``."""
    return f"{count:,} {one if count == 1 else several or one + 's'}"


def joiners_failing(count: int) -> str:
    return f"{many(count, 'joiner fails and is', 'joiners fail and are')} temporarily ejected"


def missing_keys(keys: int, logs: int, log: str = "log") -> str:
    """Formats the number of keys that wait for missing logs: ``1 key waits for 2 logs``."""
    return f"{many(keys, 'key waits', 'keys wait')} for {many(logs, log)}"

"""Option types for sizes, durations and moments, written as in the configuration (``config/units.py``)."""

from __future__ import annotations

from typing import Any

import click

from photon.config.errors import UsageError
from photon.config.units import moment_ns, seconds, size


class Size(click.ParamType[int]):
    """A size: ``512MiB``, or a bare number of bytes."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Returns the size in bytes."""
        try:
            return size(int(value) if str(value).isdigit() else value)
        except ValueError as error:
            self.fail(f"{value!r}: {error}", param, ctx)


class Duration(click.ParamType[float]):
    """A duration: ``100ms``, ``10s``, or a bare number of seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Returns the duration in seconds."""
        try:
            return seconds(_number(value))
        except ValueError as error:
            self.fail(f"{value!r}: {error}", param, ctx)


def _number(value: Any) -> Any:
    try:
        return float(value)
    except ValueError:
        return value


SIZE = Size()
DURATION = Duration()


NOW = "now"


def given_ns(option: str, value: str, now_ns: int) -> int:
    """Parses a moment into ns UTC: ``now``, ``2h`` (ago), an ISO date or time (UTC without a zone), or epoch seconds.

    ``option``: its name in errors. Raises UsageError for other forms, and for a time after ``now_ns``.
    """
    if value.strip() == NOW:
        return now_ns
    try:
        return moment_ns(value, now_ns)
    except ValueError as error:
        raise UsageError(f"{option} {value}: {error}, or now") from None

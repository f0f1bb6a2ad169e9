"""Sizes and durations as options take them; the words are those of the configuration (``config/units.py``)."""

from __future__ import annotations

from typing import Any

import click


class Size(click.ParamType[int]):
    """``512MiB``, or a bare number of bytes."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Bytes."""
        from photon.config.units import size

        try:
            return size(int(value) if str(value).isdigit() else value)
        except ValueError as error:
            self.fail(f"{value!r}: {error}", param, ctx)


class Duration(click.ParamType[float]):
    """``100ms``, ``10s``, or a bare number of seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Seconds."""
        from photon.config.units import seconds

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

"""Draws line charts with few points and series as SVG text. The same figures give the same bytes. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 560, 300
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 36, 44
COLOURS = ("#1f6f8b", "#c8553d", "#6a8532", "#7a5195", "#8a6d3b", "#444444")

MARKED_MAX = 40  # maximum number of marked points of a series


@dataclass(frozen=True, slots=True)
class Series:
    """A line of points in the order of x."""

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Band:
    """An interval of x with a condition; a line if it has no length."""

    begin: float
    end: float
    name: str = ""


@dataclass(frozen=True, slots=True)
class Axis:
    """Linear from 0, or logarithmic over whole decades."""

    label: str
    log: bool = False

    def range(self, values: Sequence[float]) -> tuple[float, float]:
        """Lowest and highest value shown; all values are positive on a logarithmic axis."""
        if self.log:
            low = 10.0 ** math.floor(math.log10(min(values)))
            return low, max(10.0 ** math.ceil(math.log10(max(values))), 10 * low)
        return 0.0, max(ticks(max(values))[-1], max(values))

    def share(self, value: float, low: float, high: float) -> float:
        """Position of a value between the ends of the axis, from 0 to 1."""
        if self.log:
            return math.log(value / low) / math.log(high / low)
        return (value - low) / (high - low)

    def ticks(self, low: float, high: float) -> list[float]:
        """Values at which the grid has a line."""
        if self.log:
            return [low * 10.0**each for each in range(round(math.log10(high / low)) + 1)]
        return ticks(high)


def ticks(highest: float) -> list[float]:
    """Round values from 0 up to at least ``highest``; at most seven."""
    if highest <= 0:
        return [0.0, 1.0]
    decade = 10.0 ** (math.floor(math.log10(highest)) - 1)
    step = next(decade * each for each in (1, 2, 5, 10, 20) if highest / (decade * each) <= 6)
    return [step * each for each in range(math.ceil(highest / step - 1e-9) + 1)]


def number(value: float) -> str:
    """Formats a number: 1,000 or 2.5."""
    return f"{value:,.0f}" if value == int(value) else f"{value:g}"


def chart(title: str, x: Axis, y: Axis, series: Sequence[Series], bands: Sequence[Band] = ()) -> str:
    """Draws the chart. Each series needs a point. Points of long series are not marked; their names stand above."""
    xs = [at for each in series for at, _ in each.points]
    ys = [at for each in series for _, at in each.points]
    (x_low, x_high), (y_low, y_high) = x.range(xs), y.range(ys)
    wide, high = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
    long = any(len(each.points) > MARKED_MAX for each in series)

    def across(value: float) -> float:
        return round(LEFT + x.share(value, x_low, x_high) * wide, 1)

    def down(value: float) -> float:
        return round(TOP + (1 - y.share(value, y_low, y_high)) * high, 1)

    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'font-family="sans-serif" font-size="11" role="img" aria-label="{escape(title)}">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="18" font-size="13" fill="#222222">{escape(title)}</text>',
    ]
    for band in bands:
        begin, end = across(max(band.begin, x_low)), across(min(band.end, x_high))
        lines.append(
            f'<rect x="{begin:g}" y="{TOP}" width="{max(1.0, end - begin):g}" height="{high}" fill="#f3e3b3"/>'
        )
        if band.name:
            lines.append(_text(end + 4, TOP + 12, band.name, "start"))
    for tick in y.ticks(y_low, y_high):
        lines.append(f'<path d="M{LEFT} {down(tick)}H{WIDTH - RIGHT}" stroke="#dddddd"/>')
        lines.append(_text(LEFT - 6, down(tick) + 4, number(tick), "end"))
    for tick in x.ticks(x_low, x_high):
        lines.append(f'<path d="M{across(tick)} {TOP}V{HEIGHT - BOTTOM}" stroke="#eeeeee"/>')
        lines.append(_text(across(tick), HEIGHT - BOTTOM + 15, number(tick), "middle"))
    lines.append(_text(LEFT + wide / 2, HEIGHT - 10, x.label, "middle"))
    lines.append(_text(LEFT, TOP - 6, y.label, "start"))
    for place, (each, colour) in enumerate(zip(series, COLOURS, strict=False)):
        path = " ".join(f"{across(a)},{down(b)}" for a, b in each.points)
        lines.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{1.5 if long else 2:g}"/>'
        )
        if long:
            continue
        lines += [f'<circle cx="{across(a)}" cy="{down(b)}" r="3" fill="{colour}"/>' for a, b in each.points]
        lines.append(
            f'<text x="{WIDTH - RIGHT}" y="{TOP + 12 + 14 * place}" text-anchor="end" fill="{colour}">'
            f"{escape(each.name)}</text>"
        )
    if long:
        names = "  ".join(
            f'<tspan fill="{colour}" font-weight="bold">{escape(each.name)}</tspan>'
            for each, colour in zip(series, COLOURS, strict=False)
        )
        lines.append(f'<text x="{WIDTH - RIGHT}" y="{TOP - 6}" text-anchor="end" xml:space="preserve">{names}</text>')
    return "\n".join([*lines, "</svg>", ""])


def _text(x: float, y: float, what: str, anchor: str) -> str:
    return f'<text x="{x:g}" y="{y:g}" text-anchor="{anchor}" fill="#555555">{escape(what)}</text>'

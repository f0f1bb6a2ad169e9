"""Prints the output of commands: JSON on one line, or tables as wide as the terminal. In files and pipes, tables are
not wrapped and lines have no trailing spaces."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import click

from photon.fleet.parts import BAD, Column, Part

if TYPE_CHECKING:
    from rich.table import Table

STYLES = {BAD: "red"}  # styles of a part's rows; other names are rich's own styles

Shown = str | Part | Callable[[], object]  # text output: a line, a table, or a function that prints


def say(line: str) -> None:
    """Prints one of Photon's own lines on standard error."""
    click.echo(f"photon: {line}", err=True)


def print_json(value: Any) -> None:
    import orjson

    click.echo(orjson.dumps(value).decode())


def show(*what: Shown) -> None:
    for each in what:
        if isinstance(each, str):
            click.echo(each)
        elif not isinstance(each, Part):
            each()
        elif each.rows or each.none is None:
            draw(each)
        elif each.none:
            click.echo(each.none)


def draw(part: Part) -> None:
    """Draws a table. In a file or pipe it avoids Rich, which takes longer to load than a short join takes."""
    if sys.stdout.isatty():
        from rich.console import Console

        Console().print(table_of(part))
        return
    lines = [[each.head for each in part.columns], *part.cells()]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    for line in lines:
        cells = zip(line, part.columns, widths, strict=True)
        shown = (cell.rjust(width) if column.right else cell.ljust(width) for cell, column, width in cells)
        click.echo("  ".join(shown).rstrip())


def table_of(part: Part) -> Table:
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for column in part.columns:
        table.add_column(column.head, justify="right" if column.right else "left", overflow="fold")
    for row, cells in zip(part.rows, part.cells(), strict=True):
        style = part.style(row)
        table.add_row(*map(Text, cells), style=STYLES.get(style, style))
    if not part.rows and part.none:
        table.add_row(part.none)
    return table


def facts(said: Iterable[tuple[str, str]]) -> list[str]:
    """Formats each fact as a line: its name, then its text."""
    named = list(said)
    width = max((len(name) for name, _ in named), default=0)
    return [f"{name:<{width}}  {what}" for name, what in named]


def counted(counts: Mapping[str, int], meanings: Mapping[str, str], what: str = "events") -> Part:
    """Returns a table of the counters that are not zero, with their meanings."""
    rows = [{"count": counts[name], "is": meaning} for name, meaning in meanings.items() if counts.get(name)]
    return Part("", rows, (Column(f">{what}", "count"), Column("verdicts", "is")))

"""The output of commands: JSON in one line, and tables as wide as the terminal; in files and pipes tables are
unwrapped and without spaces at the lines' ends."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

import click

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table

PIPE_WIDTH = 240
"""Width of a table in a file or a pipe, where there is no terminal to wrap it."""


def say(line: str) -> None:
    """Prints a line of Photon's own on standard error."""
    click.echo(f"photon: {line}", err=True)


def print_json(value: Any) -> None:
    import orjson

    click.echo(orjson.dumps(value).decode())


def show(table: RenderableType) -> None:
    from rich.console import Console

    if sys.stdout.isatty():
        Console().print(table)
        return
    console = Console(width=PIPE_WIDTH)
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        click.echo(line.rstrip())


def table_of(columns: str | Sequence[tuple[str, bool]], rows: Sequence[Sequence[str]] = (), title: str = "") -> Table:
    """``columns``: (name, True if right-aligned), or ``slot, >bytes``, where > means right-aligned."""
    from rich.table import Table
    from rich.text import Text

    if isinstance(columns, str):
        columns = [(name.removeprefix(">"), name.startswith(">")) for name in columns.split(", ")]
    table = Table(box=None, pad_edge=False, title=title or None, title_justify="left")
    for name, right in columns:
        table.add_column(name, justify="right" if right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(each) for each in row))
    return table


def print_table(columns: str | Sequence[tuple[str, bool]], rows: Sequence[Sequence[str]]) -> None:
    """See ``table_of``. In a file or a pipe without Rich, which takes longer to load than a short join."""
    if sys.stdout.isatty():
        show(table_of(columns, rows))
        return
    if isinstance(columns, str):
        columns = [(name.removeprefix(">"), name.startswith(">")) for name in columns.split(", ")]
    lines = [[name for name, _ in columns], *rows]
    widths = [max(map(len, cells)) for cells in zip(*lines, strict=True)]
    for line in lines:
        cells = zip(line, columns, widths, strict=True)
        click.echo("  ".join(f"{cell:{'>' if right else '<'}{width}}" for cell, (_, right), width in cells).rstrip())


def words(value: object, none: str = "-") -> str:
    return f"{value:,}" if isinstance(value, int) else str(value or none)


class Column(NamedTuple):
    """What people see of a row. ``name``: its heading; > means right-aligned. ``value``: the row's field (default:
    ``name``), or what is made of the row; ``words`` formats it, and an unknown value too."""

    name: str
    value: str | Callable[[Any], Any] = ""
    words: Callable[[Any], str] = words

    def cell(self, row: Mapping[str, Any]) -> str:
        if callable(self.value):
            return self.words(self.value(row))
        return self.words(row.get(self.value or self.name.removeprefix(">")))


class Part(NamedTuple):
    """A part of a deployment: rows for ``-o json`` under ``name``, and the columns that people see of them."""

    name: str
    rows: Sequence[Mapping[str, Any]]
    columns: Sequence[Column]

    def table(self) -> Table:
        heads = ", ".join(each.name for each in self.columns)
        return table_of(heads, [[column.cell(row) for column in self.columns] for row in self.rows])

    def show(self) -> None:
        show(self.table())


def picked(value: object, names: str) -> dict[str, Any]:
    """For JSON: the attributes of these names."""
    return {name: getattr(value, name) for name in names.split()}


def time_of(ns: int | None) -> str | None:
    """ISO, UTC, to the second."""
    if ns is None:
        return None
    try:
        return datetime.fromtimestamp(ns // 10**9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return f"{ns} ns"


def moment(ns: int | None) -> str:
    """Like ``time_of``, for a cell."""
    return time_of(ns) or "-"

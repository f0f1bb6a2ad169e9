"""Parts of a deployment's status: rows, which JSON shows unchanged, and the columns made from them for a terminal and
the status page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from photon.config.clock import utc
from photon.config.words import NONE


def words(value: object, none: str = NONE) -> str:
    return f"{value:,}" if isinstance(value, int) else str(value or none)


class Column(NamedTuple):
    """A displayed column. ``name``: its heading; a leading > right-aligns it. ``value``: field of the row (default:
    ``name``), or a function of the row. ``words`` formats the value, even if it is `None`."""

    name: str
    value: str | Callable[[Any], Any] = ""
    words: Callable[[Any], str] = words

    @property
    def head(self) -> str:
        return self.name.removeprefix(">")

    @property
    def right(self) -> bool:
        return self.name.startswith(">")

    def cell(self, row: Mapping[str, Any]) -> str:
        if callable(self.value):
            return self.words(self.value(row))
        return self.words(row.get(self.value or self.head))


class Part(NamedTuple):
    """A titled table. ``name``: JSON key of the rows. ``none``: text shown instead of an empty table; `None` shows
    its headings. ``style``: a row's display style; ``bad`` if something is wrong with it."""

    name: str
    rows: Sequence[Mapping[str, Any]]
    columns: Sequence[Column]
    none: str | None = None
    style: Callable[[Mapping[str, Any]], str] = lambda row: ""

    def cells(self) -> list[list[str]]:
        return [[column.cell(row) for column in self.columns] for row in self.rows]

    def lines(self) -> list[str]:
        """Formats a part that has few rows: one line per column that has a value."""
        width = max(len(each.head) for each in self.columns)
        named = [(each.head, each.cell(row)) for row in self.rows for each in self.columns]
        return [f"  {head:<{width}} {cell}" for head, cell in named if cell]

    def on_page(self) -> dict[str, Any]:
        """Returns the part for the status page, with all values as text."""
        return {
            "name": self.name,
            "columns": [[each.head, "" if each.right else "l"] for each in self.columns],
            "rows": self.cells(),
            "styles": [self.style(row) for row in self.rows],
            "none": self.none or "none",
        }


BAD = "bad"


def bad_if(wrong: Callable[[Mapping[str, Any]], object]) -> Callable[[Mapping[str, Any]], str]:
    return lambda row: BAD if wrong(row) else ""


def picked(value: object, names: str) -> dict[str, Any]:
    """Returns the attributes with these names, for JSON."""
    return {name: getattr(value, name) for name in names.split()}


def time_of(ns: int | None) -> str | None:
    """Formats a time as ISO text in UTC, to the second."""
    if ns is None:
        return None
    try:
        return utc(ns)
    except (OverflowError, ValueError, OSError):
        return f"{ns} ns"


def moment(ns: int | None) -> str:
    """Like ``time_of``, for a table cell."""
    return time_of(ns) or NONE

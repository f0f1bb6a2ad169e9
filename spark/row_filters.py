"""Filters that the data source applies itself, before a row is made. Pure; needs no pyspark."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

OPERATIONS: Mapping[str, Callable[[Any, Any], bool]] = {
    "EqualTo": operator.eq,
    "In": lambda value, wanted: value in wanted,
    "GreaterThan": operator.gt,
    "GreaterThanOrEqual": operator.ge,
    "LessThan": operator.lt,
    "LessThanOrEqual": operator.le,
}
"""By the names of Spark's classes. A null is never what is wanted."""
OF_FILES: Mapping[str, type] = {"datacentre": str, "slot": str, "kind": str}
"""Columns that are the same in all rows of a file: with them whole files are left out."""
OF_ROWS: Mapping[str, type] = {"hour": int, "event_time_ns": int}


class RowFilter(NamedTuple):
    """A condition on one column."""

    column: str
    operation: str
    value: Any

    def holds(self, value: Any) -> bool:
        """For a row with this value."""
        return value is not None and OPERATIONS[self.operation](value, self.value)


def understood(name: str, column: Sequence[str], value: Any) -> RowFilter | None:
    """A filter of Spark as ours; None where Spark must apply it. ``name``: of its class."""
    if name not in OPERATIONS or len(column) != 1:
        return None
    kind = {**OF_FILES, **OF_ROWS}.get(column[0])
    values = value if name == "In" else (value,)
    if kind is None or not all(type(each) is kind for each in values):
        return None
    return RowFilter(column[0], name, frozenset(value) if name == "In" else value)


def keeps_file(filters: Sequence[RowFilter], values: Mapping[str, str]) -> bool:
    """Whether some of a file's rows may be wanted."""
    return all(each.holds(values[each.column]) for each in filters if each.column in OF_FILES)


def kept_rows(filters: Sequence[RowFilter], columns: Mapping[str, Sequence[Any]], count: int) -> list[int]:
    """Rows that are wanted, by conditions on the columns of OF_ROWS."""
    rows = list(range(count))
    for each in filters:
        if each.column in OF_ROWS:
            values = columns[each.column]
            rows = [row for row in rows if each.holds(values[row])]
    return rows

"""A stream is loaded exactly once, despite any interruption."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from photon.tables import LoadedElsewhere, Tables


class Piece:
    def __init__(self, numbers: list[int]) -> None:
        self.numbers = numbers
        self.cursor = b"%d" % (numbers[-1] + 1)

    def records(self) -> list[int]:
        return self.numbers


class Numbers:
    """0 to 99; the cursor is the next one."""

    def batches(
        self, *, cursor: bytes | None = None, follow: bool = False, lines: int | None = None
    ) -> Iterator[Piece]:
        assert lines
        for first in range(int(cursor or 0), 100, lines):
            yield Piece(list(range(first, min(100, first + lines))))


def test_a_load_that_is_broken_off_goes_on_where_it_was() -> None:
    tables, fails = Tables.open(":memory:"), [30, 31, 77]

    def work(t: Any, n: int) -> None:
        if n in fails:
            fails.remove(n)
            raise KeyError(n)
        row = t.table("sums").row(f"s{n % 3}")
        row.set("n", (row.get("n") or 0) + n)

    for _ in range(3):
        with pytest.raises(KeyError):
            tables.load(Numbers(), work)
    tables.load(Numbers(), work)
    assert tables.load(Numbers(), work) == 0
    with tables.snapshot() as now:
        assert sum(row.get("n") for row in now.table("sums").scan()) == sum(range(100))


def test_two_programs_under_one_name_do_not_load_twice() -> None:
    tables = Tables.open(":memory:")
    stolen = []

    def work(t: Any, n: int) -> None:
        if n == 0 and not stolen:
            stolen.append(tables.load(Numbers(), lambda t, n: None))

    with pytest.raises(LoadedElsewhere, match="another name"):
        tables.load(Numbers(), work)

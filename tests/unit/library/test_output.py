"""A pipeline's published records, in pieces, and from there into tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from photon.library import Output
from photon.tables import Tables
from tests.unit.outputs.helpers import WrittenSlot, lines


def test_batches_of_so_many_lines_have_the_cursor_behind_them(tmp_path: Path) -> None:
    slots = [WrittenSlot(tmp_path, name) for name in ("s0", "s1")]
    for slot in slots:
        slot.append(1, lines(0, 7))
    output = Output(slots[0].place)
    batches = list(output.batches(lines=3))
    assert [len(batch.lines()) for batch in batches] == [3, 3, 1, 3, 3, 1]
    for at, batch in enumerate(batches):
        rest = b"".join(each.data for each in output.batches(cursor=batch.cursor))
        assert rest == b"".join(each.data for each in batches[at + 1 :])


def test_a_number_that_no_float_holds_is_loaded_as_text(tmp_path: Path) -> None:
    slot, tables = WrittenSlot(tmp_path), Tables.open(":memory:")
    slot.append(1, b'{"foreign":{"n":1e999}}\n')
    work = lambda t, record: t.table("found").row("all").set("n", record["foreign"]["n"])  # noqa: E731
    assert tables.load(Output(slot.place), work) == 1
    with tables.snapshot() as now:
        assert now.table("found").row("all").get("n") == "1e999"


def test_an_output_is_loaded_exactly_once_however_often_it_is_begun(tmp_path: Path) -> None:
    slot = WrittenSlot(tmp_path)
    slot.append(1, lines(0, 250))
    tables, seen = Tables.open(":memory:"), []

    def work(t: Any, record: dict[str, Any]) -> None:
        seen.append(record["n"])
        if len(seen) in (20, 170):
            raise InterruptedError
        row = t.table("sums").row("all")
        row.set("n", (row.get("n") or 0) + record["n"])

    for _ in range(2):
        try:
            tables.load(Output(slot.place), work)
        except InterruptedError:
            continue
    tables.load(Output(slot.place), work)
    slot.append(1, lines(250, 50))
    assert tables.load(Output(slot.place), work) == 50
    with tables.snapshot() as now:
        assert now.table("sums").row("all").get("n") == sum(range(300))

"""The contract of every store of rows; over a real HBase: tests/hbase/test_rows.py."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from photon.rows.api import ALL, NOW, Answer, Cell, Change, Delete, Put, Read, Rows, RowsFailed, behind
from photon.rows.memory import MemoryRows
from photon.rows.sqlite import SqliteRows

GROUPS = ({b"m": 1, b"w": ALL}, {b"n": 1})
WHOLE = (b"m", b"w")
BIG = 5 << 20


@pytest.fixture(params=["memory", "sqlite"])
def rows(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Rows]:
    made = MemoryRows(GROUPS) if request.param == "memory" else SqliteRows(
        tmp_path / "r.db", GROUPS, 7, survives_power=True, one_thread=False
    )  # fmt: skip
    yield made
    made.close()


@pytest.fixture
def prefix() -> bytes:
    """Of the rows of one test."""
    return b""


def meta(value: bytes, version: int = 1, column: bytes = b"mx") -> Cell:
    return Cell(column, version, value)


def put(rows: Rows, row: bytes, *cells: Cell) -> None:
    rows.put([Put(row, cells)])


def read(rows: Rows, row: bytes, *columns: bytes, **how: int) -> list[Cell]:
    [found] = rows.read([Read(row, columns, **how)])
    return sorted(found)


def known(rows: Rows, changes: Sequence[Change], answers: Sequence[Answer]) -> list[bool]:
    """A real server may lose an answer: then what the row holds says whether the change was done."""
    return [
        each
        if isinstance(each, bool)
        else rows.change([change]) == [True] or change.cells[0] in read(rows, change.row, change.cells[0].column)
        for change, each in zip(changes, answers, strict=True)
    ]


def change(rows: Rows, *changes: Change) -> list[bool]:
    return known(rows, changes, rows.change(changes))


def test_nothing_is_read_if_nothing_is_asked(rows: Rows) -> None:
    assert rows.read([]) == []


def test_changes_of_one_step_are_done_together_or_not_at_all(rows: Rows) -> None:
    if not isinstance(rows, MemoryRows | SqliteRows):
        pytest.skip("not a store whose rows change together")
    put(rows, b"a", meta(b"1"))

    def step(expected: bytes | None) -> Answer:
        def made(cells: list[Cell]) -> list[Change]:
            assert cells == [meta(b"1")]
            return [Change(b"b", [meta(b"2")], None), Change(b"c", [meta(b"2")], expected)]

        return rows.change_all(b"a", (b"m",), made)

    assert step(b"0") is False
    assert read(rows, b"b", b"m") == []
    assert step(None) is True
    assert read(rows, b"b", b"m") == read(rows, b"c", b"m") == [meta(b"2")]

    def failing(cells: list[Cell]) -> list[Change]:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        rows.change_all(b"a", (b"m",), failing)
    put(rows, b"a", meta(b"3"))


def test_a_cell_has_the_value_of_the_highest_version(rows: Rows, prefix: bytes) -> None:
    row = prefix + b"a\xc3\xbc"
    put(rows, row, meta(b"new", 7), meta(b"x", 7, b"my"))
    put(rows, row, meta(b"late", 6))
    assert read(rows, row, b"m") == [meta(b"new", 7), meta(b"x", 7, b"my")]
    put(rows, row, meta(b"again", 7), meta(b"", 8, b"my"))
    assert read(rows, row, b"mx", b"mz") == [meta(b"again", 7)]
    assert read(rows, row, b"my") == [meta(b"", 8, b"my")]
    assert rows.read([Read(prefix + b"none", (b"m",)), Read(row, (b"n",))]) == [[], []]


def test_a_read_has_the_newest_version_that_it_may_see(rows: Rows, prefix: bytes) -> None:
    row, versions = prefix + b"r", [5, 900, 2**53 + 1]
    for version in (900, 5, versions[2]):
        put(rows, row, Cell(b"wx", version, b"%d" % version))
    put(rows, row, meta(b"m"), Cell(b"wy", 6, b"y"))
    for upto, seen in ((4, []), (5, [5]), (899, [5]), (900, [900]), (2**60, [versions[2]])):
        found = read(rows, row, b"mx", b"wx", upto=upto)
        assert found == [meta(b"m"), *(Cell(b"wx", each, b"%d" % each) for each in seen)]
    assert [cell.version for cell in read(rows, row, b"w", upto=10)] == [5, 6]
    assert [cell.version for cell in read(rows, row, b"wx", every=True)] == versions
    assert [cell.version for cell in read(rows, row, b"wx", upto=900, every=True)] == versions[:2]


def test_a_change_is_done_where_the_first_cell_is_as_expected(rows: Rows, prefix: bytes) -> None:
    row = prefix + b"r"
    assert change(rows, Change(row, [meta(b"1")], b"x")) == [False]
    assert change(rows, Change(row, [meta(b"1")], None)) == [True]
    assert change(rows, Change(row, [meta(b"2"), Cell(b"wx", 3, b"no")], None)) == [False]
    both = [Change(row, [meta(b"2"), Cell(b"wx", 5, b"v"), Cell(b"n1", NOW, b"")], b"1"),
            Change(prefix + b"other", [meta(b"1")], b"0")]  # fmt: skip
    assert change(rows, *both) == [True, False]
    assert read(rows, row, *WHOLE) == [meta(b"2"), Cell(b"wx", 5, b"v")]
    assert [cell.column for cell in read(rows, row, b"n")] == [b"n1"]
    assert rows.change([]) == []


def test_a_change_may_bring_an_older_version(rows: Rows, prefix: bytes) -> None:
    row = prefix + b"r"
    put(rows, row, Cell(b"wx", 9, b"new"))
    assert change(rows, Change(row, [meta(b"1"), Cell(b"wx", 5, b"old")], None)) == [True]
    assert read(rows, row, *WHOLE) == [meta(b"1"), Cell(b"wx", 9, b"new")]
    assert change(rows, Change(row, [meta(b"2"), Cell(b"wx", 7, b"mid")], b"1")) == [True]
    assert change(rows, Change(row, [meta(b"3"), Cell(b"wx", 11, b"no")], b"1")) == [False]
    assert read(rows, row, *WHOLE) == [meta(b"2"), Cell(b"wx", 9, b"new")]
    assert [cell.version for cell in read(rows, row, b"wx", every=True)] == [5, 7, 9]


def test_the_first_decides(rows: Rows, prefix: bytes) -> None:
    changes = [Change(prefix + b"%d" % n, [meta(b"1")], None) for n in range(5)]
    wrong = changes[0]._replace(expected=b"0")
    assert known(rows, [wrong, *changes[1:]], rows.decide([wrong, *changes[1:]])) == [False] * 5
    assert rows.read([Read(each.row, WHOLE) for each in changes]) == [[]] * 5
    assert known(rows, changes, rows.decide(changes)) == [True] * 5
    assert known(rows, changes, rows.decide(changes)) == [False] * 5


def test_the_others_may_follow_later(rows: Rows, prefix: bytes) -> None:
    changes = [Change(prefix + b"%02d" % n, [meta(b"1")], None) for n in range(50)]
    assert rows.decide([changes[0]._replace(expected=b"0"), *changes[1:]], wait=False)[0] is False
    rows.flush()
    assert rows.scan(prefix, changes[-1].row, WHOLE, 1) == []
    done = rows.decide(changes, wait=False)[0]
    rows.flush()
    found = [bool(cells) for cells in rows.read([Read(each.row, WHOLE) for each in changes])]
    assert isinstance(done, RowsFailed) or found[0]
    assert sum(found[1:]) >= (45 if done is True else 0), "some answers may be lost"


def test_a_commit_has_its_puts(rows: Rows, prefix: bytes) -> None:
    head, row = prefix + b"h", prefix + b"r"
    cells = [meta(b"x" * BIG, 8), Cell(b"wx", 8, b"v")]
    assert rows.commit(Change(head, [meta(b"one", 8), meta(b"more", 8, b"my")], None), [Put(row, cells)])
    assert not rows.commit(Change(head, [meta(b"two", 9)], b"none"), [Put(row, [meta(b"no", 9)])])
    assert read(rows, row, *WHOLE) == cells
    assert rows.commit(Change(head, [meta(b"two", 9)], b"one"), [Put(row, [meta(b"y", 9)])])
    assert read(rows, row, b"m") == [meta(b"y", 9)]
    if rows.atomic:
        assert rows.commit(Change(head, [meta(b"three", 10)], b"two"), [Put(row, None)])
        assert read(rows, row, *WHOLE) == []
        assert [key for key, _ in rows.scan(prefix, None, WHOLE, 9)] == [head]


def test_a_scan_has_its_bounds(rows: Rows, prefix: bytes) -> None:
    for n in range(5):
        put(rows, prefix + b"%d" % n, meta(b"1"), Cell(b"wx", 5, b"v"), Cell(b"wx", 7, b"w"))
    put(rows, prefix + b"1", meta(b"2", 1, b"my"))
    put(rows, prefix + b"2\xff", Cell(b"nz", NOW, b""))
    end = prefix + b"4"

    def seen(begin: bytes, columns: Sequence[bytes], limit: int) -> list[bytes]:
        return [key[len(prefix) :] for key, _ in rows.scan(prefix + begin, end, columns, limit)]

    assert seen(b"1", WHOLE, 9) == [b"1", b"2", b"3"]
    assert seen(b"1", (b"mx", b"wx"), 2) == [b"1", b"2"]
    assert seen(b"", (b"n",), 9) == [b"2\xff"]
    assert seen(b"", (b"my", b"wx"), 9) == [b"0", b"1", b"2", b"3"]
    assert seen(b"", (b"my", b"w"), 1) == [b"0"]
    assert rows.scan(prefix, end, (b"my",), 9) == [(prefix + b"1", [meta(b"2", 1, b"my")])]
    [(_, first), *_] = rows.scan(prefix, end, WHOLE, 1, upto=6)
    assert sorted(first) == [meta(b"1"), Cell(b"wx", 5, b"v")]
    assert [len(cells) for _, cells in rows.scan(prefix, end, (b"w",), 9, every=True)] == [2] * 4
    assert rows.scan(prefix, end, (b"w",), 9, upto=4) == []
    assert prefix + b"4" in [key for key, _ in rows.scan(prefix, None, (b"m",), 1_500)]


def test_pages_are_whole(rows: Rows, prefix: bytes) -> None:
    names = [prefix + b"%04d" % n for n in range(1_700)]
    rows.put([Put(name, [meta(b"1")]) for name in names])
    assert [key for key, _ in rows.scan(prefix + b"0", prefix + b"1", (b"mx",), 1_000)] == names[:1_000]
    assert [key for key, _ in rows.scan(prefix + b"0", prefix + b"2", (b"m",), 1_700)] == names
    assert len(list(filter(None, rows.read([Read(name, (b"m",)) for name in names])))) == 1_700


def test_cells_are_deleted_up_to_a_version(rows: Rows, prefix: bytes) -> None:
    row = prefix + b"r"
    put(rows, row, meta(b"1", 8), meta(b"2", 9, b"my"), *(Cell(b"wx", version, b"v") for version in (2, 4, 6)))
    rows.delete([Delete(row, b"wx", 4), Delete(row, b"my", 8), Delete(prefix + b"none", b"mx")])
    assert [cell.version for cell in read(rows, row, b"wx", every=True)] == [6]
    rows.delete([Delete(row, None, 8)])
    assert read(rows, row, *WHOLE) == [meta(b"2", 9, b"my")]
    rows.delete([Delete(row, None, 9)])
    assert rows.scan(row, behind(row), WHOLE, 9) == []


def test_what_was_deleted_may_come_back(rows: Rows, prefix: bytes) -> None:
    row = prefix + b"r"
    for _ in range(2):
        put(rows, row, Cell(b"n1", NOW, b"a"), Cell(b"n2", NOW, b""))
        assert [cell.value for cell in read(rows, row, b"n1")] == [b"a"]
        rows.delete([Delete(row, b"n1")])
        assert [cell.column for cell in read(rows, row, b"n")] == [b"n2"]


def test_threads_change_one_row_in_turn(rows: Rows, prefix: bytes) -> None:
    row, errors = prefix + b"r", list[BaseException]()

    def work() -> None:
        try:
            for _ in range(10):
                done = False
                while not done:
                    before = next((cell.value for cell in read(rows, row, b"mx")), None)
                    done = rows.change([Change(row, [meta(b"%d" % (int(before or 0) + 1))], before)])[0] is True
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert errors == []
    [found] = read(rows, row, b"mx")
    assert int(found.value) >= 40  # more if the answer to a change that was done was lost

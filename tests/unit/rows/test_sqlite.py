"""Rows in SQLite: files that are none of them, threads, older versions, power cuts."""

from __future__ import annotations

import sqlite3
import threading
from pathlib import Path

import pytest

from photon.rows.api import ALL, Cell, Change, Put, Read, RowsFailed
from photon.rows.sqlite import FORMAT, SqliteRows


def opened(path: Path, application: int = 7) -> SqliteRows:
    return SqliteRows(path, [{b"c": 1, b"w": ALL}], application, survives_power=True, one_thread=False)


def test_a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    made = opened(tmp_path / "r.db")
    assert made.create()
    made.close()
    assert not opened(tmp_path / "r.db").create()
    with pytest.raises(RowsFailed, match=r"r\.db: is another program's database; name another file"):
        opened(tmp_path / "r.db", 8)
    other = sqlite3.connect(tmp_path / "other.db")
    other.execute("CREATE TABLE x (y)")
    other.commit()
    with pytest.raises(RowsFailed, match="is another program's database"):
        opened(tmp_path / "other.db")
    other.execute("DROP TABLE x")
    other.executescript("PRAGMA application_id = 7; PRAGMA user_version = 2")
    with pytest.raises(RowsFailed, match=f"other.db: version 2, this release reads version {FORMAT}"):
        opened(tmp_path / "other.db")
    (tmp_path / "text.db").write_text("hello " * 100)
    with pytest.raises(RowsFailed, match="not a database"):
        opened(tmp_path / "text.db")


def test_many_create_the_file_at_once(tmp_path: Path) -> None:
    for n in range(20):
        path, made = tmp_path / f"{n}.db", list[SqliteRows]()
        threads = [threading.Thread(target=lambda path=path, made=made: made.append(opened(path))) for _ in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert len(made) == 4
        assert any(each.create() for each in made)


def test_a_process_that_is_creating_the_file_is_waited_for(tmp_path: Path) -> None:
    other = sqlite3.connect(tmp_path / "r.db", isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    threading.Timer(0.2, other.execute, ["ROLLBACK"]).start()
    assert opened(tmp_path / "r.db").create()


def test_connections_go_with_their_threads(tmp_path: Path) -> None:
    rows = opened(tmp_path / "r.db")
    with rows._writing:  # otherwise they would read over the writing connection
        for _ in range(5):
            thread = threading.Thread(target=rows.read, args=([Read(b"r", (b"c",))],))
            thread.start()
            thread.join()
    assert len(rows._open) == 2
    rows.close()
    failed: list[str] = []

    def late() -> None:
        with pytest.raises(RowsFailed, match="is closed") as raised:
            rows.read([Read(b"r", (b"c",))])
        failed.append(str(raised.value))

    thread = threading.Thread(target=late)
    thread.start()
    thread.join()
    assert failed


def test_a_disk_that_fails_is_said_and_leaves_nothing(tmp_path: Path) -> None:
    rows = opened(tmp_path / "r.db")
    rows._writer.execute("PRAGMA max_page_count = 20")
    big = Put(b"r", [Cell(b"c1", 1, b"x" * 200_000)])
    with pytest.raises(RowsFailed, match=r"r\.db: database or disk is full"):
        rows.commit(Change(b"h", [Cell(b"c", 1, b"one")], None), [big])
    [answer] = rows.change([Change(b"h", [Cell(b"c", 1, b"one"), big.cells[0]], None)])  # type: ignore[index]
    assert isinstance(answer, RowsFailed)
    assert rows.read([Read(b"h", (b"c",))]) == [[]]


def test_a_power_cut_in_a_commit_leaves_all_of_it_or_nothing(tmp_path: Path) -> None:
    path = tmp_path / "r.db"
    rows = opened(path)
    assert rows._writer.execute("PRAGMA synchronous").fetchone() == (2,)  # the log is synced in each commit
    wal = path.with_name("r.db-wal")
    sizes, states, before = [], [], None

    def state(of: SqliteRows) -> object:
        return of.scan(b"", None, (b"c", b"w"), 99, every=True)

    for n in (1, 2):
        head = Change(b"h", [Cell(b"chead", n, b"%d" % n)], before)
        puts = [Put(b"k%d" % key, [Cell(b"c1", n, b"%d" % n * 2000), Cell(b"wx", n, b"v")]) for key in range(5)]
        assert rows.commit(head, [*puts, Put(b"k0", None)] if n == 2 else puts)
        before = b"%d" % n
        sizes.append(wal.stat().st_size)
        states.append(state(rows))
    log = wal.read_bytes()
    for cut in {*range(sizes[0], sizes[1], 1500), sizes[0] + 1, sizes[1] - 1, sizes[1]}:
        for tail in (b"", bytes(sizes[1] - cut)):
            copy = tmp_path / "copy.db"
            copy.with_name("copy.db-shm").unlink(missing_ok=True)
            copy.write_bytes(path.read_bytes())
            copy.with_name("copy.db-wal").write_bytes(log[:cut] + tail)
            found = opened(copy)
            assert state(found) == states[log[:cut] + tail == log], (cut, len(tail))
            found.close()

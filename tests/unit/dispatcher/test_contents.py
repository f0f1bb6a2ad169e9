"""Lines that share only an event id are found, once, with both places."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from photon.dispatcher.contents import Conflict, Contents
from tests.unit.dispatcher.world import block, core

Lines = list[tuple[str, bytes]]


def read(contents: Contents, *lines: tuple[str, int, bytes]) -> None:
    """(path, offset, line)"""
    dispatcher = core(seen=contents.see)
    for path, offset, line in lines:
        for _ in dispatcher.intake.take(block(line + b"\n", offset, identity=path, path=path), 0, 0.0):
            pass


def commit(database: sqlite3.Connection, contents: Contents) -> None:
    for sql, arguments in contents.changes():
        database.execute(sql, arguments)


def test_the_same_id_with_other_content_is_named_with_both_places() -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
        contents = Contents(database)
        lines = [b"i1 k1 1", b"i2 k1 1", b"i1 k1 1", b"i1 k2 1"]
        read(contents, *[("a.log", 8 * at, line) for at, line in enumerate(lines)])
        assert contents.found() == (0, None), "not committed"
        commit(database, contents)
        conflict = Conflict(b"i1", ("a.log", 0), ("a.log", 24))
        assert contents.found() == (1, conflict)
        assert str(conflict) == "i1: a.log at byte 0 and a.log at byte 24"
        again = Contents(database)
        read(again, ("b.log", 5, b"i2 k9 1"), ("a.log", 24, b"i1 k2 1"))
        commit(database, again)
        assert again.found()[0] == 1, "of this run, and none twice"


def test_a_record_without_an_id_of_its_own_is_its_own() -> None:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
        contents = Contents(database)
        read(contents, ("a.log", 0, b"- k1 1"), ("a.log", 7, b"- k1 1"))
        commit(database, contents)
        assert contents.found() == (0, None)


LINE = st.tuples(st.sampled_from([b"i1", b"i2", b"i3"]), st.sampled_from([b"k1", b"k2"])).map(b" ".join)


@settings(max_examples=60, deadline=None)
@given(st.lists(LINE, min_size=1, max_size=8), st.lists(st.integers(0, 8), max_size=3))
def test_kills_between_reading_and_committing_change_nothing(lines: list[bytes], kills: list[int]) -> None:
    """Uncommitted lines are read again from the last offset, or from before it."""
    places = [("a.log", 9 * at, line + b" 1") for at, line in enumerate(lines)]
    first: dict[bytes, bytes] = {}
    wanted = {at for at, line in enumerate(lines) if first.setdefault(line.split()[0], line) != line}
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as database:
        committed = 0
        for kill in kills:
            contents = Contents(database)
            read(contents, *places[committed:kill])
            if kill % 2:
                commit(database, contents)  # and perhaps the offset moves later than that
                committed = max(committed, kill - kill % 3)
        contents = Contents(database)
        read(contents, *places[committed:])
        commit(database, contents)
        found = database.execute("SELECT offset FROM conflicts").fetchall()
    assert {offset // 9 for (offset,) in found} == wanted


def test_a_dispatcher_whose_ids_are_told_keeps_nothing(tmp_path: Path) -> None:
    assert core().intake.seen is None

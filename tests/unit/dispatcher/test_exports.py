"""The rejected and late logs: files that somebody touched, and a database that is lost.

Kills: ``tests/simulation/dispatcher/test_exports.py``.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from photon.config.disk import RealDisk
from photon.dispatcher.events import Export
from photon.dispatcher.exports import Exports
from photon.dispatcher.state import Changes, State
from photon.outputs import Cursor, OutputPlace, Reader
from photon.outputs.content import OutputMissing
from photon.outputs.log.writer import NotOfThisState


def content(output: Path, log: str) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((output / log).glob("dispatcher-*.jsonl")))


def add(state: State, log: str, *lines: bytes) -> None:
    state.commit(Changes(exports=[Export(log, line) for line in lines]))


def opened(directory: Path, state: State, warnings: list[str] | None = None) -> Exports:
    warn = print if warnings is None else warnings.append
    return Exports(directory, RealDisk(), state, directory / "p", warn=warn)


@pytest.mark.parametrize("what", ["gone", "shorter"])
def test_a_file_that_somebody_touched_is_left_alone(tmp_path: Path, what: str) -> None:
    state = State(tmp_path / "s")
    exports = opened(tmp_path, state)
    add(state, "late", b"one\n")
    exports.flush()
    exports.close()
    path = tmp_path / "late" / "dispatcher-000001.jsonl"
    if what == "gone":
        path.unlink()
    else:
        path.write_bytes(b"o")
    warnings: list[str] = []
    exports = opened(tmp_path, state, warnings=warnings)
    add(state, "late", b"two\n")
    exports.flush()
    assert (tmp_path / "late" / "dispatcher-000002.jsonl").read_bytes() == b"two\n"
    assert path.exists() == (what == "shorter")
    assert len(warnings) == 1
    assert "late/dispatcher-000001.jsonl" in warnings[0]
    exports.close()
    state.close()


def test_a_reader_of_a_file_that_was_archived_goes_on_after_a_restart(tmp_path: Path) -> None:
    state, place, warnings = State(tmp_path / "s"), OutputPlace(tmp_path, tmp_path / "p"), list[str]()
    cursor = Cursor()

    def exported(line: bytes) -> None:
        exports = Exports(tmp_path, RealDisk(), state, place.state, warn=warnings.append, roll_bytes=1)
        add(state, "late", line)
        exports.flush()
        exports.close()

    exported(b"one\n")
    for block in Reader(RealDisk(), place, ("late",)).read():
        cursor = cursor.moved(block.place, block.end())
    exported(b"two\n")
    (tmp_path / "late/dispatcher-000001.jsonl").unlink()
    exported(b"three\n")
    read = Reader(RealDisk(), place, ("late",), cursor=cursor).read()
    assert [block.data for block in read] == [b"two\n", b"three\n"]
    with pytest.raises(OutputMissing, match=r"archived, or lost; .* the cursor after it is"):
        list(Reader(RealDisk(), place, ("late",)).read())
    assert warnings == []
    state.close()


def test_nothing_to_export_makes_no_files(state: State, tmp_path: Path) -> None:
    opened(tmp_path / "out", state).close()
    names: Sequence[Path] = list((tmp_path / "out").rglob("*"))
    assert names == []


class Lost:
    """A state that has exported three lines, and a copy of it from after the first one."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.path = directory, directory / "s"
        state = State(self.path)
        exports = opened(directory, state)
        add(state, "late", b"l0\n")
        exports.flush()
        with closing(sqlite3.connect(directory / "s.older")) as older:
            state.database.backup(older)
        add(state, "late", b"l1\n")
        add(state, "rejected", b"r0\n", b"r1\n")
        exports.flush()
        exports.close()
        state.close()

    def lose(self, what: str) -> None:
        """The database is lost, with the record of published data, or is restored to its state after the
        first line."""
        if "database" in what:
            self.path.unlink()
        if "older" in what:
            shutil.copy(self.directory / "s.older", self.path)
        if "published" in what:
            shutil.rmtree(self.directory / "p")


@pytest.mark.parametrize(("what", "file"), [("database", 1), ("older", 1), ("database, published", 2)])
def test_a_lost_database_goes_on_behind_what_was_shown(tmp_path: Path, what: str, file: int) -> None:
    lost = Lost(tmp_path)
    lost.lose(what)
    state, warnings = State(lost.path), list[str]()
    again = opened(tmp_path, state, warnings=warnings)
    add(state, "late", b"l2\n")
    again.flush()
    again.close()
    state.close()
    assert content(tmp_path, "late") == b"l0\nl1\nl2\n"
    assert (tmp_path / "late" / f"dispatcher-{file:06d}.jsonl").read_bytes().endswith(b"l2\n")
    assert warnings
    assert all(str(tmp_path) in line for line in warnings)


@pytest.mark.parametrize("what", ["published", "older, published"])
def test_a_start_is_refused_if_what_is_published_was_lost(tmp_path: Path, what: str) -> None:
    lost = Lost(tmp_path)
    lost.lose(what)
    before = {log: content(tmp_path, log) for log in ("rejected", "late")}
    state = State(lost.path)
    with pytest.raises(
        NotOfThisState, match=r"has nothing \(durable\.json\) here, but .*/s has published it"
    ) as refused:
        opened(tmp_path, state)
    assert str(tmp_path / "p/exports/dispatcher/durable.json") in str(refused.value)
    assert {log: content(tmp_path, log) for log in before} == before
    state.close()

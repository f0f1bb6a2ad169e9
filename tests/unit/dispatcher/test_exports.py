"""The rejected and late logs hold each line once, whenever the process dies."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from photon.config.disk import Disk, RealDisk
from photon.dispatcher.events import Export
from photon.dispatcher.exports import Exports
from photon.dispatcher.previous import copy_state
from photon.dispatcher.state import Changes, State
from photon.outputs import OutputPlace, Reader
from photon.outputs.log.writer import NotOfThisState
from tests.dying_disk import DyingDisk, Killed


def content(output: Path, log: str) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((output / log).glob("dispatcher-*.jsonl")))


def published(directory: Path) -> dict[tuple[str, str], bytes]:
    """Data of each log that readers were shown: in one piece, over all its files."""
    found: dict[tuple[str, str], bytes] = {}
    for slot in OutputPlace(directory, directory / "p").published(RealDisk()):
        for file in slot.files:
            data = (directory / file.name).read_bytes()[: file.length]
            found[file.kind, slot.slot] = found.get((file.kind, slot.slot), b"") + data
    return found


def add(state: State, log: str, *lines: bytes) -> None:
    state.commit(Changes(exports=[Export(log, line) for line in lines]))


def opened(
    directory: Path,
    state: State,
    disk: Disk | None = None,
    warnings: list[str] | None = None,
    roll_bytes: int = 1_000,
) -> Exports:
    warn = print if warnings is None else warnings.append
    return Exports(directory, disk or RealDisk(), state, directory / "p", warn=warn, roll_bytes=roll_bytes)


@pytest.mark.parametrize("roll_bytes", [1_000, 5])
def test_killed_at_any_moment(tmp_path: Path, roll_bytes: int) -> None:
    for at in range(200):
        directory = tmp_path / str(at)
        state = State(directory / "s")
        exports = None
        survived = True
        try:
            exports = opened(directory, state, DyingDisk(at), roll_bytes=roll_bytes)
            for n in range(4):
                add(state, "rejected", b"r%d\n" % n, b"s%d\n" % n)
                add(state, "late", b"l%d\n" % n)
                exports.flush()
        except Killed:
            survived = False
        if exports is not None:
            exports.close()
        told = published(directory)
        for (log, _), data in told.items():
            assert content(directory, log).startswith(data)  # it never claims more than there is
        state.close()
        state = State(directory / "s")
        again = opened(directory, state, roll_bytes=roll_bytes)
        shown = published(directory)
        for log, data in told.items():
            assert shown[log].startswith(data)
        whole = {log: content(directory, log) for log in ("rejected", "late")}
        read: dict[str, bytes] = {}
        for block in Reader(RealDisk(), OutputPlace(directory, directory / "p"), ("rejected", "late")).read():
            read[block.place.kind] = read.get(block.place.kind, b"") + block.data
        assert {log: read.get(log, b"") for log in whole} == whole
        lines = whole["rejected"].split(b"\n")[:-1]
        assert lines == [b"%c%d" % (c, n) for n in range(4) for c in b"rs"][: len(lines)]
        assert not state.outbox(1)
        again.close()
        state.close()
        if survived:
            assert len(lines) == 8
            return
    raise AssertionError("it was killed each time")


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
        copy_state(self.path)
        (directory / "s.previous").rename(directory / "s.older")
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
    """Whenever the next process dies, data that readers were shown stays in its place."""
    for at in range(200):
        directory = tmp_path / str(at)
        lost = Lost(directory)
        before, told = {log: content(directory, log) for log in ("rejected", "late")}, published(directory)
        lost.lose(what)
        state, warnings = State(lost.path), list[str]()
        survived = True
        try:
            again = opened(directory, state, DyingDisk(at), warnings)
            add(state, "late", b"l2\n")
            add(state, "rejected", b"r2\n")
            again.flush()
        except Killed:
            survived = False
        state.close()
        state = State(lost.path)
        opened(directory, state).close()
        state.close()
        after, shown = {log: content(directory, log) for log in before}, published(directory)
        for log in before:
            assert after[log].startswith(before[log])
            assert shown[log, "dispatcher"] == after[log]
            assert shown[log, "dispatcher"].startswith(told[log, "dispatcher"])
        assert after["late"] in (b"l0\nl1\n", b"l0\nl1\nl2\n")
        if survived:
            assert after == {"late": b"l0\nl1\nl2\n", "rejected": b"r0\nr1\nr2\n"}
            assert (directory / "late" / f"dispatcher-{file:06d}.jsonl").read_bytes().endswith(b"l2\n")
            assert warnings
            assert all(str(directory) in line for line in warnings)
            return
    raise AssertionError("it was killed each time")


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

"""The rejected and late logs hold each line once, whenever the process dies."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from photon.config.disk import RealDisk
from photon.dispatcher.events import Export
from photon.dispatcher.exports import Exports
from photon.dispatcher.previous import copy_state
from photon.dispatcher.state import Changes, State
from photon.outputs import OutputPlace, Reader
from tests.dying_disk import DyingDisk, Killed


def content(output: Path, log: str) -> bytes:
    return b"".join(path.read_bytes() for path in sorted((output / log).glob("dispatcher-*.jsonl")))


def published(directory: Path) -> dict[tuple[str, str], bytes]:
    """What readers were shown of each log: in one piece, over all its files."""
    found: dict[tuple[str, str], bytes] = {}
    for slot in OutputPlace(directory, directory / "p").published(RealDisk()):
        for file in slot.files:
            data = (directory / file.name).read_bytes()[: file.length]
            found[file.kind, slot.slot] = found.get((file.kind, slot.slot), b"") + data
    return found


def add(state: State, log: str, *lines: bytes) -> None:
    state.commit(Changes(exports=[Export(log, line) for line in lines]))


@pytest.mark.parametrize("roll_bytes", [1 << 20, 5])
def test_killed_at_any_moment(tmp_path: Path, roll_bytes: int) -> None:
    for at in range(200):
        directory = tmp_path / str(at)
        state = State(directory / "s")
        disk = DyingDisk(at)
        exports = None
        survived = True
        try:
            exports = Exports(directory, disk, state, warn=print, roll_bytes=roll_bytes, published=directory / "p")
            for n in range(4):
                add(state, "rejected", b"r%d\n" % n, b"s%d\n" % n)
                add(state, "late", b"l%d\n" % n)
                exports.flush()
        except Killed:
            survived = False
        if exports is not None:
            exports.close()
        seen = {log: content(directory, log) for log in ("rejected", "late")}
        told = published(directory)
        state.close()
        state = State(directory / "s")
        again = Exports(directory, RealDisk(), state, warn=print, roll_bytes=roll_bytes, published=directory / "p")
        place = OutputPlace(directory, directory / "p")
        for (log, name), data in told.items():
            assert seen[log].startswith(data)  # it never speaks of more than there is,
            assert published(directory)[log, name].startswith(data)  # and takes nothing back
        whole = {log: content(directory, log) for log in seen}
        for log, before in seen.items():
            assert whole[log].startswith(before)  # what a reader saw stays, in its place
        for block in Reader(RealDisk(), place, ("rejected", "late")).read():
            whole_read = seen.setdefault(f"{block.place.kind} read", b"")
            seen[f"{block.place.kind} read"] = whole_read + block.data
        assert [seen.get(f"{log} read", b"") for log in whole] == list(whole.values())
        lines = whole["rejected"].split(b"\n")[:-1]
        assert len(set(lines)) == len(lines)
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
    exports = Exports(tmp_path, RealDisk(), state, warn=print)
    add(state, "late", b"one\n")
    exports.flush()
    exports.close()
    path = tmp_path / "late" / "dispatcher-000001.jsonl"
    if what == "gone":
        path.unlink()
    else:
        path.write_bytes(b"o")
    warnings: list[str] = []
    exports = Exports(tmp_path, RealDisk(), state, warn=warnings.append)
    add(state, "late", b"two\n")
    exports.flush()
    assert (tmp_path / "late" / "dispatcher-000002.jsonl").read_bytes() == b"two\n"
    assert path.exists() == (what == "shorter")
    assert len(warnings) == 1
    assert str(path) in warnings[0]
    exports.close()
    state.close()


def test_nothing_to_export_makes_no_files(state: State, tmp_path: Path) -> None:
    Exports(tmp_path / "out", RealDisk(), state, warn=print).close()
    names: Sequence[Path] = list((tmp_path / "out").glob("*/*"))
    assert names == []


def lost(directory: Path, what: str) -> None:
    """The state goes, with what readers were told of, or comes back as it was after the first line."""
    if "database" in what:
        (directory / "s").unlink()
    if "older" in what:
        shutil.copy(directory / "s.older", directory / "s")
    if "published" in what:
        shutil.rmtree(directory / "p")


@pytest.mark.parametrize("what", ["database", "database, published", "older", "older, published"])
def test_without_a_recorded_place_a_new_file_is_begun(tmp_path: Path, what: str) -> None:
    """Whenever the process dies that comes after, what readers were shown stays, in its place."""
    for at in range(200):
        directory = tmp_path / str(at)
        state = State(directory / "s")
        exports = Exports(directory, RealDisk(), state, warn=print, published=directory / "p")
        add(state, "late", b"l0\n")
        exports.flush()
        copy_state(directory / "s")
        (directory / "s.previous").rename(directory / "s.older")
        add(state, "late", b"l1\n")
        add(state, "rejected", b"r0\n", b"r1\n")
        exports.flush()
        exports.close()
        state.close()
        before, told = {log: content(directory, log) for log in ("rejected", "late")}, published(directory)
        lost(directory, what)
        state, warnings = State(directory / "s"), list[str]()
        survived = True
        try:
            again = Exports(directory, DyingDisk(at), state, warn=warnings.append, published=directory / "p")
            assert len(warnings) == 2
            assert "what is there stays, going on in dispatcher-000002.jsonl" in warnings[0]
            add(state, "late", b"l2\n")
            add(state, "rejected", b"r2\n")
            again.flush()
        except Killed:
            survived = False
        state.close()
        state = State(directory / "s")
        Exports(directory, RealDisk(), state, warn=print, published=directory / "p").close()
        after, shown = {log: content(directory, log) for log in before}, published(directory)
        for log in before:
            assert after[log].startswith(before[log])
            assert shown[log, "dispatcher"] == after[log]
            assert shown[log, "dispatcher"].startswith(told[log, "dispatcher"])
        assert after["late"] in (b"l0\nl1\n", b"l0\nl1\nl2\n")
        state.close()
        if survived:
            assert after == {"late": b"l0\nl1\nl2\n", "rejected": b"r0\nr1\nr2\n"}
            return
    raise AssertionError("it was killed each time")

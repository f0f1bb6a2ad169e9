"""The previous copy of a state: taken while the state is in use, and continued when the state is damaged."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

import pytest

from photon.adapters.logs.api import LogPosition
from photon.dispatcher import previous
from photon.dispatcher.errors import StateError
from photon.dispatcher.previous import DAMAGED, PREVIOUS, beside, copied, copy_state, open_or_restore
from photon.dispatcher.state import Changes, State

RULE = b"r" * 16


def moved(state: State, offset: int) -> None:
    state.commit(Changes(positions={"a" * 32: LogPosition("a" * 32, "a.log", offset)}))


def offset(state: State) -> int:
    (position,) = state.positions()
    return position.offset


def spoil(path: Path) -> bytes:
    data = b"SQLite format 3\0" + b"\xff" * 9000
    path.write_bytes(data)
    return data


def test_what_was_there_at_the_copy_is_gone_on_with(tmp_path: Path) -> None:
    path = tmp_path / "s"
    state = open_or_restore(path, rule=RULE)
    moved(state, 10)
    assert copy_state(path)  # while it is in use, and much of it is in its log
    moved(state, 20)
    state.close()
    spoilt = spoil(path)
    beside(path, "-wal").write_bytes(b"of the damaged one")
    state = open_or_restore(path, rule=RULE)
    assert offset(state) == 10
    moved(state, 30)
    state.close()
    assert beside(path, DAMAGED).read_bytes() == spoilt
    state = open_or_restore(path, rule=RULE)
    assert offset(state) == 30
    state.close()
    path.write_bytes(b"")  # an empty file is no fresh state while there is a copy
    state = open_or_restore(path, rule=RULE)
    assert offset(state) == 10
    state.close()


def test_without_a_good_copy_it_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "s"
    open_or_restore(path, rule=RULE).close()
    spoilt = spoil(path)
    with pytest.raises(StateError, match="damaged"):
        open_or_restore(path, rule=RULE)
    beside(path, PREVIOUS).write_bytes(b"neither this" * 1000)
    with pytest.raises(StateError, match="damaged"):
        open_or_restore(path, rule=RULE)
    assert path.read_bytes() == spoilt
    path.unlink()  # moved away by the operator: all is read again
    state = open_or_restore(path, rule=RULE)
    assert state.positions() == []
    state.close()


def test_a_damaged_state_is_no_copy_and_spoils_none(tmp_path: Path) -> None:
    path = tmp_path / "s"
    state = State(path, rule=RULE)
    moved(state, 10)
    assert copy_state(path)
    state.close()
    good = beside(path, PREVIOUS).read_bytes()
    spoil(path)
    with pytest.raises(sqlite3.Error):
        copy_state(path)
    assert beside(path, PREVIOUS).read_bytes() == good


def test_large_states_are_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "s"
    State(path, rule=RULE).close()
    monkeypatch.setattr(previous, "COPY_BYTES_MAX", 100)
    assert not copy_state(path)
    assert not beside(path, PREVIOUS).exists()


def test_copies_are_taken_now_and_then(tmp_path: Path) -> None:
    path = tmp_path / "s"
    state = State(path, rule=RULE)
    with copied(path, every_s=0.01):
        deadline = time.monotonic() + 30
        while not beside(path, PREVIOUS).exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
    state.close()

"""What the nightly verification reads of a dispatcher's state."""

from __future__ import annotations

from pathlib import Path

import pytest

from photon.adapters.contract import LogFile
from photon.adapters.logs.api import LogPosition
from photon.dispatcher.database import read_standing
from photon.dispatcher.errors import StateError
from photon.dispatcher.state import Changes, State
from photon.joiner.api import WAIT_NS, ForeignEvent
from tests.unit.dispatcher.world import StoredRow, stored


def test_places_and_what_waits(state: State, path: Path) -> None:
    event = ForeignEvent(b"i", b"d" * 16, 5, b"k", b"r", LogFile("a.log"), 3, WAIT_NS)
    waits = stored([StoredRow(event, 7)])
    state.commit(Changes(positions={"ab": LogPosition("ab", "a.log", 40, b"")}, stored=waits))
    taken: list[bytes] = []
    assert read_standing(path, taken.extend) == [("ab", 40)]
    assert taken == [b"d" * 16]


def test_a_part_that_was_not_read_to_its_end_holds_its_log_back(tmp_path: Path) -> None:
    path = tmp_path / "dispatcher.db"
    state = State(path)
    state.commit(Changes(positions={"ab": LogPosition("ab", "a.log", 40, b"")}))
    state.database.execute("INSERT INTO parts (unit, identity, begin, end, offset) VALUES ('ab@0', 'ab', 0, 20, 12)")
    state.close()
    assert read_standing(path, lambda digests: None) == [("ab", 12)]


def test_no_state(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="no dispatcher state"):
        read_standing(tmp_path / "none", lambda digests: None)
    (tmp_path / "other").write_bytes(b"x" * 5000)
    with pytest.raises(StateError):
        read_standing(tmp_path / "other", lambda digests: None)

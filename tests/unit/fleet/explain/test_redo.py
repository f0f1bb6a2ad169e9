"""Registered and unwritten events of a stopped slot are found in its redo log, which is only read."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from photon.config.disk import RealDisk
from photon.fleet.explain.evidence import Evidence
from photon.fleet.explain.outputs import search_redo_logs
from photon.fleet.explain.question import Budget, question_of
from photon.fleet.explain.service import look
from photon.idregistry.api import Kind, token_of
from photon.joiner.slot.redo_log import RedoFrame, RedoLog
from photon.outputs import OutputPlace
from tests.unit.fleet.explain.test_registering import TOKEN, rows

SEGMENT_BYTES = 400


def down(base: Path, *batches: tuple[str, ...], slot: str = "s1") -> Path:
    """The state of a slot that stopped with these in its log, a small segment each."""
    state = base / "slots" / slot
    (state / "redo").mkdir(parents=True)
    log = RedoLog(RealDisk(), state / "redo", segment_bytes=SEGMENT_BYTES)
    log.begin([])
    for number, ids in enumerate(batches):
        some = rows(*ids)
        log.append([(number, RedoFrame(b"note", some.tokens, some.encode()))])
        log.sync()
    log.close()
    return state


def search(base: Path, text: str, *, without: tuple[str, ...] = ()) -> Evidence:
    place = OutputPlace(base / "out", base)
    budget = Budget(60.0, time.monotonic)
    return search_redo_logs(RealDisk(), place, question_of(text), budget, without=without)


def contents(base: Path) -> dict[Path, tuple[bytes, int]]:
    return {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in base.rglob("*") if path.is_file()}


@pytest.mark.parametrize("text", ["id3", "c.log:10"])
def test_it_is_found_by_id_and_by_place_in_any_segment(tmp_path: Path, text: str) -> None:
    state = down(tmp_path, ("id0",), ("id2", "id3"), ("id4",))
    assert len(list((state / "redo").iterdir())) > 1
    before = contents(tmp_path)
    evidence = search(tmp_path, text)
    (found,) = evidence.registering
    assert (found.event_id, found.kind, found.slot, found.token) == (b"id3", "unmatched", "s1", f"{TOKEN:016x}")
    assert (found.durable, found.redo) == (True, True)
    (searched,) = evidence.searched
    assert (searched.what, searched.why) == ("redo log of s1", "")
    assert contents(tmp_path) == before


def test_what_a_start_has_carried_over_is_told_once(tmp_path: Path) -> None:
    assert len(search(down(tmp_path, ("id0",), ("id0",)).parents[1], "id0").registering) == 1


def test_a_slot_whose_joiner_answers_or_that_is_retired_is_left_out(tmp_path: Path) -> None:
    state = down(tmp_path, ("id0",))
    assert search(tmp_path, "id0", without=("s1",)) == Evidence()
    (state / "retired.json").write_text("{}")
    assert search(tmp_path, "id0") == Evidence()


def test_a_damaged_log_is_told_as_not_searched(tmp_path: Path) -> None:
    state = down(tmp_path, ("id0",), ("id1", "id2"), ("id3",))
    first = sorted((state / "redo").iterdir())[0]
    data = bytearray(first.read_bytes())
    data[len(data) // 2] ^= 1
    first.write_bytes(data)
    evidence = search(tmp_path, "id0")
    assert evidence.registering == []
    assert "damaged redo log" in evidence.searched[0].why


def test_an_output_of_photon_join_that_was_killed(tmp_path: Path) -> None:
    down(tmp_path / ".photon", ("id0",), slot="local-1")
    evidence = look(OutputPlace.of_join(tmp_path), question_of("id0"), Budget(60.0, time.monotonic))
    (found,) = evidence.registering
    assert (found.slot, found.redo, found.kind) == ("local-1", True, Kind.UNMATCHED.name.lower())
    assert found.token == f"{token_of(1, 0):016x}"

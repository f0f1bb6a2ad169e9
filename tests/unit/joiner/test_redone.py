"""Data a joiner publishes for recovery by token (rule 13), and the remains of a damaged log in it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from photon.config.disk import RealDisk
from photon.idregistry.api import Kind, token_of
from photon.joiner.rows import concat
from photon.joiner.slot.output import OutputLimits
from photon.joiner.slot.redo_log import RedoLogDamaged
from photon.joiner.slot.slot import Redone as RedoneFile
from photon.joiner.slot.slot import SlotPaths, SlotStore
from tests.unit.joiner.helpers import FakeRegistry, FakeStore, engine_at, rows_for

NEW = token_of(5, 1)


def store_at(path: Path, *, segment_bytes: int = 1 << 20) -> SlotStore:
    paths = SlotPaths(path / "state", path / "out")
    return SlotStore(RealDisk(), paths, "s0", output_limits=OutputLimits(), segment_bytes=segment_bytes)


def begun(path: Path, *, segment_bytes: int = 1 << 20) -> SlotStore:
    store = store_at(path, segment_bytes=segment_bytes)
    store.recover()
    return store


def test_the_place_is_what_is_synced(tmp_path: Path) -> None:
    store = begun(tmp_path)
    store.write([(Kind.JOINED, b"one\n"), (Kind.FILTERED, b"f\n")], 0.0)
    store.sync_output(0.0)
    store.write([(Kind.JOINED, b"not synced\n")], 0.0)
    store.publish_redone(4)
    found = msgspec.json.decode((tmp_path / "state/redone.json").read_bytes(), type=RedoneFile)
    assert found == RedoneFile("s0", 4, {"joined/s0-000001.jsonl": 4, "filtered/s0-000001.jsonl": 2})


def damaged_log(path: Path, what: bytes, *, segment_bytes: int) -> Path:
    """Three frames, each of one id and synced; in one of them a bit is flipped. Returns its segment."""
    store = begun(path, segment_bytes=segment_bytes)
    for number, name in enumerate((b"first", b"second", b"third")):
        store.log([(number, rows_for([name], NEW + number))])
    store.close()
    for segment in sorted((path / "state/redo").glob("*.redo")):
        data = bytearray(segment.read_bytes())
        if (at := data.find(what)) >= 0:
            data[at] ^= 1
            segment.write_bytes(data)
            return segment
    raise AssertionError(what)


@pytest.mark.parametrize("segment_bytes", [1, 1 << 20])
@pytest.mark.parametrize("what", [b"first", b"second"])
def test_a_damaged_log_is_refused_until_it_is_accepted(tmp_path: Path, what: bytes, segment_bytes: int) -> None:
    segment = damaged_log(tmp_path, what, segment_bytes=segment_bytes)
    before = segment.read_bytes()
    with pytest.raises(RedoLogDamaged, match="--accept-damaged-log"):
        store_at(tmp_path).recover()
    assert segment.read_bytes() == before
    recovered = store_at(tmp_path).recover(accept_damaged_log=True)
    kept = concat([rows for _, rows in recovered.kept])
    others = [name for name in (b"first", b"second", b"third") if name != what]
    assert [line.count(name) for line, name in zip(kept.lines, others, strict=True)] == [1, 1]
    (lost,) = recovered.lost
    assert (lost.path, lost.size > 50) == (segment, True)
    (aside,) = (tmp_path / "state/redo").glob("damaged-*")
    assert aside.read_bytes() == before
    again = store_at(tmp_path).recover()  # and it is refused no more
    assert [rows.lines for _, rows in again.kept] == [rows.lines for _, rows in recovered.kept]


def test_a_segment_without_its_header_gives_its_frames(tmp_path: Path) -> None:
    segment = damaged_log(tmp_path, b"PHOTREDO", segment_bytes=1 << 20)
    with pytest.raises(RedoLogDamaged, match="no segment header"):
        store_at(tmp_path).recover()
    recovered = store_at(tmp_path).recover(accept_damaged_log=True)
    assert sum(len(rows) for _, rows in recovered.kept) == 3
    assert [(each.path, each.offset) for each in recovered.lost] == [(segment, 0)]


def test_a_torn_line_is_not_completed_from_what_is_left_of_a_damaged_log(tmp_path: Path) -> None:
    """It may belong to a lost frame, though another logged line has the same beginning."""
    damaged_log(tmp_path, b"first", segment_bytes=1 << 20)
    torn = tmp_path / "out/joined/s0-000001.jsonl"
    torn.parent.mkdir(parents=True, exist_ok=True)
    torn.write_bytes(rows_for([b"second"], NEW + 1).lines[0][:9])
    recovered = store_at(tmp_path).recover(accept_damaged_log=True)
    assert (recovered.found.completed, recovered.found.cut) == ([], ["joined/s0-000001.jsonl"])
    assert torn.read_bytes() == b""
    assert sum(len(rows) for _, rows in recovered.kept) == 2


@pytest.mark.parametrize("rots", [True, False])
def test_a_torn_line_is_not_completed_where_the_log_ends_badly(tmp_path: Path, *, rots: bool) -> None:
    """Its last frame was never synced, or it has rotted and was registered: the torn line may belong to it."""
    store = begun(tmp_path)
    lines = []
    for number in range(2):  # the same event in two batches: its lines begin alike
        rows = rows_for([b"click"], NEW + number)
        lines.append(rows.lines[0])
        store.log([(number, rows)])
    store.write([(Kind.JOINED, lines[1][:9])], 0.0)
    store.close()
    segment = sorted((tmp_path / "state/redo").glob("*.redo"))[-1]
    data = bytearray(segment.read_bytes())
    if rots:
        data[-2] ^= 1
    segment.write_bytes(data if rots else data[:-2])
    recovered = store_at(tmp_path).recover()
    assert (recovered.found.completed, recovered.found.cut) == ([], ["joined/s0-000001.jsonl"])
    assert [rows.lines for _, rows in recovered.kept] == [lines[:1]]


def test_a_torn_tail_is_no_damage(tmp_path: Path) -> None:
    store = begun(tmp_path)
    store.log([(0, rows_for([b"a"], NEW))])
    store.log([(1, rows_for([b"torn"], NEW + 1))])
    store.close()
    (segment,) = (tmp_path / "state/redo").glob("*.redo")
    segment.write_bytes(segment.read_bytes()[:-3])
    recovered = store_at(tmp_path).recover(accept_damaged_log=True)
    assert recovered.lost == ()
    assert sum(len(rows) for _, rows in recovered.kept) == 1
    assert list((tmp_path / "state/redo").glob("damaged-*")) == []


# -- the engine ----------------------------------------------------------------------------------------------------
async def test_each_start_publishes_it_before_it_is_drained(tmp_path: Path) -> None:
    registry = FakeRegistry()
    for incarnation in (1, 2):
        engine = engine_at(tmp_path, registry, FakeStore({}))
        await engine.start()
        assert await engine.drain(10.0)
        found = msgspec.json.decode((tmp_path / "state/redone.json").read_bytes(), type=RedoneFile)
        assert found.upto == incarnation - 1
        await engine.close()

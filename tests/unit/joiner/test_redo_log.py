"""The redo log's format: surviving frames, a torn tail, damage."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np
import pytest

from photon.config.disk import RealDisk
from photon.joiner.rows import Rows
from photon.joiner.slot.redo_log import RedoFrame, RedoLog, RedoLogDamaged
from tests.unit.joiner.helpers import rows_for


def frame(name: bytes, tokens: int = 2) -> RedoFrame:
    return RedoFrame(b"note " + name, np.arange(tokens, dtype=np.uint64), (name, b"-body"))


def log_at(path: Path, **options: int) -> RedoLog:
    log = RedoLog(RealDisk(), path, **options)
    log.begin([])
    return log


def synced(path: Path, *names: bytes, **options: int) -> RedoLog:
    """A log with a frame of each, synced one by one."""
    log = log_at(path, **options)
    for number, name in enumerate(names):
        log.append([(number, frame(name))])
        log.sync()
    return log


def bodies(path: Path) -> list[bytes]:
    return [b"".join(each.body) for each in RedoLog(RealDisk(), path).read()]


def newest(path: Path) -> Path:
    return sorted(path.glob("*.redo"))[-1]


def test_frames_come_back_in_order(tmp_path: Path) -> None:
    log = log_at(tmp_path)
    log.append([(0, frame(b"a")), (1, frame(b"b", 0))])
    log.append([(2, frame(b"c"))])
    log.sync()
    read = RedoLog(RealDisk(), tmp_path).read()
    assert [each.note for each in read] == [b"note a", b"note b", b"note c"]
    assert read[0].tokens.tolist() == [0, 1]
    assert bodies(tmp_path) == [b"a-body", b"b-body", b"c-body"]


@pytest.mark.parametrize("cut", range(1, 57))
def test_a_torn_tail_is_cut(tmp_path: Path, cut: int) -> None:
    log = synced(tmp_path, b"a")
    log.append([(1, frame(b"b"))])
    data = newest(tmp_path).read_bytes()
    newest(tmp_path).write_bytes(data[:-cut])
    assert bodies(tmp_path) == [b"a-body"]


def test_a_bad_frame_that_a_later_one_knows_as_synced_is_damage(tmp_path: Path) -> None:
    log = synced(tmp_path, b"first")
    log.append([(1, frame(b"b"))])
    path = newest(tmp_path)
    data = bytearray(path.read_bytes())
    data[data.index(b"first-body")] ^= 1
    path.write_bytes(data)
    with pytest.raises(RedoLogDamaged, match="damaged redo log at byte"):
        bodies(tmp_path)


def test_a_hole_in_a_group_that_was_never_synced_is_a_torn_tail(tmp_path: Path) -> None:
    log = synced(tmp_path, b"a")
    log.append([(1, frame(b"hole")), (2, frame(b"c"))])
    path = newest(tmp_path)
    path.write_bytes(path.read_bytes().replace(b"hole-body", bytes(9)))
    assert bodies(tmp_path) == [b"a-body"]


def test_damage_in_an_older_segment_stops_the_start(tmp_path: Path) -> None:
    synced(tmp_path, b"0", b"1", b"2", segment_bytes=1)
    oldest = sorted(tmp_path.glob("*.redo"))[1]
    oldest.write_bytes(oldest.read_bytes()[:-1])
    with pytest.raises(RedoLogDamaged, match="bad frame"):
        bodies(tmp_path)


def test_another_version_stops_the_start(tmp_path: Path) -> None:
    log_at(tmp_path).close()
    path = newest(tmp_path)
    head = path.read_bytes()[:28]
    head = head[:8] + b"\x63" + head[9:]
    path.write_bytes(head + zlib.crc32(head).to_bytes(4, "little"))
    with pytest.raises(RedoLogDamaged, match="version 99"):
        bodies(tmp_path)


def test_segments_go_when_their_frames_have_left(tmp_path: Path) -> None:
    log = synced(tmp_path, b"0", b"1", b"2", b"3", segment_bytes=1)
    assert bodies(tmp_path) == [b"0-body", b"1-body", b"2-body", b"3-body"]
    log.release([1, 0])
    assert bodies(tmp_path) == [b"2-body", b"3-body"]
    size = log.size
    log.release([2])
    assert log.size < size
    log.release([3])
    assert bodies(tmp_path) == []  # the segment that is written to is full, so it goes as well
    assert log.frames == 0
    log.append([(4, frame(b"4"))])
    log.sync()
    assert bodies(tmp_path) == [b"4-body"]


def test_a_start_copies_what_is_kept_and_voids_the_rest(tmp_path: Path) -> None:
    synced(tmp_path, b"0", b"1", b"2", segment_bytes=1)
    before = {path.name: path.read_bytes() for path in tmp_path.glob("*.redo")}
    again = RedoLog(RealDisk(), tmp_path)
    kept = again.read()
    again.begin([(0, kept[1])])
    assert bodies(tmp_path) == [b"1-body"]
    for name, data in before.items():  # names that a power cut brings back
        (tmp_path / name).write_bytes(data)
    assert bodies(tmp_path) == [b"1-body"]
    again.append([(1, frame(b"new"))])
    again.sync()
    assert bodies(tmp_path) == [b"1-body", b"new-body"]


def test_a_segment_torn_while_it_was_created_is_no_damage(tmp_path: Path) -> None:
    synced(tmp_path, b"a")
    (tmp_path / "00000002.redo").write_bytes(b"PHOT")
    assert bodies(tmp_path) == [b"a-body"]
    (tmp_path / "00000003.tmp").write_bytes(b"left by a crash")
    again = RedoLog(RealDisk(), tmp_path)
    again.begin([(0, again.read()[0])])
    assert bodies(tmp_path) == [b"a-body"]


def test_rows_keep_every_column() -> None:
    rows = rows_for([b"a", b"bb", b"c" * 1000], 5 << 40 | 3, kind=3)
    rows.generations[1] = 7
    back = Rows.decode(rows.tokens, b"".join(rows.encode()))
    assert (back.lines, back.digests) == (rows.lines, rows.digests)
    for name in ("times", "tokens", "kinds", "tags", "generations"):
        assert getattr(back, name).tolist() == getattr(rows, name).tolist()
    with pytest.raises(ValueError, match="cannot hold"):
        Rows.decode(rows.tokens[:2], b"".join(rows.encode()))
    with pytest.raises(ValueError, match="add up"):
        Rows.decode(rows.tokens, b"".join(rows.encode()) + b"x")


def test_digests_that_end_in_zeros_are_kept() -> None:
    rows = rows_for([b"a", b"b"], 1 << 40)
    rows = Rows(bytes(32), rows.times, rows.tokens, rows.kinds, rows.tags, rows.generations, rows.lines)
    assert rows.take(np.array([1], dtype=np.intp)).digests == bytes(16)


@pytest.mark.parametrize("spoil", ["cut", "flip", "header"])
def test_damage_in_what_a_start_kept_is_no_torn_tail(tmp_path: Path, spoil: str) -> None:
    log = RedoLog(RealDisk(), tmp_path)
    log.begin([(0, frame(b"a")), (1, frame(b"b"))])
    data = newest(tmp_path).read_bytes()
    spoiled = {"cut": data[:-60], "flip": data[:-1] + b"X", "header": b"X" + data[1:]}[spoil]
    newest(tmp_path).write_bytes(spoiled)
    with pytest.raises(RedoLogDamaged):
        bodies(tmp_path)

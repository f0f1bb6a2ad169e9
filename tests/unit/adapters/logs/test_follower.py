"""The follower against real files: one test for each thing that happens to logs."""

from __future__ import annotations

import gzip
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from photon.adapters.logs import follower as follower_module
from photon.adapters.logs import open_files
from photon.adapters.logs.api import LogPosition
from photon.adapters.logs.assignment import GRACE_SCANS
from photon.adapters.logs.follower import Follower, LogDirectoryError, ProblemKind
from photon.adapters.logs.reading import BLOCK_BYTES
from tests.unit.adapters.logs.tails import Tail, append, begun


def test_position_behind_the_end_at_start_is_read_again(tmp_path: Path) -> None:
    _, tail = begun(tmp_path)
    (position,) = tail.follower.positions()
    again = Tail(tmp_path, [LogPosition(position.identity, "a.log", 400)])
    assert again.read() == [b"1", b"2"]
    assert again.kinds() == [ProblemKind.TRUNCATED]


def test_inode_reuse_is_another_log(tmp_path: Path) -> None:
    log, tail = begun(tmp_path)
    tail.follower.close()  # as if its descriptor had been given to another file
    with log.open("r+b") as f:  # the same inode, other bytes and more of them
        f.write(b"7\n8\n9\n")
    assert tail.read() == [b"7", b"8", b"9"]
    assert len({b.identity for b in tail.blocks}) == 2


def test_gzip_cut_short_waits_and_is_reported(tmp_path: Path) -> None:
    lines = b"".join(b"%d\n" % (i * 7919 % 100_003) for i in range(50_000))
    packed = gzip.compress(lines)
    (tmp_path / "a.gz").write_bytes(packed[:-2000])
    tail = Tail(tmp_path)
    first = tail.read()
    assert 0 < len(first) < 50_000
    assert not tail.problems
    append(tmp_path / "a.gz", packed[-2000:])
    assert first + tail.read() == lines.split(b"\n")[:-1]
    other = gzip.compress(b"other\n" + lines)
    (tmp_path / "b.gz").write_bytes(other[:-2000])
    once = Tail(tmp_path)
    assert len(once.read(final=True)) < 100_000
    assert once.kinds() == [ProblemKind.DAMAGED]
    assert [p.path for p in once.problems] == ["b.gz"]
    for _ in range(GRACE_SCANS + 1):
        tail.read()
    assert tail.kinds() == [ProblemKind.DAMAGED]


def test_unreadable_file_is_reported_and_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    append(tmp_path / "a", b"1\n")
    append(tmp_path / "b", b"2\n")
    real: Callable[[Path], object] = open_files.open_source

    def refuse(path: Path) -> object:
        if path.name == "a":
            raise PermissionError(13, "Permission denied")
        return real(path)

    monkeypatch.setattr(open_files, "open_source", refuse)
    tail = Tail(tmp_path)
    assert tail.read() == [b"2"]
    assert tail.read() == []
    assert [str(p) for p in tail.problems] == ["a: cannot be opened (Permission denied)"]
    assert tail.follower.unread() == tail.problems
    monkeypatch.undo()
    assert tail.read() == [b"1"]
    assert tail.follower.unread() == []


def test_directory_that_cannot_be_followed(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for path, what in [(tmp_path / "none", "no such directory"), (tmp_path / "file", "not a directory")]:
        with pytest.raises(LogDirectoryError, match=what) as error:
            Follower(path, has_header=False)
        assert "\n" not in str(error.value)


def test_backlog_is_read_in_the_order_of_paths_in_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follower_module, "TURN_BYTES", 1 << 20)
    for name, mib in (("b", 3), ("a", 2), ("c.gz", 2)):
        data = (name.encode() * (1 << 10))[: (1 << 10) - 1] + b"\n"
        content = data * (mib << 10)
        (tmp_path / name).write_bytes(gzip.compress(content, 1) if name.endswith(".gz") else content)
    tail = Tail(tmp_path)
    tail.read()
    order = [b.file.path for b in tail.blocks]
    assert order == ["a", "b", "c.gz", "c.gz", "a", "b", "b"]
    assert max(len(b.data) for b in tail.blocks) <= BLOCK_BYTES


def test_poll_hands_out_no_more_than_asked_plus_a_block(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"x" * 99 + b"\n" + (b"y" * 99 + b"\n") * 100_000)
    follower = Follower(tmp_path, has_header=False)
    follower.scan()
    sizes = []
    while blocks := follower.poll(1):
        sizes.append(sum(len(b.data) for b in blocks))
    assert sum(sizes) == 10_000_100
    assert max(sizes) <= 1 << 20


def test_thousands_of_files_need_few_descriptors(tmp_path: Path) -> None:
    count = open_files.OPEN_FILES_MAX * 2
    for i in range(count):
        append(tmp_path / f"{i:04}.log", b"%d\n" % i)
    tail = Tail(tmp_path)
    open_before = len(os.listdir("/proc/self/fd"))
    assert tail.read() == [b"%d" % i for i in range(count)]
    assert len(os.listdir("/proc/self/fd")) <= open_before + open_files.OPEN_FILES_MAX
    append(tmp_path / "0000.log", b"again\n")
    assert tail.read() == [b"again"]
    tail.follower.close()

"""The follower against real files: one test for each thing that happens to logs."""

from __future__ import annotations

import gzip
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from photon.adapters.contract import Framing
from photon.adapters.logs import follower as follower_module
from photon.adapters.logs import open_files
from photon.adapters.logs.api import LogPosition
from photon.adapters.logs.assignment import GRACE_SCANS
from photon.adapters.logs.follower import Follower, LogDirectoryError, ProblemKind
from photon.adapters.logs.reading import BLOCK_BYTES
from tests.unit.adapters.logs.tails import Tail, append, begun


def test_growing_files_are_read_on_and_a_partial_line_waits(tmp_path: Path) -> None:
    tail = Tail(tmp_path)
    assert tail.read() == []
    append(tmp_path / "a", b"1\n2\n3")
    assert tail.read() == [b"1", b"2"]
    append(tmp_path / "a", b"3\n4\n")
    append(tmp_path / "b", b"x\n")
    assert tail.read() == [b"33", b"4", b"x"]
    assert tail.read() == []
    assert [(p.path, p.offset) for p in tail.follower.positions()] == [("a", 9), ("b", 2)]
    assert tail.follower.backlog() == (11, 11)


def test_offsets_and_paths_say_where_records_stand(tmp_path: Path) -> None:
    append(tmp_path / "d" / "a.log", b"11\n2\n")
    tail = Tail(tmp_path)
    tail.read()
    append(tmp_path / "d" / "a.log", b"333\n")
    tail.read()
    assert [(b.file.path, b.offset, b.data, b.end) for b in tail.blocks] == [
        ("d/a.log", 0, b"11\n2\n", 5),
        ("d/a.log", 5, b"333\n", 9),
    ]
    assert tail.follower.path_of(tail.blocks[0].identity) == tmp_path / "d" / "a.log"


@pytest.mark.parametrize("final", [False, True])
@pytest.mark.parametrize("created", [False, True])
def test_a_log_renamed_between_scan_and_reading_is_not_taken_for_read(
    tmp_path: Path, final: bool, created: bool
) -> None:
    append(tmp_path / "a.log", b"1\n")
    append(tmp_path / "b.log", b"2\n")
    tail = Tail(tmp_path)
    tail.follower.scan()
    (tmp_path / "b.log").rename(tmp_path / "b.log.1")
    if created:
        append(tmp_path / "b.log", b"3\n")
    assert [block.data for block in tail.follower.poll(1 << 20)] == [b"1\n"]
    assert not tail.follower.caught_up()
    expected = [b"3\n", b"2\n"] if created else [b"2\n"]
    assert [block.data for block in tail.follower.poll(1 << 20, final=final)] == expected
    assert tail.follower.caught_up()
    assert tail.problems == []


@pytest.mark.parametrize("final", [False, True])
def test_an_unread_log_that_vanishes_is_reported(tmp_path: Path, final: bool) -> None:
    append(tmp_path / "a.log", b"1\n2\n")
    tail = Tail(tmp_path)
    tail.follower.scan()
    (tmp_path / "a.log").unlink()
    assert (tail.follower.poll(1 << 20, final=True) if final else tail.read()) == []
    assert tail.follower.caught_up()
    assert tail.kinds() == [ProblemKind.VANISHED]
    assert tail.follower.lost_bytes == 4


@pytest.mark.parametrize(
    ("files", "final", "lines", "kinds"),
    [
        ({"a.log.lz4": b"\x04\x22\x4d\x18\n"}, False, [], [ProblemKind.UNSUPPORTED]),
        ({"a.gz": b"plain text\n"}, True, [], [ProblemKind.DAMAGED]),
        ({"a": b"\0\0a\n\xff\xfe\n\0\n"}, False, [b"\0\0a", b"\xff\xfe", b"\0"], []),
        ({"a": b"", "b.gz": gzip.compress(b""), "c.gz": b""}, True, [], []),
    ],
    ids=["unsupported compression", "no gzip", "NUL bytes and invalid UTF-8", "empty"],
)
def test_what_is_no_text(
    tmp_path: Path, files: dict[str, bytes], final: bool, lines: list[bytes], kinds: list[ProblemKind]
) -> None:
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    tail = Tail(tmp_path)
    assert tail.read(final=final) == lines
    assert tail.kinds() == kinds


def test_hidden_temporary_and_unmatched_names_are_no_logs(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "sub" / "deep").mkdir(parents=True)
    for name in (".a", ".git/b", "c.tmp", "d.txt", "e.log", "sub/deep/f.log", "sub/g.log.gz"):
        (tmp_path / name).write_bytes(name.encode() + b"\n")
    os.symlink(tmp_path / "e.log", tmp_path / "current.log")
    os.mkfifo(tmp_path / "pipe.log")
    assert Tail(tmp_path, patterns=("**/*.log",)).read() == [b"e.log", b"sub/deep/f.log"]
    assert Tail(tmp_path, patterns=("*.log", "d.*")).read() == [b"d.txt", b"e.log"]
    assert Tail(tmp_path, patterns=("sub/*/[ef].lo?",)).read() == [b"sub/deep/f.log"]


def test_header_byte_order_mark_and_crlf(tmp_path: Path) -> None:
    append(tmp_path / "a.csv", b"\xef\xbb\xbfk,v\r\n")
    tail = Tail(tmp_path, has_header=True)
    assert tail.read() == []
    append(tmp_path / "a.csv", b"1,2\r\n")
    assert tail.read() == [b"1,2\r"]
    (block,) = tail.blocks
    assert (block.file.header, block.offset, block.end) == (b"k,v", 8, 13)
    again = Tail(tmp_path, tail.follower.positions(), has_header=True)
    append(tmp_path / "a.csv", b"3,4\n")
    assert again.read() == [b"3,4"]
    assert again.blocks[0].file.header == b"k,v"


def test_a_first_line_is_known_and_a_record_all_the_same(tmp_path: Path) -> None:
    append(tmp_path / "a.log", b"\nDec 31 23:59:59 " + b"x" * 300 + b"\nJan  1 00:00:00 y\n")
    tail = Tail(tmp_path, framing=Framing(first_line=True))
    assert tail.read()[-1] == b"Jan  1 00:00:00 y"
    (block,) = tail.blocks
    assert (block.file.header, block.data.count(b"\n")) == (b"Dec 31 23:59:59 " + b"x" * 240, 3)
    again = Tail(tmp_path, tail.follower.positions(), framing=Framing(first_line=True))
    append(tmp_path / "a.log", b"Jan  2 00:00:00 z\n")
    assert again.read() == [b"Jan  2 00:00:00 z"]
    assert again.blocks[0].file == block.file


def test_rename_while_following_keeps_the_log(tmp_path: Path) -> None:
    log, tail = begun(tmp_path)
    append(log, b"3\n")
    log.rename(tmp_path / "a.log.1")
    append(log, b"x\n")
    assert tail.read() == [b"x", b"3"]
    assert len({b.identity for b in tail.blocks}) == 2
    (tmp_path / "a.log.1").rename(tmp_path / "other")  # a name that no rotation explains
    append(tmp_path / "other", b"4\n")
    assert tail.read() == [b"4"]
    assert tail.blocks[-1].identity == tail.blocks[0].identity
    assert not tail.problems


def test_rotation_while_nobody_follows(tmp_path: Path) -> None:
    log, tail = begun(tmp_path)
    append(log, b"3\n")
    (tmp_path / "a.log.2.gz").write_bytes(gzip.compress(log.read_bytes()))
    log.write_bytes(b"x\n")
    again = Tail(tmp_path, tail.follower.positions())
    assert again.read() == [b"x", b"3"]
    assert [b.offset for b in again.blocks] == [0, 4]


def test_deleted_and_renamed_away_while_open_is_read_to_its_end(tmp_path: Path) -> None:
    directory = tmp_path / "logs"
    directory.mkdir()
    tail = Tail(directory)
    for name in ("a", "b"):
        append(directory / name, b"1%b\n" % name.encode())
    tail.read()
    for name in ("a", "b"):
        append(directory / name, b"2%b\n" % name.encode())
    (directory / "a").unlink()
    (directory / "b").rename(tmp_path / "b")
    assert tail.read() == [b"2a", b"2b"]
    assert tail.read() == []
    assert not tail.problems
    assert tail.follower.path_of(tail.blocks[0].identity) is None


def test_copytruncate(tmp_path: Path) -> None:
    log, tail = begun(tmp_path)
    append(log, b"3\n")
    shutil.copy(log, tmp_path / "a.log.1")
    log.write_bytes(b"")
    append(log, b"4\n5\n6\n7\n")  # longer than before: only the bytes show it
    assert sorted(tail.read()) == [b"3", b"4", b"5", b"6", b"7"]
    assert not tail.problems


def test_copytruncate_seen_between_scan_and_read(tmp_path: Path) -> None:
    log, tail = begun(tmp_path)
    append(log, b"3\n")
    tail.follower.scan()
    shutil.copy(log, tmp_path / "a.log.1")
    log.write_bytes(b"444444\n5\n")
    lines = [line for b in tail.follower.poll(100) for line in b.data.split()]
    assert sorted(lines + tail.read()) == [b"3", b"444444", b"5"]
    assert not tail.problems


def test_truncated_to_less_is_read_again(tmp_path: Path) -> None:
    log, tail = begun(tmp_path, b"1\n2\n3\n")
    os.truncate(log, 2)
    assert tail.read() == [b"1"]
    append(log, b"9\n")
    assert tail.read() == [b"9"]
    assert tail.kinds() == [ProblemKind.TRUNCATED]


def test_rewritten_in_place_with_the_same_first_record(tmp_path: Path) -> None:
    log, tail = begun(tmp_path, b"1\n2\n3\n")
    log.write_bytes(b"1\nx\ny\nz\n")
    assert tail.read() == [b"1", b"x", b"y", b"z"]
    assert tail.kinds() == [ProblemKind.REWRITTEN]


def test_position_behind_the_end_at_start_is_read_again(tmp_path: Path) -> None:
    _, tail = begun(tmp_path)
    (position,) = tail.follower.positions()
    again = Tail(tmp_path, [LogPosition(position.identity, "a.log", 400)])
    assert again.read() == [b"1", b"2"]
    assert again.kinds() == [ProblemKind.TRUNCATED]


def test_replaced_by_a_new_file_of_the_same_name(tmp_path: Path) -> None:
    log, tail = begun(tmp_path)
    (tmp_path / "new.tmp").write_bytes(b"8\n9\n")
    (tmp_path / "new.tmp").rename(log)
    assert tail.read() == [b"8", b"9"]
    assert len({b.identity for b in tail.blocks}) == 2


def test_inode_reuse_is_another_log(tmp_path: Path) -> None:
    log, tail = begun(tmp_path)
    tail.follower.close()  # as if its descriptor had been given to another file
    with log.open("r+b") as f:  # the same inode, other bytes and more of them
        f.write(b"7\n8\n9\n")
    assert tail.read() == [b"7", b"8", b"9"]
    assert len({b.identity for b in tail.blocks}) == 2


def test_compressed_twin_is_the_same_log(tmp_path: Path) -> None:
    log, tail = begun(tmp_path)
    append(log, b"3\n")
    (tmp_path / "a.log.gz").write_bytes(gzip.compress(log.read_bytes())[:-3])  # gzip at work
    for _ in range(GRACE_SCANS + 1):
        assert tail.read() in ([b"3"], [])
    (tmp_path / "a.log.gz").write_bytes(gzip.compress(log.read_bytes() + b"4\n"))
    log.unlink()
    assert tail.read() == [b"4"]
    assert tail.follower.positions()[0].path == "a.log.gz"
    assert not tail.problems


def test_a_copy_is_left_out_and_told_once_with_both_names(tmp_path: Path) -> None:
    append(tmp_path / "a.log", b"same\n1\n")
    append(tmp_path / "a.log.1", b"same\n1\n")
    tail = Tail(tmp_path)
    assert tail.read() == [b"same", b"1"]
    assert not tail.problems  # a copy may be in progress
    for _ in range(4):
        tail.read()
    (problem,) = tail.problems
    assert problem.kind == ProblemKind.COPY
    assert "a.log.1: holds the same bytes as a.log," in str(problem)
    assert not tail.follower.unread()
    append(tmp_path / "a.log", b"3\n")
    assert tail.read() == [b"3"]
    once = Tail(tmp_path)
    once.read(final=True)
    assert once.kinds() == [ProblemKind.COPY]


def test_gzip_files_grow_by_members_and_are_resumed(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    append(path, gzip.compress(b"1\n2\n3"))
    tail = Tail(tmp_path)
    assert tail.read() == [b"1", b"2"]
    append(path, gzip.compress(b"3\n4\n"))
    assert tail.read() == [b"33", b"4"]
    append(path, gzip.compress(b"5\n"))
    again = Tail(tmp_path, tail.follower.positions())
    assert again.read() == [b"5"]
    assert again.blocks[0].offset == 9
    assert again.follower.backlog()[0] == again.follower.backlog()[1] == path.stat().st_size


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


@pytest.mark.parametrize("rest", [b"\n", b"\r\n"])
def test_last_line_without_newline_only_when_final_and_its_newline_is_no_record(tmp_path: Path, rest: bytes) -> None:
    append(tmp_path / "a", b"1\n2")
    append(tmp_path / "b", b"lone")
    tail = Tail(tmp_path)
    assert tail.read() == [b"1"]
    assert tail.read(final=True) == [b"2", b"lone"]
    assert tail.read(final=True) == []
    assert [(b.data, b.end) for b in tail.blocks] == [(b"1\n", 2), (b"2\n", 3), (b"lone\n", 4)]
    append(tmp_path / "a", rest + b"3\n")
    again = Tail(tmp_path, tail.follower.positions())
    assert again.read() == [b"3"]
    assert tail.read() == [b"3"]
    assert not tail.problems


def test_last_line_that_went_on_is_handed_out_whole_again(tmp_path: Path) -> None:
    append(tmp_path / "a", b"1\n22")
    tail = Tail(tmp_path)
    assert tail.read(final=True) == [b"1", b"22"]
    append(tmp_path / "a", b"33\n4\n")
    again = Tail(tmp_path, tail.follower.positions())
    assert again.read() == [b"2233", b"4"]
    assert tail.read() == [b"2233", b"4"]
    assert again.blocks[0].offset == 2
    assert tail.kinds() == again.kinds() == [ProblemKind.REWRITTEN]


def test_line_longer_than_the_limit_is_reported_with_its_place(tmp_path: Path) -> None:
    append(tmp_path / "a", b"1\n" + b"x" * 300 + b"\n2\n" + b"y" * 3_000_000)
    tail = Tail(tmp_path, max_record=200)
    assert tail.read() == [b"1", b"2"]
    assert [(o.offset, o.length) for b in tail.blocks for o in b.oversized] == [(2, 300)]
    assert tail.follower.positions()[0].offset == 305  # before the unfinished one: it is skipped again after a start
    append(tmp_path / "a", b"\n3\n")
    assert tail.read() == [b"3"]
    assert tail.blocks[-2].oversized[0].length == 3_000_000
    assert Tail(tmp_path, max_record=1 << 22).read()[3] == b"y" * 3_000_000


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


def test_a_damaged_file_that_is_removed_is_forgotten(tmp_path: Path) -> None:
    (tmp_path / "a.gz").write_bytes(b"no gzip at all")
    tail = Tail(tmp_path)
    assert tail.read(final=True) == []
    assert [p.path for p in tail.follower.unread()] == ["a.gz"]
    (tmp_path / "a.gz").unlink()
    tail.read()
    assert tail.follower.unread() == []


def test_directory_that_cannot_be_followed(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    for path, what in [(tmp_path / "none", "no such directory"), (tmp_path / "file", "not a directory")]:
        with pytest.raises(LogDirectoryError, match=what) as error:
            Follower(path, has_header=False)
        assert "\n" not in str(error.value)


def test_directory_that_vanishes_later_is_reported_and_forgets_nothing(tmp_path: Path) -> None:
    directory = tmp_path / "logs"
    directory.mkdir()
    append(directory / "a", b"1\n")
    tail = Tail(directory)
    tail.read()
    directory.rename(tmp_path / "away")
    assert tail.read() == []
    assert tail.kinds() == [ProblemKind.UNREADABLE]
    (tmp_path / "away").rename(directory)
    append(directory / "a", b"2\n")
    assert tail.read() == [b"2"]


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

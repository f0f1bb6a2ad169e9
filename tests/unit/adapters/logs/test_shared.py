"""A follower of some logs, and of parts of huge ones."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from photon.adapters.logs.api import Block, LogPart, LogPosition
from photon.adapters.logs.problems import ProblemKind
from photon.adapters.logs.shared import SharedFollower


@pytest.fixture
def follower(tmp_path: Path) -> Iterator[SharedFollower]:
    made = SharedFollower(tmp_path, has_header=False, max_record=100, held=True)
    yield made
    made.close()


def write(path: Path, *lines: bytes, mode: str = "wb") -> None:
    with open(path, mode) as file:
        file.write(b"".join(line + b"\n" for line in lines))


def poll(follower: SharedFollower) -> list[Block]:
    follower.scan()
    found: list[Block] = []
    while blocks := follower.poll(1 << 20):
        found += blocks
    return found


def part(identity: str, begin: int, end: int) -> LogPart:
    return LogPart(f"{identity}@{begin:x}", identity, begin, end, begin)


def test_logs_are_seen_and_not_read_until_they_are_given(tmp_path: Path, follower: SharedFollower) -> None:
    write(tmp_path / "a.log", b"one", b"two")
    write(tmp_path / "b.log", b"three")
    moves = follower.moves
    assert poll(follower) == []
    assert follower.caught_up()
    assert follower.moves > moves
    assert follower.backlog() == (0, 0)
    a, b = follower.in_sight()
    follower.own(LogPosition(a, "a.log", 4))
    assert follower.backlog() == (4, 8)
    assert not follower.caught_up()
    assert [(block.unit, block.offset, block.data) for block in poll(follower)] == [(a, 4, b"two\n")]
    assert follower.disown(a)
    write(tmp_path / "a.log", b"more", mode="ab")
    assert poll(follower) == []
    follower.own(LogPosition(a, "a.log", 8))
    follower.own(LogPosition(b, "", 0))
    assert [block.data for block in poll(follower)] == [b"more\n", b"three\n"]


def test_a_log_that_is_known_and_not_there_is_read_when_it_comes(tmp_path: Path, follower: SharedFollower) -> None:
    write(tmp_path / "a.log", b"one", b"two")
    poll(follower)
    (identity,) = follower.in_sight()
    (tmp_path / "a.log").rename(tmp_path / ".hidden")
    follower.scan()
    assert follower.in_sight() == []
    follower.own(LogPosition(identity, "a.log", 4))
    (tmp_path / ".hidden").rename(tmp_path / "a.log.1")
    assert [block.data for block in poll(follower)] == [b"two\n"]


def test_nothing_is_lost_of_a_log_that_another_one_reads(tmp_path: Path, follower: SharedFollower) -> None:
    write(tmp_path / "a.log", b"one")
    poll(follower)
    (tmp_path / "a.log").unlink()
    follower.scan()
    assert follower.lost_bytes == 0
    assert not follower.problems


def test_a_deleted_log_that_is_open_is_read_to_its_end_here(tmp_path: Path, follower: SharedFollower) -> None:
    write(tmp_path / "a.log", b"one")
    follower.scan()
    (identity,) = follower.in_sight()
    follower.own(LogPosition(identity, "", 0))
    poll(follower)
    write(tmp_path / "a.log", b"two", mode="ab")
    (tmp_path / "a.log").unlink()
    follower.scan()
    assert follower.in_sight() == [identity]
    assert not follower.disown(identity)
    assert [block.data for block in poll(follower)] == [b"two\n"]
    assert follower.in_sight() == []
    assert follower.disown(identity)


def test_parts_hold_each_record_once(tmp_path: Path, follower: SharedFollower) -> None:
    random = Random(3)
    lines = [b"%d %b" % (n, b"x" * random.choice((0, 5, 40, 90))) for n in range(300)]
    write(tmp_path / "a.log", *lines)
    follower.scan()
    (identity,) = follower.in_sight()
    size = follower.plain_size(identity)
    for step in (1, 7, 64, 1000):
        begins = follower.begins(identity, 0, [*range(step, size, step), size])
        ends = [each.offset for each in begins]
        assert ends[-1] == size
        assert ends == sorted(set(ends))
        found: list[Block] = []
        for at, end in zip([0, *ends[:-1]], ends, strict=True):
            follower.own_part(part(identity, at, end))
        assert follower.backlog() == (0, size)
        found = poll(follower)
        assert b"".join(block.data for block in found) == b"".join(line + b"\n" for line in lines)
        assert {block.identity for block in found} == {identity}
        assert all(block.unit == block.part != identity for block in found)
        assert follower.caught_up()
        for at in [0, *ends[:-1]]:
            follower.disown_part(f"{identity}@{at:x}")
    assert follower.begins(identity, 0, [size + 1]) == []


def test_a_record_longer_than_the_limit_within_a_part(tmp_path: Path, follower: SharedFollower) -> None:
    write(tmp_path / "a.log", b"one", b"y" * 3_000_000, b"two", b"three")
    follower.scan()
    (identity,) = follower.in_sight()
    follower.own_part(part(identity, 4, 3_000_009))
    blocks = poll(follower)
    assert b"".join(block.data for block in blocks) == b"two\n"
    (long,) = [each for block in blocks for each in block.oversized]
    assert (long.offset, long.length) == (4, 3_000_000)
    assert blocks[-1].end == 3_000_009


def test_a_part_is_read_on_from_its_offset_also_when_its_log_was_compressed(
    tmp_path: Path, follower: SharedFollower
) -> None:
    lines = [b"line %d" % n for n in range(100)]
    write(tmp_path / "a.log", *lines)
    whole = (tmp_path / "a.log").read_bytes()
    follower.scan()
    (identity,) = follower.in_sight()
    at = follower.begins(identity, 0, [500])[0].offset
    (tmp_path / "a.log").unlink()
    (tmp_path / "a.log.1.gz").write_bytes(gzip.compress(whole))
    follower.own_part(part(identity, 0, len(whole))._replace(offset=at))
    assert b"".join(block.data for block in poll(follower)) == whole[at:]
    assert follower.plain_size(identity) == 0  # it is not cut any further


def test_a_part_whose_bytes_are_no_more_is_lost_and_said_so(tmp_path: Path, follower: SharedFollower) -> None:
    write(tmp_path / "a.log", b"first", *[b"line %d" % n for n in range(100)])
    follower.scan()
    (identity,) = follower.in_sight()
    at = follower.begins(identity, 0, [500])[0].offset
    follower.own_part(part(identity, at, follower.plain_size(identity)))
    write(tmp_path / "a.log", b"first", b"short")
    assert follower.poll(1 << 20) == []
    assert follower.lost_parts == [f"{identity}@{at:x}"]
    assert follower.problems[ProblemKind.VANISHED] == 1
    assert follower.caught_up()


@pytest.mark.parametrize("size", [10, 300])
def test_a_part_waits_for_its_log_where_another_one_stands_in_its_file(
    tmp_path: Path, follower: SharedFollower, size: int
) -> None:
    lines = [b"line %d" % n for n in range(100)]
    write(tmp_path / "a.log", *lines)
    whole = (tmp_path / "a.log").read_bytes()
    follower.scan()
    (identity,) = follower.in_sight()
    at = follower.begins(identity, 0, [500])[0].offset
    follower.own_part(part(identity, at, len(whole)))
    (tmp_path / "a.log.1.gz").write_bytes(gzip.compress(whole))
    write(tmp_path / "a.log", *[b"other %d" % n for n in range(size)])  # on the same inode
    assert follower.poll(1 << 20) == []
    assert follower.lost_parts == []
    assert b"".join(block.data for block in poll(follower)) == whole[at:]


def test_fresh_lines_do_not_wait_for_a_part(tmp_path: Path) -> None:
    write(tmp_path / "huge.log", *[b"x" * 90 for _ in range(100_000)])
    follower = SharedFollower(tmp_path, has_header=False, held=True)
    follower.scan()
    (huge,) = follower.in_sight()
    follower.own_part(part(huge, 0, follower.plain_size(huge)))
    follower.poll(1 << 20)
    write(tmp_path / "fresh.log", b"fresh")
    follower.scan()
    (fresh,) = set(follower.in_sight()) - {huge}
    follower.own(LogPosition(fresh, "", 0))
    assert b"fresh\n" in [block.data for _ in range(2) for block in follower.poll(1 << 20)]
    follower.close()


def test_a_log_is_huge_by_what_is_unread_of_it(tmp_path: Path, follower: SharedFollower) -> None:
    write(tmp_path / "a.log", *[b"x" * 9 for _ in range(100)])
    follower.scan()
    (identity,) = follower.in_sight()
    assert follower.huge(10) == []  # another one's
    follower.own(LogPosition(identity, "", 300))
    assert follower.huge(700) == [identity]
    assert follower.huge(701) == []
    assert follower.placed(LogPosition(identity, "", 7)) == LogPosition(identity, "a.log", 7)


def test_another_file_on_the_inode_of_a_log_that_others_read_is_noticed(
    tmp_path: Path, follower: SharedFollower
) -> None:
    for name in ("a.log", "b.log"):
        write(tmp_path / name, b"one" + name.encode())
    follower.scan()
    before = set(follower.in_sight())
    follower.look_at_held(10)
    for name in ("a.log", "b.log"):
        with open(tmp_path / name, "r+b") as file:  # as a new file may get the inode of one deleted a moment ago
            file.write(name[:1].encode() + b" two\nthree\n")
    follower.scan()
    assert set(follower.in_sight()) == before
    follower.look_at_held(1)
    assert len(before & set(follower.in_sight())) == 1
    follower.look_at_held(10)
    assert len(follower.in_sight()) == 2
    assert not before & set(follower.in_sight())


def test_a_part_that_is_not_read_to_its_end_is_unread(tmp_path: Path, follower: SharedFollower) -> None:
    write(tmp_path / "a.log", *[b"line"] * 4)
    follower.scan()
    (identity,) = follower.in_sight()
    follower.own_part(part(identity, 0, 10))
    seen = follower.unread_now()
    assert seen.next() == "a.log"
    poll(follower)
    assert seen.next() == ""
    follower.own_part(part(identity, 10, 20))
    (tmp_path / "a.log").unlink()
    follower.scan()
    assert follower.unread_now().next() == "", "it is gone"

"""What is published of a stream is what was committed, whoever is killed where, and whoever wrote it before."""

from __future__ import annotations

from pathlib import Path

import pytest

from photon.computing.publisher import Line, OwnerDeposed, Place, Publisher
from photon.config.disk import RealDisk
from photon.config.errors import UsageError
from photon.library import Output

DISK = RealDisk()


def _lines(*numbers: int) -> list[bytes]:
    return [Line(f"Spend/{n}", "acme", n, {"cents": n}, "Spend", n).encode() for n in numbers]


def _read(directory: Path) -> list[int]:
    return [each["event_time_ns"] for batch in Output.of_join(directory).batches() for each in batch.records()]


def test_readers_are_shown_what_was_committed(tmp_path: Path) -> None:
    publisher = Publisher(DISK, tmp_path, "spend", 1, Place())
    place = publisher.append(_lines(1, 2))
    assert _read(tmp_path) == []
    publisher.publish()
    assert _read(tmp_path) == [1, 2]
    publisher.append(_lines(3))  # killed before the commit
    publisher.close()
    again = Publisher(DISK, tmp_path, "spend", 2, place)
    again.append(_lines(3, 4))
    again.publish()
    assert _read(tmp_path) == [1, 2, 3, 4]


def test_what_was_committed_is_published_by_the_next_owner(tmp_path: Path) -> None:
    first = Publisher(DISK, tmp_path, "spend", 1, Place())
    first.append(_lines(1))
    first.publish()
    place = first.append(_lines(2))  # committed; killed before it was published
    second = Publisher(DISK, tmp_path, "spend", 2, place)
    assert _read(tmp_path) == [1, 2]
    second.append(_lines(3))
    second.publish()
    with pytest.raises(OwnerDeposed):
        first.publish()
    first.append(_lines(99))
    assert _read(tmp_path) == [1, 2, 3]


def test_files_are_rolled_and_a_cursor_goes_on_in_them(tmp_path: Path) -> None:
    publisher = Publisher(DISK, tmp_path, "spend", 3, Place(), roll_bytes=1)
    cursor: bytes | None = None
    seen: list[int] = []
    for number in range(5):
        publisher.append(_lines(number))
        publisher.append([])
        publisher.publish()
        for batch in Output.of_join(tmp_path).batches(cursor=cursor):
            cursor = batch.cursor
            seen += [each["event_time_ns"] for each in batch.records()]
    assert seen == [0, 1, 2, 3, 4]
    assert [path.name for path in sorted((tmp_path / "joined").iterdir())] == [
        f"spend-{3_000_000 + n}.jsonl" for n in range(5)
    ]


def test_a_state_that_was_lost_is_refused(tmp_path: Path) -> None:
    publisher = Publisher(DISK, tmp_path, "spend", 1, Place())
    publisher.append(_lines(1))
    publisher.publish()
    with pytest.raises(UsageError, match="older one"):
        Publisher(DISK, tmp_path, "spend", 1, Place())
    with pytest.raises(UsageError, match="no name for files"):
        Publisher(DISK, tmp_path, "a/b", 1, Place())

"""Files that stay open: those being written, and those that could not be reopened."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from photon.adapters.logs.open_files import IDLE_NS
from photon.adapters.logs.reading import BLOCK_BYTES
from tests.unit.adapters.logs.tails import Tail, append

NOW_NS = 1_760_000_000 * 10**9


def write(path: Path, data: bytes, at_ns: int) -> None:
    append(path, data)
    os.utime(path, ns=(at_ns, at_ns))


def held_open(directory: Path) -> set[str]:
    """Names of the files below a directory that this process has open."""
    names = set()
    for each in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{each}")
        except OSError:
            continue
        if target.startswith(f"{directory}/"):
            names.add(os.path.basename(target))
    return names


@pytest.mark.parametrize("compressed", [False, True])
def test_a_rolled_file_is_closed_and_read_on_if_it_grows_all_the_same(tmp_path: Path, compressed: bool) -> None:
    def content(data: bytes) -> bytes:
        return gzip.compress(data) if compressed else data

    suffix = ".gz" if compressed else ""
    old, new = tmp_path / f"0.log{suffix}", tmp_path / f"1.log{suffix}"
    write(old, content(b"1\n2\n"), NOW_NS - 2 * IDLE_NS)
    write(new, content(b"a\n"), NOW_NS)
    tail = Tail(tmp_path)
    assert tail.read() == [b"1", b"2", b"a"]
    assert held_open(tmp_path) == {old.name, new.name}
    tail.follower.scan()
    assert held_open(tmp_path) == {new.name}
    write(old, content(b"3\n"), NOW_NS)
    assert tail.read() == [b"3"]
    assert held_open(tmp_path) == {old.name, new.name}
    tail.close()


def test_files_stay_open_where_nothing_is_written_and_where_not_all_was_read(tmp_path: Path) -> None:
    quiet, behind = tmp_path / "quiet", tmp_path / "behind"
    write(quiet / "0.log", b"1\n", NOW_NS - 10 * IDLE_NS)
    tail = Tail(quiet)
    tail.read()
    tail.follower.scan()
    assert held_open(quiet) == {"0.log"}
    tail.close()

    write(behind / "0.log", b"1234567\n" * BLOCK_BYTES, NOW_NS - 2 * IDLE_NS)
    write(behind / "1.log", b"a\n", NOW_NS)
    follower = Tail(behind).follower
    follower.scan()
    assert len(follower.poll(1)) == 1
    follower.scan()
    assert held_open(behind) == {"0.log"}
    follower.close()

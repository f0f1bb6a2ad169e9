"""Logs with the same beginning: told apart, each read once, and found again after a restart."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from photon.adapters.logs.assignment import GRACE_SCANS
from photon.adapters.logs.follower import ProblemKind
from photon.adapters.logs.identity import HEAD_BYTES
from photon.adapters.logs.log_finder import find_logs
from photon.adapters.logs.slices import Reading, standing_logs
from tests.unit.adapters.logs.tails import Tail, append


def test_they_are_read_in_the_order_in_which_they_were_met(tmp_path: Path) -> None:
    """Also the eleventh and the tenth: what a later one shares with an earlier one is known by then."""
    files = [tmp_path / f"a.log.{20 - at}" for at in range(12)]
    for at, log in enumerate(files):
        append(log, b"begin\n%d\n" % at)
        os.utime(log, (at, at))
    tail = Tail(tmp_path)
    tail.read()
    for at, log in enumerate(files):
        append(log, b"more %d\n" % at)
    assert Tail(tmp_path, tail.follower.positions()).read() == [b"more %d" % at for at in range(12)]


def test_a_copy_in_the_making_is_no_other_log(tmp_path: Path) -> None:
    log = tmp_path / "a.log"
    data = b"begin\n" + b"x" * 100 + b"\n"
    data += b"".join(b"%d\n" % n for n in range(HEAD_BYTES // 4))
    log.write_bytes(data)
    tail = Tail(tmp_path)
    read = tail.read()
    packed = gzip.compress(data)
    for to in (1000, 5000, len(packed)):
        (tmp_path / "a.log.1.gz").write_bytes(packed[:to])
        (tmp_path / "a.log.1").write_bytes(data[: to * 3])
        assert tail.read() == []
    assert len(read) == data.count(b"\n")
    assert set(tail.kinds()) <= {ProblemKind.COPY}
    assert len(tail.follower.positions()) == 1


@pytest.mark.parametrize("names", [("a.log", "b.log"), ("a.log", "b.gz"), ("a.gz", "b.gz"), ("a.log", "a.log.1.gz")])
@pytest.mark.parametrize("longer", [False, True])
@pytest.mark.parametrize("following", [False, True])
def test_logs_with_one_long_beginning_are_both_read(
    tmp_path: Path, names: tuple[str, str], longer: bool, following: bool
) -> None:
    """They differ after the bytes compared first, and share their last ones."""
    begin, end = (b"".join(b"%s %d\n" % (what, n) for n in range(HEAD_BYTES // 8)) for what in (b"begin", b"end"))
    other = begin + end + b"further\n" * 1000 if longer else begin + b"other\n" * 1000 + end
    for name, data in zip(names, (begin + b"first\n" * 1000 * (not longer) + end, other), strict=True):
        level = 1 if name == "a.gz" else 9  # the shorter one may have the larger file
        (tmp_path / name).write_bytes(gzip.compress(data, level) if name.endswith(".gz") else data)
    standing = [log.path for log in standing_logs(tmp_path, Reading(), lambda problem: None)]
    found = [log.file.path for log in find_logs(tmp_path, ["**/*"], has_header=False).values()]
    if not longer or names[1] != "b.log":
        assert standing == sorted(found) == sorted(names)
    tail = Tail(tmp_path)
    if following:  # one of them grows all the time
        read = []
        for n in range(GRACE_SCANS + 2):
            if names[0] == "a.log" and not longer:
                append(tmp_path / "a.log", b"more %d\n" % n)
            read += tail.read()
    else:
        read = tail.read(final=True)
    expected = set(other.splitlines()) | ({b"first"} if not longer else set())
    assert expected <= set(read)

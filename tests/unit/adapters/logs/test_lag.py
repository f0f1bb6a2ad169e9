"""Lag of logs: bytes and age of unread data, as scans saw it."""

from __future__ import annotations

import os
from pathlib import Path

from photon.adapters.logs.follower import Follower
from photon.adapters.logs.lag import MARKS_MAX, Lag, LogLag

S = 10**9


def write(path: Path, lines: int, at_s: int) -> None:
    with path.open("ab") as f:
        f.write((path.name.encode() + b"23456789\n") * lines)
    os.utime(path, ns=(at_s * S, at_s * S))


def test_lag_is_what_stands_there_unread_and_since_when(tmp_path: Path) -> None:
    write(tmp_path / "a", 3, 100)
    write(tmp_path / "b", 1, 50)
    (tmp_path / "c").write_bytes(b"no line end yet")
    follower = Follower(tmp_path, has_header=False)
    assert follower.lag() == Lag(0, 0, 0, None)
    follower.scan()
    assert follower.lag() == Lag(2, 2, 40, 50 * S, (LogLag("b", 10, 50 * S), LogLag("a", 30, 100 * S)))
    assert follower.lag(worst=1).worst == (LogLag("b", 10, 50 * S),)
    while follower.poll(1 << 20):
        pass
    assert follower.lag() == Lag(2, 0, 0, None)
    write(tmp_path / "a", 2, 200)
    follower.scan()
    assert follower.lag() == Lag(2, 1, 20, 200 * S, (LogLag("a", 20, 200 * S),))


def test_the_age_is_that_of_the_oldest_growth_not_read(tmp_path: Path) -> None:
    big = b"x" * 99 + b"\n"
    follower = Follower(tmp_path, has_header=False)
    for at in (100, 200, 300):
        with (tmp_path / "a").open("ab") as f:
            f.write(big * 20_000)
        os.utime(tmp_path / "a", ns=(at * S, at * S))
        follower.scan()
    ages = []
    while follower.poll(1):
        if (oldest := follower.lag().oldest_ns) is not None:
            ages.append(oldest // S)
    assert ages == sorted(ages)
    assert set(ages) == {100, 200, 300}
    assert follower.lag().bytes == 0


def test_many_growths_are_remembered_in_bounded_memory(tmp_path: Path) -> None:
    follower = Follower(tmp_path, has_header=False)
    for at in range(3 * MARKS_MAX):
        write(tmp_path / "a", 1, 100 + at)
        follower.scan()
    (log,) = follower._logs.all.values()
    assert len(log.marks) == MARKS_MAX
    assert follower.lag() == Lag(1, 1, 30 * MARKS_MAX, 100 * S, (LogLag("a", 30 * MARKS_MAX, 100 * S),))


def test_a_file_that_went_away_is_no_lag(tmp_path: Path) -> None:
    write(tmp_path / "a", 3, 100)
    follower = Follower(tmp_path, has_header=False)
    follower.scan()
    (tmp_path / "a").unlink()
    follower.scan()
    assert follower.lag().bytes == 0
    assert follower.backlog() == (0, 0)


def test_what_a_scan_saw_was_handed_out_though_more_comes(tmp_path: Path) -> None:
    write(tmp_path / "a", 3, 100)
    write(tmp_path / "b", 3, 100)
    follower = Follower(tmp_path, has_header=False)
    follower.scan()
    seen = follower.unread_now()
    assert not seen.doubt
    assert seen.next() in ("a", "b")
    assert follower.poll(1)
    assert seen.next() == "b"
    write(tmp_path / "a", 500_000, 200)
    write(tmp_path / "b", 1, 200)
    follower.scan()
    later = follower.unread_now()
    while seen.next():
        assert follower.poll(1)
    assert later.next() == "a"
    while follower.poll(1 << 20):
        pass
    assert later.next() == ""
    follower.scan()
    assert follower.unread_now().logs == ()


def test_a_log_that_is_gone_or_was_replaced_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    for name in "abc":
        write(tmp_path / name, 3, 100)
    (tmp_path / "c").write_bytes(b"another line\n" * 3)
    follower = Follower(tmp_path, has_header=False)
    follower.scan()
    seen = follower.unread_now()
    (tmp_path / "a").unlink()
    (tmp_path / "c").rename(tmp_path / "c.1")
    for _ in range(4):
        follower.scan()
        while follower.poll(1 << 20):
            pass
    assert seen.next() == ""


def test_what_cannot_be_read_is_a_doubt(tmp_path: Path) -> None:
    write(tmp_path / "a", 3, 100)
    (tmp_path / "b.gz").write_bytes(b"no gzip at all")
    follower = Follower(tmp_path, has_header=False)
    follower.scan()
    while follower.poll(1 << 20):
        pass
    follower.scan()
    assert follower.unread_now().doubt != ""

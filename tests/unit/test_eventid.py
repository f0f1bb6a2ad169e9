"""photon.eventid: canonical form, strict order over threads, clock steps and restarts, the durable mark."""

from __future__ import annotations

import os
import random
import socket
import threading
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from photon.config.disk import RealDisk
from photon.eventid import (
    RESERVED_US,
    TAKE_MAX,
    TIME_MAX_US,
    EventId,
    EventIdError,
    EventIds,
    own_ip,
    parse,
    process,
    split,
    time_ns,
)


class SteppedClock:
    """Returns the times it was told."""

    def __init__(self, us: int) -> None:
        self.us = us

    def __call__(self) -> int:
        return self.us


class FailingDisk(RealDisk):
    """Refuses to write while ``full``."""

    full = False

    def replace(self, path: Path, data: bytes) -> None:
        if self.full:
            raise OSError(28, "No space left on device", str(path))
        super().replace(path, data)


T = 1_760_000_000_000_000


# -- the canonical form --------------------------------------------------------------------------------------------
@given(st.ip_addresses(), st.integers(0, 2**32 - 1), st.integers(0, TIME_MAX_US))
def test_what_is_written_is_read(ip: object, pid: int, time_us: int) -> None:
    mapped = getattr(ip, "ipv4_mapped", None)
    event_id = EventId(str(mapped or ip), pid, time_us)
    assert parse(str(event_id)) == parse(str(event_id).encode()) == event_id
    assert time_ns(str(event_id)) == time_us * 1000
    assert split(str(event_id).encode()) == (f"{event_id.ip}:{pid}".encode(), time_us)
    found = process(f"{event_id.ip}:{pid}".encode())
    assert found is not None
    assert (str(found[0]), found[1]) == (event_id.ip, pid)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "fewer than two colons"),
        ("10.0.0.1:5", "fewer than two colons"),
        ("10.0.0.1:5:", "its time is not"),
        ("10.0.0.1:5:-1", "its time is not"),
        ("10.0.0.1:5:٣", "its time is not"),
        (f"10.0.0.1:5:{TIME_MAX_US + 1}", "its time is not"),
        ("10.0.0.1:05:1", "its process id is not"),
        ("10.0.0.1:4294967296:1", "its process id is not"),
        ("host:5:1", "'host' is not an IP address"),
        ("2001:DB8::1:5:1", "must be written '2001:db8::1'"),
        ("::ffff:10.0.0.1:5:1", "must be written '10.0.0.1'"),
        ("fe80::1%eth0:5:1", "has a zone"),
        ("\ud800:5:1", "is not an IP address"),
        ("x" * 5000 + ":5:1", "is not an IP address"),
    ],
)
def test_what_is_no_id_is_said_in_one_line(text: str, says: str) -> None:
    with pytest.raises(EventIdError) as error:
        parse(text)
    assert says in str(error.value)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 400
    data = text.encode("utf-8", "surrogatepass")
    parts = split(data)
    assert parts is None or parts[1] > TIME_MAX_US or process(parts[0]) is None
    with pytest.raises(EventIdError):
        parse(data)


# -- the sequence --------------------------------------------------------------------------------------------------
def test_ids_follow_the_clock_and_rise_when_it_does_not() -> None:
    clock = SteppedClock(T)
    with EventIds("2001:DB8::7", 4021, now_us=clock) as ids:
        assert ids.next() == f"2001:db8::7:4021:{T}"
        assert ids.next() == f"2001:db8::7:4021:{T + 1}"
        clock.us = T + 50
        assert ids.take(3) == [f"2001:db8::7:4021:{T + 50 + i}" for i in range(3)]
        assert ids.ahead_us == 2
        clock.us = T - 10**9  # steps back by 1,000 s
        assert parse(ids.next()).time_us == T + 53
        assert ids.ahead_us == 53 + 10**9
        assert ids.take(0) == []
        clock.us = T + 100
        assert parse(ids.next()).time_us == T + 100
        assert ids.ahead_us == 0


def test_threads_never_get_the_same_id() -> None:
    got: list[list[str]] = [[] for _ in range(8)]
    with EventIds("10.0.0.1", 1) as ids:

        def draw(mine: list[str]) -> None:
            for n in range(300):
                mine += ids.take(7) if n % 2 else [ids.next()]

        threads = [threading.Thread(target=draw, args=(mine,)) for mine in got]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for mine in got:
        times = [parse(each).time_us for each in mine]
        assert times == sorted(times)
    everything = [each for mine in got for each in mine]
    assert len(set(everything)) == len(everything) == 8 * 150 * 8


def test_one_sequence_a_name_in_a_process() -> None:
    clock = SteppedClock(T)
    first = EventIds("10.0.0.2", 1, now_us=clock)
    with pytest.raises(EventIdError, match="one already; share it"):
        EventIds("10.0.0.2", 1, now_us=clock)
    EventIds("10.0.0.2", 2, now_us=clock).close()
    last = first.take(100)[-1]
    first.close()
    first.close()
    with pytest.raises(EventIdError, match="was closed"):
        first.next()
    with EventIds("10.0.0.2", 1, now_us=SteppedClock(T - 10**6)) as second:
        assert parse(second.next()).time_us == parse(last).time_us + 1
    dropped = EventIds("10.0.0.2", 1, now_us=clock)
    del dropped  # as good as closed
    EventIds("10.0.0.2", 1, now_us=clock).close()


@pytest.mark.parametrize("ip", ["", "host", "0.0.0.0", "::", "224.0.0.1", "fe80::1%eth0", "10.0.0.1:5"])
def test_addresses_of_no_server_are_refused(ip: str) -> None:
    with pytest.raises(EventIdError, match=r"ip = .*name the server's"):
        EventIds(ip)


def test_other_values_out_of_range_are_refused() -> None:
    with pytest.raises(EventIdError, match="pid = 4294967296"):
        EventIds("10.0.0.3", 2**32)
    with EventIds("10.0.0.3", now_us=SteppedClock(TIME_MAX_US)) as ids:
        with pytest.raises(ValueError, match="count must be"):
            ids.take(TAKE_MAX + 1)
        with pytest.raises(EventIdError, match="beyond the year 2261"):
            ids.take(2)


@pytest.mark.parametrize(("route", "found"), [("10.1.2.3", "10.1.2.3"), ("127.0.0.1", None), ("fe80::1", None)])
def test_own_ip_is_where_the_route_to_the_outside_begins(
    monkeypatch: pytest.MonkeyPatch, route: str, found: str | None
) -> None:
    class Socket(socket.socket):
        def connect(self, address: object) -> None:
            pass

        def getsockname(self) -> tuple[str, int]:
            return route, 1

    monkeypatch.setattr(socket, "socket", Socket)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(2, 2, 17, "", ("192.168.7.8", 0))])
    assert own_ip() == (found or "192.168.7.8")


def test_a_machine_without_network_has_no_own_ip(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(self: object, address: object) -> None:
        raise OSError(101, "Network is unreachable")

    class Socket(socket.socket):
        connect = unreachable

    monkeypatch.setattr(socket, "socket", Socket)
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(2, 2, 17, "", ("127.0.1.1", 0))])
    with pytest.raises(EventIdError, match="has only a loopback address"):
        own_ip()


# -- the durable mark ----------------------------------------------------------------------------------------------
def test_a_restart_under_a_clock_that_stepped_back_repeats_nothing(tmp_path: Path) -> None:
    seed = int(os.environ.get("PHOTON_SEED", random.SystemRandom().randrange(1 << 30)))
    print(f"PHOTON_SEED={seed}")
    rnd = random.Random(seed)
    clock = SteppedClock(T)
    state = tmp_path / "mark"
    last = 0
    for start in range(40 if os.environ.get("PHOTON_FULL") else 15):
        # Another pid each time stands for another process: within this one the sequence itself would remember.
        ids = EventIds("10.0.0.4", start, state=state, now_us=clock)
        for _ in range(rnd.randrange(6)):
            taken = ids.take(rnd.choice([1, 1000, 200_000]))
            first, end = parse(taken[0]).time_us, parse(taken[-1]).time_us
            assert first > last
            assert end - first == len(taken) - 1
            last = end
            clock.us += rnd.choice([0, 1, 10**6, 10**9, -(10**9), -(10**12)])
        if rnd.random() < 0.5:
            ids.close()
        else:
            del ids  # a crash: nothing is written on the way out


def test_a_crash_costs_a_reserved_second_and_a_close_nothing(tmp_path: Path) -> None:
    clock = SteppedClock(T)
    crashed = EventIds("10.0.0.5", 1, state=tmp_path / "mark", now_us=clock)
    crashed.next()
    del crashed
    closed = EventIds("10.0.0.5", 2, state=tmp_path / "mark", now_us=clock)
    assert closed.next() == f"10.0.0.5:2:{T + 1 + RESERVED_US}"
    assert closed.ahead_us == 1 + RESERVED_US
    closed.close()
    with EventIds("10.0.0.5", 3, state=tmp_path / "mark", now_us=clock) as ids:
        assert ids.next() == f"10.0.0.5:3:{T + 2 + RESERVED_US}"


def test_the_mark_is_written_once_a_second_not_once_an_id(tmp_path: Path) -> None:
    written = []

    class CountingDisk(RealDisk):
        def replace(self, path: Path, data: bytes) -> None:
            written.append(data)
            super().replace(path, data)

    clock = SteppedClock(T)
    with EventIds("10.0.0.6", state=tmp_path / "mark", now_us=clock, disk=CountingDisk()) as ids:
        for _ in range(1000):
            ids.next()
            clock.us += 10_000
    assert len(written) <= 11  # 10 s, and the close


@pytest.mark.parametrize("at", range(20))
def test_a_damaged_mark_is_refused(tmp_path: Path, at: int) -> None:
    state = tmp_path / "mark"
    EventIds("10.0.0.8", 1, state=state, now_us=SteppedClock(T)).next()
    good = state.read_bytes()
    assert len(good) == 20
    for data in (good[:at], good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :], good + good[: at + 1]):
        state.write_bytes(data)
        with pytest.raises(EventIdError, match=r"mark: (is not a mark .* restore it|has format \d+; use)"):
            EventIds("10.0.0.8", 1, state=state, now_us=SteppedClock(T))
    state.write_bytes(good)
    EventIds("10.0.0.8", 1, state=state, now_us=SteppedClock(T)).close()


def test_a_state_that_cannot_be_used_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(EventIdError, match=r"cannot be opened .* writable directory"):
        EventIds("10.0.0.9", state=tmp_path / "missing" / "mark")
    (tmp_path / "dir").mkdir()
    with pytest.raises(EventIdError, match="cannot be read"):
        EventIds("10.0.0.9", state=tmp_path / "dir")
    with (
        EventIds("10.0.0.9", 1, state=tmp_path / "mark"),
        pytest.raises(EventIdError, match="another process uses it"),
    ):
        EventIds("10.0.0.9", 2, state=tmp_path / "mark")


def test_a_full_disk_gives_out_no_id_and_is_got_over(tmp_path: Path) -> None:
    disk, clock = FailingDisk(), SteppedClock(T)
    ids = EventIds("10.0.0.10", 1, state=tmp_path / "mark", now_us=clock, disk=disk)
    assert parse(ids.next()).time_us == T
    disk.full = True
    clock.us = T + 2 * RESERVED_US
    with pytest.raises(EventIdError, match=r"cannot be written .*No space"):
        ids.next()
    disk.full = False
    assert parse(ids.next()).time_us == clock.us
    disk.full = True
    ids.close()  # cannot note the exact end: the mark beyond it stays
    with EventIds("10.0.0.10", 2, state=tmp_path / "mark", now_us=SteppedClock(T)) as again:
        assert parse(again.next()).time_us == clock.us + 1 + RESERVED_US

"""The listing thread: nobody with other work waits for it, and its knowledge is not taken for newer."""

from __future__ import annotations

import errno
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from photon.adapters.logs import follower as following
from photon.adapters.logs.discovery import discover
from photon.adapters.logs.elsewhere import FoundFile
from photon.adapters.logs.follower import Follower
from photon.adapters.logs.slices import Reading, standing_logs
from photon.objects import directory as module
from photon.objects import listing
from photon.objects.api import Meta
from photon.objects.directory import directory_of
from photon.objects.paths import ObjectPath
from tests.unit.objects.fakes import MemoryBucket, unavailable

WITHIN_S = 20.0


def eventually(holds: Callable[[], bool]) -> bool:
    until = time.monotonic() + WITHIN_S
    while not (found := holds()) and time.monotonic() < until:
        time.sleep(0.01)
    return found


def reads(follower: Follower) -> bool:
    """True if a scan brings something new."""
    return bool(follower.scan() and follower.poll(100) != [])


def failing(bucket: MemoryBucket, how: Callable[[], Exception]) -> None:
    def list_(prefix: str, after: str) -> Iterator[Sequence[Meta]]:
        raise how()

    bucket.list = list_  # type: ignore[method-assign]


def test_an_event_loop_does_not_wait_for_the_first_listing(bucket: MemoryBucket, logs: ObjectPath) -> None:
    bucket.data["logs/a"] = b"a\n"
    problems: list[object] = []
    follower = Follower(logs, has_header=False, report=problems.append, hurried=True)
    go, there = threading.Event(), bucket.list

    def slow(prefix: str, after: str) -> Iterator[Sequence[Meta]]:
        go.wait(WITHIN_S)
        return there(prefix, after)

    bucket.list = slow  # type: ignore[method-assign]
    begun = time.monotonic()
    follower.scan()
    assert time.monotonic() - begun < WITHIN_S / 4
    assert not follower.caught_up()  # or a reader of the current objects would be at its end
    assert follower.unread_now().doubt
    go.set()
    assert eventually(lambda: reads(follower))
    assert problems == []
    follower.close()


def test_listings_that_fail_for_long_are_told(
    bucket: MemoryBucket, logs: ObjectPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket.data["logs/a"] = b"a\n"
    directory = directory_of(logs)
    directory.bucket.objects._sleep = lambda seconds: None
    assert [each.key for each in directory.listed()] == ["logs/a"]
    failing(bucket, unavailable)
    assert eventually(lambda: directory._error is not None)
    directory.listed()  # earlier knowledge counts for some time
    monkeypatch.setattr(module, "FAILING_S", 0.0)
    with pytest.raises(OSError, match="503"):
        directory.listed()
    del bucket.list  # type: ignore[misc]
    assert eventually(lambda: directory._error is None)
    directory.listed()


def test_a_client_that_fails_otherwise_is_told_too(bucket: MemoryBucket, logs: ObjectPath) -> None:
    failing(bucket, lambda: RuntimeError("no runtime"))
    with pytest.raises(OSError, match="RuntimeError: no runtime"):
        directory_of(logs).listed()


def test_what_was_known_before_a_pause_is_listed_again(
    bucket: MemoryBucket, logs: ObjectPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory = directory_of(logs)
    assert directory.listed() == ()
    monkeypatch.setattr(module, "IDLE_S", 0.0)
    assert eventually(lambda: directory._thread is None)
    bucket.data["logs/a"] = b"a\n"
    assert [each.key for each in directory.listed()] == ["logs/a"]


def test_who_asks_for_what_stands_now_gets_it(
    bucket: MemoryBucket, logs: ObjectPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "ALL_S", 1000.0)
    for name in ("m", "a"):
        bucket.data[f"logs/{name}"] = b"a\n"
        found = standing_logs(logs, Reading(), lambda problem: None)
        assert name in {log.path for log in found}


def test_objects_are_looked_at_when_some_have_changed(
    bucket: MemoryBucket, logs: ObjectPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There may be a million, and the event loop has other work."""
    looks = list[object]()

    def counted(*given: Any) -> list[FoundFile]:
        looks.append(given)
        return discover(*given)

    monkeypatch.setattr(following, "discover", counted)
    bucket.data["logs/a"] = b"a\n"
    follower = Follower(logs, has_header=False, hurried=True)
    assert eventually(lambda: reads(follower))
    assert eventually(lambda: follower.scan() and follower.poll(100) == [] and follower.caught_up())
    follower.scan()
    before, seen_ns = len(looks), follower.seen_ns(time.time_ns())
    assert eventually(lambda: follower.scan() and follower.seen_ns(time.time_ns()) > seen_ns)
    assert len(looks) == before
    bucket.data["logs/b"] = b"b\n"
    assert eventually(lambda: reads(follower))
    follower.close()


def test_a_head_that_could_not_be_read_is_read_though_nothing_changes(bucket: MemoryBucket, logs: ObjectPath) -> None:
    bucket.data["logs/a"] = b"header\na\n"
    there, failures = bucket.read, iter(range(2))

    def failing_twice(meta: Meta, begin: int, end: int) -> bytes:
        if next(failures, None) is not None:
            raise OSError(errno.EIO, "no")
        return there(meta, begin, end)

    bucket.read = failing_twice  # type: ignore[method-assign]
    follower = Follower(logs, has_header=True, hurried=True)
    assert eventually(lambda: reads(follower))
    assert follower.unread() == []
    follower.close()

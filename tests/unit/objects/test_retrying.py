from __future__ import annotations

import random

import pytest

from photon.objects.api import ObjectsFailed
from photon.objects.retrying import ATTEMPTS, Retrying
from tests.unit.objects.fakes import MemoryBucket, unavailable


def retrying(bucket: MemoryBucket) -> tuple[Retrying, list[float]]:
    slept: list[float] = []
    return Retrying(bucket, sleep=slept.append, random=lambda: 1.0), slept


def test_a_refused_request_is_made_again_and_counted() -> None:
    left = [3]

    def fails(request: str) -> OSError | None:
        left[0] -= 1
        return unavailable() if left[0] >= 0 else None

    bucket = MemoryBucket(fails)
    bucket.data["a"] = b"12345"
    objects, slept = retrying(bucket)
    meta = objects.head("a")
    assert objects.read(meta, 1, 3) == b"23"
    assert slept == [0.1, 0.2, 0.4]
    assert objects.counts.of["reads"] == 5
    assert objects.counts.of["retries"] == 3
    assert objects.counts.of["bytes_read"] == 2


def test_what_is_not_worth_it_is_raised_at_once() -> None:
    objects, slept = retrying(MemoryBucket())
    with pytest.raises(FileNotFoundError):
        objects.head("a")
    assert slept == []


def test_it_gives_up() -> None:
    bucket = MemoryBucket(lambda request: unavailable())
    objects, slept = retrying(bucket)
    with pytest.raises(ObjectsFailed):
        objects.delete("a")
    assert len(bucket.asked) == ATTEMPTS
    assert len(slept) == ATTEMPTS - 1


def test_a_listing_goes_on_behind_the_last_page() -> None:
    draws = random.Random(1)
    bucket = MemoryBucket(lambda request: unavailable() if draws.random() < 0.4 else None)
    bucket.data = {f"k{number:02}": b"" for number in range(31)}
    objects, _ = retrying(bucket)
    assert [meta.key for page in objects.list("k", "k03") for meta in page] == sorted(bucket.data)[4:]
    assert objects.counts.of["retries"] > 3


def test_a_write_that_was_cut_is_whole_or_not_there() -> None:
    failures = iter([unavailable(), None, None, None])
    bucket = MemoryBucket(lambda request: next(failures) if request == "part a 1" else None)
    objects, _ = retrying(bucket)
    objects.write("a", [b"one", b"two"])
    assert bucket.data == {"a": b"onetwo"}
    assert objects.counts.of["writes"] == 2

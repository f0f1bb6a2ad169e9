"""The CacheEventStore: verified hits, LRU over segments, and a bound in bytes that holds for any reads."""

from __future__ import annotations

import numpy as np

from photon.adapters.contract import LogFile
from photon.eventstore.index import ENTRY_BYTES, hash_keys
from photon.eventstore.segments import DEAD_ENTRIES_MIN, CacheEventStore

from .helpers import LineAdapter, listed, put_lines

ADAPTER = LineAdapter({})


def get(cache: CacheEventStore, *keys: bytes) -> dict[int, list[tuple[str, int, bytes]]]:
    found: dict[int, list[tuple[str, int, bytes]]] = {}
    for row, identity, hit in listed(cache.look_up(keys, hash_keys(keys))):
        found.setdefault(row, []).append((identity, hit.offset, hit.record))
    return {row: sorted(hits) for row, hits in found.items()}


def test_records_are_found_with_place_and_without_line_end() -> None:
    cache = CacheEventStore(ADAPTER)
    put_lines(cache, ADAPTER, "id", "a.log", 100, b"k1,x\r\nbad\nk2,y\nraise,z\n")
    assert get(cache, b"k2", b"k1", b"k3", b"bad", b"raise") == {0: [("id", 110, b"k2,y")], 1: [("id", 100, b"k1,x")]}
    cache.count(hits=2, misses=3)
    assert (cache.counts().hits, cache.counts().misses) == (2, 3)


def test_all_records_of_a_key_are_found() -> None:
    cache = CacheEventStore(ADAPTER)
    put_lines(cache, ADAPTER, "b", "b.log", 0, b"k,1\nk,2\n")
    put_lines(cache, ADAPTER, "a", "a.log", 0, b"k,3\n")
    assert get(cache, b"k") == {0: [("a", 0, b"k,3"), ("b", 0, b"k,1"), ("b", 4, b"k,2")]}


def test_a_record_with_the_same_hash_and_another_key_is_no_hit() -> None:
    cache = CacheEventStore(ADAPTER)
    cache.put("id", LogFile("a"), 0, b"other,1\n", hash_keys([b"asked"]), np.array([0]))
    assert get(cache, b"asked") == {}


def test_least_recently_touched_segments_go_first() -> None:
    cache = CacheEventStore(ADAPTER, bytes_max=3 * (1024 + ENTRY_BYTES + 4))
    for number in range(3):
        put_lines(cache, ADAPTER, "id", "a.log", 4 * number, b"k%d,\n" % number)
    assert get(cache, b"k0")  # touched: k1 is the oldest now
    put_lines(cache, ADAPTER, "id", "a.log", 12, b"k3,\n")
    assert set(get(cache, b"k0", b"k1", b"k2", b"k3")) == {0, 2, 3}
    assert cache.counts().evictions == 1


def test_bytes_and_entries_stay_bounded() -> None:
    limit = 1 << 20
    cache = CacheEventStore(ADAPTER, bytes_max=limit)
    for number in range(400):
        put_lines(cache, ADAPTER, "id", "a.log", 0, b"".join(b"%d-%d,\n" % (number, i) for i in range(2000)))
        counts = cache.counts()
        assert counts.bytes <= limit
        assert counts.entries * ENTRY_BYTES <= 1.5 * limit + (DEAD_ENTRIES_MIN + 2000) * ENTRY_BYTES
    assert counts.evictions > 300
    assert 0 in get(cache, b"399-1999")
    assert get(cache, b"0-0") == {}


def test_a_block_larger_than_the_cache_is_not_kept() -> None:
    cache = CacheEventStore(ADAPTER, bytes_max=2000)
    put_lines(cache, ADAPTER, "id", "a.log", 0, b"k," + b"x" * 3000 + b"\n")
    assert cache.counts().segments == 0
    assert get(cache, b"k") == {}


def test_a_new_version_of_an_evicted_key_is_found_after_a_clean_up() -> None:
    cache = CacheEventStore(ADAPTER, bytes_max=200_000)
    for number in range(60):
        put_lines(cache, ADAPTER, "id", "a.log", 0, b"".join(b"%d-%d,\n" % (number % 50, i) for i in range(3000)))
    assert set(get(cache, b"9-5", b"9-2999", b"3-0")) == {0, 1}

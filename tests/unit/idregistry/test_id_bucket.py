"""Buckets that grow through all their sizes, are frozen while they change, and add up."""

from __future__ import annotations

import gc
from dataclasses import replace

import numpy as np
import pytest

from photon.idregistry.core import digest_index, growing_array, id_bucket
from photon.idregistry.core.growing_array import GrowingArray
from photon.idregistry.core.id_bucket import CLEARED, OWNED, REOPENED, Bucket
from photon.idregistry.core.id_table import Entry, IdTable, digest_columns
from photon.idregistry.core.shard_snapshot import VERSION
from tests.unit.idregistry.shard import thawed

BITS = 20


def digests_of(first: int, count: int) -> bytes:
    """Distinct, well spread, and the same each time."""
    n = np.arange(first, first + count, dtype=np.uint64)
    return np.stack([n * np.uint64(0xD6E8FEB86659FD93), n], axis=1).tobytes()


def add(table: IdTable, first: int, count: int, token: int = 1, time: int = 5) -> int:
    """Adds ids; returns their number."""
    lo, hi = digest_columns(digests_of(first, count))
    met = table.add(
        lo,
        hi,
        np.full(count, time),
        np.full(count, token, np.uint64),
        np.ones(count, np.uint8),
        np.arange(count, dtype=np.uint32),
        None,
        np.ones(count, np.bool_),
    )
    return int(met.added.sum())


def clear(table: IdTable, first: int, count: int, token: int = 1, time: int = 5) -> None:
    lo, hi = digest_columns(digests_of(first, count))
    table.clear(lo, hi, np.full(count, token, np.uint64))


def states(table: IdTable, first: int, count: int, time: int = 5) -> np.ndarray:
    lo, hi = digest_columns(digests_of(first, count))
    return table.look_up(lo, hi).states


@pytest.fixture
def small_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many splits and moves with few ids."""
    monkeypatch.setattr(digest_index, "SEGMENT_SLOTS", 64)
    monkeypatch.setattr(growing_array, "MAPPED_FROM_BYTES", 4096)


def test_a_collection_says_how_many_were_cleared_at_once() -> None:
    table = IdTable(bucket_bits=BITS)
    add(table, 0, 5)
    clear(table, 0, 3)
    assert table.collect(1 << BITS) == 3
    assert table.collect(1 << BITS) == 0
    clear(table, 3, 2)
    assert table.collect(1 << BITS) == 2


@pytest.mark.usefixtures("small_segments")
def test_every_id_is_found_at_every_size() -> None:
    table = IdTable(BITS)
    count = 0
    for size in (1, 2, 5, 40, 300, 1, 2_000, 7, 3_000):
        assert add(table, count, size) == size
        count += size
        assert (states(table, 0, count) == OWNED).all()
        assert not states(table, count, 500).any()
    assert add(table, 0, count, token=2) == 0
    assert len(table) == count


@pytest.mark.usefixtures("small_segments")
def test_equal_ids_of_one_batch_while_segments_split() -> None:
    rng = np.random.default_rng(5)
    table = IdTable(BITS)
    seen: set[int] = set()
    for _ in range(40):
        pick = rng.integers(0, 4_000, 400)
        digests = np.frombuffer(digests_of(0, 4_000), "V16")[pick].tobytes()
        lo, hi = digest_columns(digests)
        ones = np.ones(400, np.uint8)
        met = table.add(
            lo, hi, np.full(400, 5), ones.astype(np.uint64), ones, ones.astype(np.uint32), None, ones == 1
        )
        for i, each in enumerate(pick.tolist()):
            assert bool(met.added[i]) == (each not in seen)
            seen.add(each)
    assert len(table) == len(seen)


def test_an_id_takes_52_bytes_at_most_and_48_at_a_real_size() -> None:
    assert Bucket(number=0).resident_bytes == 8  # the sum of its rows
    table = IdTable()
    for first in range(0, 400_000, 10_000):
        add(table, first, 10_000)
        assert table.resident_bytes / len(table) <= (52 if first < 300_000 else 48)  # segments that are not split yet
    assert (states(table, 399_000, 2_000) == np.repeat([OWNED, 0], 1_000)).all()


def test_an_array_moves_with_its_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(growing_array, "MAPPED_FROM_BYTES", 4096)
    array = GrowingArray(np.uint32)
    kept = []
    for rows in (10, 100, 1_000, 5_000, 50_000, 51_000, 500_000):
        before = len(array.array)
        array.reserve(rows)
        assert len(array.array) >= rows
        assert not array.array[before:].any()
        assert (array.array[:before] == np.arange(before)).all()
        array.array[:] = np.arange(len(array.array))
        if rows == 5_000:
            kept.append(array.array)  # a reader that looks at it: its numbers stay
    assert (kept[0] == np.arange(len(kept[0]))).all()


@pytest.mark.usefixtures("small_segments")
def test_a_snapshot_sees_what_was_whatever_changes_meanwhile() -> None:
    rng = np.random.default_rng(11)
    table = IdTable(BITS)
    add(table, 0, 900)
    table.put(digests_of(7, 1), 5, Entry(REOPENED, 0, 1, 3, 2))
    expected = {n: table.get(digests_of(n, 1)) for n in range(900)}
    frozen = table.freeze()
    later = None
    read = IdTable(BITS)
    for turn in range(30):
        clear(table, int(rng.integers(0, 870)), 30)
        add(table, 900 + 15 * turn, 15)
        table.put(digests_of(turn * 27, 1), 5, Entry(OWNED, 9, 2, turn, turn % 3))
        if turn == 10:
            later = table.freeze(), {n: table.get(digests_of(n, 1)) for n in range(1_065)}
        read.load(frozen[0].number, frozen[0].read(30))
    assert frozen[0].read(30).size == 0
    read.load_generations(frozen[0].number, frozen[0].generations.items())
    assert {n: read.get(digests_of(n, 1)) for n in range(900)} == expected
    assert len(read) == 900
    again = thawed(later[0], BITS)
    assert {n: again.get(digests_of(n, 1)) for n in range(1_065)} == later[1]


def test_a_snapshot_that_was_given_up_costs_nothing() -> None:
    bucket = Bucket(0)
    frozen = bucket.freeze()
    assert len(bucket._frozen) == 1
    del frozen
    gc.collect()
    bucket.change(np.empty(0, np.int64))
    assert bucket._frozen == []


def test_sums_are_the_same_in_any_order_and_differ_for_any_difference() -> None:
    one, other = IdTable(BITS), IdTable(BITS)
    assert one.sum() == other.sum() == 0
    add(one, 0, 150)
    add(one, 150, 150, time=1 << BITS)
    clear(one, 30, 15)
    entry = Entry(REOPENED, 3, 1, 9, 4)
    one.put(digests_of(2_000, 1), 5, entry)
    for n in range(299, -1, -1):
        time = 5 if n < 150 else 1 << BITS
        before = one.get(digests_of(n, 1))
        assert before is not None
        other.put(digests_of(n, 1), time, before)
    assert one.sum() != other.sum()
    other.put(digests_of(2_000, 1), 5, replace(entry, generation=3))
    assert one.sum() != other.sum()
    other.put(digests_of(2_000, 1), 5, entry)
    assert one.sum() == other.sum()
    assert thawed(one.freeze(), BITS).sum() == one.sum()
    for changed in ({"state": OWNED}, {"token": 4}, {"kind": 2}, {"tag": 8}, {"generation": 5}):
        other.put(digests_of(2_000, 1), 5, replace(entry, **changed))
        assert one.sum() != other.sum(), changed


def test_a_sum_changes_only_with_the_version_of_snapshots() -> None:
    """It tells replicas of two releases whether their sums can be compared."""
    table = IdTable(BITS)
    add(table, 0, 3, token=77)
    table.put(digests_of(9, 1), 1 << BITS, Entry(REOPENED, 3, 1, 9, 4))
    assert (VERSION, table.sum()) == (2, 16_709_544_673_826_621_524)


def test_sums_follow_collection() -> None:
    one, other = IdTable(4), IdTable(4)
    for n in range(90):
        entry = Entry((OWNED, CLEARED)[n % 2], 1, 1, 0, n % 3)
        one.put(digests_of(n, 1), n, entry)
        if n % 2 == 0 or n >= 48:
            other.put(digests_of(n, 1), n, entry)
    assert one.collect(48) == 24
    assert one.sum() == other.sum()


def test_a_flipped_bit_no_longer_adds_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(id_bucket, "_SUM_BITS", 10)
    monkeypatch.setattr(id_bucket, "SUM_ROWS", 1 << 10)
    table = IdTable(BITS)
    add(table, 0, 1_500)
    clear(table, 1_014, 20)
    table.put(digests_of(3, 1), 5, Entry(REOPENED, 0, 1, 3, 2))
    assert table.blocks() == [(0, 0), (0, 1)]
    assert all(table.adds_up(*block) for block in table.blocks())
    row = table._buckets[0].rows[1_029:1_030].view(np.uint8)
    for byte in range(35):
        row[byte] ^= 1
        assert [table.adds_up(*block) for block in table.blocks()] == [True, False]
        row[byte] ^= 1
    assert table.adds_up(0, 1)
    assert table.adds_up(0, 2)
    assert table.adds_up(99, 0)

"""The index against a model, its bounds, and its counting of repeats."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from photon.eventstore.index import (
    MERGE_FANOUT,
    TWO_DIGITS_ENTRIES,
    UNASKED_RUNS_MAX,
    Run,
    RunIndex,
    ascending,
    count_repeats,
    hash_keys,
    look_up,
    merged,
    size_class,
    sorted_run,
    tail_to_merge,
)


def u64(values: list[int]) -> np.ndarray:
    return np.array(values, dtype=np.uint64)


batches = st.lists(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 2**64 - 1)), max_size=30), max_size=40)


@settings(deadline=None, max_examples=60)
@given(batches, st.lists(st.integers(0, 25), max_size=30))
def test_every_location_of_an_asked_hash_is_found(batches: list[list[tuple[int, int]]], asked: list[int]) -> None:
    index = RunIndex()
    for batch in batches:
        index.insert(sorted_run(u64([h for h, _ in batch]), u64([at for _, at in batch])))
    rows, locations = index.look_up(u64(asked))
    entries = [entry for batch in batches for entry in batch]
    expected = sorted((row, at) for row, h in enumerate(asked) for eh, at in entries if eh == h)
    assert list(zip(rows.tolist(), locations.tolist(), strict=True)) == expected
    assert len(index) == len(entries)


def ten(rng: np.random.Generator) -> Run:
    return sorted_run(rng.integers(0, 2**63, 10, dtype=np.uint64), np.zeros(10, dtype=np.uint64))


def test_runs_that_are_asked_stay_few() -> None:
    index = RunIndex()
    rng = np.random.default_rng(1)
    for _ in range(3000):
        index.insert(ten(rng))
        index.look_up(u64([1]))
    index.insert(ten(rng))
    assert len(index.runs) <= MERGE_FANOUT * (size_class(30_000) + 1)
    assert len(index) == 30_010


def test_what_nobody_asks_is_merged_when_somebody_does() -> None:
    index = RunIndex()
    rng = np.random.default_rng(1)
    most = 0
    for _ in range(2 * UNASKED_RUNS_MAX):
        index.insert(ten(rng))
        most = max(most, len(index.runs))
    assert most == UNASKED_RUNS_MAX  # each entry was copied once at most, and runs are bounded all the same
    assert len(index.asked_runs()) < MERGE_FANOUT
    assert len(index) == 20 * UNASKED_RUNS_MAX


@settings(deadline=None, max_examples=40)
@given(
    st.integers(0, 2**32),
    st.sampled_from([0, 1, 50, TWO_DIGITS_ENTRIES, TWO_DIGITS_ENTRIES + 1000]),
    st.integers(0, 64),
)
def test_hashes_are_put_in_order_whatever_their_first_bits(seed: int, count: int, alike: int) -> None:
    hashes = np.random.default_rng(seed).integers(0, 2**64 - 1, count, dtype=np.uint64)
    hashes = hashes >> np.uint64(alike) if alike < 64 else hashes * np.uint64(0)
    order = ascending(hashes)
    assert sorted(order.tolist()) == list(range(count))
    assert (hashes[order] == np.sort(hashes)).all()


def test_merging_large_runs_keeps_every_entry() -> None:
    rng = np.random.default_rng(1)
    runs = [
        sorted_run(rng.integers(0, 2**64 - 1, n, dtype=np.uint64), np.arange(n, dtype=np.uint64))
        for n in (300_000, 9, 70_000)
    ]
    one = merged(runs)
    assert (one.hashes[1:] >= one.hashes[:-1]).all()
    got = np.lexsort((one.locations, one.hashes))
    hashes, locations = np.concatenate([r.hashes for r in runs]), np.concatenate([r.locations for r in runs])
    expected = np.lexsort((locations, hashes))
    assert (one.hashes[got] == hashes[expected]).all()
    assert (one.locations[got] == locations[expected]).all()


def test_a_tail_is_merged_once_a_size_class_is_full() -> None:
    assert tail_to_merge([]) == 0
    assert tail_to_merge([1] * (MERGE_FANOUT - 1)) == 0
    assert tail_to_merge([1] * MERGE_FANOUT) == MERGE_FANOUT
    assert tail_to_merge([1000, *[1] * MERGE_FANOUT]) == MERGE_FANOUT  # the big one is left alone
    assert tail_to_merge([1000] * MERGE_FANOUT + [1]) == MERGE_FANOUT + 1  # a small newer one goes with them


def test_retain_drops_by_location() -> None:
    index = RunIndex()
    index.insert(sorted_run(u64([5, 6, 7]), u64([1, 2, 3])))
    index.insert(sorted_run(u64([5]), u64([4])))
    index.retain(lambda locations: locations % 2 == 0)
    assert [column.tolist() for column in index.look_up(u64([5, 6, 7]))] == [[0, 1], [4, 2]]
    index.retain(lambda locations: locations > 100)
    assert len(index) == 0
    assert index.look_up(u64([5]))[0].tolist() == []


@settings(deadline=None, max_examples=40)
@given(st.lists(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 5), max_size=40), min_size=1, max_size=5))
def test_repeats_are_entries_less_distinct_hashes(batches: list[list[int]]) -> None:
    runs = [sorted_run(u64(batch), u64([0] * len(batch))) for batch in batches]
    hashes = [h for batch in batches for h in batch]
    assert count_repeats(runs, slice_entries=7) == len(hashes) - len(set(hashes))


def test_look_up_in_nothing() -> None:
    assert look_up([], u64([1]))[0].tolist() == []
    assert look_up([Run(u64([]), u64([]))], u64([1, 2]))[1].tolist() == []


def test_hashes_are_of_whole_keys() -> None:
    hashes = hash_keys([b"a", b"b", b"a", b""])
    assert (hashes.dtype, hashes[0]) == (np.uint64, hashes[2])
    assert len(set(hashes.tolist())) == 3

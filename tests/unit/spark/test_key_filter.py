"""The filter of wanted keys lacks none, and lets few others pass."""

from __future__ import annotations

import numpy as np
import pytest

from photon.spark.key_filter import (
    BYTES_MAX,
    HASH_BITS,
    KEYS_MIN,
    PART_BITS,
    KeyFilter,
    assembled,
    filled,
    hashes_of,
    met_by,
    part_bits,
)
from photon.spark.verify.narrow_rows import hash64


def made(keys: list[bytes], groups: int) -> KeyFilter:
    """As several tasks make it, each of some keys."""
    hashes, bits = hashes_of(keys), part_bits(len(keys))
    parts = [filled(hashes[at::groups], bits) for at in range(groups)]
    return assembled([(number, table.tobytes()) for part in parts for number, table in part.items()], bits)


@pytest.mark.parametrize("count", [0, 1, 2, 700, 30_000])
def test_no_key_is_lacking_and_few_others_pass(count: int) -> None:
    keys = [b"key %d" % n for n in range(count)]
    found = made(keys, 3)
    assert found.holds(hashes_of(keys)).all()
    others = found.holds(hashes_of([b"other %d" % n for n in range(20_000)]))
    assert others.sum() <= 1
    assert len(found.data) <= max(count, KEYS_MIN) * 4 + (1 << PART_BITS)


def test_the_hash_is_that_of_spark() -> None:
    wanted = [(hash64(key) & (1 << 64) - 1) >> 64 - HASH_BITS for key in (b"abc", b"")]
    assert hashes_of([b"abc", b""]).tolist() == wanted


def test_a_filter_does_not_grow_without_end() -> None:
    assert part_bits(10**12) << PART_BITS == BYTES_MAX * 8


@pytest.mark.parametrize(
    ("hashes", "met"),
    [([], []), ([1], []), ([9, 2, 9], [(0, 24)]), ([5, 3], [(24, 48)]), ([3, 4, 2], [(0, 24), (24, 48)])],
)
def test_days_that_lacked_one_of_these_keys(hashes: list[int], met: list[tuple[int, int]]) -> None:
    absent = {(0, 24): [2, 7], (24, 48): [3], (48, 72): []}
    data = {at: np.array(lacking, np.uint64).tobytes() for at, lacking in absent.items()}
    assert met_by(np.array(hashes, np.uint64), data) == met

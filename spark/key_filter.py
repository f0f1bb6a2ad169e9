"""A Bloom filter of the keys that events name: primary records with other keys are dropped on reading.

It has no false negatives. About one in three million other keys passes; the rate is this low because each may cost a
read. ``KeyFilter`` is pure; ``filter_of`` builds one without bringing keys to the driver: each part holds the keys
whose hash begins with its number.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import repeat
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import xxhash

from photon.batch.columns import Mask

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

Hours = tuple[int, int]
U64 = np.ndarray[tuple[int], np.dtype[np.uint64]]
HASH_SEED = 42  # the seed of Spark's xxhash64
HASH_BITS = 40  # bits kept of a hash: with a million keys, one in a million of the others is mistaken for one
PART_BITS = 6
BITS_A_KEY = 32
KEYS_MIN = 1 << 12  # a smaller filter would not save anything
BYTES_MAX = 64 << 20  # limit of a filter; beyond some 16 million keys more other keys pass
PROBES = 16


class KeyFilter(msgspec.Struct, frozen=True):
    """A Bloom filter in parts. ``bits``: the size of each part in bits, a multiple of 8."""

    bits: int
    data: bytes

    def holds(self, hashes: U64) -> Mask:
        """True for each hash that may be among the keys."""
        table, left = np.frombuffer(self.data, np.uint8), np.arange(len(hashes))
        for number in range(PROBES):
            some = hashes[left]
            at = _place(some, number, self.bits) + _parts(some) * np.uint64(self.bits)
            left = left[(table[at >> np.uint64(3)] >> (at & np.uint64(7)).astype(np.uint8) & 1).astype(np.bool_)]
        found = np.zeros(len(hashes), np.bool_)
        found[left] = True
        return found


def part_bits(keys: int) -> int:
    """Returns the size in bits of each part of a filter for ``keys`` keys."""
    bits = min(max(keys, KEYS_MIN) * BITS_A_KEY, BYTES_MAX * 8)
    return -(-bits // (8 << PART_BITS)) * 8


def hashes_of(keys: Sequence[bytes]) -> U64:
    """Returns the first HASH_BITS of Spark's ``xxhash64`` of each key."""
    digest = xxhash.xxh64_intdigest
    return shortened(np.fromiter(map(digest, keys, repeat(HASH_SEED)), np.uint64, len(keys)))


def shortened(hashes: U64) -> U64:
    return hashes >> np.uint64(64 - HASH_BITS)


def met_by(hashes: U64, absent: Mapping[Hours, bytes]) -> list[Hours]:
    """Returns the pieces that lacked a key with one of these hashes. Call it once per slice, as it searches all
    pieces. ``absent``: hashes of the keys that each piece lacked, as uint64."""
    known = np.unique(hashes)

    def meets(lacking: bytes) -> bool:
        keys = np.frombuffer(lacking, np.uint64)
        at = np.searchsorted(known, keys)
        return bool((known[np.minimum(at, len(known) - 1)] == keys).any())

    return [at for at, lacking in absent.items() if meets(lacking)] if len(known) else []


def _parts(hashes: U64) -> U64:
    return hashes >> np.uint64(HASH_BITS - PART_BITS)


def filled(hashes: U64, bits: int) -> dict[int, np.ndarray[tuple[int], np.dtype[np.uint8]]]:
    """Returns the bytes of each part that has any of these hashes."""
    numbers = _parts(hashes)
    parts = {}
    for number in np.unique(numbers).tolist():
        table = parts[number] = np.zeros(bits // 8, np.uint8)
        own = hashes[numbers == number]
        for probe in range(PROBES):
            at = _place(own, probe, bits)
            np.bitwise_or.at(table, at >> np.uint64(3), np.uint8(1) << (at & np.uint64(7)).astype(np.uint8))
    return parts


def assembled(parts: Iterator[tuple[int, bytes]] | Sequence[tuple[int, bytes]], bits: int) -> KeyFilter:
    """Assembles a filter from (number, bytes) of its non-empty parts; a number may occur several times."""
    table = np.zeros((1 << PART_BITS, bits // 8), np.uint8)
    for number, data in parts:
        table[number] |= np.frombuffer(data, np.uint8)
    return KeyFilter(bits, table.tobytes())


def _place(hashes: U64, probe: int, bits: int) -> U64:
    step = hashes * np.uint64(0x9E3779B97F4A7C15) >> np.uint64(32) | np.uint64(1)
    return (hashes + np.uint64(probe) * step) % np.uint64(bits)


def filter_of(keys: DataFrame) -> KeyFilter:
    """Builds a filter of the column ``key``, ignoring nulls. Reads it twice."""
    from pyspark.sql import functions as sql

    named = keys.where(sql.col("key").isNotNull()).select(sql.xxhash64("key").alias("named"))
    bits = part_bits(named.count())
    number = sql.shiftrightunsigned("named", 64 - PART_BITS)
    rows = named.repartition(number).mapInArrow(_fill(bits), "number int, data binary").collect()
    return assembled([(row[0], bytes(row[1])) for row in rows], bits)


def _fill(bits: int) -> Any:
    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        parts: dict[int, Any] = {}
        for batch in batches:
            hashes = shortened(batch.column(0).to_numpy(zero_copy_only=False).view(np.uint64))
            for number, table in filled(hashes, bits).items():
                parts[number] = parts[number] | table if number in parts else table
        columns = [
            pa.array(list(parts), pa.int32()),
            pa.array([each.tobytes() for each in parts.values()], pa.binary()),
        ]
        yield pa.RecordBatch.from_arrays(columns, names=["number", "data"])

    return run


__all__ = ["HASH_SEED", "KeyFilter", "assembled", "filled", "filter_of", "hashes_of", "met_by", "part_bits"]

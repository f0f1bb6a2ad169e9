"""Finds the keys of all records of a block at once, hashes them, and orders them for the cache and the file map.

An adapter's exception affects only the record that caused it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

import numpy as np

from photon.adapters.computed_twice import compare, rows_due
from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.containment import Fault, Guard
from photon.adapters.contract import Adapter, BadRecord, LogFile, Skipped
from photon.adapters.faults import key_fault
from photon.adapters.formats.cut_lines import cut_lines
from photon.adapters.logs.api import Block
from photon.config.clock import NEVER_NS
from photon.eventstore.file_map import UNKNOWN_TIME_NS
from photon.eventstore.index import I64, U64, ascending, hash_keys


def record_at(data: bytes, start: int) -> bytes:
    end = data.find(b"\n", start)
    if end < 0:
        end = len(data)
    if end > start and data[end - 1] == 13:
        end -= 1
    return data[start:end]


# A primary record's key; empty if the record is skipped, ``None`` if it is bad, ``Fault`` if its key is unknown
# because the adapter failed.
Key = bytes | Fault | None


def key_of(adapter: Adapter, record: bytes, file: LogFile) -> Key:
    """Returns one record's key."""
    return _keys_alone(Guard(adapter), [record], file)[0]


def keys_of_block(adapter: Adapter, data: bytes, file: LogFile) -> Sequence[Key]:
    """Returns the key of each record of a block (whole records, each ended by a newline). Raises AdapterError."""
    guard = Guard(adapter)

    def lines() -> list[bytes]:
        return [line.removesuffix(b"\r") for line in data.split(b"\n")[:-1]]

    keys: object = None
    if adapter.defines("primary_keys"):  # otherwise this is the loop below
        keys = guard.many(lambda: adapter.primary_keys(data, file), cut=lines)
    if type(adapter) is ConfiguredAdapter and isinstance(keys, list):  # its keys are right by construction
        return keys
    if isinstance(keys, list | tuple) and len(keys) == data.count(b"\n") and not any(map(_key_fault, keys)):
        if empty := [row for row, key in enumerate(keys) if key == b""]:  # from a skipped record, or not a key
            cut, keys = lines(), list(keys)
            for row, key in zip(empty, _keys_alone(guard, [cut[row] for row in empty], file), strict=True):
                keys[row] = key
        return keys
    # One record on which the adapter fails must not affect the others.
    return _keys_alone(guard, lines(), file, ends=True)


def _keys_alone(guard: Guard, records: Sequence[bytes], file: LogFile, *, ends: bool = False) -> Sequence[Key]:
    def ask(record: bytes) -> Key:
        try:
            key: object = guard.adapter.primary_key(record, file)
        except Skipped:
            return b""
        except BadRecord:
            return None
        return Fault(fault) if (fault := _key_fault(key)) else cast(bytes, key) or None

    return guard.each(records, ask, ends=ends)


def _key_fault(key: object) -> str:
    return "" if key is None or key == b"" else key_fault(key)


def located_keys_of_block(adapter: Adapter, data: bytes, file: LogFile) -> tuple[Sequence[Key], I64]:
    """Returns the keys of a block and the start of each line, in one scan if adapter and format allow it."""
    if type(adapter) is ConfiguredAdapter:  # another class may define keys differently
        found = Guard(adapter).many(lambda: adapter.located_primary_keys(data, file))
        if found is not None and not isinstance(found, Fault):
            return found
    _, starts, _ = cut_lines(data)
    return keys_of_block(adapter, data, file), starts


@dataclass(frozen=True, slots=True)
class BlockKeys:
    """The n records of a block that have a key.

    ``bad``: the number of records without a key, including ``failed`` but not skipped ones.
    """

    keys: Sequence[bytes]  # in block order
    starts: I64  # in block order: the starts of the records in the block
    hashes: U64  # ascending
    order: I64  # hashes[i] is of keys[order[i]]
    bad: int
    failed: Sequence[tuple[int, str]] = ()  # (the record's start in the block, why its key is unknown)
    # In block order: event times, or UNKNOWN_TIME_NS. ``None`` if the join does not need versions of a key.
    times: I64 | None = None

    def version_hashes(self, begins: I64) -> tuple[U64, I64]:
        """Returns the ascending hashes of keys with their times, and the record start for each. ``begins``: record
        starts in block order.
        """
        assert self.times is not None
        hashes = hash_versions(self.keys, self.times)
        order = ascending(hashes)
        return hashes[order], begins[order]


def hash_versions(keys: Sequence[bytes], times: I64) -> U64:
    """Returns the hash of each key and its event time, under which caches store the record."""
    raw = times.astype("<i8").tobytes()
    return hash_keys([key + raw[8 * row : 8 * row + 8] for row, key in enumerate(keys)])


def times_of(adapter: Adapter, records: Sequence[bytes], file: LogFile) -> I64:
    """Returns the event times of primary records; UNKNOWN_TIME_NS if a record has no readable time."""
    guard = Guard(adapter)
    times: object = (
        guard.many(lambda: adapter.primary_times(records, file)) if type(adapter) is ConfiguredAdapter else None
    )
    if not isinstance(times, list):
        times = guard.each(records, lambda record: adapter.primary_time(record, file))
    known = (time if isinstance(time, int) and -NEVER_NS <= time < NEVER_NS else UNKNOWN_TIME_NS for time in times)
    return np.fromiter(known, np.int64, len(records))


def block_keys(adapter: Adapter, data: bytes, file: LogFile) -> BlockKeys:
    """Returns the keys of all records in ``data`` (whole records, each ended by a newline). Raises AdapterError."""
    keys, starts = located_keys_of_block(adapter, data, file)
    if type(adapter) is not ConfiguredAdapter:
        _compare_forms(adapter, keys, starts, data, file)
    bad, failed = 0, list[tuple[int, str]]()
    try:
        hashes = hash_keys(cast(Sequence[bytes], keys))
        some_skipped = may_skip(adapter) and b"" in keys
    except TypeError:  # some record has no key
        some_skipped = True
    if some_skipped:
        rows = [row for row, key in enumerate(keys) if isinstance(key, bytes) and key]
        failed = [(int(starts[row]), key.reason) for row, key in enumerate(keys) if isinstance(key, Fault)]
        bad = sum(not isinstance(key, bytes) for key in keys)
        keys, starts = [keys[row] for row in rows], starts[rows]
        hashes = hash_keys(cast(Sequence[bytes], keys))
    order = ascending(hashes)
    times = None
    if adapter.matching.match == "latest":
        times = times_of(adapter, [record_at(data, start) for start in starts.tolist()], file)
    return BlockKeys(cast(Sequence[bytes], keys), starts, hashes[order], order, bad, failed, times)


def may_skip(adapter: Adapter) -> bool:
    """True if the adapter may skip primary records, so that keys in columns may be empty."""
    return type(adapter) is not ConfiguredAdapter or bool(adapter.primary_config.skip)


def _compare_forms(adapter: Adapter, keys: Sequence[Key], starts: I64, data: bytes, file: LogFile) -> None:
    """Raises AdapterError if a record's key differs when it is computed for that record alone."""
    rows = [at for at in rows_due(adapter, "primary", len(keys)) if not isinstance(keys[at], Fault)]
    alone = _keys_alone(Guard(adapter), [record_at(data, int(starts[at])) for at in rows], file)
    for at, key in zip(rows, alone, strict=True):
        if not isinstance(key, Fault):
            compare(adapter, file, "primary_keys", keys[at], key)


class KeyFinder(Protocol):
    """Finds the keys of blocks. Call all methods on one thread."""

    def give(self, block: Block) -> None:
        """Queues a block whose keys ``found`` returns later."""

    def found(self, *, everything: bool) -> Iterator[tuple[Block, BlockKeys]]:
        """Yields each given block once with its keys, in order.

        ``everything``: waits for all blocks given so far; otherwise the last ones may be left for the next call.
        """

    def close(self) -> None:
        """Ends the finder. May be called repeatedly. No block may be given afterwards."""


class InlineKeyFinder:
    def __init__(self, adapter: Adapter) -> None:
        self._adapter = adapter
        self._given: deque[Block] = deque()

    def give(self, block: Block) -> None:
        self._given.append(block)

    def found(self, *, everything: bool) -> Iterator[tuple[Block, BlockKeys]]:
        while self._given:
            block = self._given.popleft()
            yield block, block_keys(self._adapter, block.data, block.file)

    def close(self) -> None:
        pass

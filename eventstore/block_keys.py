"""The keys of a block's records: found at once, hashed, and in the order that the cache and the file map want.

What an adapter raises is kept to the record that it raised on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

from photon.adapters.computed_twice import compare, rows_due
from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.containment import Fault, Guard
from photon.adapters.contract import Adapter, AdapterError, BadRecord, LogFile
from photon.adapters.formats.json_scan import cut_lines
from photon.adapters.logs.api import Block
from photon.config.errors import PhotonError
from photon.eventstore.index import I64, U64, ascending, hash_keys


def record_at(data: bytes, start: int) -> bytes:
    end = data.find(b"\n", start)
    if end < 0:
        end = len(data)
    if end > start and data[end - 1] == 13:
        end -= 1
    return data[start:end]


def key_of(adapter: Adapter, record: bytes, file: LogFile) -> bytes | None:
    """The record's key; None when it cannot be read: whatever the adapter raises makes this record a bad one."""
    try:
        return adapter.primary_key(record, file)
    except (Exception, SystemExit):
        return None


def keys_of_block(adapter: Adapter, data: bytes, file: LogFile) -> list[bytes | None]:
    """The key of each record of a block (whole records, each ended by a newline)."""
    guard = Guard(adapter)
    keys = guard.many(lambda: adapter.primary_keys(data, file))
    if not isinstance(keys, Fault):
        return keys
    # One record that the adapter raises on, or does not come back from, must not take the others with it.
    lines = data.split(b"\n")[:-1]
    alone = guard.each(lines, lambda line: adapter.primary_key(line.removesuffix(b"\r"), file))
    return [None if isinstance(each, Fault) else each for each in alone]


def located_keys_of_block(adapter: Adapter, data: bytes, file: LogFile) -> tuple[list[bytes | None], I64]:
    """The keys of a block, and where each line begins: found in one scan where adapter and format allow it."""
    if type(adapter) is ConfiguredAdapter:  # another class may mean something else by its keys
        found = Guard(adapter).many(lambda: adapter.located_primary_keys(data, file))
        if found is not None and not isinstance(found, Fault):
            return found
    _, starts, _ = cut_lines(data)
    return keys_of_block(adapter, data, file), starts


class AdapterBroken(PhotonError):
    """The adapter breaks its contract in a way that would lose primary events. One line."""


@dataclass(frozen=True, slots=True)
class BlockKeys:
    """The n records of a block that have a key. ``bad``: how many have none."""

    keys: Sequence[bytes]  # in block order
    starts: I64  # in block order: where they begin in the block
    hashes: U64  # ascending
    order: I64  # hashes[i] is of keys[order[i]]
    bad: int


def block_keys(adapter: Adapter, data: bytes, file: LogFile) -> BlockKeys:
    """Keys of all records in ``data`` (whole records, each ended by a newline). Raises AdapterBroken."""
    keys, starts = located_keys_of_block(adapter, data, file)
    _check_keys(adapter, keys, len(starts), file)
    if type(adapter) is not ConfiguredAdapter:
        _compare_forms(adapter, keys, starts, data, file)
    bad = 0
    try:
        hashes = hash_keys(cast(Sequence[bytes], keys))
    except TypeError:  # a None: some record is bad
        rows = [row for row, key in enumerate(keys) if key is not None]
        bad = len(keys) - len(rows)
        keys, starts = [key for key in keys if key is not None], starts[rows]
        hashes = hash_keys(cast(Sequence[bytes], keys))
    order = ascending(hashes)
    return BlockKeys(cast(Sequence[bytes], keys), starts, hashes[order], order, bad)


def _compare_forms(adapter: Adapter, keys: Sequence[bytes | None], starts: I64, data: bytes, file: LogFile) -> None:
    """Raises AdapterBroken where a record's key differs when it is asked for alone."""
    rows = rows_due(adapter, "primary", len(keys))
    records = [record_at(data, int(starts[at])) for at in rows]
    alone = Guard(adapter).each(records, lambda record: _alone(adapter, record, file))
    try:
        for at, key in zip(rows, alone, strict=True):
            if not isinstance(key, Fault):
                compare(adapter, file, "primary_keys", keys[at], key)
    except AdapterError as error:
        raise AdapterBroken(str(error)) from None


def _alone(adapter: Adapter, record: bytes, file: LogFile) -> bytes | None:
    try:
        return adapter.primary_key(record, file)
    except BadRecord:
        return None


def _check_keys(adapter: Adapter, keys: object, records: int, file: LogFile) -> None:
    name = type(adapter).__name__
    if not isinstance(keys, list | tuple) or len(keys) != records:
        given = len(keys) if isinstance(keys, list | tuple) else f"a {type(keys).__name__} in place of"
        raise AdapterBroken(
            f"{name}.primary_keys gave {given} keys for {records} records of {file.path}; "
            "it must give a list with one for each, None for a bad record"
        )
    if type(adapter) is ConfiguredAdapter:  # gives bytes by construction
        return
    wrong = set(map(type, keys)) - {bytes, type(None)}
    if wrong:
        kinds = ", ".join(sorted(kind.__name__ for kind in wrong))
        raise AdapterBroken(f"{name} gave {kinds} for a key of {file.path}; a key is bytes, None for a bad record")


class KeyFinder(Protocol):
    """One thread gives, takes and closes."""

    def give(self, block: Block) -> None:
        """Queues a block whose keys ``found`` returns later."""

    def found(self, *, everything: bool) -> Iterator[tuple[Block, BlockKeys]]:
        """Blocks in the order they were given, each once, with their keys; ``everything``: all that were given, else
        a few of the last may stay for the next call. Raises AdapterBroken."""

    def close(self) -> None:
        """May be called again; nothing may be given afterwards."""


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

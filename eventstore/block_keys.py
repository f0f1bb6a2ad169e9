"""The keys of a block's records: found at once, hashed, and in the order that the cache and the file map want."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import Adapter, LogFile
from photon.config.errors import PhotonError
from photon.eventstore.index import I64, U64, ascending, hash_keys
from photon.eventstore.records import located_keys_of_block


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

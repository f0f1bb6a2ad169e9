"""The key process: ``python -m photon.eventstore.key_finding.process FD`` finds keys in blocks until its input ends.

A message is a length (4 bytes) and MessagePack. The first one is a JoinFormats; each later one is a FindKeys,
answered in order by a KeysFound. Blocks and results are in the shared memory of ``FD``, in slots for a block's bytes
and their results.

The process gets the bytes that the reader read, and does not reread the log, which may have been truncated or
replaced since: the file map would then get places of other bytes.
"""

from __future__ import annotations

import mmap
import sys
from typing import BinaryIO

import msgspec
import numpy as np

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import LogFile
from photon.adapters.side import SideConfig
from photon.config.allocator import keep_what_is_freed
from photon.eventstore.block_keys import BlockKeys, block_keys

SLOTS = 8
DATA_BYTES = 8 << 20  # Limit of a block; larger ones do not fit.
FOUND_BYTES = 8 << 20  # 16 for each record: its key's hash, its start, and the order. Larger results do not fit.
SLOT_BYTES = DATA_BYTES + FOUND_BYTES
MEMORY_BYTES = SLOTS * SLOT_BYTES  # pages never written take no memory


class SharedSlots:
    def __init__(self, fd: int) -> None:
        """``fd``: a descriptor of MEMORY_BYTES of memory. It may be closed afterwards."""
        self._memory = mmap.mmap(fd, MEMORY_BYTES)

    def put_data(self, slot: int, data: bytes) -> bool:
        """Writes a block's bytes. Returns False if they do not fit a slot."""
        if len(data) > DATA_BYTES:
            return False
        begin = slot * SLOT_BYTES
        self._memory[begin : begin + len(data)] = data
        return True

    def data(self, slot: int, length: int) -> bytes:
        """Returns a copy of a slot's block."""
        begin = slot * SLOT_BYTES
        return self._memory[begin : begin + length]

    def put_found(self, slot: int, found: BlockKeys) -> bool:
        """Writes a block's results. Returns False if they do not fit a slot."""
        n = len(found.hashes)
        if 16 * n > FOUND_BYTES:
            return False
        at = slot * SLOT_BYTES + DATA_BYTES
        for column in (found.hashes, found.starts.astype(np.uint32), found.order.astype(np.uint32)):
            raw = column.tobytes()
            self._memory[at : at + len(raw)] = raw
            at += len(raw)
        return True

    def found(self, slot: int, records: int, bad: int) -> BlockKeys:
        """Returns a copy of a slot's results, without the keys."""
        at = slot * SLOT_BYTES + DATA_BYTES
        raw = self._memory[at : at + 16 * records]
        return BlockKeys(
            keys=(),
            starts=np.frombuffer(raw, np.uint32, records, 8 * records).astype(np.int64),
            hashes=np.frombuffer(raw, np.uint64, records),
            order=np.frombuffer(raw, np.uint32, records, 12 * records).astype(np.int64),
            bad=bad,
        )

    def close(self) -> None:
        self._memory.close()


MESSAGE_BYTES_MAX = 16 << 20  # a FindKeys has the header of a log, which is at most one record


class JoinFormats(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    primary: SideConfig
    foreign: SideConfig


class FindKeys(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """A request for the keys of a block of ``length`` bytes in ``slot``."""

    slot: int
    length: int
    path: str
    header: bytes


class KeysFound(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The answer: the numbers of ``records`` with a key and ``bad`` ones. -1: the reader must find the keys."""

    records: int
    bad: int


def framed(message: JoinFormats | FindKeys | KeysFound) -> bytes:
    raw = msgspec.msgpack.encode(message)
    return len(raw).to_bytes(4, "little") + raw


def answer(asked: FindKeys, adapter: ConfiguredAdapter, slots: SharedSlots) -> KeysFound:
    data = slots.data(asked.slot, asked.length)
    found = block_keys(adapter, data, LogFile(asked.path, asked.header))
    if found.failed or not slots.put_found(asked.slot, found):  # the reader gets the failure, too, and reports it
        return KeysFound(-1, 0)
    return KeysFound(len(found.hashes), found.bad)


def run(requests: BinaryIO, replies: BinaryIO, fd: int) -> None:
    join = msgspec.msgpack.decode(_message(requests), type=JoinFormats)
    adapter = ConfiguredAdapter.from_sides(join.primary, join.foreign)
    slots = SharedSlots(fd)
    asked = msgspec.msgpack.Decoder(FindKeys)
    while raw := _message(requests):
        replies.write(framed(answer(asked.decode(raw), adapter, slots)))
        replies.flush()


def _message(requests: BinaryIO) -> bytes:
    length = int.from_bytes(requests.read(4), "little")
    if length > MESSAGE_BYTES_MAX:
        raise ValueError(f"a message of {length} bytes")
    raw = requests.read(length)
    return raw if len(raw) == length else b""


def main() -> None:
    keep_what_is_freed()
    try:
        run(sys.stdin.buffer, sys.stdout.buffer, int(sys.argv[1]))
    except BrokenPipeError:  # the reader is gone
        sys.exit(1)


if __name__ == "__main__":
    main()

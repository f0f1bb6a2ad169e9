"""The memory that reader and key process share: slots, each of a block's bytes and of what was found in them.

The process gets the bytes that were read, and does not read them again: a log that is cut off or replaced between the
two would give the file map places of other bytes.
"""

from __future__ import annotations

import mmap

import numpy as np

from photon.eventstore.block_keys import BlockKeys

SLOTS = 8
DATA_BYTES = 8 << 20
"""Of a block. Larger ones do not fit."""
FOUND_BYTES = 8 << 20
"""16 for each record: its key's hash, where it begins, and the order. More of them do not fit."""
SLOT_BYTES = DATA_BYTES + FOUND_BYTES
MEMORY_BYTES = SLOTS * SLOT_BYTES
"""Pages that nothing was written to take no memory."""


class SharedSlots:
    def __init__(self, fd: int) -> None:
        """``fd``: MEMORY_BYTES of memory. It may be closed afterwards."""
        self._memory = mmap.mmap(fd, MEMORY_BYTES)

    def put_data(self, slot: int, data: bytes) -> bool:
        """False: too large for a slot."""
        if len(data) > DATA_BYTES:
            return False
        begin = slot * SLOT_BYTES
        self._memory[begin : begin + len(data)] = data
        return True

    def data(self, slot: int, length: int) -> bytes:
        """A copy of a slot's block."""
        begin = slot * SLOT_BYTES
        return self._memory[begin : begin + length]

    def put_found(self, slot: int, found: BlockKeys) -> bool:
        """False: too many for a slot."""
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
        """A copy of what was found, without the keys."""
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

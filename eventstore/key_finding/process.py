"""The key process: ``python -m photon.eventstore.key_finding.process FD`` finds keys in blocks until its input ends.

A message is its length (4 bytes) and MessagePack. The first is a JoinFormats; each one after it is a FindKeys, which
a KeysFound answers, in order. Blocks and results lie in the shared memory (shared_memory.py) behind ``FD``.
"""

from __future__ import annotations

import sys
from typing import BinaryIO

import msgspec

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import LogFile
from photon.adapters.side import SideConfig
from photon.config.allocator import keep_what_is_freed
from photon.eventstore.block_keys import AdapterBroken, block_keys
from photon.eventstore.key_finding.shared_memory import SharedSlots

MESSAGE_BYTES_MAX = 16 << 20
"""A FindKeys holds the header of a log, which is a record at most."""


class JoinFormats(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """How the records of both sides are read."""

    primary: SideConfig
    foreign: SideConfig


class FindKeys(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The keys of a block of ``length`` bytes in ``slot``."""

    slot: int
    length: int
    path: str
    header: bytes


class KeysFound(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """``records`` keys, and ``bad`` records without one; -1 keys: the reader has to find them itself."""

    records: int
    bad: int


def framed(message: JoinFormats | FindKeys | KeysFound) -> bytes:
    raw = msgspec.msgpack.encode(message)
    return len(raw).to_bytes(4, "little") + raw


def answer(asked: FindKeys, adapter: ConfiguredAdapter, slots: SharedSlots) -> KeysFound:
    data = slots.data(asked.slot, asked.length)
    try:
        found = block_keys(adapter, data, LogFile(asked.path, asked.header))
    except AdapterBroken:  # the reader meets it, too, and says so
        return KeysFound(-1, 0)
    if not slots.put_found(asked.slot, found):
        return KeysFound(-1, 0)
    return KeysFound(len(found.hashes), found.bad)


def run(requests: BinaryIO, replies: BinaryIO, fd: int) -> None:
    """Answers requests until their end."""
    join = msgspec.msgpack.decode(_message(requests), type=JoinFormats)
    adapter = ConfiguredAdapter.from_sides(join.primary, join.foreign)
    slots = SharedSlots(fd)
    asked = msgspec.msgpack.Decoder(FindKeys)
    while raw := _message(requests):
        replies.write(framed(answer(asked.decode(raw), adapter, slots)))
        replies.flush()


def _message(requests: BinaryIO) -> bytes:
    """The next message; empty at the end."""
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

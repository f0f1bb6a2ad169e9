"""The key process: ``python -m photon.eventstore.key_finding.process FD`` finds keys in blocks until its input ends.

A message is its length (4 bytes) and MessagePack. The first one is a Join, each further one an Asked, which is
answered by a Told in the same order; the blocks and what is found lie in shared memory (slots.py), which ``FD`` is.
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
from photon.eventstore.key_finding.slots import Slots

MESSAGE_BYTES_MAX = 16 << 20
"""An Asked holds the header of a log, which is a record at most."""


class Join(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """How records are read."""

    primary: SideConfig
    foreign: SideConfig


class Asked(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The keys of a block of ``length`` bytes in ``slot``."""

    slot: int
    length: int
    path: str
    header: bytes


class Told(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """``records`` keys, and ``bad`` records without one; -1 keys: whoever asked is to find them himself."""

    records: int
    bad: int


def framed(message: Join | Asked | Told) -> bytes:
    """As it is sent."""
    raw = msgspec.msgpack.encode(message)
    return len(raw).to_bytes(4, "little") + raw


def answer(asked: Asked, adapter: ConfiguredAdapter, slots: Slots) -> Told:
    """Finds them."""
    data = slots.data(asked.slot, asked.length)
    try:
        found = block_keys(adapter, data, LogFile(asked.path, asked.header))
    except AdapterBroken:  # whoever asked meets it, too, and says so
        return Told(-1, 0)
    if not slots.put_found(asked.slot, found):
        return Told(-1, 0)
    return Told(len(found.hashes), found.bad)


def run(requests: BinaryIO, replies: BinaryIO, fd: int) -> None:
    """Until ``requests`` end."""
    join = msgspec.msgpack.decode(_message(requests), type=Join)
    adapter = ConfiguredAdapter.from_sides(join.primary, join.foreign)
    slots = Slots(fd)
    asked = msgspec.msgpack.Decoder(Asked)
    while raw := _message(requests):
        replies.write(framed(answer(asked.decode(raw), adapter, slots)))
        replies.flush()


def _message(requests: BinaryIO) -> bytes:
    """The next one; nothing at the end."""
    length = int.from_bytes(requests.read(4), "little")
    if length > MESSAGE_BYTES_MAX:
        raise ValueError(f"a message of {length} bytes")
    raw = requests.read(length)
    return raw if len(raw) == length else b""


def main() -> None:
    """See the module."""
    keep_what_is_freed()
    try:
        run(sys.stdin.buffer, sys.stdout.buffer, int(sys.argv[1]))
    except BrokenPipeError:  # whoever asked is gone
        sys.exit(1)


if __name__ == "__main__":
    main()

"""Applies the registry's witness to a slot (rule 6): refuses an old copy, and publishes nothing too early.

For each of KINDS in order, the witness has the newest file with durable content, its length, and the hash of these
bytes; a file is permanently closed before the next one gets content. If the output lacks any of them, the directory
is an older copy: readers may have relied on the missing part, and the verifier may have cleared it. While a slot
works, its witness follows the durable output with some delay; readers and verifier see only what the witness covers.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import xxhash

from photon.config.disk import Disk
from photon.idregistry.api import Registry
from photon.idregistry.witness import Witness, Witnessed, WitnessLog
from photon.joiner.slot.identity import until_told

READ_BYTES = 4 << 20


class PrefixHash:
    def __init__(self) -> None:
        self._hash: xxhash.xxh3_128 = xxhash.xxh3_128()

    def update(self, data: bytes) -> None:
        self._hash.update(data)

    def copy(self) -> PrefixHash:
        found = PrefixHash()
        found._hash = self._hash.copy()  # type: ignore[assignment]
        return found

    def log(self, number: int, length: int) -> WitnessLog:
        """Returns the witness of the bytes hashed so far: the first ``length`` bytes of file ``number``."""
        return WitnessLog(number, length, self._hash.digest() if length else b"")


def hash_file(disk: Disk, path: Path, length: int) -> PrefixHash:
    """Returns the hash of a file's first ``length`` bytes, or of all if it is shorter."""
    found = PrefixHash()
    at = 0
    while at < length and (part := disk.read(path, at, min(READ_BYTES, length - at))):
        found.update(part)
        at += len(part)
    return found


def witness_log(disk: Disk, path: Path, number: int, length: int) -> WitnessLog:
    """Returns the witness of the first ``length`` bytes of a file, whose number is ``number``."""
    return hash_file(disk, path, length).log(number, length)


def difference(disk: Disk, path: Path, log: WitnessLog) -> str:
    """Returns why the file does not begin with the bytes witnessed by ``log``; empty if it does."""
    if not disk.exists(path):
        return "does not exist"
    if (size := disk.size(path)) < log.length:
        return f"has {size} bytes"
    return "" if witness_log(disk, path, log.number, log.length) == log else "holds other bytes"


def shown(witness: Witness, at: int, number: int, length: int) -> int:
    """Returns how many of a file's ``length`` durable bytes the witness covers. ``at``: the log's index there."""
    if at >= len(witness) or number > witness[at].number:
        return 0
    return length if number < witness[at].number else min(length, witness[at].length)


async def ask_witness(registry: Registry, slot: str, pause: Callable[[float], Awaitable[None]]) -> Witnessed:
    """Returns the slot's witness and newest incarnation, before it is opened.

    Repeats the request until it is answered: a start in an old copy must not open the slot, or the newest directory
    would be refused once restored.
    """
    return await until_told(lambda: registry.read_witness(slot), pause)


class WitnessKeeper:
    """Extends the witness for one incarnation. A request without an answer is repeated unchanged."""

    def __init__(self, slot: str, incarnation: int, end: Witness) -> None:
        self.slot = slot
        self.incarnation = incarnation
        self.end = end  # the witness's last known end
        self._asked: Witness | None = None

    def due(self, durable: Witness) -> Witness | None:
        if self._asked is None and durable != self.end:
            self._asked = durable
        return self._asked

    def heard(self, known: Witnessed | None) -> str:
        """Handles the answer to the last request. Returns why the process must end; empty if it need not."""
        if known is None or self._asked is None:
            return ""
        if known.reason:
            return (
                f"the witness of slot {self.slot} refused incarnation {self.incarnation}: {known.reason} (the newest "
                f"is {known.newest}); is another process at work on a copy of its directory, or was it retired?"
            )
        self.end, self._asked = self._asked, None
        return ""

"""Messages between a slot and the keeper of its copy. Pure.

A slot's copy is, for each of KINDS in order, a sequence of numbered files like the slot's own. Its end is a
``Witness``: the newest non-empty file, its length, and the hash of these bytes; earlier files are complete.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from photon.idregistry.witness import Witness, WitnessLog
from photon.joiner.slot.place import KINDS

NOTHING = WitnessLog(0, 0)
EMPTY: Witness = (NOTHING,) * len(KINDS)


class Status(IntEnum):
    OK = 0
    STALE = 1  # the caller is not the newest incarnation that the keeper has seen
    SEALED = 2  # the slot is being retired: the copy no longer changes
    ELSEWHERE = 3  # the copy does not end where the caller says; ``CopyAnswer.ends`` gives its end
    REFUSED = 4  # any other reason, for an operator


@dataclass(frozen=True, slots=True)
class CopyAnswer:
    status: Status
    newest: int  # the newest incarnation that it has seen; 0 if none
    ends: Witness  # the durable part of the copy
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes after the copy's end in one log: in the file where it ends, or from the beginning of a later one."""

    log: int  # place in KINDS
    number: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Extension:
    """Bytes to append if the copy ends exactly at ``ends``."""

    incarnation: int
    ends: Witness
    parts: tuple[Part, ...]  # in order; all parts of a file come before the next file
    shown: Witness  # the slot's published output: readers of the copy may see the part of it that the copy has


@dataclass(frozen=True, slots=True)
class CopyBytes:
    size: int  # size of the whole file; -1 if there is no such file
    data: bytes


@dataclass(frozen=True, slots=True)
class CopyOf:
    datacentre: str
    slot: str


class Keeper(Protocol):
    """Keeps copies for another datacentre. ``None`` means that it did not answer, so the effect is unknown."""

    async def open(self, of: CopyOf, incarnation: int, *, timeout: float) -> CopyAnswer | None:
        """Durably fences every earlier incarnation."""

    async def look(self, of: CopyOf, *, timeout: float) -> CopyAnswer | None:
        """Returns the copy's state; changes nothing."""

    async def extend(self, of: CopyOf, extension: Extension, *, timeout: float) -> CopyAnswer | None:
        """Appends to the copy; the bytes are durable if the answer is OK."""

    async def read(self, of: CopyOf, log: int, number: int, offset: int, *, timeout: float) -> CopyBytes | None:
        """Returns some bytes of one file, starting at ``offset``."""


def at_least(ends: Witness, witness: Witness) -> bool:
    """True if a copy with these ends has everything in the witness, judging by file numbers and lengths."""
    padded = (*ends, *(NOTHING for _ in witness[len(ends) :]))
    return all(
        not old.length or _place(new) > _place(old) or (_place(new) == _place(old) and new.hash == old.hash)
        for new, old in zip(padded, witness, strict=False)
    )


def held_by_all(whole: Witness, copy: Witness, end: Witness) -> Witness:
    """Returns the next witness: the part that slot and copy have in common, but at least ``end``, the present one."""
    held = [min(pair, key=_place) if pair[0].length else pair[0] for pair in zip(whole, copy, strict=True)]
    before: Sequence[WitnessLog] = (*end, *held[len(end) :])
    return tuple(max(pair, key=_place) for pair in zip(before, held, strict=True))


def _place(log: WitnessLog) -> tuple[int, int]:
    return (log.number, log.length)


def keeper_of(datacentre: str, keepers: Iterable[str]) -> str | None:
    """Returns the next datacentre by name that keeps copies, in a circle; ``None`` if there is no other.

    ``keepers``: datacentres with ``copies`` in their table. Adding or removing one may change a slot's keeper: its
    copy is then made again at the new keeper, and the old copy stays where it is.
    """
    others = sorted(set(keepers) - {datacentre})
    later = [name for name in others if name > datacentre]
    return next(iter([*later, *others]), None)

"""What a slot and the keeper of its copy say to each other. Pure.

The copy of a slot is, for each of KINDS in their order, a sequence of numbered files like the slot's own. How far it
goes is said as a ``Witness`` says it: the newest file that has anything, its length, and the hash of just these
bytes; earlier files are whole.
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
    SEALED = 2  # the slot is being retired: the copy changes no more
    ELSEWHERE = 3  # the copy does not end where the caller says; ``CopyAnswer.ends`` says where it does
    REFUSED = 4  # any other reason, for an operator


@dataclass(frozen=True, slots=True)
class CopyAnswer:
    status: Status
    newest: int  # the newest incarnation that it has seen; 0: none
    ends: Witness  # what it holds durably
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Part:
    """Bytes behind the copy's end of one log: of the file in which it ends, or the beginning of a later one."""

    log: int  # place in KINDS
    number: int
    data: bytes


@dataclass(frozen=True, slots=True)
class Extension:
    """What is to follow on ``ends``, exactly."""

    incarnation: int
    ends: Witness
    parts: tuple[Part, ...]  # in order; all of a file comes before its successor
    shown: Witness  # what the slot has published: what readers of the copy may see, where the copy has it


@dataclass(frozen=True, slots=True)
class CopyBytes:
    size: int  # of the whole file; -1: there is none of this number
    data: bytes


@dataclass(frozen=True, slots=True)
class CopyOf:
    datacentre: str
    slot: str


class Keeper(Protocol):
    """Who keeps the copies of another datacentre; None: it did not answer, and nobody knows what it did."""

    async def open(self, of: CopyOf, incarnation: int, *, timeout: float) -> CopyAnswer | None:
        """Fences every earlier incarnation, durably."""

    async def look(self, of: CopyOf, *, timeout: float) -> CopyAnswer | None:
        """Changes nothing."""

    async def extend(self, of: CopyOf, extension: Extension, *, timeout: float) -> CopyAnswer | None:
        """Durable when it answers OK."""

    async def read(self, of: CopyOf, log: int, number: int, offset: int, *, timeout: float) -> CopyBytes | None:
        """Some bytes of one file from ``offset`` on."""


def at_least(ends: Witness, witness: Witness) -> bool:
    """Whether a copy that ends there has, by its numbers, all that the witness has."""
    padded = (*ends, *(NOTHING for _ in witness[len(ends) :]))
    return all(
        not old.length or _place(new) > _place(old) or (_place(new) == _place(old) and new.hash == old.hash)
        for new, old in zip(padded, witness, strict=False)
    )


def held_by_all(whole: Witness, copy: Witness, end: Witness) -> Witness:
    """What the witness may become: what slot and copy both hold, and never less than it has (``end``)."""
    held = [min(pair, key=_place) if pair[0].length else pair[0] for pair in zip(whole, copy, strict=True)]
    before: Sequence[WitnessLog] = (*end, *held[len(end) :])
    return tuple(max(pair, key=_place) for pair in zip(before, held, strict=True))


def _place(log: WitnessLog) -> tuple[int, int]:
    return (log.number, log.length)


def keeper_of(datacentre: str, keepers: Iterable[str]) -> str | None:
    """The next one in the order of names that keeps copies, after the last the first; None: there is no other.

    ``keepers``: datacentres with ``copies`` in their table. Another one that is added or removed may change who keeps
    whose: a slot's copy is then begun anew at the new place, and the old one stays where it is.
    """
    others = sorted(set(keepers) - {datacentre})
    later = [name for name in others if name > datacentre]
    return next(iter([*later, *others]), None)

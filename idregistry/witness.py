"""The witness of a slot's durable output, kept outside the slot (rule 6), so that a copied directory cannot fake it.

A slot writes several output logs, each a sequence of numbered files. The witness names, for each log in the slot's
own order, the newest file with known durable bytes, their number, and a hash of just these. The config group keeps it
in the slot's record, so that opening the slot, which fences every earlier incarnation, and reading the witness are
one step.

Invariants
- Only the slot's newest incarnation extends it, and exactly from its end: a late or repeated message changes nothing.
- It never goes back: a log's file number grows, or its length within the file; no log disappears.
- Readers, verifier and clears rely only on bytes that the witness has. So a directory whose output does not extend
  the witness lacks bytes that something may have relied on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import msgspec

LOGS_MAX = 16  # output logs of one slot
HASH_BYTES_MAX = 32
_MAX = 2**63 - 1

Size = Annotated[int, msgspec.Meta(ge=0, le=_MAX)]


class WitnessLog(msgspec.Struct, frozen=True, forbid_unknown_fields=True, array_like=True):
    """One output log: the first ``length`` bytes of its file ``number`` have this hash; earlier files are whole."""

    number: Size
    length: Size
    hash: Annotated[bytes, msgspec.Meta(max_length=HASH_BYTES_MAX)] = b""


# One for each log of the slot. Empty means that nothing was ever witnessed.
Witness = Annotated[tuple[WitnessLog, ...], msgspec.Meta(max_length=LOGS_MAX)]


@dataclass(frozen=True, slots=True)
class Witnessed:
    """The config group's witness. ``reason`` says why an extension was refused; empty if it was not."""

    newest: int  # the slot's newest incarnation; 0 if it was never opened
    witness: Witness
    reason: str = ""
    retired: bool = False


@dataclass(frozen=True, slots=True)
class KnownSlot:
    """A slot in the config group."""

    name: str
    datacentre: str
    address: str  # of the last process that opened it, for people: host:pid:start
    newest: int
    openings: int
    retired: bool
    witness: Witness


def refusal(cell: Witness, newest: int, incarnation: int, end: Witness, to: Witness) -> str:
    """Why ``cell`` may not become ``to``; empty if it may, or if that extension was already made."""
    if incarnation != newest:
        return f"incarnation {incarnation} is not the newest one, {newest}"
    if cell == to:
        return ""
    if cell != end:
        return "the witness ends elsewhere"
    return "" if extends(to, end) else "the witness would go back"


def extends(longer: Witness, witness: Witness) -> bool:
    """True if one witness may follow another: no log shorter or missing; equal length means equal bytes."""
    return len(longer) >= len(witness) and all(map(_follows, longer, witness))


def _follows(new: WitnessLog, old: WitnessLog) -> bool:
    if new.number != old.number:
        return new.number > old.number
    return new.length > old.length or (new.length == old.length and new.hash == old.hash)

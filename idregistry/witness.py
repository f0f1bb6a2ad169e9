"""Defines the witness of a slot's durable output. It is kept outside the slot: a copied directory cannot fake it.

A slot writes several output logs, each a sequence of numbered files. For each log, in the slot's own order, the
witness (rule 6) names the newest file with known durable bytes, the number of these bytes, and their hash. The config
group keeps it in the slot's record, so that opening the slot, which fences every earlier incarnation, and reading the
witness are one step.

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
    """One output log: the first ``length`` bytes of its file ``number`` have ``hash``; earlier files are complete."""

    number: Size
    length: Size
    hash: Annotated[bytes, msgspec.Meta(max_length=HASH_BYTES_MAX)] = b""


# One WitnessLog for each log of the slot. Empty means that nothing was ever witnessed.
Witness = Annotated[tuple[WitnessLog, ...], msgspec.Meta(max_length=LOGS_MAX)]


@dataclass(frozen=True, slots=True)
class Witnessed:
    """A slot's witness in the config group. ``reason`` says why an extension was refused; else it is empty."""

    newest: int  # the slot's newest incarnation; 0 if it was never opened
    witness: Witness
    reason: str = ""
    retired: bool = False


@dataclass(frozen=True, slots=True)
class KnownSlot:
    """The config group's facts about a slot."""

    name: str
    datacentre: str
    address: str  # the last process that opened it, for display: host:pid:start
    newest: int
    openings: int
    retired: bool
    witness: Witness


def refusal(cell: Witness, newest: int, incarnation: int, end: Witness, to: Witness) -> str:
    """Returns why ``cell`` must not become ``to``; empty if it may, or if it already has become ``to``."""
    if incarnation != newest:
        return f"incarnation {incarnation} is not the newest one, {newest}"
    if cell == to:
        return ""
    if cell != end:
        return "the witness does not end where the extension begins"
    return "" if extends(to, end) else "the extension would move the witness backwards"


def extends(longer: Witness, witness: Witness) -> bool:
    """True if ``longer`` may follow ``witness``: no log is shorter or missing; logs of equal length are equal."""
    return len(longer) >= len(witness) and all(map(_follows, longer, witness))


def _follows(new: WitnessLog, old: WitnessLog) -> bool:
    if new.number != old.number:
        return new.number > old.number
    return new.length > old.length or (new.length == old.length and new.hash == old.hash)

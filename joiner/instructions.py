"""What the slot's protocol core tells its shell to do. The shell does it and reports back by the core's methods."""

from __future__ import annotations

from dataclasses import dataclass

from photon.batch.columns import Mask
from photon.batch.ids import Ids
from photon.batch.verdicts import Verdicts
from photon.idregistry.api import Kind
from photon.joiner.rows import Rows


@dataclass(frozen=True, slots=True)
class Append:
    """Append to the redo log as frame ``frame`` and sync, in the order given; then ``redo_synced``."""

    frame: int
    rows: Rows


@dataclass(frozen=True, slots=True)
class Insert:
    """Ask the registry once; then ``answered``, UNKNOWN for whatever was not heard."""

    frame: int
    inserts: Ids


@dataclass(frozen=True, slots=True)
class Write:
    """Append the chunks, whole lines each, to the output logs of their kinds, in the order of ``number``.

    Then ``written``. The output's sync may be put off; ``SyncOutput`` asks for it at the latest.
    """

    number: int
    chunks: tuple[tuple[Kind, bytes], ...]


@dataclass(frozen=True, slots=True)
class SyncOutput:
    """Sync all output written so far, publish its length durably; then ``output_synced``."""


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer the caller of ``frame``: a row for each of its rows. Comes once a frame."""

    frame: int
    verdicts: Verdicts
    same_line: Mask  # as ``JoinAnswers`` has it


@dataclass(frozen=True, slots=True)
class Release:
    """These frames may leave the redo log."""

    frames: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Redone:
    """Every batch of incarnations up to this one has left the log, carried-over ids included: publish it (rule 13).

    Comes once, and what it speaks of is in the output's last sync.
    """

    upto: int


@dataclass(frozen=True, slots=True)
class Stop:
    """The process must end; ``reason`` is one line for the operator."""

    reason: str


Instruction = Append | Insert | Write | SyncOutput | Reply | Release | Redone | Stop

"""What the slot's protocol core tells its shell to do. The shell does it and reports back by the core's methods."""

from __future__ import annotations

from dataclasses import dataclass, field

from photon.batch.ids import Ids
from photon.idregistry.api import Kind
from photon.joiner.api import Outcome, TakenBy
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
    """Answer the caller of ``frame``: an outcome for each of its rows. Comes once a frame."""

    frame: int
    outcomes: list[Outcome]
    taken: dict[int, TakenBy] = field(default_factory=dict)
    owner_tags: dict[int, int] = field(default_factory=dict)
    """The owner's tag of each row that an event of this datacentre took."""


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

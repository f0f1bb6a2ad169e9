"""Records the progress of a report's repair in one small file in the report's directory, replaced after each batch.

A killed repair loses nothing: the interrupted batch is in the repairs log and is processed again by its rules.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from photon.config.decoding import DECODE_ERRORS
from photon.config.disk import Disk
from photon.config.errors import PhotonError, UsageError
from photon.config.versioned_file import decoded
from photon.outputs.log.format import DamagedRange


class ReportRefused(UsageError):
    """A report that must not be acted on: damaged, of another deployment, or changed since the repair began."""


class RepairsDamaged(PhotonError):
    """A file of the repairs log, or a journal, cannot be read."""


class RegistrySilent(PhotonError):
    """The registry does not answer. Completed work stays, and the same command continues after it."""


class WantedReplay(msgspec.Struct, frozen=True):
    """Events in the hours [``from_hour``, ``to_hour``) that a dispatcher must read again. ``log`` is empty for
    several logs. Hours are whole hours since 1970.
    """

    datacentre: str
    from_hour: int
    to_hour: int
    log: str
    events: int


class Replayed(msgspec.Struct, frozen=True):
    """A range that a dispatcher was asked to read again; ``number`` 0 means that the request could not be made from
    here."""

    datacentre: str
    from_ns: int
    to_ns: int
    pattern: str
    events: int
    number: int = 0


class UnseenSlots(msgspec.Struct, frozen=True):
    """Slots of one datacentre whose output the verification cannot have read, and the number of events not repaired
    for that reason.

    ``seen`` is the reason, ``do`` the remedy, ``gone`` the command that declares the records gone.
    """

    datacentre: str
    slots: dict[str, int]  # events of each slot
    events: int
    seen: str
    do: str
    gone: str
    perhaps: bool = False  # the owner is unknown, as the event is below the boundary


class WrittenFile(msgspec.Struct, frozen=True):
    """An output file with records of events that the report calls lost, and the first of them as an example."""

    file: str
    events: int
    event: str
    offset: int


class MarkedRanges(msgspec.Struct, frozen=True):
    """The damaged ranges marked so far, by DATACENTRE/SLOT, and the slots whose copies are marked too."""

    slots: dict[str, tuple[DamagedRange, ...]] = {}
    copies: list[str] = []


class RepairProgress(msgspec.Struct, frozen=True, tag_field="version", tag=1):
    """A repair's progress. ``done``: finished batches of each pass; ``counts``: pass -> class -> outcomes."""

    report: str
    done: dict[str, int] = {}
    ended: list[str] = []
    counts: dict[str, dict[str, dict[str, int]]] = {}
    waiting_slots: dict[str, int] = {}
    wanted: list[WantedReplay] = []
    replays: list[Replayed] = []
    unseen: dict[str, list[UnseenSlots]] = {}  # by pass, as the next one
    written: dict[str, list[WrittenFile]] = {}
    marked: MarkedRanges = MarkedRanges()


def journal_path(report: Path, name: str) -> Path:
    """Returns the path of a verdict's journal; each verdict in the directory has its own."""
    return report / f"recover-{name}.json"


def read_journal(disk: Disk, report: Path, name: str) -> RepairProgress:
    """Reads the progress of earlier runs; returns empty progress if there were none. Raises RepairsDamaged,
    OSError."""
    path = journal_path(report, name)
    if not disk.exists(path):
        return RepairProgress(name)
    try:
        found = decoded(disk.read(path), RepairProgress)
    except DECODE_ERRORS as error:
        raise RepairsDamaged(f"{path}: is damaged ({error}); verify again and recover from the new report") from None
    if found.report != name:
        raise RepairsDamaged(f"{path}: belongs to report {found.report}; verify again")
    return found


def write_journal(disk: Disk, report: Path, progress: RepairProgress) -> None:
    """Writes the progress durably. Raises OSError."""
    disk.replace(journal_path(report, progress.report), msgspec.json.encode(progress))

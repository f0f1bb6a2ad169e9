"""Lists all slots: the registry's entry for each, and its files on this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from photon.config.disk import Disk
from photon.config.errors import PhotonError
from photon.config.settings import Settings
from photon.idregistry.witness import KnownSlot, WitnessLog
from photon.joiner.slot.lock import is_held
from photon.joiner.slot.place import DIRECTORIES
from photon.joiner.slot.redo_log import SUFFIX as REDO_SUFFIX
from photon.joiner.slot.slot import REDO_NAME, STATE_NAME
from photon.outputs.cleared import read_clearing
from photon.outputs.log.format import DURABLE_NAME, MANIFEST_NAME, RETIRED_NAME
from photon.outputs.published import read_slot


@dataclass(frozen=True, slots=True)
class OnDisk:
    directory: Path
    held: bool  # a process holds its lock
    redo_bytes: int
    published: int  # bytes of output that may be read
    cleared: int  # bytes whose ids are cleared
    trouble: int  # lines to which the verifier objects
    unreadable: str = ""  # why the figures are unknown


@dataclass(frozen=True, slots=True)
class SlotRow:
    name: str
    datacentre: str
    registry: KnownSlot | None  # None means that the directory was never opened, or belongs to another deployment
    configured: bool  # the deployment file has a joiner of this name
    disk: OnDisk | None  # None means it has no directory on this machine


@dataclass(frozen=True, slots=True)
class WitnessRow:
    """One output log: the length that the registry witnessed, compared with the file here."""

    kind: str
    number: int
    witnessed: int
    published: int | None  # length of the same file here; None means that it is not here

    @property
    def lacking(self) -> bool:
        """True if this directory lacks bytes that readers may have seen."""
        return self.published is not None and self.published < self.witnessed


def state_of(settings: Settings, base: Path, datacentre: str, slot: str) -> Path | None:
    """Returns the state directory of a slot; ``None`` if the deployment file lacks its datacentre."""
    pipeline = settings.datacentre.get(datacentre)
    return None if pipeline is None else base / pipeline.state / "slots" / slot


def has_slot(disk: Disk, state: Path) -> bool:
    """True if the directory holds files of a slot other than those that retiring writes."""
    return any(disk.exists(state / name) for name in (STATE_NAME, REDO_NAME, DURABLE_NAME, MANIFEST_NAME))


def on_disk(disk: Disk, state: Path) -> OnDisk | None:
    """Describes a slot's files on this disk; ``None`` if there are none."""
    if not has_slot(disk, state):
        return None
    redo = [name for name in disk.names(state / REDO_NAME) if name.endswith(REDO_SUFFIX)]
    redo_bytes = sum(disk.size(state / REDO_NAME / name) for name in redo)
    try:
        files = read_slot(disk, state).files
        clearing = read_clearing(disk, state)
    except (PhotonError, OSError) as error:
        return OnDisk(state, is_held(state), redo_bytes, 0, 0, 0, str(error))
    cleared = sum(f.length if f.final else min(f.length, clearing.files.get(f.name, 0)) for f in files)
    published = sum(file.length for file in files)
    return OnDisk(state, is_held(state), redo_bytes, published, cleared, sum(clearing.trouble.values()))


def rows_of(settings: Settings, base: Path, disk: Disk, known: Sequence[KnownSlot]) -> list[SlotRow]:
    """Returns the registry's slots, and directories here that it does not know, by datacentre and name."""
    rows = []
    for each in known:
        state = state_of(settings, base, each.datacentre, each.name)
        pipeline = settings.datacentre.get(each.datacentre)
        configured = pipeline is not None and each.name in settings.slots(each.datacentre)
        found = None if state is None else on_disk(disk, state)
        rows.append(SlotRow(each.name, each.datacentre, each, configured, found))
    names = {each.name for each in known}
    for datacentre, pipeline in settings.datacentre.items():
        slots = base / pipeline.state / "slots"
        there = disk.names(slots) if disk.exists(slots) else []
        configured_here = settings.slots(datacentre)
        for name in sorted({*there, *configured_here} - names):
            found = on_disk(disk, slots / name)
            if found is not None or name in configured_here:
                rows.append(SlotRow(name, datacentre, None, name in configured_here, found))
    return sorted(rows, key=lambda row: (row.datacentre, row.name))


def witness_rows(disk: Disk, row: SlotRow) -> list[WitnessRow]:
    """The witness of a slot that the registry knows, compared with its files here. Raises PublishedDamaged,
    OSError."""
    if row.registry is None:
        return []
    files = {}
    if row.disk is not None and not row.disk.unreadable and not disk.exists(row.disk.directory / RETIRED_NAME):
        files = {(file.kind, file.number): file.length for file in read_slot(disk, row.disk.directory).files}

    def one(at: int, log: WitnessLog) -> WitnessRow:
        kind = DIRECTORIES[at]
        here = None if row.disk is None else files.get((kind, log.number), 0)
        return WitnessRow(kind, log.number, log.length, here)

    return [one(at, log) for at, log in enumerate(row.registry.witness[: len(DIRECTORIES)]) if log.length]

"""How far a pipeline's slots are verified, read from the files beside them: it needs no running verifier."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from photon.config.disk import Disk
from photon.config.errors import PhotonError
from photon.outputs.cleared import read_clearing
from photon.outputs.published import SlotOutput, read_slot
from photon.verifier import lock
from photon.verifier.alarms import Alarm, acknowledge, open_alarms
from photon.verifier.checker import NAME as CHECKED_NAME
from photon.verifier.checker import CheckedFile, read_checked
from photon.verifier.service import MISSING_DIR, OWN_DIR, Pipeline
from photon.verifier.slot_state import SlotState, state_of
from photon.verifier.slot_work import OWNED_NAME, read_owned


@dataclass(slots=True)
class SlotStatus:
    """Of one slot. Bytes of output, uncompressed."""

    slot: str
    state: SlotState
    published: int = 0
    cleared: int = 0
    checked: int = 0
    checked_lines: int = 0
    unverifiable: int = 0
    """Lines whose source log is gone, and the last such logs."""
    gone: list[str] = field(default_factory=list)
    owned: int = 0
    """Ids, by the last look at the registry."""
    owned_since_ns: int | None = None
    alarms: list[Alarm] = field(default_factory=list)
    problem: str = ""
    """Why the rest is not known."""

    @property
    def behind(self) -> int:
        """Published, and not checked."""
        return self.published - self.checked


@dataclass(frozen=True, slots=True)
class PipelineStatus:
    """``verifier``: the live process that verifies here; None: there is none."""

    verifier: str | None
    slots: list[SlotStatus]

    @property
    def attention(self) -> bool:
        """Something wants a person."""
        return self.verifier is None or any(each.alarms or each.problem for each in self.slots)


def status_of(disk: Disk, pipeline: Pipeline) -> PipelineStatus:
    """Of this moment. Raises OSError."""
    names = _names(disk, pipeline)
    return PipelineStatus(lock.holder_of(pipeline.own / lock.NAME), [_status(disk, pipeline, name) for name in names])


def standing(disk: Disk, pipeline: Pipeline, slots: Sequence[str]) -> int:
    """How many alarms ``acknowledged`` would end. Raises AlarmsDamaged."""
    names = slots or _names(disk, pipeline)
    return sum(len(open_alarms(disk, own)) for name in names for own in _own(pipeline, name))


def acknowledged(disk: Disk, pipeline: Pipeline, slots: Sequence[str], at_ns: int) -> int:
    """Ends the alarms that stand in these slots (none named: in all); how many. Raises AlarmsDamaged, OSError."""
    names = slots or _names(disk, pipeline)
    return sum(acknowledge(disk, own, at_ns) for name in names for own in _own(pipeline, name))


def _names(disk: Disk, pipeline: Pipeline) -> list[str]:
    there = {name for name in disk.names(pipeline.slots) if (pipeline.slots / name).is_dir()}
    missing = set(disk.names(pipeline.own / MISSING_DIR))
    return sorted({*there, *missing, *pipeline.joiners})


def _own(pipeline: Pipeline, name: str) -> list[Path]:
    """Where the verifier's files of a slot may lie."""
    return [pipeline.slots / name / OWN_DIR, pipeline.own / MISSING_DIR / name]


def _status(disk: Disk, pipeline: Pipeline, name: str) -> SlotStatus:
    state = pipeline.slots / name
    found = SlotStatus(name, state_of(disk, state))
    own, missing = _own(pipeline, name)
    try:
        found.alarms = open_alarms(disk, own) + open_alarms(disk, missing)
        owned = read_owned(disk, (own if found.state.there else missing) / OWNED_NAME)
        found.state = state_of(disk, state, retired=owned.retired)
        found.owned, found.owned_since_ns = owned.ids, owned.oldest_ns
        if found.state.there:
            _lengths(disk, state, found)
    except PhotonError as error:
        found.problem = str(error)
    return found


def _lengths(disk: Disk, state: Path, found: SlotStatus) -> None:
    checked = read_checked(disk, state / OWN_DIR / CHECKED_NAME)
    clearing = read_clearing(disk, state)
    published = read_slot(disk, state)
    found.published = sum(file.length for file in published.files)
    found.cleared = sum(file.length if file.final else clearing.files.get(file.name, 0) for file in published.files)
    found.checked = checked_bytes(published, checked)
    found.checked_lines, found.unverifiable, found.gone = checked.lines, checked.unverifiable, checked.gone


def checked_bytes(published: SlotOutput, checked: CheckedFile) -> int:
    """Of what is published."""
    total = 0
    for file in published.files:
        number, at = checked.places.get(file.kind, (0, 0))
        if file.number < number:
            total += file.length
        elif file.number == number:
            total += min(at, file.length)
    return total

"""Reads the verification state of a pipeline's slots from files, even if no verifier runs, and makes metrics."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from photon.config.clock import Clock
from photon.config.disk import Disk
from photon.config.errors import PhotonError
from photon.config.file_lock import holder_of
from photon.config.metrics.readings import Readings, Source
from photon.outputs.cleared import read_clearing
from photon.outputs.published import SlotOutput, read_slot
from photon.verifier import lock
from photon.verifier.alarms import Alarm, acknowledge, open_alarms
from photon.verifier.checker import NAME as CHECKED_NAME
from photon.verifier.checker import CheckedFile, read_checked
from photon.verifier.service import MISSING_DIR, OWN_DIR, VerifiedPipeline
from photon.verifier.slot_state import SlotState, state_of
from photon.verifier.slot_work import OWNED_NAME, read_owned

ALARMS_SHOWN = 20  # per slot, newest first


@dataclass(slots=True)
class SlotStatus:
    """The verification status of one slot. Sizes are uncompressed bytes of output."""

    slot: str
    state: SlotState
    published: int = 0
    cleared: int = 0
    checked: int = 0
    checked_lines: int = 0
    unverifiable: int = 0  # lines whose source log is gone, and the last such logs
    gone: list[str] = field(default_factory=list)
    owned: int = 0  # ids, at the last look at the registry
    owned_since_ns: int | None = None
    alarms: list[Alarm] = field(default_factory=list)
    problem: str = ""  # why the rest is unknown

    @property
    def behind(self) -> int:
        """The number of published bytes that are not checked."""
        return self.published - self.checked


@dataclass(frozen=True, slots=True)
class PipelineStatus:
    """A pipeline's status. ``verifier``: the live process that verifies it; ``None`` if there is none."""

    verifier: str | None
    slots: list[SlotStatus]

    @property
    def attention(self) -> bool:
        return self.verifier is None or any(each.alarms or each.problem for each in self.slots)


def status_of(disk: Disk, pipeline: VerifiedPipeline) -> PipelineStatus:
    """Reads the present status from files. Raises OSError."""
    names = _names(disk, pipeline)
    return PipelineStatus(holder_of(pipeline.own / lock.NAME), [_status(disk, pipeline, name) for name in names])


def standing(disk: Disk, pipeline: VerifiedPipeline, slots: Sequence[str]) -> int:
    """Returns the number of alarms that ``acknowledged`` would end. Raises AlarmsDamaged."""
    names = slots or _names(disk, pipeline)
    return sum(len(open_alarms(disk, own)) for name in names for own in _own(pipeline, name))


def acknowledged(disk: Disk, pipeline: VerifiedPipeline, slots: Sequence[str], at_ns: int) -> int:
    """Ends the open alarms of these slots, or of all if none is named. Returns their number. Raises AlarmsDamaged,
    OSError.
    """
    names = slots or _names(disk, pipeline)
    return sum(acknowledge(disk, own, at_ns) for name in names for own in _own(pipeline, name))


def _names(disk: Disk, pipeline: VerifiedPipeline) -> list[str]:
    there = {name for name in disk.names(pipeline.slots) if (pipeline.slots / name).is_dir()}
    missing = set(disk.names(pipeline.own / MISSING_DIR))
    return sorted({*there, *missing, *pipeline.joiners})


def _own(pipeline: VerifiedPipeline, name: str) -> list[Path]:
    """Returns the directories that may have the verifier's files for a slot."""
    return [pipeline.slots / name / OWN_DIR, pipeline.own / MISSING_DIR / name]


def _status(disk: Disk, pipeline: VerifiedPipeline, name: str) -> SlotStatus:
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
    """Returns the number of published bytes that are checked."""
    total = 0
    for file in published.files:
        number, at = checked.places.get(file.kind, (0, 0))
        if file.number < number:
            total += file.length
        else:  # damaged bytes are skipped together with the lines before them
            total += file.readable(min(at, file.length) if file.number == number else 0)[0]
    return total


def verifier_metrics(disk: Disk, pipeline: VerifiedPipeline, clock: Clock) -> Source:
    """Returns a source of metrics for all slots of a pipeline. It reads files in a thread."""

    async def read(into: Readings) -> None:
        found = await asyncio.to_thread(status_of, disk, pipeline)
        for slot in found.slots:
            _put(into, slot, clock.now_ns())

    return read


def _put(into: Readings, slot: SlotStatus, now_ns: int) -> None:
    since = slot.owned_since_ns
    into.put_all(
        "photon_verifier",
        {
            "published_bytes": slot.published,
            "cleared_bytes": slot.cleared,
            "checked_bytes": slot.checked,
            "unverifiable_lines": slot.unverifiable,
            "owned_ids": slot.owned,
            "owned_oldest_seconds": 0.0 if since is None else max(now_ns - since, 0) / 1e9,
            "redo_log_bytes": slot.state.redo_bytes,
            "slot_live": slot.state.holder is not None,
            "slot_problem": bool(slot.problem),
        },
        slot=slot.slot,
    )
    for finding, count in Counter(alarm.finding for alarm in slot.alarms).items():
        into.put("photon_verifier_alarms", count, slot=slot.slot, finding=finding)


async def details_of(disk: Disk, pipeline: VerifiedPipeline) -> dict[str, Any]:
    found = await asyncio.to_thread(status_of, disk, pipeline)
    return {
        "slots": [
            {
                "slot": slot.slot,
                "state": slot.state.word,
                "problem": slot.problem,
                "alarms": [
                    {"at_s": alarm.at_ns / 1e9, "finding": alarm.finding, "what": alarm.what, "todo": alarm.todo}
                    for alarm in slot.alarms[-ALARMS_SHOWN:]
                ],
            }
            for slot in found.slots
        ]
    }

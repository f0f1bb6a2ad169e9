"""Finds slots whose outputs a verification could not read; repairs of their events are refused."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from photon.config.disk import Disk
from photon.config.words import many
from photon.idregistry.witness import KnownSlot
from photon.outputs.output_places import KINDS, OutputPlace
from photon.outputs.published import OutputFile, SlotOutput
from photon.spark.backfill.known import SLOT_PREFIX
from photon.spark.recover.journal import UnseenSlots
from photon.spark.sources import TimeRange

FEW = 2  # a slot with fewer files of the range than this may have lost all of them in one deletion
RETIRE, GONE = "photon slot retire", "photon spark recover --gone"  # commands that declare records gone


@dataclass(frozen=True, slots=True)
class SeenSlot:
    """Counts a slot's published files that are not empty and may hold events of the report's range."""

    published: int
    missing: int
    output: str  # their directory
    empty: bool  # True if the directory is missing, or contains no file of any kind


class Why(NamedTuple):
    """The reason why a slot's output was not read. ``do``: the remedy; ``gone``: RETIRE or GONE."""

    seen: str
    do: str
    gone: str


@dataclass(frozen=True, slots=True)
class SeenOutputs:
    """The outputs that can be read from here. ``sites``: the slots, by name, of each datacentre in the deployment
    file; ``states``: the directory of each datacentre's slots."""

    config: str
    sites: Mapping[str, Mapping[str, SeenSlot]]
    states: Mapping[str, str]
    known: Mapping[str, KnownSlot]
    gone: Collection[str] = ()  # slots whose missing files the operator declared gone

    def why(self, datacentre: str, slot: str) -> Why | None:
        """Returns why a slot's output was not read; ``None`` if its files were present or declared gone."""
        known = self.known.get(slot)
        if known is not None and known.retired:
            return None
        slots = self.sites.get(datacentre)
        if slots is None:
            return Why(f"which {self.config} does not name", "add it to the file again", RETIRE)
        seen = slots.get(slot)
        if seen is None:
            return Why(f"which has nothing in {self.states[datacentre]}", "mount its state and output", RETIRE)
        if slot in self.gone or not seen.missing:
            return None
        if seen.empty:
            return Why(f"whose output directory {seen.output} is missing or empty", "mount it", GONE)
        if seen.missing == seen.published >= FEW:
            return Why(f"whose files of this range are all missing from {seen.output}", "restore them", GONE)
        return None

    def others(self) -> list[tuple[str, str, Why]]:
        """Returns datacentre and name of each slot that has written records but was not read, and the reason."""
        return [
            (each.datacentre, each.name, why)
            for each in self.known.values()
            if any(log.length for log in each.witness) and not each.name.startswith(SLOT_PREFIX)
            if (why := self.why(each.datacentre, each.name)) is not None
        ]


def seen_slots(disk: Disk, place: OutputPlace, window: TimeRange) -> dict[str, SeenSlot]:
    """Returns the slots of one pipeline by name. ``window``: the report's range. Raises PublishedDamaged, OSError."""
    listed: dict[Path, dict[str, Collection[str]]] = {}
    found = {}
    for slot in place.published(disk):
        root = slot.output or place.output
        names = listed.setdefault(root, {kind: set(disk.names(root / kind)) for kind in KINDS})
        files = _of_range(slot, window)
        missing = sum(1 for file in files if not _is_there(names[file.kind], Path(file.path).name))
        found[slot.slot] = SeenSlot(len(files), missing, str(root), not any(names.values()))
    return found


def _of_range(slot: SlotOutput, window: TimeRange) -> list[OutputFile]:
    return [
        file
        for file in slot.files
        if file.length
        and (file.first_ns is None or file.last_ns is None or window.meets(file.first_ns, file.last_ns))
    ]


def _is_there(names: Collection[str], stored: str) -> bool:
    return stored in names or f"{stored}.gz" in names


def line_of(each: UnseenSlots, config: str) -> str:
    """Formats the slots and their events as one line."""
    events = many(each.events, "event")
    verb = "may belong" if each.perhaps else "belongs" if each.events == 1 else "belong"
    slots = f"{'slot' if len(each.slots) == 1 else 'slots'} {', '.join(sorted(each.slots))}"
    if each.gone == RETIRE:
        commands = "; ".join(f"{RETIRE} {slot} --config {config}" for slot in sorted(each.slots))
    else:
        commands = "repeat this with " + " ".join(f"--gone {slot}" for slot in sorted(each.slots))
    return (
        f"{events} {verb} to {slots} of datacentre {each.datacentre}, {each.seen}: {each.do}, or, if the disk is "
        f"gone permanently, {commands}"
    )


def grouped(refused: Mapping[tuple[str, Why, bool], Mapping[str, int]]) -> Sequence[UnseenSlots]:
    """Groups refused events by datacentre and reason. ``refused``: (datacentre, reason, True if the slot is
    uncertain) -> slot -> number of events."""
    return [
        UnseenSlots(datacentre, dict(slots), max(slots.values()) if perhaps else sum(slots.values()), *why, perhaps)
        for (datacentre, why, perhaps), slots in refused.items()
    ]

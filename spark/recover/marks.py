"""Marks the damaged ranges of a report in the slots' directories and in copies of the slots' output.

If a slot's directory is on another machine, run the same command there with the same report to mark its ranges. The
report's journal remembers which slots and copies are done.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from photon.config.disk import Disk
from photon.outputs.damaged import add_damaged, mark_damaged
from photon.outputs.log.format import PLAIN_SUFFIX, DamagedRange, slot_of
from photon.outputs.output_places import OutputPlace, is_kept, kept_directory
from photon.outputs.published import read_damaged
from photon.spark.output_lines import NoRecord, read_output_line
from photon.spark.recover.journal import MarkedRanges
from photon.spark.recover.planning import RepairWay
from photon.spark.recover.report import Damage


class DamageMarks(Protocol):
    """Marks damaged ranges."""

    def mark(self, damages: Sequence[Damage], before: MarkedRanges, *, apply: bool) -> list[str]:
        """Marks the ranges if ``apply`` is set. Returns an outcome for each: MARK, MARKED, ELSEWHERE or UNMARKED.
        ``before``: ranges marked by earlier runs over the same report. Raises PublishedDamaged, OSError."""
        ...

    def marked(self, before: MarkedRanges) -> MarkedRanges:
        """Returns ``before`` plus everything that this run has marked."""
        ...


@dataclass(slots=True)
class SlotMarks:
    """See DamageMarks. ``places``: each datacentre's output; ``keepers``: for each datacentre, the keeper of copies
    of its slots; ``at``: the time, ISO 8601."""

    disk: Disk
    places: Mapping[str, OutputPlace]
    keepers: Mapping[str, str]
    at: str
    refused: list[str] = field(default_factory=list)  # one line for each directory that is not marked
    _slots: dict[str, tuple[DamagedRange, ...]] = field(default_factory=dict)
    _copies: set[str] = field(default_factory=set)
    _open: set[str] = field(default_factory=set)  # slots with unmarked ranges

    def mark(self, damages: Sequence[Damage], before: MarkedRanges, *, apply: bool) -> list[str]:
        ways = [RepairWay.MARKED if apply else RepairWay.MARK] * len(damages)
        by_slot: dict[tuple[str, str], list[int]] = defaultdict(list)
        for row, each in enumerate(damages):
            file, datacentre = each.file or "", each.datacentre or ""
            slot = slot_of(file) if file.endswith(PLAIN_SUFFIX) else ""
            if slot and each.offset is not None and datacentre in self.places:
                by_slot[datacentre, slot].append(row)
            else:
                ways[row] = RepairWay.UNMARKED
                self.refused.append(f"{each.file} of {each.datacentre}: in no slot's output; restore it from a copy")
        for (datacentre, slot), rows in by_slot.items():
            name = f"{datacentre}/{slot}"
            here = name in before.slots or self._of_slot(datacentre, slot, damages, rows, ways, apply=apply)
            if not (here and self._in_copy(datacentre, slot, before, apply=apply)):
                for row in rows:
                    ways[row] = RepairWay.ELSEWHERE if ways[row] is not RepairWay.UNMARKED else ways[row]
        return [str(way) for way in ways]

    def marked(self, before: MarkedRanges) -> MarkedRanges:
        slots = {name: ranges for name, ranges in self._slots.items() if name not in self._open}
        return MarkedRanges({**before.slots, **slots}, sorted({*before.copies, *self._copies} - self._open))

    def _of_slot(
        self, datacentre: str, slot: str, damages: Sequence[Damage], rows: Sequence[int], ways: list[RepairWay],
        *, apply: bool,
    ) -> bool:  # fmt: skip
        """Marks the ranges in the slot's own directory. Returns False if that directory is not on this machine."""
        place, name = self.places[datacentre], f"{datacentre}/{slot}"
        state = next((each for each in place.states(self.disk) if each.name == slot), None)
        if state is None or not apply:
            return state is not None
        wanted = [(damages[row].file or "", damages[row].offset or 0) for row in rows]
        for row, range_ in zip(
            rows, mark_damaged(self.disk, state, place.output, wanted, self.at, _no_record), strict=True
        ):
            if isinstance(range_, str):
                self.refused.append(range_)
                ways[row] = RepairWay.UNMARKED
                self._open.add(name)
        self._slots[name] = read_damaged(self.disk, state)
        return True

    def _in_copy(self, datacentre: str, slot: str, before: MarkedRanges, *, apply: bool) -> bool:
        """Marks the ranges in a copy of the slot's output. Returns False if the copy is on another machine."""
        keeper, name = self.keepers.get(datacentre), f"{datacentre}/{slot}"
        if keeper is None or name in before.copies:
            return True
        root = self.places[keeper].state
        directory = kept_directory(root, datacentre, slot)
        if apply and is_kept(self.disk, directory):
            add_damaged(self.disk, directory, slot, self._slots.get(name) or before.slots[name])
        if apply and self.disk.exists(root):
            self._copies.add(name)
        return self.disk.exists(root)


def _no_record(line: bytes, kind: str) -> str | None:
    try:
        read_output_line(line, kind)
    except NoRecord as why:
        return str(why)
    return None

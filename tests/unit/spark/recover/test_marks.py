"""Damaged ranges of a report are marked where their slots and the slots' copies are, on any machine."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from photon.config.disk import RealDisk
from photon.outputs import OutputPlace, Reader
from photon.outputs.log.format import DamagedRange, Durable
from photon.outputs.output_places import OUTPUT_NAME, kept_directory
from photon.outputs.published import read_damaged
from photon.spark.recover.journal import MarkedRanges
from photon.spark.recover.marks import SlotMarks
from photon.spark.recover.report import Damage
from tests.unit.outputs.helpers import WrittenSlot, lines

DISK = RealDisk()
AT = "2026-11-28T00:00:00+00:00"
DATA = lines(0, 9)


class Machines:
    """East's slot s0 has lost its second file; west keeps its copy, on this machine or on another one."""

    def __init__(self, base: Path) -> None:
        self.slot = WrittenSlot(base / "east")
        for number in (1, 2, 3):
            self.slot.final(number, DATA)
        self.slot.path(2).with_name(self.slot.path(2).name + ".gz").unlink()
        self.damage = Damage("east", self.slot.name(2), 0)
        self.copy = kept_directory(base / "west" / "state", "east", "s0")
        for number in (1, 2, 3):
            path = self.copy / OUTPUT_NAME / self.slot.name(number)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(DATA)
        (self.copy / "copy.json").write_bytes(b"{}")
        names = [self.slot.name(number) for number in (1, 2, 3)]
        (self.copy / "durable.json").write_bytes(
            msgspec.json.encode(Durable("s0", dict.fromkeys(names, len(DATA)), names))
        )
        self.places = {"east": self.slot.place, "west": OutputPlace(base / "west" / "out", base / "west" / "state")}
        self.away = {name: OutputPlace(base / "none" / name, base / "none" / name) for name in self.places}

    def marks(self, *here: str, keeper: bool = True) -> SlotMarks:
        places = {name: (self.places if name in here else self.away)[name] for name in self.places}
        return SlotMarks(DISK, places, {"east": "west"} if keeper else {}, AT)

    def read(self) -> tuple[bytes, bytes]:
        """Read by readers of the slot, and of its copy."""
        copied = OutputPlace(Path("none"), Path("none"), (self.copy.parent,), live=True)
        return tuple(
            b"".join(block.data for block in Reader(DISK, place).read()) for place in (self.slot.place, copied)
        )  # type: ignore[return-value]


@pytest.fixture
def machines(tmp_path: Path) -> Machines:
    return Machines(tmp_path)


def test_a_slot_and_its_copy_on_one_machine(machines: Machines) -> None:
    marks, before = machines.marks("east", "west"), MarkedRanges()
    assert marks.mark([machines.damage], before, apply=False) == ["mark"]
    assert read_damaged(DISK, machines.slot.state) == ()
    assert marks.mark([machines.damage] * 2, before, apply=True) == ["marked"] * 2
    [marked] = read_damaged(DISK, machines.slot.state)
    assert (marked.file, marked.start, marked.end, marked.at) == (machines.slot.name(2), 0, len(DATA), AT)
    assert read_damaged(DISK, machines.copy) == (marked,), "its file is whole, but its events are joined again"
    assert machines.read() == (2 * DATA, 2 * DATA)
    assert marks.marked(before) == MarkedRanges({"east/s0": (marked,)}, ["east/s0"])
    assert marks.refused == []


def test_machines_mark_one_after_the_other_with_the_same_command(machines: Machines) -> None:
    first = machines.marks("east")
    assert first.mark([machines.damage], MarkedRanges(), apply=True) == ["elsewhere"], "the copy is on another one"
    between = first.marked(MarkedRanges())
    assert (list(between.slots), between.copies) == (["east/s0"], [])
    second = machines.marks("west")
    assert second.mark([machines.damage], between, apply=True) == ["marked"]
    done = second.marked(between)
    assert done.copies == ["east/s0"]
    assert machines.read() == (2 * DATA, 2 * DATA)
    assert machines.marks("east").mark([machines.damage], done, apply=True) == ["marked"]


def test_where_the_slot_is_not_its_copy_waits(machines: Machines) -> None:
    """The slot's own files show which range is damaged: before that is known, nothing is marked in the copy."""
    marks = machines.marks("west")
    for apply in (False, True):
        assert marks.mark([machines.damage], MarkedRanges(), apply=apply) == ["elsewhere"]
    assert read_damaged(DISK, machines.copy) == ()
    assert marks.marked(MarkedRanges()) == MarkedRanges()


def test_what_can_be_read_or_is_no_slot_s_is_refused_in_one_line(machines: Machines) -> None:
    name = machines.slot.name(1)
    machines.slot.path(1).with_name(machines.slot.path(1).name + ".gz").unlink()
    record = b'{"event_id":"e","key":"k","event_time_ns":1,"foreign":{},"primary":{},"source":{"file":"f","offset":0}'
    whole = record + b',"primary_source":{"file":"q","offset":0}}'
    data = (whole + b" " * (len(DATA) - len(whole) - 1) + b"\n")[: len(DATA)]
    machines.slot.path(1).write_bytes(data)
    damages = [Damage("east", name, 0), Damage("east", "backfill/part-0.parquet", 3), Damage("north", name, 0),
               Damage("east", name, len(DATA)), machines.damage]  # fmt: skip
    marks = machines.marks("east", keeper=False)
    assert marks.mark(damages, MarkedRanges(), apply=True) == [*["unmarked"] * 4, "marked"]
    assert len(marks.refused) == 4
    assert all("\n" not in line for line in marks.refused)
    assert f"{name}: the record at byte 0 is readable; verify again" in marks.refused
    assert marks.marked(MarkedRanges()) == MarkedRanges(), "the slot is looked at again"
    assert [each.file for each in read_damaged(DISK, machines.slot.state)] == [machines.slot.name(2)]


def test_the_journal_keeps_what_was_marked(tmp_path: Path) -> None:
    from photon.spark.recover.journal import RepairProgress, read_journal, write_journal

    ranges = MarkedRanges({"east/s0": (DamagedRange("joined/s0-000001.jsonl", 0, 9, "is gone", AT),)}, ["east/s0"])
    write_journal(DISK, tmp_path, RepairProgress("r", marked=ranges))
    assert read_journal(DISK, tmp_path, "r").marked == ranges

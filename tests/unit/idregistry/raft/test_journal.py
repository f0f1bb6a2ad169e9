"""The journal: kept entries, cut entries, and errors that stop it."""

from __future__ import annotations

import contextlib
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from photon.config.disk import RealDisk
from photon.idregistry.raft import journal as journals
from photon.idregistry.raft.codec import NO_OP, REGULAR
from photon.idregistry.raft.entry_log import Entry
from photon.idregistry.raft.journal import Journal, segments_in
from photon.idregistry.raft.options import DiskFull, RaftStopped
from photon.idregistry.raft.segment_file import HEADER_BYTES
from tests.simulation.world.disk import PowerOff, SimulatedDisk
from tests.simulation.world.faulty_disk import FaultyDisk

HERE = Path("/raft/group")


def filled(disk: SimulatedDisk, entries: int = 3) -> Journal:
    journal = Journal(HERE, disk)
    journal.add(NO_OP, 1, 0)
    journal.sync()
    journal.setCurrentTerm(4, "b")
    journal.sync()
    for index in range(2, 2 + entries):
        journal.add(REGULAR + b"command %d" % index, index, 4)
        journal.sync()
    return journal


def content(journal: Journal) -> tuple[list[Entry], int, str | None]:
    return journal[:], journal.getCurrentTerm(), journal.getVotedForNodeId()


def live_segment(disk: SimulatedDisk) -> Path:
    (segment,) = segments_in(disk, HERE)
    return HERE / f"journal-{segment:016d}.log"


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk(Random(1))


def refused(disk: SimulatedDisk, at: int, why: str) -> None:
    """Refused with this byte flipped, which is flipped back afterwards."""
    path = live_segment(disk)
    disk.corrupt(path, at)
    with pytest.raises(RaftStopped, match=why):
        Journal(HERE, disk)
    disk.corrupt(path, at)


def test_on_a_real_disk(tmp_path: Path) -> None:
    journal = Journal(tmp_path, RealDisk())
    journal.add(NO_OP, 1, 0)
    journal.sync()
    journal.add(REGULAR + bytes(100_000), 2, 1)
    journal.sync()
    journal.close()
    assert content(Journal(tmp_path, RealDisk())) == content(journal)


def test_one_write_and_one_sync_for_all_of_a_step(disk: SimulatedDisk) -> None:
    journal = filled(disk)
    operations, syncs = disk.operations, disk.syncs
    journal.setCurrentTerm(5, None)
    for index in range(5, 50):
        journal.add(REGULAR, index, 5)
    journal.sync()
    assert (disk.operations - operations, disk.syncs - syncs) == (2, 1)
    for _ in range(3):
        journal.sync()  # nothing is new: once it is written that the frame was durable
    assert (disk.operations - operations, disk.syncs - syncs) == (3, 1)


@pytest.mark.parametrize("proved", [False, True])
def test_what_is_not_synced_is_not_half_there(proved: bool) -> None:
    """A power cut may leave any part, in any order, of the last write and of a proof before it."""
    outcomes = set()
    for seed in range(200):
        disk = SimulatedDisk(Random(seed))
        journal = filled(disk)
        if proved:
            journal.sync()
        before = content(journal)
        journal.setCurrentTerm(5, "c")
        for index in range(5, 9):
            journal.add(REGULAR + bytes(400), index, 5)
        disk.crash_after(2)  # written whole, and not synced
        with pytest.raises(PowerOff):
            journal.sync()
        disk.power_cut()
        after = content(Journal(HERE, disk))
        assert after in (before, content(journal))
        outcomes.add(after == before)
    assert outcomes == {True, False}


@settings(max_examples=60, deadline=None)
@given(cut=st.integers(1, 10_000))
def test_a_torn_last_frame_is_cut(cut: int) -> None:
    disk = SimulatedDisk(Random(1))
    journal = filled(disk, entries=1)
    path = live_segment(disk)
    start = disk.size(path)
    before = content(journal)
    journal.add(REGULAR + b"torn", 3, 4)
    journal.sync()
    disk.kill()
    size = disk.size(path)
    disk.truncate(path, start + cut % (size - start))
    assert content(Journal(HERE, disk)) == before


def test_a_bad_header_or_frame_before_the_last_stops_the_node(disk: SimulatedDisk) -> None:
    filled(disk)
    disk.kill()
    for at in range(disk.read(live_segment(disk)).rindex(b"PJF2")):
        refused(disk, at, "header is bad" if at < HEADER_BYTES else "is damaged")
    assert len(Journal(HERE, disk)) == 4


def test_a_flipped_bit_in_the_last_synced_frame_is_no_torn_write(disk: SimulatedDisk) -> None:
    """The empty frame after it says that it was durable."""
    journal = filled(disk)
    journal.sync()
    disk.kill()
    path = live_segment(disk)
    proof = disk.read(path).rindex(b"PJF2")
    for at in range(HEADER_BYTES, proof):
        refused(disk, at, "is damaged")
    for at in range(proof, disk.size(path)):  # the proof itself was never promised
        disk.corrupt(path, at)
        assert content(Journal(HERE, disk)) == content(journal)
        disk.corrupt(path, at)


@pytest.mark.parametrize("room", [0, 1, 30, 80])
def test_a_full_disk_loses_nothing_and_is_tried_again(room: int) -> None:
    disk = FaultyDisk(Random(room))
    journal = filled(disk)
    before = content(journal)
    disk.room = room
    journal.setCurrentTerm(5, "c")
    journal.add(REGULAR + bytes(100), 5, 5)
    for _ in range(3):
        with pytest.raises(DiskFull, match="free some space"):
            journal.sync()
    disk.room = None
    if room % 2:
        disk.power_cut()  # nothing was promised: as if it had not been tried
        assert content(Journal(HERE, disk)) == before
        return
    journal.sync()
    disk.power_cut()
    assert content(Journal(HERE, disk)) == content(journal)


def test_a_full_disk_during_a_rewrite_leaves_the_old_segment() -> None:
    disk = FaultyDisk(Random(3))
    journal = filled(disk, entries=10)
    journal.deleteEntriesTo(4)
    disk.room = 60
    journal.sync()  # the old segment is whole: the log continues in it
    assert not journal.moving
    journal.add(REGULAR + bytes(60), 12, 4)
    with pytest.raises(DiskFull):
        journal.sync()
    disk.room = None
    journal.sync()
    disk.power_cut()
    after = Journal(HERE, disk)
    assert (after.first, after.last) == (1, 12)
    journal.deleteEntriesTo(1)
    journal.sync()
    assert not journal.moving
    disk.power_cut()
    after = Journal(HERE, disk)
    assert (after.first, after.last) == (6, 12)


@pytest.fixture
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journals, "SLICE_BYTES", 300)
    monkeypatch.setattr(journals, "FRAME_TARGET", 200)


@pytest.mark.usefixtures("small_slices")
def test_the_log_goes_on_while_it_moves_to_a_new_segment(disk: SimulatedDisk) -> None:
    journal = filled(disk, entries=250)
    old = live_segment(disk)
    journal.deleteEntriesTo(10)
    steps = 0
    while True:
        journal.sync()
        steps += 1
        if not journal.moving:
            break
        assert live_segment(disk) == old
        if steps < 8:
            journal.add(REGULAR + bytes([steps]) * 40, journal.last + 1, 4)
        elif steps == 8:
            journal.deleteEntriesFrom(len(journal) - 2)
        elif steps == 9:
            journal.setCurrentTerm(9, "b")
    assert steps > 10
    assert live_segment(disk) != old
    assert content(Journal(HERE, disk)) == content(journal)
    journal.add(REGULAR + b"behind", journal.last + 1, 9)
    journal.sync()
    journal.sync()
    disk.power_cut()
    assert content(Journal(HERE, disk)) == content(journal)


@pytest.mark.usefixtures("small_slices")
def test_a_power_cut_at_any_moment_of_a_move_loses_nothing() -> None:
    moved = set()
    for at in range(1, 90):
        disk = SimulatedDisk(Random(at))
        journal = filled(disk, entries=30)
        (old,) = segments_in(disk, HERE)
        journal.deleteEntriesTo(5)
        durable = content(journal)[0]
        disk.crash_after(at)
        try:
            for n in range(12):
                journal.add(REGULAR + bytes([n]) * 30, journal.last + 1, 4)
                journal.sync()
                durable = content(journal)[0]
        except PowerOff:
            pass
        disk.power_cut()
        moved.add(segments_in(disk, HERE)[-1] != old)
        assert set(content(Journal(HERE, disk))[0]).issuperset(durable), at
    assert moved == {True, False}


def test_damage_in_the_sealed_part_is_never_taken_for_a_torn_frame(disk: SimulatedDisk) -> None:
    filled(disk)
    Journal(HERE, disk).sync()  # a new segment, all of it sealed
    disk.kill()
    path = live_segment(disk)
    refused(disk, disk.size(path) - 1, "is damaged")
    disk.truncate(path, disk.size(path) - 1)
    with pytest.raises(RaftStopped, match="were sealed"):
        Journal(HERE, disk)


def test_a_start_makes_durable_what_a_killed_process_did_not_sync() -> None:
    for seed in range(50):
        disk = SimulatedDisk(Random(seed))
        journal = filled(disk)
        journal.add(REGULAR + b"written", 5, 4)
        disk.crash_after(2)
        with pytest.raises(PowerOff):
            journal.sync()
        disk.kill()
        successor = Journal(HERE, disk)
        successor.sync()
        believed = content(successor)
        disk.power_cut()
        assert content(Journal(HERE, disk)) == believed


def test_cut_from_and_cut_before(disk: SimulatedDisk) -> None:
    journal = filled(disk, entries=10)
    journal.deleteEntriesFrom(8)
    journal.add(REGULAR + b"other", 9, 5)
    journal.sync()
    disk.power_cut()
    journal = Journal(HERE, disk)
    assert [journal[n][1:] for n in range(len(journal))] == [(1, 0), *((i, 4) for i in range(2, 9)), (9, 5)]
    journal.cut_before(7, margin=0)
    journal.sync()
    disk.power_cut()
    journal = Journal(HERE, disk)
    assert (journal.first, journal.last, journal.term_at(9)) == (7, 9, 5)
    assert journal.command_bytes == sum(len(command) for command, _, _ in journal[:])


def test_the_margin_keeps_entries_for_followers_slightly_behind(disk: SimulatedDisk) -> None:
    journal = filled(disk, entries=10)
    size = len(journal.entry_at(6)[0])
    journal.cut_before(7, margin=2 * size)
    assert journal.first == 5


def test_crash_at_any_operation_of_a_rewrite() -> None:
    """Old or new segment: the log is the same, regardless of the remains of a power cut."""
    for operation in range(1, 12):
        for seed in range(10):
            disk = SimulatedDisk(Random(seed))
            journal = filled(disk, entries=10)
            journal.deleteEntriesTo(4)
            disk.crash_after(operation)
            with contextlib.suppress(PowerOff):
                journal.sync()
            disk.power_cut()
            after = Journal(HERE, disk)
            assert after.first in (1, 5)
            assert (after.last, after.getCurrentTerm(), after.getVotedForNodeId()) == (11, 4, "b")


def test_align(disk: SimulatedDisk) -> None:
    journal = filled(disk, entries=5)
    journal.align(4, 4)
    assert (journal.first, journal.last) == (1, 6)
    journal.align(4, 9)  # another history than the snapshot's
    assert (journal.first, journal.last, journal.getCurrentTerm()) == (4, 4, 4)
    journal.align(20, 9)
    assert (journal.first, journal.last, journal.term_at(20)) == (20, 20, 9)
    with pytest.raises(RaftStopped, match="are missing"):
        journal.align(3, 1)


def test_entries_must_follow_each_other(disk: SimulatedDisk) -> None:
    journal = filled(disk)
    with pytest.raises(RaftStopped, match="does not follow"):
        journal.add(REGULAR, 9, 4)


@settings(max_examples=80, deadline=None)
@given(data=st.data())
def test_a_journal_read_back_is_the_one_written(data: st.DataObject) -> None:
    """Any sequence of changes, power cuts after any sync: content equals a plain list's."""
    disk = SimulatedDisk(Random(data.draw(st.integers(0, 1000))))
    memory = data.draw(st.sampled_from((0, 60, 1 << 20)))
    journal = Journal(HERE, disk, memory)
    journal.add(NO_OP, 1, 0)
    journal.sync()
    model: list[Entry] = [(NO_OP, 1, 0)]
    for step in data.draw(st.lists(st.sampled_from(("add", "from", "to", "term", "sync", "restart")), max_size=25)):
        if step == "add":
            entry = (REGULAR + data.draw(st.binary(max_size=40)), model[-1][1] + 1, 3)
            journal.add(*entry)
            model.append(entry)
        elif step == "from" and len(model) > 1:
            position = data.draw(st.integers(1, len(model) - 1))
            journal.deleteEntriesFrom(position)
            del model[position:]
        elif step == "to" and len(model) > 1:
            position = data.draw(st.integers(0, len(model) - 1))
            journal.deleteEntriesTo(position)
            del model[:position]
        elif step == "term":
            journal.setCurrentTerm(journal.getCurrentTerm() + 1, data.draw(st.sampled_from((None, "a", "ünï"))))
        elif step in ("sync", "restart"):
            journal.sync()
            if step == "restart":
                term = journal.getCurrentTerm(), journal.getVotedForNodeId()
                disk.power_cut()
                journal = Journal(HERE, disk, memory)
                journal.sync()
                assert (journal.getCurrentTerm(), journal.getVotedForNodeId()) == term
        assert journal[:] == model
        assert journal.command_bytes == sum(len(e[0]) for e in model)


def test_entries_that_are_read_again_are_checked(disk: SimulatedDisk) -> None:
    journal = Journal(HERE, disk, memory=0)
    journal.add(NO_OP, 1, 0)
    model = [(REGULAR + b"command %d" % index, index, 4) for index in range(2, 5)]
    for entry in model:
        journal.add(*entry)
        journal.sync()
    path = HERE / disk.names(HERE)[-1]
    disk.corrupt(path, disk.read(path).index(b"command 3"))
    assert [journal.entry_at(index) for index in (2, 4)] == [model[0], model[2]]
    with pytest.raises(RaftStopped, match="entry 3 of the log, at byte"):
        journal.entry_at(3)


def test_commands_in_memory_are_few_whatever_the_log(disk: SimulatedDisk) -> None:
    journal = Journal(HERE, disk, memory=1000)
    journal.add(NO_OP, 1, 0)
    model = [(NO_OP, 1, 0)]
    for index in range(2, 200):
        model.append((REGULAR + b"%040d" % index, index, 4))
        journal.add(*model[-1])
        if index % 7 == 0:
            journal.sync()
        if index == 100:
            journal.cut_before(50, margin=0)
            del model[:49]
        assert sum(map(len, journal._log._commands)) <= 2000 + 7 * 50
    journal.sync()
    assert journal[:] == model


def test_a_rotten_empty_frame_takes_nothing_with_it(disk: SimulatedDisk) -> None:
    """It says that the frame before it was durable, and was not synced itself: the frame after it is no proof."""
    journal = filled(disk)
    journal.sync()  # with nothing to write: the empty frame
    path = HERE / disk.names(HERE)[-1]
    disk.corrupt(path, disk.size(path) - 5)
    journal.add(REGULAR + b"acknowledged", journal.last + 1, 4)
    journal.sync()
    believed = content(journal)
    disk.power_cut()
    assert content(Journal(HERE, disk)) == believed

"""Snapshots: written in slices, replaced at once, sent in pieces, damaged."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from photon.idregistry.raft import snapshot
from photon.idregistry.raft.api import Frozen
from photon.idregistry.raft.codec import Chunk
from photon.idregistry.raft.options import SNAPSHOT_CHUNK_BYTES_MAX, DiskFull, RaftStopped
from photon.idregistry.raft.snapshot import SnapshotInfo, SnapshotStore
from tests.simulation.world.disk import PowerOff, SimulatedDisk
from tests.simulation.world.faulty_disk import FaultyDisk

HERE = Path("/raft/group")
STATE = [b"first", b"", b"second" * 100, b"third"]


def disk_of(seed: int) -> SimulatedDisk:
    disk = SimulatedDisk(Random(seed))
    disk.make_dir(HERE)
    return disk


@pytest.fixture
def disk() -> SimulatedDisk:
    return disk_of(3)


def write(store: SnapshotStore, index: int, chunks: list[bytes]) -> int:
    store.begin(index, 2, chunks)
    steps = 1
    while not store.step():
        steps += 1
    return steps


@pytest.mark.parametrize(("state", "slices"), [(STATE, 2), ([], 1)], ids=["some", "empty"])
def test_written_and_read_back_after_a_power_cut(
    disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch, state: list[bytes], slices: int
) -> None:
    monkeypatch.setattr(snapshot, "SNAPSHOT_SLICE_BYTES", 300)
    store = SnapshotStore(HERE, disk)
    assert store.info is None
    assert write(store, 7, state) >= slices
    disk.power_cut()
    store = SnapshotStore(HERE, disk)
    assert store.info == SnapshotInfo(7, 2, disk.size(HERE / "snapshot"))
    assert list(store.chunks()) == state


@pytest.mark.parametrize("operation", range(1, 14))
def test_a_crash_leaves_the_old_or_the_new_one(operation: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "SNAPSHOT_SLICE_BYTES", 300)
    for seed in range(10):
        disk = disk_of(seed)
        write(SnapshotStore(HERE, disk), 7, STATE)
        disk.crash_after(operation)
        with contextlib.suppress(PowerOff):
            write(SnapshotStore(HERE, disk), 9, [*STATE, b"more"])
        disk.power_cut()
        store = SnapshotStore(HERE, disk)
        assert list(store.chunks()) == {7: STATE, 9: [*STATE, b"more"]}[store.info.index]


def test_every_flipped_bit_is_found(disk: SimulatedDisk) -> None:
    opened = SnapshotStore(HERE, disk)
    write(opened, 7, STATE)
    path = HERE / "snapshot"

    def damaged() -> None:
        with pytest.raises(RaftStopped, match="is damaged"):
            list(SnapshotStore(HERE, disk).chunks())

    for at in range(disk.size(path)):
        disk.corrupt(path, at)
        damaged()
        disk.corrupt(path, at)
    assert opened.damage() == ""
    whole = disk.read(path)
    for size in range(len(whole)):
        disk.truncate(path, size)
        damaged()
        disk.truncate(path, 0)
        disk.append(path).write(whole)
    disk.corrupt(path, 60)
    assert "is damaged" in opened.damage()


def test_a_chunk_too_large_is_refused(disk: SimulatedDisk) -> None:
    store = SnapshotStore(HERE, disk)
    store.begin(1, 1, [bytes(SNAPSHOT_CHUNK_BYTES_MAX + 1)])
    with pytest.raises(RaftStopped, match="at most"):
        store.step()


def test_frozen_chunks_are_drawn_as_they_are_written(disk: SimulatedDisk) -> None:
    drawn = []

    def chunks() -> Iterator[bytes]:
        for n in range(5):
            drawn.append(n)
            yield bytes([n]) * SNAPSHOT_CHUNK_BYTES_MAX

    store = SnapshotStore(HERE, disk)
    store.begin(7, 2, Frozen(chunks(), threading.Lock()))
    assert drawn == []
    steps = 1
    while not store.step():
        assert drawn == list(range(steps))
        steps += 1
    assert [chunk[0] for chunk in store.chunks()] == drawn == list(range(5))


def install(store: SnapshotStore) -> SnapshotInfo | None:
    """As a group does; ``None`` means damaged."""
    try:
        for _ in store.incoming_chunks():
            pass
    except RaftStopped:
        store.give_up_incoming()
        return None
    return store.put_incoming()


def send(source: SnapshotStore, target: SnapshotStore, offset: int, *, sender: str = "a", term: int = 5) -> int:
    info = source.info
    return target.receive(sender, Chunk(term, info.index, info.term, offset, info.size, source.read(offset)))


def test_pieces_in_any_order_and_number(disk: SimulatedDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot, "TRANSFER_BYTES", 100)
    source = SnapshotStore(HERE, disk)
    write(source, 7, STATE)
    size = source.info.size
    there = disk_of(4)
    target = SnapshotStore(HERE, there)
    assert send(source, target, 100) == 0  # not the first: it asks for that
    assert send(source, target, 0) == 100
    assert send(source, target, 0) == 100  # doubled
    assert send(source, target, 300) == 100  # a hole
    assert send(source, target, 100) == 200
    assert send(source, target, 200, sender="b") == 0  # another leader's may have other bytes
    assert send(source, target, 0, sender="b", term=6) == 100
    offset = 100
    while offset < size:
        offset = send(source, target, offset, sender="b", term=6)
    assert install(target) == SnapshotInfo(7, 2, size)
    there.power_cut()
    assert list(SnapshotStore(HERE, there).chunks()) == STATE


def test_a_received_snapshot_is_checked_before_it_replaces_anything(disk: SimulatedDisk) -> None:
    source = SnapshotStore(HERE, disk)
    write(source, 7, STATE)
    info = source.info
    assert info is not None
    bad = bytearray(source.read(0))
    bad[-20] ^= 1
    there = disk_of(4)
    target = SnapshotStore(HERE, there)
    write(target, 3, [b"old"])
    assert target.receive("a", Chunk(5, 7, 2, 0, info.size, bytes(bad))) == info.size
    assert install(target) is None
    assert list(SnapshotStore(HERE, there).chunks()) == [b"old"]
    assert send(source, target, 0) == info.size  # it may begin again
    assert install(target) == info


def test_a_full_disk_gives_the_new_snapshot_up_and_keeps_the_old() -> None:
    disk = FaultyDisk(Random(2))
    disk.make_dir(HERE)
    store = SnapshotStore(HERE, disk)
    write(store, 3, [b"old"])
    disk.room = 100
    with pytest.raises(DiskFull, match="free some space"):
        write(store, 7, STATE)
    assert not store.writing
    assert not disk.exists(HERE / "snapshot.tmp")  # it takes no room
    disk.room = None
    assert list(store.chunks()) == [b"old"]
    write(store, 7, STATE)
    assert list(store.chunks()) == STATE

"""Files of a slot on this machine, compared with the registry; and requirements on a copy of its output."""

from __future__ import annotations

import gzip
from pathlib import Path

import msgspec
import pytest
import xxhash

from photon.config.disk import RealDisk
from photon.config.settings import Pipeline, Settings
from photon.idregistry.witness import KnownSlot, WitnessLog
from photon.joiner.slot.lock import SlotLock
from photon.operations.slots import sealing
from photon.operations.slots.inventory import has_slot, rows_of, witness_rows

DISK = RealDisk()
LINES = b'{"a":1}\n{"b":2}\n'
FILE = "joined/east-1-000001.jsonl"


def settings() -> Settings:
    pipeline = Pipeline(
        join="clicks", primary="p", foreign="f", output="out", state="state", address="h:1",
        joiners=3,
    )  # fmt: skip
    return Settings(datacentre={"east": pipeline})


def registered(name: str, *, witnessed: int = 0, retired: bool = False) -> KnownSlot:
    witness = (WitnessLog(1, witnessed, xxhash.xxh3_128(LINES[:witnessed]).digest()),) if witnessed else ()
    return KnownSlot(name, "east", "host:1", 7, 3, retired, witness)


def directory(base: Path, name: str = "east-1", *, published: int = len(LINES), cleared: int = 8) -> Path:
    state = base / "state" / "slots" / name
    (state / "redo").mkdir(parents=True)
    (state / "verifier").mkdir()
    (state / "slot.json").write_text("{}")
    (state / "redo" / "00000001.redo").write_bytes(bytes(100))
    files = {"version": 1, "slot": name, "files": {FILE: published}, "rolled": []}
    (state / "durable.json").write_bytes(msgspec.json.encode(files))
    (state / "verifier" / "cleared.json").write_bytes(msgspec.json.encode({"version": 1, "files": {FILE: cleared}}))
    return state


def test_rows_join_the_registry_with_the_disk(tmp_path: Path) -> None:
    state = directory(tmp_path)
    directory(tmp_path, "old-1")
    known = [registered("east-1"), registered("gone-1", retired=True)]
    rows = {row.name: row for row in rows_of(settings(), tmp_path, DISK, known)}
    assert sorted(rows) == ["east-1", "east-2", "east-3", "gone-1", "old-1"]
    found = rows["east-1"].disk
    assert found is not None
    assert (found.directory, found.held, found.redo_bytes) == (state, False, 100)
    assert (found.published, found.cleared) == (16, 8)
    assert rows["east-1"].configured
    assert rows["gone-1"].disk is None
    assert rows["old-1"].registry is None  # a directory that this registry never opened
    assert not rows["old-1"].configured
    assert rows["east-3"].disk is None  # configured, and never started
    lock = SlotLock(state)
    lock.take()
    held = {row.name: row for row in rows_of(settings(), tmp_path, DISK, known)}["east-1"].disk
    lock.release()
    assert held is not None
    assert held.held


def test_a_directory_that_cannot_be_read_says_why(tmp_path: Path) -> None:
    state = directory(tmp_path)
    (state / "durable.json").write_text("nonsense")
    (row,) = [row for row in rows_of(settings(), tmp_path, DISK, [registered("east-1")]) if row.name == "east-1"]
    assert row.disk is not None
    assert "durable.json: unreadable" in row.disk.unreadable
    assert witness_rows(DISK, row) == []


@pytest.mark.parametrize(("witnessed", "lacking"), [(16, False), (8, False), (17, True)])
def test_an_older_directory_lacks_what_the_witness_has(tmp_path: Path, witnessed: int, lacking: bool) -> None:
    directory(tmp_path)
    rows = {row.name: row for row in rows_of(settings(), tmp_path, DISK, [registered("east-1", witnessed=witnessed)])}
    (found,) = witness_rows(DISK, rows["east-1"])
    assert (found.kind, found.number, found.witnessed, found.published) == ("joined", 1, witnessed, 16)
    assert found.lacking == lacking


def test_what_retiring_writes_is_no_slot(tmp_path: Path) -> None:
    state = tmp_path / "slots" / "east-1"
    sealing.begin(DISK, state, "east-1", None, already=False)
    sealing.publish(DISK, state, "east-1", None, tmp_path / "out")
    assert not has_slot(DISK, state)
    assert has_slot(DISK, directory(tmp_path))


def saved(path: Path, data: bytes, name: str = FILE) -> Path:
    (path / "joined").mkdir(parents=True, exist_ok=True)
    (path / name).write_bytes(data)
    return path


def test_a_copy_is_measured_against_the_witness(tmp_path: Path) -> None:
    copy = sealing.find_copy(saved(tmp_path, LINES[:8] + b"torn"), "east-1")
    sealing.measure(DISK, copy, registered("east-1", witnessed=16).witness)
    assert copy.lengths == {FILE: 8}
    assert copy.lacking == {FILE: 8}
    other = sealing.find_copy(saved(tmp_path, b'{"x":9}\n{"y":8}\n'), "east-1")
    with pytest.raises(sealing.CopyRefused, match="not a copy of this slot"):
        sealing.measure(DISK, other, registered("east-1", witnessed=16).witness)


@pytest.mark.parametrize("block_bytes", [4 << 20, 150, 7])
@pytest.mark.parametrize(("there", "kept"), [(1, 0), (2, 0), (3, 3)])
def test_a_copy_ends_behind_an_event_with_all_its_pairs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block_bytes: int, there: int, kept: int
) -> None:
    monkeypatch.setattr(sealing, "BLOCK_BYTES", block_bytes)
    pair = b'{"event_id":"e","pair":%d,"pairs":3,"token":"0000000000000001"}\n'
    pairs = [pair % number for number in (1, 2, 3)]
    copy = sealing.find_copy(saved(tmp_path, LINES + b"".join(pairs[:there]) + b"torn"), "east-1")
    sealing.measure(DISK, copy, ())
    assert copy.lengths == {FILE: len(LINES) + sum(map(len, pairs[:kept]))}


def test_a_final_file_counts_by_what_is_in_it_and_a_plain_one_beside_it_wins(tmp_path: Path) -> None:
    root = saved(tmp_path, gzip.compress(LINES), f"{FILE}.gz")
    saved(tmp_path, LINES, "joined/east-1-000002.jsonl")
    saved(tmp_path, gzip.compress(b"half"), "joined/east-1-000002.jsonl.gz")
    saved(tmp_path, LINES, "joined/east-11-000001.jsonl")
    copy = sealing.find_copy(root, "east-1")
    sealing.measure(DISK, copy, ())
    assert copy.lengths == {FILE: 16, "joined/east-1-000002.jsonl": 16}
    assert [file.compressed for file in copy.files] == [True, False]
    (tmp_path / f"{FILE}.gz").write_bytes(gzip.compress(LINES)[:-6])
    with pytest.raises(sealing.CopyRefused, match="cannot be unpacked"):
        sealing.measure(DISK, sealing.find_copy(root, "east-1"), ())


def test_a_directory_without_the_slots_files_is_no_copy(tmp_path: Path) -> None:
    with pytest.raises(sealing.CopyRefused, match="has no output files of slot east-1"):
        sealing.find_copy(tmp_path, "east-1")

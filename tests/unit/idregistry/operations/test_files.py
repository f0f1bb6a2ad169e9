"""Exports, column files, backups and seeded directories: complete, or refused with one line that says why."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import pytest

from photon.config.disk import RealDisk
from photon.idregistry import registry_pb2 as pb
from photon.idregistry.client.export_stream import ExportFailed, ExportReader, Summer, end, head, part
from photon.idregistry.core import commands as c
from photon.idregistry.core.config_machine import ConfigMachine
from photon.idregistry.core.sharding import single_range
from photon.idregistry.core.state_machine import ShardMachine
from photon.idregistry.operate import seeding
from photon.idregistry.operate.backup import (
    BackupDamaged,
    BackupRefused,
    Source,
    check_backup,
    read_manifest,
    restore_replica,
    write_backup,
)
from photon.idregistry.operate.backup_ids import IdsPart, plan_ids, read_part
from photon.idregistry.operate.fingerprints import differences, fingerprint
from photon.idregistry.operate.seeding import GroupSeed, Member, SeedRefused, check_free, seed_directory
from photon.idregistry.raft.identity import Identity
from photon.idregistry.raft.options import RaftOptions, RaftStopped
from tests.unit.idregistry.model import Row, digest, reopen, time_of
from tests.unit.idregistry.raft.cluster import host_of, running, wait_until
from tests.unit.idregistry.shard import Shard

DISK = RealDisk()


def filled(ids: int = 40) -> Shard:
    """Owned, cleared and reopened ids, in several time buckets."""
    shard = Shard()
    shard.insert(*(Row(i, incarnation=1 + i % 2, batch=i, kind=1 + i % 4) for i in range(ids)))
    shard.clear(*(Row(i, incarnation=1 + i % 2, batch=i) for i in range(0, ids, 3)))
    shard.do(reopen([Row(1, incarnation=2, batch=1)]))
    return shard


def parts(chunks: Iterable[bytes], applied: int = 9, group: int = 1) -> list[pb.ExportPart]:
    summer = Summer()
    made = [head("r1", group)]
    for chunk in chunks:
        summer.add(chunk)
        made.append(part(chunk))
    return [*made, end(summer, applied)]


def test_an_export_arrives_whole() -> None:
    chunks = list(filled().machine.snapshot())
    reader = ExportReader(parts(chunks), "here")
    assert reader.facts is None
    assert list(reader) == chunks
    assert (reader.facts.chunks, reader.facts.size, reader.facts.applied) == (len(chunks), sum(map(len, chunks)), 9)


def _flipped(made: list[pb.ExportPart]) -> list[pb.ExportPart]:
    data = bytearray(made[1].chunk.data)
    data[5] ^= 1
    made[1].chunk.data = bytes(data)
    return made


def _newer(made: list[pb.ExportPart]) -> list[pb.ExportPart]:
    made[0].head.version = 9
    return made


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        pytest.param(lambda made: made[:-1], "cut short", id="cut"),
        pytest.param(lambda made: made[:2] + made[3:], "checksum", id="one lost"),
        pytest.param(_flipped, "chunk 0 is damaged", id="flipped"),
        pytest.param(lambda made: made[:2] + made[1:], "checksum", id="one doubled"),
        pytest.param(lambda made: made[1:], "not an export", id="headless"),
        pytest.param(_newer, "version 9", id="newer"),
        pytest.param(lambda made: made + made[1:2], "continues unexpectedly", id="continues"),
    ],
)
def test_a_damaged_export_is_noticed(damage: Callable[[list[pb.ExportPart]], list[pb.ExportPart]], said: str) -> None:
    with pytest.raises(ExportFailed, match=said) as caught:
        list(ExportReader(damage(parts(filled().machine.snapshot())), "here"))
    assert "\n" not in str(caught.value)


def test_a_refused_export_says_why() -> None:
    with pytest.raises(ExportFailed, match="here: r1 has no group 7"):
        list(ExportReader([head("r1", 7, pb.STATUS_REFUSED, "r1 has no group 7")], "here"))


# -- backups --------------------------------------------------------------------------------------------------------
def config(shards: int = 1) -> ConfigMachine:
    machine = ConfigMachine()
    machine.apply(1, c.encode(c.SetUp(single_range(shards), {"clicks": b"rule"})))
    machine.apply(2, c.encode(c.OpenSlot("a", "dc1", 0, b"nonce")))
    return machine


def source(group: int, chunks: Iterable[bytes], index: int = 50) -> Source:
    reader = ExportReader(parts(chunks, index, group), f"group {group}")
    return Source(GroupSeed(group, index, 3, reader), lambda: reader.facts)


def written(directory: Path, shards: int = 1) -> Path:
    sources = [source(1, filled().machine.snapshot()), source(0, config(shards).snapshot(), 7)]
    write_backup(DISK, directory, iter(sources), photon="1", made_at="now", members=["r1"])
    return directory


def test_a_backup_is_written_and_read(tmp_path: Path) -> None:
    backup = written(tmp_path / "b")
    manifest = read_manifest(DISK, backup)
    assert [(each.group, each.index, each.term) for each in manifest.groups] == [(0, 7, 3), (1, 50, 3)]
    assert [(each.group, each.ids, each.slots) for each in check_backup(DISK, backup)] == [(0, 0, 0), (1, 40, 2)]
    assert os.listdir(tmp_path) == ["b"]
    with pytest.raises(BackupRefused, match="already exists"):
        written(backup)


def test_a_backup_that_does_not_come_about_leaves_nothing(tmp_path: Path) -> None:
    cut = parts(filled().machine.snapshot())[:-1]
    reader = ExportReader(cut, "group 1")
    broken = Source(GroupSeed(1, 50, 3, reader), lambda: reader.facts)
    with pytest.raises(ExportFailed):
        write_backup(DISK, tmp_path / "b", iter([broken]), photon="1", made_at="now", members=["r1"])
    with pytest.raises(BackupDamaged, match="another config"):
        written(tmp_path / "b", shards=2)
    another = Source(GroupSeed(1, 51, 3, source(1, filled().machine.snapshot()).seed.chunks), lambda: None)
    with pytest.raises(BackupRefused, match="not of entry 51"):
        write_backup(DISK, tmp_path / "b", iter([another]), photon="1", made_at="now", members=["r1"])
    assert os.listdir(tmp_path) == []


def test_any_damage_to_a_backup_is_noticed(tmp_path: Path) -> None:
    backup = written(tmp_path / "b")
    for name in ("manifest.json", "group-00000/snapshot", "group-00001/snapshot"):
        file = backup / name
        good = file.read_bytes()
        for at in range(0, len(good), max(len(good) // 40, 1)):
            file.write_bytes(good[:at] + bytes([good[at] ^ 0x04]) + good[at + 1 :])
            with pytest.raises(BackupDamaged) as caught:
                check_backup(DISK, backup)
            assert "\n" not in str(caught.value)
        file.write_bytes(good[:-1])
        if name != "manifest.json":  # there it is a newline
            with pytest.raises(BackupDamaged):
                check_backup(DISK, backup)
        file.unlink()
        with pytest.raises(BackupDamaged):
            check_backup(DISK, backup)
        file.write_bytes(good)
    assert len(check_backup(DISK, backup)) == 2


# -- directories ----------------------------------------------------------------------------------------------------
def test_a_restored_replica_starts_closed_with_everything(tmp_path: Path) -> None:
    backup = written(tmp_path / "b")
    place = tmp_path / "data" / "r1"
    member = Member("r1", ["r1"], 4)
    restore_replica(DISK, backup, read_manifest(DISK, backup), place, member, os.urandom)
    with pytest.raises(SeedRefused, match="is not empty"):
        restore_replica(DISK, backup, read_manifest(DISK, backup), place, member, os.urandom)
    shard, group0 = ShardMachine(), ConfigMachine()
    with running(host_of("r1", place, {0: group0, 1: shard}, options=RaftOptions(epoch=4))) as host:
        assert shard.ids == 40
        assert shard.closed
        assert group0.witnessed("a").newest == 1
        wait_until(lambda: host.group(1).state().is_leader)
        assert host.group(1).state().applied >= 50


def test_a_directory_whose_states_break_off_is_not_there(tmp_path: Path) -> None:
    def broken() -> Iterable[bytes]:
        yield b"chunk"
        raise OSError("gone")

    with pytest.raises(OSError, match="gone"):
        seed_directory(DISK, tmp_path / "r", Member("r", ["r"], 1), [GroupSeed(1, 5, 1, broken())], os.urandom)
    assert os.listdir(tmp_path) == []


def test_a_mount_point_is_filled_in_place_and_what_a_cut_short_call_left_is_made_again(tmp_path: Path) -> None:
    """It cannot be renamed, and nothing can be written next to it. Without its file ``replica`` no replica starts
    there."""
    place = tmp_path / "registry"
    place.mkdir()
    seeded = os.stat(place).st_ino

    def cut_short(name: str) -> None:
        with pytest.MonkeyPatch.context() as patch:

            def rename(disk: RealDisk, old: Path, new: Path) -> None:
                if new.name == name and new.parent == place:
                    patch.setattr(seeding, "_clear", lambda _: None)  # kill -9 leaves all as it is
                    raise KeyboardInterrupt
                RealDisk.rename(disk, old, new)

            disk = type("Cut", (RealDisk,), {"rename": rename})()
            with pytest.raises(KeyboardInterrupt):
                seed_directory(disk, place, Member("r", ["r"], 1), seeds(), os.urandom)

    def seeds() -> list[GroupSeed]:
        return [GroupSeed(number, 5, 1, filled().machine.snapshot()) for number in (0, 1)]

    for name in ("group-00000", "group-00001", "replica"):
        cut_short(name)
        with pytest.raises(RaftStopped):  # otherwise it would begin with nothing, and vote
            Identity(disk=DISK, directory=place, name="r", members=["r"], epoch=1, groups=(), entropy=os.urandom)
        assert not (place / "replica").exists()
        check_free(place)
    seed_directory(DISK, place, Member("r", ["r"], 1), seeds(), os.urandom)
    assert sorted(os.listdir(place)) == ["group-00000", "group-00001", "replica"]
    assert os.stat(place).st_ino == seeded
    (place / "replica").unlink()
    with pytest.raises(SeedRefused):
        check_free(place)
    assert os.listdir(tmp_path) == ["registry"]


# -- replicas against each other ------------------------------------------------------------------------------------
def test_replicas_that_hold_the_same_say_the_same_whatever_the_order() -> None:
    one, other = Shard(), Shard()
    one.insert(Row(1), Row(2), Row(40))
    other.insert(Row(40), Row(2), Row(1))
    one.reload()
    found = {
        name: fingerprint(1, ExportReader(parts(shard.machine.snapshot()), name))
        for name, shard in (("r1", one), ("r2", other), ("r3", other))
    }
    assert differences(1, found) == []
    other.clear(Row(2))
    other.index = one.index
    found["r3"] = fingerprint(1, ExportReader(parts(other.machine.snapshot()), "r3"))
    [said] = differences(1, found)
    assert "r3 has 3 ids" in said


Id = tuple[object, ...]


def rows_of(directory: Path, parts: list[IdsPart]) -> Counter[Id]:
    return Counter(row for part in parts for block in read_part(DISK, directory, part) for row in rows(block))


def rows(block: object) -> list[Id]:
    digests = np.frombuffer(block.digests, "S16").tolist()  # type: ignore[attr-defined]
    columns = [
        getattr(block, name).tolist() for name in ("times", "tokens", "tags", "generations", "kinds", "states")
    ]
    return list(zip(digests, *columns, strict=True))


def expected(i: int) -> Id:
    """See ``filled``."""
    state, generation = (3, 1) if i == 1 else (2, 0) if i % 3 == 0 else (1, 0)
    token = Row(i, incarnation=1 + i % 2, batch=i).token
    return digest(i).rstrip(b"\0"), time_of(i), token, i, generation, 1 + i % 4, state


@pytest.mark.parametrize(("chunk_rows", "part_bytes"), [(16_384, 1 << 20), (3, 1), (3, 200)])
def test_ids_stand_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk_rows: int, part_bytes: int) -> None:
    monkeypatch.setattr("photon.idregistry.core.shard_snapshot._ROWS_PER_CHUNK", chunk_rows)
    directory = written(tmp_path / "backup")
    parts = list(plan_ids(DISK, directory, read_manifest(DISK, directory), part_bytes))
    assert rows_of(directory, parts) == Counter(map(expected, range(40)))
    assert len(parts) >= 40 // chunk_rows if part_bytes == 1 else parts
    assert {part.shard for part in parts} == {1}


def test_a_damaged_chunk_is_noticed(tmp_path: Path) -> None:
    directory = written(tmp_path / "backup")
    parts = list(plan_ids(DISK, directory, read_manifest(DISK, directory), 1 << 20))
    file = directory / parts[0].file
    good = file.read_bytes()
    at = parts[0].chunks[0].chunk.offset + 8 + 100  # behind its frame
    file.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
    with pytest.raises(BackupDamaged, match=r"snapshot is damaged: the chunk at byte \d+ is bad"):
        rows_of(directory, parts)
    file.write_bytes(good[:-1])
    with pytest.raises(BackupDamaged, match="is not the file named by the manifest"):
        list(plan_ids(DISK, directory, read_manifest(DISK, directory), 1 << 20))

"""The ids of a backup in parts: together exactly those of the whole, wherever it is cut."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from photon.config.disk import RealDisk
from photon.idregistry.core.shard_snapshot import read_shard
from photon.idregistry.operate.backup import BackupDamaged, read_manifest
from photon.idregistry.operate.backup_ids import IdsPart, plan_ids, read_part
from photon.idregistry.operate.id_columns import blocks_of
from tests.unit.idregistry.operations.test_files import filled, written

DISK = RealDisk()
Id = tuple[object, ...]


def rows_of(directory: Path, parts: list[IdsPart]) -> Counter[Id]:
    return Counter(row for part in parts for block in read_part(DISK, directory, part) for row in rows(block))


def rows(block: object) -> list[Id]:
    digests = np.frombuffer(block.digests, "S16").tolist()  # type: ignore[attr-defined]
    columns = [
        getattr(block, name).tolist() for name in ("times", "tokens", "tags", "generations", "kinds", "states")
    ]
    return list(zip(digests, *columns, strict=True))


@pytest.mark.parametrize(("chunk_rows", "part_bytes"), [(16_384, 1 << 20), (3, 1), (3, 200)])
def test_ids_stand_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk_rows: int, part_bytes: int) -> None:
    monkeypatch.setattr("photon.idregistry.core.shard_snapshot._ROWS_PER_CHUNK", chunk_rows)
    directory = written(tmp_path / "backup")
    parts = list(plan_ids(DISK, directory, read_manifest(DISK, directory), part_bytes))
    whole = Counter(row for block in blocks_of(read_shard(filled().machine.snapshot()).table) for row in rows(block))
    assert rows_of(directory, parts) == whole
    assert sum(whole.values()) == 40
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
    with pytest.raises(BackupDamaged, match="is not the file that the manifest names"):
        list(plan_ids(DISK, directory, read_manifest(DISK, directory), 1 << 20))

"""Staged rows and what is found of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from photon.config.disk import RealDisk
from photon.idregistry.api import token_of
from photon.spark.pipeline.staging import StagingDamaged, read_ids, read_staged, stage, winner_bits, winners_in
from tests.unit.spark.pipeline.rows import Event, rows_of

DISK = RealDisk()
TOKEN = token_of(3, 8)


def events(count: int) -> list[Event]:
    return [Event(bytes([n, 0]) * 8, n) for n in range(count)]


def test_staged_rows_come_back(tmp_path: Path) -> None:
    rows, path = rows_of(events(5), TOKEN), tmp_path / "staged"
    stage(DISK, path, rows, TOKEN)
    again = read_staged(DISK, path)
    assert (again.digests, again.lines) == (rows.digests, rows.lines)
    assert again.tokens.tolist() == [TOKEN] * 5
    assert again.times.tolist() == rows.times.tolist()
    ids = read_ids(DISK, path)
    assert (ids.digests, ids.times.tolist(), ids.token) == (rows.digests, rows.times.tolist(), TOKEN)
    assert winners_in(winner_bits(5, np.array([0, 1, 4])), 5).tolist() == [0, 1, 4]


@pytest.mark.parametrize("at", [0, 8, 20, 60, -2])
def test_damage_of_staged_rows_is_noticed(tmp_path: Path, at: int) -> None:
    path = tmp_path / "staged"
    stage(DISK, path, rows_of(events(5), TOKEN), TOKEN)
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    with pytest.raises(StagingDamaged, match="restore it"):
        read_staged(DISK, path)
    path.write_bytes(data[:10])
    with pytest.raises(StagingDamaged):
        read_ids(DISK, path)

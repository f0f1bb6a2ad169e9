"""The embedded backend: the contract, crashes at every step of a commit, damage, memory-bounded merging."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from photon.adapters.logs.identity import log_name
from photon.config.disk import RealDisk
from photon.eventstore.embedded_file_map import EmbeddedFileMap
from photon.eventstore.file_map import FileMap, FileMapBusy, FileMapError, MapKind, MapSettings
from photon.eventstore.index import hash_keys, merge_slices, sorted_run
from tests.dying_disk import DyingDisk, Killed

from .file_map_contract import FileMapContract, places
from .helpers import block, open_map, open_or_rebuild


class TestEmbedded(FileMapContract):
    def open(
        self,
        directory: Path,
        kind: MapKind,
        window_micros: int = 1000,
        window_bytes: int = 100,
        timed: bool = False,
    ) -> FileMap:
        windows = {"window_micros": window_micros, "window_bytes": window_bytes}
        return open_map(directory / "map", kind, timed=timed, **windows)


def fill(file_map: FileMap, rounds: range) -> None:
    for number in rounds:
        keys = [b"%d-%d" % (number, i) for i in range(10)]
        starts = [number * 100 + 10 * i for i in range(10)]
        file_map.add(block(keys, starts, begin=number * 100, end=(number + 1) * 100))
        file_map.commit()


def test_a_crash_at_any_step_loses_nothing_that_is_not_read_again(tmp_path: Path) -> None:
    rounds = 10  # merges happen on the way
    step = 0
    finished = False
    while not finished:
        directory = tmp_path / f"crash-{step}"
        disk = DyingDisk(math.inf)
        file_map = EmbeddedFileMap(directory, MapSettings(b""), log_name, disk)
        disk.left = step
        try:
            fill(file_map, range(rounds))
            finished = True
        except Killed:
            pass
        file_map.close()
        again = open_map(directory, rule=b"")
        positions = again.positions()
        done = positions[0].offset // 100 if positions else 0
        fill(again, range(done, rounds))
        asked = [b"%d-%d" % (number, i) for number in range(rounds) for i in (0, 9)]
        expected = [[("a", n * 100 + 10 * i, 0, -1)] for n in range(rounds) for i in (0, 9)]
        assert places(again, *asked) == expected, f"crash at step {step}"
        assert again.totals(exact=True).events == 10 * rounds
        assert again.totals(exact=True).duplicates == 0
        assert not again.logs()[0].rewritten
        again.close()
        step += 3
    assert step > 100


def test_left_overs_of_a_crash_are_deleted(tmp_path: Path) -> None:
    file_map = open_map(tmp_path / "map")
    fill(file_map, range(1))
    file_map.close()
    (tmp_path / "map" / "run-0000000099.hashes").write_bytes(b"half")
    file_map = open_map(tmp_path / "map")
    assert not (tmp_path / "map" / "run-0000000099.hashes").exists()
    assert places(file_map, b"0-3") == [[("a", 30, 0, -1)]]
    file_map.close()


def _damage(name: str) -> Any:
    def damage(directory: Path) -> None:
        path = next(directory.glob(name))
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 0x10
        path.write_bytes(data)

    return damage


def _truncate(directory: Path) -> None:
    path = next(directory.glob("run-*.locations"))
    path.write_bytes(path.read_bytes()[:-1])


def _remove(directory: Path) -> None:
    next(directory.glob("run-*.hashes")).unlink()


def _no_database(directory: Path) -> None:
    for name in ("catalog.db-wal", "catalog.db-shm"):
        (directory / name).unlink(missing_ok=True)
    (directory / "catalog.db").write_bytes(b"this is no database" * 100)


@pytest.mark.parametrize(
    "damage", [_damage("run-*.hashes"), _damage("run-*.locations"), _truncate, _remove, _no_database]
)
def test_a_damaged_map_is_refused_and_made_anew_without_positions(tmp_path: Path, damage: Any) -> None:
    directory = tmp_path / "map"
    file_map = open_map(directory)
    fill(file_map, range(2))
    file_map.close()
    damage(directory)
    made = MapSettings(b"rule")
    with pytest.raises(FileMapError, match=r"run-|catalog\.db"):
        EmbeddedFileMap(directory, made, log_name, RealDisk())
    file_map, rebuilt = open_or_rebuild(directory, made)
    assert str(directory) in rebuilt
    assert file_map.positions() == []
    fill(file_map, range(2))
    assert places(file_map, b"1-1") == [[("a", 110, 0, -1)]]
    file_map.close()


def test_another_key_rule_makes_the_map_anew(tmp_path: Path) -> None:
    file_map = open_map(tmp_path, rule=b"one")
    fill(file_map, range(1))
    file_map.close()
    file_map, rebuilt = open_or_rebuild(tmp_path, MapSettings(b"two"))
    assert "another key rule" in rebuilt
    assert file_map.positions() == []
    file_map.close()


def test_one_process_at_a_time(tmp_path: Path) -> None:
    file_map = open_map(tmp_path)
    with pytest.raises(FileMapBusy, match="another event store"):
        open_or_rebuild(tmp_path, MapSettings(b"rule"))
    file_map.close()
    open_map(tmp_path).close()


@settings(deadline=None, max_examples=60)
@given(st.lists(st.lists(st.integers(0, 9) | st.integers(0, 2**64 - 1), max_size=50), max_size=5), st.integers(1, 9))
def test_merging_in_slices_is_merging(columns: list[list[int]], slice_entries: int) -> None:
    runs = [
        sorted_run(np.array(column, dtype=np.uint64), np.arange(len(column), dtype=np.uint64) + np.uint64(i << 32))
        for i, column in enumerate(columns)
    ]
    slices = list(merge_slices(runs, slice_entries))
    got = [(int(h), int(at)) for run in slices for h, at in zip(run.hashes, run.locations, strict=True)]
    assert [h for h, _ in got] == sorted(h for column in columns for h in column)
    assert sorted(got) == sorted((h, (i << 32) + k) for i, column in enumerate(columns) for k, h in enumerate(column))
    assert all(len(run) <= slice_entries + len(runs) for run in slices)


def test_look_ups_during_commits_miss_nothing(tmp_path: Path) -> None:
    """places() sees an added key at every moment, also while it moves from memory to disk."""
    import threading

    file_map = open_map(tmp_path)
    seed = random.randrange(2**32)
    print("seed", seed)
    rng = random.Random(seed)
    added: list[bytes] = []
    stop = threading.Event()
    missed: list[bytes] = []

    def ask() -> None:
        while not stop.is_set():
            if count := len(added):
                keys = [added[rng.randrange(count)] for _ in range(20)]
                found = file_map.places(keys, hash_keys(keys))
                missed.extend(keys[row] for row in set(range(20)) - set(found.rows.tolist()))

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        for number in range(60):
            keys = [b"%d-%d" % (number, i) for i in range(10)]
            file_map.add(
                block(keys, [number * 100 + i for i in range(10)], begin=number * 100, end=number * 100 + 100)
            )
            added.extend(keys)
            file_map.commit()
    finally:
        stop.set()
        thread.join()
    assert missed == []
    file_map.close()

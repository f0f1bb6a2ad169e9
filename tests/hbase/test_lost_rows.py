"""A region server that is killed: what it lost is noticed, taken back and written again; what it kept is kept."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from deploy.hbase.standalone import Standalone
from photon.eventstore.file_map import FileMapUnavailable, MapKind, RowsLost
from photon.eventstore.hbase_file_map import HBaseFileMap
from photon.eventstore.index import hash_keys
from tests.hbase.maps import TABLE, Maps, until
from tests.unit.eventstore.file_map_contract import event
from tests.unit.eventstore.helpers import block

BLOCK_BYTES = 1000
RECORDS = 10


def keys_of(number: int) -> list[bytes]:
    """Of a block: ids that rise, so that one that follows another is reached from it, and one that does not."""
    micros = number * 100_000
    return [*(event(micros + i) for i in range(RECORDS - 1)), b"plain-%d" % number]


def fill(file_map: HBaseFileMap, numbers: Sequence[int]) -> None:
    """One commit each."""
    for number in numbers:
        at = number * BLOCK_BYTES
        starts = [at + 10 * i for i in range(RECORDS)]
        file_map.add(block(keys_of(number), starts, begin=at, end=at + BLOCK_BYTES))
        until(file_map.commit, "commit")


def found(file_map: HBaseFileMap, numbers: Sequence[int]) -> list[bool]:
    """Whether each key of these blocks has a place; True where the map says that nothing is missing."""
    keys = [key for number in numbers for key in keys_of(number)]
    places = until(lambda: file_map.places(keys, hash_keys(keys)), "places")
    there = set(places.rows.tolist())
    return [row in there for row in range(len(keys))]


def complete(file_map: HBaseFileMap) -> bool:
    return until(lambda: file_map.places([b"k"], hash_keys([b"k"])), "places").complete


def positions(file_map: HBaseFileMap) -> list[int]:
    return [position.offset for position in file_map.positions()]


def flush(maps: Maps) -> None:
    """All regions are closed, which writes what they hold into files, and opened again."""
    hbase = maps.hbase()

    # An answer that does not come in time says nothing: the master goes on with what it was asked.
    def close(connection: Any) -> None:
        if connection.is_table_enabled(TABLE):
            connection.disable_table(TABLE)

    def open_again(connection: Any) -> None:
        if not connection.is_table_enabled(TABLE):
            connection.enable_table(TABLE)

    try:
        until(lambda: hbase.call(close, "disable"), "disable")
        until(lambda: hbase.call(open_again, "enable"), "enable")
    finally:
        hbase.close()


def test_what_a_killed_region_server_lost_is_taken_back_to_a_checkpoint(
    maps: Maps, hbase: Standalone, tmp_path: Path
) -> None:
    dense, sparse = (
        maps.open(tmp_path / kind, kind, lossy=True, checkpoint_seconds=0.0)
        for kind in (MapKind.DENSE, MapKind.SPARSE)
    )
    durable = maps.open(tmp_path / "durable")
    no_checkpoint = maps.open(tmp_path / "no-checkpoint", lossy=True)
    everyone = (dense, sparse, durable, no_checkpoint)
    for each in everyone:
        fill(each, range(4))
    flush(maps)
    for each in everyone:
        # other incarnations of the regions, nothing lost: only a look-up at that moment cannot be answered
        with pytest.raises(FileMapUnavailable):
            each.places([b"k"], hash_keys([b"k"]))
        until(each.tend, "tend")
        assert complete(each)
        fill(each, range(4, 8))
        assert all(found(each, range(8)))

    hbase.kill("master")
    hbase.start(("master",))

    until(durable.tend, "tend")
    assert complete(durable)
    assert all(found(durable, range(8)))
    assert positions(durable) == [8 * BLOCK_BYTES]
    for lossy, at in ((dense, 3), (sparse, 3), (no_checkpoint, 0)):
        with pytest.raises(RowsLost, match="logs are read again"):
            until(lossy.tend, "tend")
        # one checkpoint before the last that was kept
        assert positions(lossy) == ([at * BLOCK_BYTES] if at else [])
        assert not complete(lossy)
        assert all(found(lossy, range(at)))
        assert not any(found(lossy, range(5, 8)))
        fill(lossy, range(at, 8))
        assert not complete(lossy)
        lossy.all_read()
        assert complete(lossy)
        assert all(found(lossy, range(8)))
        totals = lossy.totals(exact=True)
        assert (totals.events, totals.duplicates) == (8 * RECORDS, 0)
        assert not lossy.logs()[0].rewritten
        until(lossy.tend, "tend")  # and nothing more was lost

    # What is known about losses survives the process: nothing is taken back twice.
    dense.close()
    again = maps.open(tmp_path / "dense", MapKind.DENSE)
    assert positions(again) == [8 * BLOCK_BYTES]
    assert complete(again)
    assert all(found(again, range(8)))


def test_rows_lost_while_nobody_looked_are_noticed_at_the_next_start(
    maps: Maps, hbase: Standalone, tmp_path: Path
) -> None:
    file_map = maps.open(tmp_path / "map", lossy=True)
    fill(file_map, range(2))
    file_map.close()
    hbase.kill("master")
    hbase.start(("master",))
    with pytest.raises(RowsLost, match="from their beginnings"):
        maps.open(tmp_path / "map", lossy=True)
    again = maps._open[-1]
    assert again.positions() == []
    assert not complete(again)


def test_a_commit_over_which_a_region_was_opened_anew_does_not_count(maps: Maps, tmp_path: Path) -> None:
    """Between its entries and its marks: they are written again, and the marks of the failed one prove nothing."""
    file_map = maps.open(tmp_path / "map", lossy=True)
    fill(file_map, range(1))
    write_marks = file_map._write_marks
    calls = []

    def between(*args: object) -> tuple[bytes, int]:
        calls.append(args)
        if len(calls) == 1:
            flush(maps)
        return write_marks(*args)  # type: ignore[arg-type]

    file_map._write_marks = between  # type: ignore[method-assign]
    before = file_map._catalog.present()
    file_map.add(block(keys_of(1), [1000 + 10 * i for i in range(RECORDS)], begin=1000, end=2000))
    with pytest.raises(FileMapUnavailable, match="written again"):
        file_map.commit()
    assert file_map._catalog.present() == before
    until(file_map.commit, "commit")
    assert len(calls) == 2
    assert file_map._catalog.present().mark != before.mark
    assert all(found(file_map, range(2)))

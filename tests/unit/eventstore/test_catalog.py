"""Catalogues say in one line why they cannot be used."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from photon.adapters.contract import LogFile
from photon.eventstore.catalog import Catalog
from photon.eventstore.file_map import FileMapError, MappedLog
from photon.eventstore.hbase.catalog import HBaseCatalog


def test_another_version_is_refused(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "catalog.db") as db:
        db.execute("PRAGMA user_version=1")
    db.close()
    with pytest.raises(FileMapError, match=r"catalog.db: version 1, this release reads version 3"):
        Catalog(tmp_path / "catalog.db", {})


def test_proofs_on_hbase_go_back_with_its_checkpoints(tmp_path: Path) -> None:
    catalog = HBaseCatalog(tmp_path / "hbase.db", {}, b"life")
    file = LogFile("a.log", b"head")
    old, new = (MappedLog(0, "ab", file, end, proof=proof) for end, proof in ((40, b"1"), (50, b"2")))
    for checkpoint, log_ in enumerate((old, new), 1):
        catalog.put_log(checkpoint, log_)
        catalog.commit(bytes([checkpoint]), 0, exact=False, closes=True)
        assert catalog.logs() == [log_]
    catalog.take_back(1)
    assert catalog.logs() == [old]
    catalog.close()


def log(number: int) -> MappedLog:
    return MappedLog(number, f"log {number}", LogFile("x" * 3000, b""), 1)


def _put(catalog: Catalog, logs: int) -> None:
    for number in range(1, logs):
        catalog.put_log(log(number))


def test_a_full_disk_while_it_is_written(tmp_path: Path) -> None:
    path = tmp_path / "catalog.db"
    catalog = Catalog(path, {})
    catalog.put_log(log(0))
    catalog.commit()
    (pages,) = catalog._db.execute("PRAGMA page_count").fetchone()
    catalog._db.execute(f"PRAGMA max_page_count={pages}")
    with pytest.raises(FileMapError) as told:
        _put(catalog, 100)
    assert str(told.value) == (
        f"{path}: cannot be written (database or disk is full); make room on the disk, then start again"
    )
    catalog.close()
    catalog = Catalog(path, {})
    assert catalog.logs() == [log(0)]
    catalog.close()


def test_a_damaged_one(tmp_path: Path) -> None:
    path = tmp_path / "catalog.db"
    catalog = Catalog(path, {})
    with pytest.raises(FileMapError, match="cannot be read"), catalog._lock:
        raise sqlite3.DatabaseError("database disk image is malformed")
    assert catalog.logs() == []  # the lock is free
    catalog.close()
    path.write_bytes(bytes(8192))
    with pytest.raises(FileMapError, match=r"catalog.db: cannot be read \(file is not a database\)"):
        Catalog(path, {})

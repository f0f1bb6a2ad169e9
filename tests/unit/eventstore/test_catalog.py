"""Catalogues: those of an earlier version are brought up in place, and what is wrong with one is said in one line."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from photon.adapters.contract import LogFile
from photon.eventstore import catalog as embedded
from photon.eventstore.catalog import Catalog
from photon.eventstore.file_map import FileMapError, MappedLog
from photon.eventstore.hbase import catalog as hbase
from photon.eventstore.hbase.catalog import HBaseCatalog

OLD = MappedLog(0, "ab", LogFile("a.log", b"head"), 40)
NEW = MappedLog(0, "ab", LogFile("a.log.1", b"head"), 50, proof=b"proof")


def test_the_embedded_one_keeps_its_logs_and_gains_proofs(tmp_path: Path) -> None:
    path = tmp_path / "catalog.db"
    with sqlite3.connect(path) as db:
        db.executescript(f"{embedded._SCHEMA} PRAGMA user_version=1;")
        db.execute("INSERT INTO logs VALUES (0, 'ab', 'a.log', ?, 40, 0)", (b"head",))
    db.close()
    catalog = Catalog(path, {})
    assert catalog.logs() == [OLD]
    catalog.put_log(NEW)
    catalog.commit()
    catalog.close()
    catalog = Catalog(path, {})
    assert catalog.logs() == [NEW]
    catalog.close()


def test_the_one_of_hbase_keeps_its_logs_and_gains_proofs_that_go_back_with_its_checkpoints(tmp_path: Path) -> None:
    path = tmp_path / "hbase.db"
    with sqlite3.connect(path) as db:
        db.executescript(f"{hbase._SCHEMA} PRAGMA user_version=1;")
        db.execute("INSERT INTO present VALUES (1, x'01', 2, x'02', 0, 0)")
        db.execute("INSERT INTO checkpoints VALUES (1, x'02')")
        db.execute("INSERT INTO logs VALUES (0, 'ab', 'a.log', ?)", (b"head",))
        db.execute("INSERT INTO reads VALUES (0, 1, 40, 0)")
    db.close()
    catalog = HBaseCatalog(path, {}, b"life")
    assert catalog.logs() == [OLD]
    catalog.put_log(2, NEW)
    catalog.commit(b"\3", 1, exact=False, closes=True)
    catalog.close()
    catalog = HBaseCatalog(path, {}, b"life")
    assert catalog.logs() == [NEW]
    catalog.take_back(1)
    assert [(log.end, log.proof) for log in catalog.logs()] == [(40, b"")]
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

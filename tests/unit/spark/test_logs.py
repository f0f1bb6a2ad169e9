"""Raw logs that a job reads."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import LogFile
from photon.adapters.logs import slices
from photon.adapters.logs.api import Block
from photon.adapters.logs.problems import Problem, ProblemKind
from photon.adapters.logs.slices import Reading
from photon.spark.logs import KeysSeen, LogNotRead, list_logs, primary_rows
from photon.spark.pipeline.listing import LogLister
from photon.spark.sources import LogSource
from tests.spark.small_deployment import FOREIGN, PRIMARY

ADAPTER = ConfiguredAdapter({"primary": PRIMARY, "foreign": FOREIGN, "where": "join.clicks"})


def test_a_log_that_may_not_be_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a.log", "b.log"):
        (tmp_path / name).write_bytes(b'{"query_id": "%s"}\n' % name.encode())
    source = LogSource(datacentre="west", directory=str(tmp_path))
    assert len(list_logs(ADAPTER, [source], pytest.fail, is_foreign=True)) == 2
    opened = slices.open_source

    def open_source(path: Path) -> object:
        if path.name == "b.log":
            raise PermissionError(13, "Permission denied", str(path))
        return opened(path)

    monkeypatch.setattr(slices, "open_source", open_source)
    with pytest.raises(
        LogNotRead, match=rf"^west: {tmp_path}/b\.log: cannot be read \(Permission denied\); make it "
    ):
        list_logs(ADAPTER, [source], print, is_foreign=True)


@pytest.mark.parametrize("damage", ["a byte", "zeros", "an end"])
def test_a_log_that_is_damaged_before_its_first_record_is_no_empty_one(tmp_path: Path, damage: str) -> None:
    packed = gzip.compress(b"".join(b'{"query_id": "q%d"}\n' % n for n in range(1000)))
    broken = {"a byte": packed[:12] + b"\xff\xff" + packed[14:], "zeros": bytes(len(packed)), "an end": packed[:5]}
    (tmp_path / "a.log.gz").write_bytes(packed)
    (tmp_path / "b.log.gz").write_bytes(broken[damage])
    with pytest.raises(LogNotRead, match=r"b\.log\.gz: .*; make it readable, or move it away"):
        list_logs(ADAPTER, [LogSource(datacentre="west", directory=str(tmp_path))], print, is_foreign=False)
    told: list[Problem] = []
    listing = LogLister(tmp_path, Reading(), told.append, lambda: 1)({})
    assert [log.path for log in listing.logs] == ["a.log.gz"]
    assert listing.doubt.startswith("b.log.gz: cannot be read (")
    assert [each.kind for each in told] == [ProblemKind.UNREADABLE], "a backfill ends with it"


def test_skipped_primary_records_are_no_rows() -> None:
    skip = [{"field": "kind", "differs": "query"}]
    adapter = ConfiguredAdapter({"primary": {**PRIMARY, "skip": skip}, "foreign": FOREIGN, "where": "join.clicks"})
    rows = [b'{"query_id":"q%d","kind":"%b"}' % (n, kind) for n, kind in enumerate([b"query", b"stats", b"query"])]
    file = LogFile("a.log")
    source = LogSource(datacentre="west", directory=".")
    for records, keys in ((rows, [b"q0", b"q2"]), ([*rows, b"bad"], [b"q0", b"q2"]), (rows[1:2], [])):
        data = b"\n".join([*records, b""])
        block = Block(identity="i", file=file, offset=100, data=data, end=100 + len(data))
        found = list(
            primary_rows(source, "a.log", block, adapter, ["key", "offset", "record", "header"], KeysSeen(None))
        )
        assert [key for batch in found for key in batch.column("key").to_pylist()] == keys
    assert found == []

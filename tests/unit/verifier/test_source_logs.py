"""Source records are found wherever their logs are now: rotated, compressed, moved aside by a copy."""

from __future__ import annotations

import gzip
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard

from photon.adapters.contract import Framing
from photon.verifier.comparison import SourceRecord
from photon.verifier.published_lines import RecordPlace
from photon.verifier.source_finder import Fits, SourceLogs
from tests.unit.verifier.logs import foreign_record, log_of, offset_of, side


def one_by_one(fits: Callable[[int, SourceRecord], bool]) -> Fits:
    return lambda rows, sources: [fits(*each) for each in zip(rows, sources, strict=True)]


def found(logs: SourceLogs, name: str, records: list[bytes], numbers: list[int]) -> list[bytes | None]:
    """Data at the places from which these records were read."""
    places = [RecordPlace(name, offset_of(records, n)) for n in numbers]
    seen = logs.find(places, one_by_one(lambda row, source: source.record == records[numbers[row]]))
    return [None if each is None else each.record for each in seen]


def rotate(directory: Path, how: str) -> None:
    current = directory / "clicks.log"
    if how == "rename":
        current.rename(directory / "clicks.log.1")
    elif how == "gz":
        with gzip.open(directory / "clicks.log.2.gz", "wb") as file:
            file.write(current.read_bytes())
        current.unlink()
    elif how == "zst":
        (directory / "clicks.log-20261121.zst").write_bytes(zstandard.compress(current.read_bytes()))
        current.unlink()
    elif how == "copytruncate":
        shutil.copyfile(current, directory / "clicks.log.1")
        os.truncate(current, 0)


@pytest.mark.parametrize("how", ["rename", "gz", "zst", "copytruncate"])
def test_a_log_keeps_its_identity(tmp_path: Path, how: str) -> None:
    old, young = [foreign_record(n) for n in range(50)], [foreign_record(n) for n in range(100, 160)]
    current = tmp_path / "clicks.log"
    current.write_bytes(log_of(old))
    logs = SourceLogs(side(tmp_path))
    assert found(logs, "clicks.log", old, [3, 49, 0]) == [old[3], old[49], old[0]]  # and the file stays open
    rotate(tmp_path, how)
    with open(current, "ab") as file:
        file.write(log_of(young))
    assert found(logs, "clicks.log", old, [7, 30, 1]) == [old[7], old[30], old[1]]
    assert found(logs, "clicks.log", young, [59, 2]) == [young[59], young[2]]
    assert found(logs, "clicks.log", old + young, [0, 55, 49]) == [old[0], None, old[49]]  # 55 was nowhere so far
    assert sorted(map(len, logs.names().values())) == [2]
    logs.close()


def test_what_is_gone_is_not_found(tmp_path: Path) -> None:
    records = [foreign_record(n) for n in range(5)]
    (tmp_path / "clicks.log").write_bytes(log_of(records))
    logs = SourceLogs(side(tmp_path))
    assert found(logs, "clicks.log", records, [4]) == [records[4]]
    (tmp_path / "clicks.log").unlink()
    logs.close()  # it was open
    assert found(logs, "clicks.log", records, [4]) == [None]
    assert logs.names() == {}
    logs.close()


def test_what_was_moved_is_found(tmp_path: Path) -> None:
    records = [foreign_record(n) for n in range(5)]
    (tmp_path / "archive").mkdir()
    (tmp_path / "archive" / "clicks-of-friday.log").write_bytes(log_of(records))
    logs = SourceLogs(side(tmp_path))
    assert found(logs, "clicks.log", records, [4]) == [records[4]]
    logs.close()


def test_places_that_are_no_record_s_begin_or_behind_the_end(tmp_path: Path) -> None:
    records = [foreign_record(n) for n in range(5)]
    (tmp_path / "clicks.log").write_bytes(log_of(records))
    logs = SourceLogs(side(tmp_path))
    whole = set(records)
    places = [
        RecordPlace("clicks.log", 3),
        RecordPlace("clicks.log", 10**9),
        RecordPlace("clicks.log", len(log_of(records))),
    ]
    assert logs.find(places, one_by_one(lambda row, source: source.record in whole)) == [None, None, None]
    logs.close()


def test_the_last_line_may_have_no_line_end(tmp_path: Path) -> None:
    records = [foreign_record(n) for n in range(5)]
    (tmp_path / "clicks.log").write_bytes(log_of(records).removesuffix(b"\n"))
    logs = SourceLogs(side(tmp_path))
    assert found(logs, "clicks.log", records, [4, 0]) == [records[4], records[0]]
    logs.close()


def test_headers_and_records_over_several_lines(tmp_path: Path) -> None:
    header, first, second = b"id,q,text", b'c1,q1,"two\nlines"', b"c2,q2,plain"
    (tmp_path / "clicks.csv").write_bytes(b"\r\n".join([header, first, second]) + b"\r\n")
    logs = SourceLogs(replace(side(tmp_path), framing=Framing("quoted"), has_header=True))
    seen: list[SourceRecord] = []

    def fits(row: int, source: SourceRecord) -> bool:
        seen.append(source)
        return True

    at = [len(header) + 2, len(header) + 2 + len(first) + 2]
    logs.find([RecordPlace("clicks.csv", offset) for offset in at], one_by_one(fits))
    assert [each.file.header for each in seen] == [header, header]
    assert [each.record.count(b"c2") for each in seen] == [0, 1]
    assert seen[0].record.endswith(b'lines"')
    logs.close()


def test_logs_of_many_hours_are_not_tried_one_after_the_other(tmp_path: Path) -> None:
    """All of them have one log name; the one named by the line is examined first, though it was compressed."""
    hours = [[foreign_record(100 * hour + n) for n in range(5)] for hour in range(24)]
    for hour, records in enumerate(hours):
        with gzip.open(tmp_path / f"clicks.log-20261121-{hour:02}.gz", "wb") as file:
            file.write(log_of(records))
    logs = SourceLogs(side(tmp_path))
    looked_at = 0

    def fits(row: int, source: SourceRecord) -> bool:
        nonlocal looked_at
        looked_at += 1
        return source.record == hours[row][4]

    places = [RecordPlace(f"clicks.log-20261121-{hour:02}", offset_of(hours[hour], 4)) for hour in range(24)]
    seen = logs.find(places, one_by_one(fits))
    assert [each.record for each in seen if each is not None] == [records[4] for records in hours]
    assert looked_at == len(places)
    assert len(logs.names()) == 1
    logs.close()

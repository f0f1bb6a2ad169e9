"""Answers that are no function of a record's bytes stop their reader, before any of its ids is sent."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from photon.adapters.computed_twice import EVERY, rows_due
from photon.adapters.contract import Adapter, AdapterError, BadRecord, ForeignHeader, Headers, LogFile
from photon.adapters.loader import load_adapter
from photon.adapters.testkit.first_records import FirstRecords
from photon.eventstore.block_keys import block_keys
from photon.joiner.foreign_columns import headers_of

FILE = LogFile("a.log")
RECORDS = [b"%d" % n for n in range(2500)]


class Plain(Adapter):
    def foreign_header(self, record: bytes, file: LogFile) -> ForeignHeader:
        if record == b"bad":
            raise BadRecord("no")
        return ForeignHeader(record, 7, record)

    def primary_key(self, record: bytes, file: LogFile) -> bytes:
        return record

    def foreign_payload(self, record: bytes, file: LogFile) -> bytes | None:
        return record

    primary_payload = foreign_payload


class Counting(Plain):
    """Its ids count calls."""

    calls = 0

    def foreign_header(self, record: bytes, file: LogFile) -> ForeignHeader:
        self.calls += 1
        return ForeignHeader(record, 7, b"%d" % self.calls)

    def primary_key(self, record: bytes, file: LogFile) -> bytes:
        self.calls += 1
        return b"%d" % self.calls


class Columns(Plain):
    """Its columns have a different time for one record."""

    wrong = 0

    def header_columns(self, records: Sequence[bytes], file: LogFile) -> Headers:
        return Headers(records, [8 if record == b"%d" % self.wrong else 7 for record in records], records, {})


def test_one_record_in_a_thousand_is_due_in_blocks_of_any_size() -> None:
    adapter, at, due = Plain({}), 0, []
    for count in (1, 1, 998, 3, 0, 4000, 1):
        due += [at + row for row in rows_due(adapter, "foreign", count)]
        at += count
    assert due == list(range(0, at, EVERY))
    assert list(rows_due(adapter, "primary", 5)) == [0]


def test_right_answers_and_rejections_pass() -> None:
    headers = headers_of([b"bad", *RECORDS], FILE, Plain({}))
    assert list(headers.others) == [0]
    assert block_keys(Plain({}), b"a\nb\n", FILE).bad == 0


def test_ids_and_keys_that_differ_when_asked_again_are_refused() -> None:
    with pytest.raises(AdapterError, match=r"Counting: foreign_header gave ForeignHeader\(.*event_id=b'1'\) for a"):
        headers_of(RECORDS[:3], FILE, Counting({}))
    with pytest.raises(AdapterError, match=r"primary_keys gave b'1' for a record of a.log, and b'4' when asked for"):
        block_keys(Counting({}), b"a\nb\nc\n", FILE)


@pytest.mark.parametrize(("wrong", "found"), [(0, True), (2000, True), (2001, False)])
def test_forms_that_differ_are_refused_where_they_are_compared(wrong: int, found: bool) -> None:
    adapter = Columns({})
    adapter.wrong = wrong
    if not found:
        assert headers_of(RECORDS, FILE, adapter).times[wrong] == 8
        return
    with pytest.raises(AdapterError, match=r"event_time_ns=8.* and ForeignHeader\(.*event_time_ns=7"):
        headers_of(RECORDS, FILE, adapter)


@pytest.mark.parametrize("made", ["os.getpid()", "hash(record)"])
def test_another_process_is_asked_for_the_first_records(tmp_path: Path, made: str) -> None:
    for name, value in (("same", "1"), ("other", made)):
        (tmp_path / f"{name}.py").write_text(
            "import os\n"
            "from photon.adapters.contract import Adapter, ForeignHeader\n"
            "class Mine(Adapter):\n"
            "    def foreign_header(self, record, file):\n"
            f"        return ForeignHeader(record, 7, b'%d' % ({value}))\n"
            "    def primary_key(self, record, file):\n"
            "        return record\n"
            "    def foreign_payload(self, record, file):\n"
            "        return str(os.getpid()).encode()  # no id hangs on it\n"
            "    primary_payload = foreign_payload\n"
        )
    records = list(enumerate(RECORDS[:30]))
    FirstRecords(load_adapter("same.py:Mine", {}, tmp_path), records, FILE).compare()
    first = FirstRecords(load_adapter("other.py:Mine", {}, tmp_path), records, FILE)
    with pytest.raises(AdapterError, match=r"Mine: foreign_header.event_id is b'.*' here and b'.*' in another"):
        first.compare()

"""Unmatched events among the joined records, as the verification on Spark sees them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import orjson
import pytest

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import BadRecord, LogFile
from photon.adapters.envelope import Envelope
from photon.batch.events import Events, ForeignEvent
from photon.spark.classes import Class
from photon.spark.output_lines import NoRecord, read_output_line
from photon.spark.verify.classify import JOINED, REJECTED, UNMATCHED, KnownOfId, Line, Record, classify
from photon.spark.verify.fresh import FreshJoin
from photon.spark.verify.narrow_rows import hash64

SIDES = {
    "primary": {"format": "jsonl", "key": "k"},
    "foreign": {"format": "csv", "columns": ["i", "k", "t"], "key": "k", "time": {"field": "t", "unit": "s"}},
}
CSV = b"e,k,5"
AS_JSON = b'{"i":"e","k":"k","t":"5"}'


class Unwilling(ConfiguredAdapter):
    def unmatched_payload(self, record: bytes, file: LogFile) -> bytes | None:
        raise BadRecord("cannot be")


def row() -> dict[str, Any]:
    return {"record": CSV, "log": "c.log", "header": b"", "unreadable": None, "p_record": None, "primaries": None}


def inline(reason: str = "why") -> bytes:
    event = ForeignEvent(b"e", bytes(16), 5, b"k", CSV, LogFile("c.log"), 0, 0)
    (line,) = Envelope().undone(Events.of([event]), [reason], token=7, at_ns=0, inline={0: AS_JSON})
    return line[:-1]


def test_a_line_of_joined_has_no_primary_where_it_says_why() -> None:
    said = read_output_line(inline(), "joined")
    assert (said.foreign, said.primary, said.primary_source, said.reason) == (AS_JSON, None, None, "why")
    members = orjson.loads(inline())
    for wrong in ({"reason": None}, {"primary": 1}, {"foreign": None}, {"key": None}):
        left = {name: value for name, value in (members | wrong).items() if value is not None or name == "primary"}
        with pytest.raises(NoRecord):
            read_output_line(orjson.dumps(left), "joined")


@pytest.mark.parametrize("now", [True, False])
def test_what_the_setting_says_is_expected_and_what_it_said_before_is_right_too(now: bool) -> None:
    adapter = ConfiguredAdapter(SIDES)
    adapter.unmatched_inline = now
    fresh = FreshJoin(adapter)
    expected = fresh.settled(row(), fresh.expected(row()))
    both = hash64(AS_JSON), hash64(CSV)
    assert expected.kind == UNMATCHED
    assert (expected.record, expected.foreign) == (both if now else both[::-1])
    line = Line("east", "c.log", 0, 5, b"k", UNMATCHED, expected.foreign, expected.record, None, None, None)
    record = Record(
        "east", UNMATCHED, "joined/s-000001.jsonl", 0, "7", 5, b"k", both[0], None, "c.log", 0, None, None
    )
    for written, found in ((both[0], Class.CORRECT), (both[1], Class.CORRECT), (17, Class.WRONGLY_JOINED)):
        (only,) = classify(KnownOfId([line], [replace(record, foreign=written)], registry=False))
        assert only.kind is found
    (only,) = classify(KnownOfId([replace(line, kind=JOINED)], [record], registry=False))
    assert only.kind is Class.PRIMARY_EXISTS


def test_one_whose_payload_cannot_be_had_is_to_be_rejected_only_where_it_is_written() -> None:
    adapter = Unwilling(SIDES)
    fresh = FreshJoin(adapter)
    assert fresh.settled(row(), fresh.expected(row())) == fresh.expected(row())
    adapter.unmatched_inline = True
    settled = fresh.settled(row(), fresh.expected(row()))
    assert (settled.kind, settled.record) == (REJECTED, hash64(CSV))

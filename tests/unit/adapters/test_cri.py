"""Records of container logs: the format reads their contents, and the event's time is the runtime's."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import BadRecord, ForeignHeader, Framing, Joined, LogFile, Pairs
from photon.adapters.side import side_from_table

FILE = LogFile("0.log")
AT, AT_NS = b"2024-03-01T10:00:00.931087621Z stdout ", 1_709_287_200_931_087_621
NOT_CRI = "is not a line of a CRI log, <time> <stdout|stderr> <P|F> <content>"
PRIMARY: dict[str, Any] = {"format": "jsonl", "key": "k"}
SIDES: dict[str, tuple[dict[str, Any], bytes, bytes]] = {  # a record, and one without an id
    "jsonl": ({"format": "jsonl"}, b'{"k":"k1","i":"i1","t":5}', b'{"k":"k1","t":5}'),
    "zeek-json": ({"format": "zeek-json"}, b'{"k":"k1","i":"i1","t":5}', b'{"k":"k1","t":5}'),
    "csv": ({"format": "csv", "columns": ["k", "i", "t"]}, b"k1,i1,5", b"k1,,5"),
    "tsv": ({"format": "tsv", "columns": ["k", "i", "t"]}, b"k1\ti1\t5", b"k1\t\t5"),
    "logfmt": ({"format": "logfmt"}, b"k=k1 i=i1 t=5", b"k=k1 t=5"),
    "regex": ({"format": "regex", "pattern": "(?P<k>.+) (?P<i>.*) (?P<t>.+)"}, b"k1 i1 5", b"k1  5"),
}


def adapter(side: dict[str, Any], **more: Any) -> ConfiguredAdapter:
    both = {**side, "key": "k", "framing": "cri"}
    return ConfiguredAdapter({"primary": both, "foreign": {**both, "id": "i", **more}, "where": "join.x"})


@pytest.mark.parametrize("name", SIDES)
def test_time_of_the_line_and_everything_else_of_the_content(name: str) -> None:
    side, content, without_id = SIDES[name]
    it = adapter(side)
    assert it.foreign_framing == it.primary_framing == Framing("cri")
    assert (it.foreign_framing.splittable, it.foreign_framing.forward) == (False, True)
    header = ForeignHeader(b"k1", AT_NS, b"i1")
    assert it.foreign_header(AT + content, FILE) == header
    found = it.header_columns(
        [AT + content, content, AT + without_id, AT.replace(b"-03-", b"-13-") + content], FILE
    ).rows()
    assert found[:2] == [header, BadRecord(NOT_CRI)]
    assert isinstance(found[2], BadRecord)
    assert found[2].reason.startswith("id ")
    assert found[3] == BadRecord("the line's time = '2024-13-01T10:00:00.931087621Z' is not a date")
    with pytest.raises(BadRecord, match="is not a line of a CRI log"):
        it.foreign_header(content, FILE)


@pytest.mark.parametrize("name", SIDES)
def test_a_field_may_be_the_time(name: str) -> None:
    side, content, _ = SIDES[name]
    it = adapter(side, time={"field": "t", "unit": "s"})
    assert it.header_columns([AT + content, content], FILE).rows() == [
        ForeignHeader(b"k1", 5_000_000_000, b"i1"), BadRecord(NOT_CRI),
    ]  # fmt: skip
    assert it.header_columns([AT + content], FILE).rows() == [ForeignHeader(b"k1", 5_000_000_000, b"i1")]


@pytest.mark.parametrize("name", SIDES)
def test_primary_records_and_payloads_are_the_content_alone(name: str) -> None:
    side, content, _ = SIDES[name]
    it = adapter(side)
    record = AT + content
    assert it.primary_key(record, FILE) == b"k1"
    assert it.primary_keys(record + b"\r\n" + record + b"\n", FILE) == [b"k1", b"k1"]
    assert it.primary_keys(record + b"\n\n" + content + b"\n" + record + b"\n", FILE) == [b"k1", None, None, b"k1"]
    assert it.primary_keys(b"", FILE) == []
    assert it.primary_keys_of([record, content], FILE) == [b"k1", None]
    joined = it.join(record, FILE, record, FILE)
    assert isinstance(joined, Joined)
    assert joined.foreign == joined.primary
    assert joined.foreign is not None
    assert orjson.loads(joined.foreign) in ({"k": "k1", "i": "i1", "t": 5}, {"k": "k1", "i": "i1", "t": "5"})
    rows = it.join_columns(Pairs([record, content], [FILE] * 2, [record] * 2, [FILE] * 2)).rows()
    assert rows == [joined, BadRecord(NOT_CRI)]
    assert it.shown_record(record, FILE) == record


def test_times_of_primary_records() -> None:
    framed = {**PRIMARY, "framing": "cri"}
    foreign = {**PRIMARY, "framing": "cri"}
    records = [AT + b'{"k":1,"t":7}', b"{}", AT.replace(b"T10", b"T25") + b"{}"]
    it = ConfiguredAdapter({"primary": {**framed, "time": "line"}, "foreign": foreign})
    assert it.has_primary_time
    assert it.primary_times(records, FILE) == [
        AT_NS,
        BadRecord(NOT_CRI),
        BadRecord("the line's time = '2024-03-01T25:00:00.931087621Z' is not a time of day"),
    ]
    named = {**framed, "time": {"field": "t", "unit": "s"}}
    it = ConfiguredAdapter({"primary": named, "foreign": foreign})
    assert it.primary_times(records[:2], FILE) == [7_000_000_000, BadRecord(NOT_CRI)]
    assert not ConfiguredAdapter({"primary": framed, "foreign": foreign}).has_primary_time


def test_keys_of_several_fields_and_events_without_an_id() -> None:
    side = {"format": "jsonl", "framing": "cri", "key": ["a", {"field": "b", "as": "number"}]}
    it = ConfiguredAdapter({"primary": side, "foreign": side})
    record = b'2024-03-01T12:00:00+02:00 stderr {"a":"x","b":"07"}'
    assert it.foreign_header(record, FILE) == ForeignHeader(b"x|7", AT_NS // 10**9 * 10**9, None)
    assert it.primary_keys(record + b"\n", FILE) == [b"x|7"]
    found = it.header_columns([AT + b'{"a":"x","b":"y"}'], FILE).rows()
    assert found == [BadRecord("key field 'b' is 'y', not a number")]


def test_where_a_pattern_stops_counts_from_the_lines_begin() -> None:
    it = adapter({"format": "regex", "pattern": "(?P<k>[a-z]+)=(?P<i>[0-9]+)"})
    stop = it.stops_at("foreign", AT + b"abc=x")
    assert stop is not None
    assert (stop.at, stop.wanted) == (len(AT) + 4, "(?P<i>[0-9]+)")
    assert it.stops_at("foreign", b"abc=x") is None


def test_the_lines_time_is_the_default_of_the_foreign_side() -> None:
    table = {"format": "jsonl", "key": "k", "framing": "cri"}
    assert side_from_table(table, "x", foreign=True).time == "line"
    assert side_from_table({**table, "format": "zeek-json"}, "x", foreign=True).time == "line"
    assert side_from_table(table, "x", foreign=False).time is None

"""JSON Lines: keys, times, and the text spliced into the output."""

from __future__ import annotations

import orjson
import pytest

from photon.adapters.contract import BadRecord, ForeignHeader, LogFile
from photon.adapters.formats.json_lines import JsonLinesSide
from photon.adapters.times import Iso8601Time, NumberTime
from tests.unit.refusals import one_line

FILE = LogFile("a.log")
SIDE = JsonLinesSide("k", "id", "ts", NumberTime("s"))


def key(record: bytes, name: str = "k") -> bytes:
    return JsonLinesSide(name).key(record, FILE)


@pytest.mark.parametrize(
    ("record", "expected"),
    [
        (b'{"k":"abc"}', b"abc"),
        (b' {"k" : "abc"} ', b"abc"),
        (b'{"k":12}', b"12"),
        (b'{"k":-12}', b"-12"),
        (b'{"k":-0}', b"0"),
        (b'{"k":18446744073709551615}', b"18446744073709551615"),
        (b'{"k":340282366920938463463374607431768211455}', b"340282366920938463463374607431768211455"),
        (b'{"k":"a","k":"b"}', b"b"),
        (b'{"\\u006b":"x"}', b"x"),
        (b'{"k":"\\u00e9\\n\\"q"}', 'é\n"q'.encode()),
        ('{"k":"日本"}'.encode(), "日本".encode()),
        (b'{"o":"\xff","k":"abc"}', b"abc"),
        (b'{"k":"\xe9t\xe9"}', b"\xe9t\xe9"),
        (b'{"k":7,"o":"\xff"}', b"7"),
    ],
)
def test_keys(record: bytes, expected: bytes) -> None:
    assert key(record) == expected


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (b"", "empty"),
        (b"  ", "empty"),
        (b"{", "not JSON"),
        (b'{"k":"a"', "not JSON"),
        (b'{"k":NaN,"o":"\xff"}', "not JSON"),
        (b'{"k":"\xff"', "not JSON"),
        (b'{"o":"\xff\\udcff","k":"a"}', "surrogates"),
        (b'{"k":"\\ud800"}', "not JSON"),
        (b'["k"]', "an array"),
        (b'"k"', "text"),
        (b'{"x":1}', "'k' is missing"),
        (b'{"k":""}', "is empty"),
        (b'{"k":1.5}', "a number"),
        (b'{"k":1e3}', "a number"),
        (b'{"k":true}', "a boolean"),
        (b'{"k":null}', "null"),
        (b'{"k":{"k":"a"}}', "an object"),
        (b'{"k":["a"]}', "an array"),
        (b'{"a":{"k":"a"}}', "missing"),
        (b"[" * 100_000 + b'"\xff"', "too deeply"),
    ],
)
def test_what_is_no_key(record: bytes, reason: str) -> None:
    with pytest.raises(BadRecord) as caught:
        key(record)
    assert reason in caught.value.reason
    assert "\n" not in caught.value.reason
    assert len(caught.value.reason) < 300


def test_field_paths() -> None:
    assert key(b'{"a":{"b":{"c":"x"}}}', "a.b.c") == b"x"
    assert key(b'{"a":{"b":"nested"},"a.b":"literal"}', "a.b") == b"literal"
    assert key(b'{"a":{"b":123456789012345678901234567890}}', "a.b") == b"123456789012345678901234567890"
    for record in (b'{"a":"x"}', b'{"a":{"c":1}}', b'{"a":null}'):
        with pytest.raises(BadRecord, match="missing"):
            key(record, "a.b")


@pytest.mark.parametrize(
    ("value", "ns"),
    [
        (b"1588206048.592985", 1_588_206_048_592_985_000),
        (b"1588206048.592985123", 1_588_206_048_592_985_123),
        (b"1588206048.123456789012", 1_588_206_048_123_456_789),
        (b"1588206048", 1_588_206_048_000_000_000),
        (b"1.5882e9", 1_588_200_000_000_000_000),
        (b'"1588206048.592985123"', 1_588_206_048_592_985_123),
    ],
)
def test_times_are_read_from_the_records_text(value: bytes, ns: int) -> None:
    record = b'{"k":"a","id":"i","ts":%b}' % value
    assert SIDE.header(record, FILE) == ForeignHeader(b"a", ns, b"i")
    assert SIDE.header(record.replace(b":", b" : "), FILE).event_time_ns == ns
    # The same when the field's name is in the record twice, escaped, or next to bytes that are not UTF-8.
    others = (b'{"o":{"ts":1.25},', b'{"ts":1.25,', b'{"o":"ts",', b'{"o":"\xff",', b'{"o":"\\u0074\\u0073",')
    for other in others:
        assert SIDE.header(other + record[1:], FILE).event_time_ns == ns
    assert SIDE.header(record.replace(b'"ts"', b'"\\u0074s"'), FILE).event_time_ns == ns


def test_nested_times() -> None:
    side = JsonLinesSide("k", None, "event.ts", NumberTime("ms"))
    assert side.header(b'{"k":"a","event":{"ts":1.000001}}', FILE) == ForeignHeader(b"a", 1_000_001)
    assert side.header(b'{"k":"a","event.ts":2}', FILE) == ForeignHeader(b"a", 2_000_000)


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (b'{"k":"a","id":"i"}', "'ts' is missing"),
        (b'{"k":"a","id":"i","ts":null}', "null, not a number or text"),
        (b'{"k":"a","id":"i","ts":true}', "a boolean"),
        (b'{"k":"a","id":"i","ts":"noon"}', "'noon' is not a number of s"),
        (b'{"k":"a","id":"i","ts":1e300}', "out of range"),
        (b'{"k":"a","id":"i","ts":99999999999}', "out of the range"),
        (b'{"k":"a","ts":1}', "id field 'id' is missing"),
        (b'{"id":"a","ts":1}', "key field 'k' is missing"),
    ],
)
def test_what_is_no_header(record: bytes, reason: str) -> None:
    with one_line(BadRecord, reason):
        SIDE.header(record, FILE)


def test_text_times_refuse_numbers() -> None:
    side = JsonLinesSide("k", None, "ts", Iso8601Time())
    assert side.header(b'{"k":"a","ts":"1970-01-01T00:00:01Z"}', FILE).event_time_ns == 10**9
    with pytest.raises(BadRecord, match="a number, not text"):
        side.header(b'{"k":"a","ts":1}', FILE)


def test_many_headers_are_one_by_one_headers() -> None:
    records = [b'{"k":"a","id":"i","ts":1}', b"{", b'{"k":5,"id":"j","ts":2.5}']
    good, bad, other = SIDE.headers(records, FILE).rows()
    assert (good, other) == (SIDE.header(records[0], FILE), SIDE.header(records[2], FILE))
    assert isinstance(bad, BadRecord)


def test_payloads_are_the_records_own_bytes() -> None:
    record = b'  {"k": "a",  "n": 1.50, "u":"\\u00e9"}\t'
    assert SIDE.payload(record, FILE) == record.strip()
    assert SIDE.payload(b'{"k":"a\xff"}', FILE) is None
    folded = SIDE.payload(b'{"k":\r"a"}', FILE)
    assert folded is not None
    assert b"\r" not in folded
    assert orjson.loads(folded) == {"k": "a"}
    with pytest.raises(BadRecord):
        SIDE.payload(b'{"k":"a\xff"', FILE)
    with pytest.raises(BadRecord):
        SIDE.payload(b'{"k"', FILE)

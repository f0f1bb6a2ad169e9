"""Zeek's TSV: header lines, unset and empty fields, escapes, types, and the cut that equals the parser."""

from __future__ import annotations

from base64 import b64decode
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import BadRecord, ForeignHeader, Framing, LogFile
from photon.adapters.formats.base import SideReader
from photon.adapters.formats.zeek import ZeekSide, unescaped
from photon.adapters.times import ZeekTime
from tests.unit.refusals import one_line

HEADER = (
    b"#separator \\x09\n#set_separator\t,\n#empty_field\t(empty)\n#unset_field\t-\n"
    b"#fields\tts\tuid\tid.orig_p\tquery\tanswers\tTTLs\tAA\ttags\n"
    b"#types\ttime\tstring\tport\tstring\tvector[string]\tvector[interval]\tbool\tset[count]"
)
FILE = LogFile("dns.log", HEADER)
LINE = b"1588205198.899709\tCvf4XX17\t53\texample.org\ta,-,b\\x2cc\t60.000000,5.5\tT\t(empty)"


def payload_of(line: bytes, side: ZeekSide, file: LogFile = FILE) -> dict[str, Any]:
    payload = side.payload(line, file)
    assert payload is not None
    assert b"\n" not in payload
    fields: dict[str, Any] = orjson.loads(payload)
    return fields


def test_a_record() -> None:
    side = ZeekSide("uid", None, "ts", ZeekTime())
    assert side.header(LINE, FILE) == ForeignHeader(b"Cvf4XX17", 1_588_205_198_899_709_000)
    assert (side.payload(LINE, FILE) or b"").startswith(b'{"ts":1588205198.899709,"uid":"Cvf4XX17","id.orig_p":53,')
    assert payload_of(LINE, side) == {
        "ts": 1588205198.899709, "uid": "Cvf4XX17", "id.orig_p": 53, "query": "example.org",
        "answers": ["a", None, "b,c"], "TTLs": [60.0, 5.5], "AA": True, "tags": [],
    }  # fmt: skip


def test_unset_is_absent_and_empty_is_empty() -> None:
    side = ZeekSide("uid", None, "ts", ZeekTime())
    expected = {"ts": 1.5, "uid": "u", "query": "", "answers": [], "tags": [1, 2]}
    assert payload_of(b"1.5\tu\t-\t(empty)\t(empty)\t-\t-\t1,2", side) == expected
    assert payload_of(b"1.5\tu\t1\t\\x2d\t-\t-\t-\t-", side)["query"] == "-"


def test_bytes_that_are_no_text_stand_as_base64_beside_the_rest() -> None:
    fields = payload_of(b"1.5\tu\t1\t\\xff\\xfe.org\t\xff,x\t-\t-\t-", ZeekSide("uid"))
    assert b64decode(fields["query_raw_base64"]) == b"\xff\xfe.org"
    assert b64decode(fields["answers_raw_base64"]) == b"\xff,x"
    assert "query" not in fields


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"", "is empty"),
        (b"#close\t2020-04-30", "is a header line"),
        (b"1.5\tu\t1", "has 3 fields, not 8"),
        (b"1.5\t-\t1\t-\t-\t-\t-\t-", "key field 'uid' is unset (-)"),
        (b"1.5\t\t1\t-\t-\t-\t-\t-", "key field 'uid' is empty"),
        (b"1.5\t(empty)\t1\t-\t-\t-\t-\t-", "key field 'uid' is empty"),
        (b"-\tu\t1\t-\t-\t-\t-\t-", "time field 'ts' is unset (-)"),
        (b"x\tu\t1\t-\t-\t-\t-\t-", "time field 'ts' = 'x' is not a number"),
    ],
)
def test_bad_records(line: bytes, reason: str) -> None:
    with one_line(BadRecord, reason):
        ZeekSide("uid", None, "ts", ZeekTime()).header(line, FILE)


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (b"", "no #fields line"),
        (b"#separator \n#fields\tts\tx", "header: #separator is empty or a line end"),
        (b"#separator \\x09\n#fields\tts\tx", "key column 'uid' is missing, there are 'ts', 'x'"),
        (b"#fields\tuid\tuid", "'uid' stands there twice"),
        (b"#fields\tts\tuid\n#types\ttime", "#types has 1 columns, #fields 2"),
    ],
)
def test_headers_that_cannot_be(header: bytes, reason: str) -> None:
    side = ZeekSide("uid", None, "ts", ZeekTime())
    file = LogFile("x.log", header)
    with one_line(BadRecord, reason):
        side.key(b"1\tu", file)
    assert side.keys(b"1\tu\n2\tv\n", file) == [None, None]


def test_other_separators_and_marks() -> None:
    header = (
        b"#separator ||\n#set_separator||;\n#empty_field||EMPTY\n#unset_field||?\n"
        b"#fields||ts||uid||s\n#types||time||string||set[string]"
    )
    side, file = ZeekSide("uid", None, "ts", ZeekTime()), LogFile("x.log", header)
    assert payload_of(b"1.0||u||a;?;EMPTY", side, file) == {"ts": 1.0, "uid": "u", "s": ["a", None, ""]}
    assert side.keys(b"1||u||?\n2||?||x\n", file) == [b"u", None]


FIELD = st.one_of(
    st.sampled_from([b"-", b"(empty)", b"", b"u1", b"\\x2d", b"a\\x09b", b"\\\\", b"\xff", b"T", b"1.5"]),
    st.binary(max_size=4).map(lambda data: data.replace(b"\n", b"").replace(b"\t", b"")),
)


@given(st.lists(st.tuples(st.lists(FIELD, max_size=4), st.sampled_from([b"\n", b"\r\n"])), max_size=12))
@settings(deadline=None, max_examples=400)
@pytest.mark.parametrize("key", ["a", "b", "c"])
def test_fast_cut_equals_one_by_one(key: str, rows: list[tuple[list[bytes], bytes]]) -> None:
    side, file = ZeekSide(key), LogFile("x", b"#separator \\x09\n#fields\ta\tb\tc")
    block = b"".join(b"\t".join(row) + end for row, end in rows)
    assert side.keys(block, file) == SideReader.keys(side, block, file)


@given(st.lists(FIELD, min_size=8, max_size=8))
@settings(deadline=None, max_examples=300)
def test_payloads_are_json_on_one_line_and_the_same_again(fields: list[bytes]) -> None:
    side = ZeekSide("uid")
    assert isinstance(payload_of(b"\t".join(fields), side), dict)
    assert side.payload(b"\t".join(fields), FILE) == ZeekSide("uid").payload(b"\t".join(fields), FILE)


@given(st.binary(max_size=20))
def test_escapes_round_trip(data: bytes) -> None:
    """As Zeek writes them: backslash doubled, other bytes that cannot be printed in hex."""
    written = b"".join(
        b"\\\\" if byte == 0x5C else bytes([byte]) if 0x20 < byte < 0x7F else b"\\x%02x" % byte for byte in data
    )
    assert unescaped(written) == data


def test_times_of_three_kinds() -> None:
    time = ZeekTime()
    assert time.from_text(b"1588205198.899709") == 1_588_205_198_899_709_000
    assert time.from_int(1_588_205_198_899) == 1_588_205_198_899 * 10**6
    assert time.from_text(b"1588205198899") == 1_588_205_198_899 * 10**6
    assert time.from_text(b"2020-04-30T00:06:38.899709Z") == 1_588_205_198_899_709_000
    assert time.from_int(1_588_205_198) == 1_588_205_198 * 10**9


SIDES = {"primary": {"format": "zeek", "key": "uid"}, "foreign": {"format": "zeek-json", "key": "uid"}}


def test_configured_with_its_own_defaults() -> None:
    adapter = ConfiguredAdapter(SIDES)
    assert adapter.primary_framing == Framing("zeek")
    assert adapter.foreign_framing.kind == "lines"
    assert not adapter.primary_has_header
    for line in (b'{"ts":1588205198.899709,"uid":"u"}', b'{"ts":"2020-04-30T00:06:38.899709Z","uid":"u"}'):
        assert adapter.foreign_header(line, FILE) == ForeignHeader(b"u", 1_588_205_198_899_709_000)
    assert adapter.foreign_header(b'{"uid":"u","ts":1588205198899}', FILE).event_time_ns % 10**9 == 899 * 10**6
    written = {**SIDES, "foreign": {**SIDES["foreign"], "time": {"field": "ts", "format": "zeek"}}}
    assert ConfiguredAdapter(written).rule() == adapter.rule()

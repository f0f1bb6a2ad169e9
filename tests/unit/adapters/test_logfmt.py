"""logfmt: quoted values, escapes, flags, and the scan that equals the parser."""

from __future__ import annotations

import json

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from photon.adapters.contract import BadRecord, ForeignHeader, LogFile
from photon.adapters.formats import logfmt
from photon.adapters.formats.base import SideReader
from photon.adapters.formats.logfmt import LogfmtSide, parse_pairs
from photon.adapters.times import Iso8601Time, NumberTime
from tests.unit.refusals import one_line

FILE = LogFile("app.log")


@pytest.mark.parametrize(
    ("record", "fields"),
    [
        (b"a=1 b=2", {b"a": b"1", b"b": b"2"}),
        (b'msg="it \\"works\\", \\\\o/" n=', {b"msg": b'it "works", \\o/', b"n": b""}),
        (b'a="" b=x=y c=a:b,c', {b"a": b"", b"b": b"x=y", b"c": b"a:b,c"}),
        (b"  debug  a=1\tverbose ", {b"debug": None, b"a": b"1", b"verbose": None}),
        (b'm="\\u00e9\\n\\ud83d\\ude00"', {b"m": "é\n😀".encode()}),
        (b"a=1 a=2 a", {b"a": b"2"}),
        (b"a a=1", {b"a": b"1"}),
        (b"a=\xff", {b"a": b"\xff"}),
        ("größe=5".encode(), {"größe".encode(): b"5"}),
    ],
)
def test_fields(record: bytes, fields: dict[bytes, bytes | None]) -> None:
    assert parse_pairs(record) == fields


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (b"", "is empty"),
        (b"  \t", "is empty"),
        (b'a="open', "no logfmt at byte 0"),
        (b'x=1 a="b"c', "no logfmt at byte 4"),
        (b'a=b"c', "no logfmt at byte 0"),
        (b"=1", "no logfmt at byte 0"),
        (b'a="\\x41"', "no JSON escape"),
        (b"other=1", "key field 'uid' is missing"),
        (b"uid=", "key field 'uid' is empty"),
        (b'uid=""', "key field 'uid' is empty"),
        (b"uid other=1", "key field 'uid' has no value"),
    ],
)
def test_bad_records(record: bytes, reason: str) -> None:
    with one_line(BadRecord, reason):
        LogfmtSide("uid").key(record, FILE)


def test_headers_and_payloads() -> None:
    side = LogfmtSide("q", "id", "at", Iso8601Time())
    line = b'at="2024-03-01T10:00:00.5+02:00" id=c1 q=q1 new_field="x y" cached'
    assert side.header(line, FILE) == ForeignHeader(b"q1", 1_709_280_000_500_000_000, b"c1")
    payload = side.payload(line, FILE)
    assert payload is not None
    assert orjson.loads(payload) == {
        "at": "2024-03-01T10:00:00.5+02:00", "id": "c1", "q": "q1", "new_field": "x y", "cached": True,
    }  # fmt: skip
    assert side.payload(b"q=\xff", FILE) is None
    bad = side.headers([b"id=c q=k", b"at=noon id=c q=k", b"at=2024-01-01 q=k"], FILE).rows()
    reasons = [each.reason for each in bad if isinstance(each, BadRecord)]
    assert [reason.split("'")[0] for reason in reasons] == ["time field ", "time field ", "id field "]


WORDS = st.sampled_from(
    ["uid", "uid", "a", "b", "ppuid", "k1", "k 2", 'q"x', "uid=7", " uid=9", "é", "", "\\", "a\\"]
)


@st.composite
def lines(draw: st.DrawFn) -> bytes:
    parts = []
    for _ in range(draw(st.integers(0, 4))):
        name = draw(st.sampled_from(["uid", "uid", "a", "ppuid", "b.uid"]))
        value = draw(WORDS)
        kind = draw(st.integers(0, 5))
        if kind == 0:
            parts.append(name)
        elif kind < 3 and not any(c in value for c in ' "\\'):
            parts.append(f"{name}={value}")
        else:
            parts.append(f"{name}={json.dumps(value, ensure_ascii=draw(st.booleans()))}")
    return draw(st.sampled_from([" ", "  ", "\t"])).join(parts).encode()


@given(st.lists(st.tuples(lines(), st.sampled_from([b"\n", b"\n", b"\r\n"])), max_size=12), st.integers(1, 60))
@settings(deadline=None, max_examples=500)
def test_scan_equals_parser(rows: list[tuple[bytes, bytes]], chunk: int) -> None:
    side = LogfmtSide("uid")
    block = b"".join(line + end for line, end in rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logfmt, "CHUNK_BYTES", chunk)
        assert side.keys(block, FILE) == SideReader.keys(side, block, FILE)


@given(st.lists(st.binary(max_size=40).map(lambda line: line.replace(b"\n", b"")), max_size=8))
@settings(deadline=None, max_examples=300)
def test_any_bytes_give_the_parsers_key_or_a_candidate(rows: list[bytes]) -> None:
    side = LogfmtSide("a")
    rows = [row.replace(b"b", b"a=") for row in rows]
    block = b"".join(row + b"\n" for row in rows)
    found, exact = side.keys(block, FILE), SideReader.keys(side, block, FILE)
    for row, key, expected in zip(rows, found, exact, strict=True):
        if key != expected:
            assert expected is None, row
            assert key is not None
            assert b"a=" + key in row


@given(st.dictionaries(st.text("abc_.-é", min_size=1), st.text(max_size=9), min_size=1, max_size=6))
@settings(deadline=None)
def test_what_is_written_is_read_back(fields: dict[str, str]) -> None:
    line = " ".join(f"{name}={json.dumps(value)}" for name, value in fields.items()).encode()
    assert b"\n" not in line
    side = LogfmtSide("a")
    payload = side.payload(line, FILE)
    if any("\ud800" <= c <= "\udfff" for value in fields.values() for c in value):
        return
    assert payload is not None
    assert orjson.loads(payload) == fields
    assert side.payload(line, FILE) == payload


def test_plain_lines_are_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    side = LogfmtSide("uid", None, "ts", NumberTime("s"))

    def refuse(record: bytes, file: LogFile) -> bytes:
        raise AssertionError(record)

    monkeypatch.setattr(side, "key", refuse)
    rows = [b'ts=1 level=info msg="hello world %d" uid=k%d ppuid=z' % (i, i) for i in range(50)]
    assert side.keys(b"\n".join(rows) + b"\n", FILE) == [b"k%d" % i for i in range(50)]
    assert side.keys(b"", FILE) == []

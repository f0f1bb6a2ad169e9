"""logfmt: quoted values, escapes, flags, and the scan that equals the parser."""

from __future__ import annotations

import json

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from photon.adapters.contract import LogFile
from photon.adapters.formats import logfmt
from photon.adapters.formats.base import SideReader
from photon.adapters.formats.logfmt import LogfmtSide
from photon.adapters.times import NumberTime

FILE = LogFile("app.log")


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

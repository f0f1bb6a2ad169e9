"""Zeek's TSV: header lines, unset and empty fields, escapes, types, and the cut that equals the parser."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import ForeignHeader, Framing, LogFile
from photon.adapters.formats.base import SideReader
from photon.adapters.formats.zeek import ZeekSide, unescaped

HEADER = (
    b"#separator \\x09\n#set_separator\t,\n#empty_field\t(empty)\n#unset_field\t-\n"
    b"#fields\tts\tuid\tid.orig_p\tquery\tanswers\tTTLs\tAA\ttags\n"
    b"#types\ttime\tstring\tport\tstring\tvector[string]\tvector[interval]\tbool\tset[count]"
)
FILE = LogFile("dns.log", HEADER)


def payload_of(line: bytes, side: ZeekSide, file: LogFile = FILE) -> dict[str, Any]:
    payload = side.payload(line, file)
    assert payload is not None
    assert b"\n" not in payload
    fields: dict[str, Any] = orjson.loads(payload)
    return fields


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

"""The scan over bytes answers as the parser does, for every line that is a JSON text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from photon.adapters.contract import BadRecord, LogFile
from photon.adapters.formats import json_scan
from photon.adapters.formats.json_lines import SCANNED_MIN, JsonLinesSide
from photon.adapters.formats.json_values import parse_object

FILE = LogFile("a.log")
NAMES = st.sampled_from(["uid", "uid", "uid", "a", "b", 'q"uid', "uid\\", "x{", "}"])
TEXTS = st.one_of(
    st.sampled_from(
        ["", "k1", "k2", '"uid":"x"', ',"uid":"x"', '{"uid":"x"}', "{", "}", "\\", "é", "uid", "12", "a\\u"]
    ),
    st.text(max_size=6),
)
SCALARS = st.one_of(
    TEXTS, st.integers(-(10**25), 10**25), st.floats(allow_nan=False), st.booleans(), st.none(), st.integers(0, 99)
)


def members(values: st.SearchStrategy[Any]) -> st.SearchStrategy[list[tuple[str, Any]]]:
    return st.lists(st.tuples(NAMES, values), max_size=5)


class Members(list[Any]):
    """An object as pairs, so that a name may occur in it twice."""


VALUES = st.recursive(
    SCALARS, lambda inner: st.one_of(st.lists(inner, max_size=3), members(inner).map(Members)), max_leaves=6
)


def written(value: Any, draw_escape: bool, gap: str) -> str:
    """JSON text of a value; names may be spelled with escapes."""
    if isinstance(value, Members):
        inside = ("," + gap).join(
            f"{name_text(name, draw_escape)}{gap}:{gap}{written(each, draw_escape, gap)}" for name, each in value
        )
        return "{" + inside + "}"
    if isinstance(value, list):
        return "[" + ("," + gap).join(written(each, draw_escape, gap) for each in value) + "]"
    return json.dumps(value, ensure_ascii=draw_escape)


def name_text(name: str, escape: bool) -> str:
    text = json.dumps(name)
    return text.replace("i", "\\u0069") if escape else text


@st.composite
def lines(draw: st.DrawFn) -> bytes:
    kind = draw(st.integers(0, 9))
    if kind == 0:
        return draw(
            st.sampled_from([b"", b" ", b"uid", b'"uid":"x"', b"[]", b'{"uid', b'{"uid":"x', b'{"uid":', b'{"uid"'])
        )
    if kind == 1:
        value = draw(VALUES)
    elif kind < 6:  # the plain case
        pairs = [("a", draw(SCALARS)), ("uid", draw(st.one_of(TEXTS, st.integers(0, 10**19)))), ("b", draw(VALUES))]
        value = Members(draw(st.permutations(pairs)))
    else:
        value = Members(draw(members(VALUES)))
    text = written(value, draw(st.integers(0, 5)) == 0, draw(st.sampled_from(["", "", "", " ", "\t"])))
    data = text.encode("utf-8", "surrogatepass")
    shape = draw(st.integers(0, 12))
    if shape == 0:
        data = data[: draw(st.integers(0, len(data)))]
    elif shape == 1:
        data = data.replace(b"k1", b"k\xff")
    elif shape == 2:
        data = b" " + data + b"  "
    return data.replace(b"\n", b"")


def exact(side: JsonLinesSide, line: bytes) -> bytes | None:
    try:
        return side.key(line, FILE)
    except BadRecord:
        return None


def is_json_object(line: bytes) -> bool:
    try:
        parse_object(line)
    except BadRecord as bad:
        return "not a JSON object" in bad.reason
    return True


def agree(rows: list[bytes], keys: list[bytes | None], side: JsonLinesSide) -> None:
    assert len(keys) == len(rows)
    for row, key in zip(rows, keys, strict=True):
        expected = exact(side, row)
        if expected is not None or is_json_object(row):
            assert key == expected, row
        elif key is not None:  # a candidate: at least it is there as this field's value
            assert b'"uid"' in row
            assert key in row


@given(st.lists(st.tuples(lines(), st.sampled_from([b"\n", b"\n", b"\r\n"])), max_size=12))
@settings(deadline=None, max_examples=600)
def test_scan_equals_parser(rows: list[tuple[bytes, bytes]]) -> None:
    side = JsonLinesSide("uid")
    block = b"".join(line + end for line, end in rows)
    assert block.count(b"\n") == len(rows)
    agree([(line + end[:-1]).removesuffix(b"\r") for line, end in rows], side.keys(block, FILE), side)


@pytest.mark.parametrize(
    "line",
    [
        b'{"a":{"uid":"x"},"b":1}',
        b'{"a":[{"uid":"x"}]}',
        b'[{"uid":"x"}]',
        b'{"uid":"x","uid":"y"}',
        b'{"uid":"x","\\u0075id":"y"}',
        b'{"uid":"x","u\\u0069\\u0064":"y"}',
        b'{"uid":"x","a":{"uid":"y"}}',
        b'{"a":"}","b":{"uid":"y"}}',
        b'{"a":"{","uid":"y"}',
        b'{"a":{"b":"}"},"uid":"y"}',
        b'{"a":{"b":"{"},"uid":"y"}',
        b'{"a":"\\"}{","uid":"y"}',
        b'{"x\\"uid":"y"}',
        b'{"a":"uid","uid":"y"}',
        b'{"a":"uid"}',
        b'{"uid":"a\\"b"}',
        b'{"uid":"a\\\\"}',
        b'{"uid":""}',
        b'{"uid":null}',
        b'{"uid":012}',
        b'{"uid":1.5,"a":1}',
        b'{"uid":12,"a":1}',
        b'{"uid":0,"a":1}',
        b'{"uid":-4,"a":1}',
        b'{"a":1,"uid":12}',
        b'{"uid":1234567890123456789012,"a":1}',
        b'{"uid" :  "y"}',
        b'{"uid":\r"y"}',
        b' {"uid":"y"}',
        b'{"uid":"y"}  ',
        b"",
    ],
)
@pytest.mark.parametrize(
    "first", [b'{"uid":"first"}', b'{"uid":1,"a":2}', b'{"uid": "spaced"}', b"broken", b'{"a":{}}']
)
def test_odd_lines_beside_plain_ones(line: bytes, first: bytes) -> None:
    side = JsonLinesSide("uid")
    rows = [first, line, b'{"a":1,"uid":"last","b":"\\u0041"}', first, line]
    assert side.keys(b"\n".join(rows) + b"\n", FILE) == [exact(side, row) for row in rows]


@pytest.mark.parametrize("name", ["uid", "a.b", "@id", "größe", 'q"', "a/b", "b\\", "x y"])
def test_any_name_can_be_scanned_for(name: str) -> None:
    side = JsonLinesSide(name)
    rows = [json.dumps({"z": 1, name: f"k{i}", "t": {}}, ensure_ascii=i % 2 == 0).encode() for i in range(6)]
    rows.append(b'{"a":{"b":"deep"}}')
    assert side.keys(b"\r\n".join(rows) + b"\r\n", FILE) == [exact(side, row) for row in rows]
    assert side.keys(b"", FILE) == []


def test_big_blocks_are_scanned_in_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    side = JsonLinesSide("uid")
    rows = [b'{"uid":"k%d","b":"%s"}' % (i, b"x" * (i % 40)) for i in range(200)]
    rows[50:60] = [b"{"] * 10
    expected = [exact(side, row) for row in rows]
    for chunk in (1, 7, 100, 1000, 10**6):
        monkeypatch.setattr(json_scan, "CHUNK_BYTES", chunk)
        block = b"\n".join(rows) + b"\n"
        located = side.located_keys(block, FILE)
        assert located is not None
        keys, starts = located
        assert keys == expected
        assert [block[start : block.index(b"\n", start)] for start in starts.tolist()] == rows


def test_plain_lines_are_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The point of the scan: in clean blocks the parser is never asked."""
    side = JsonLinesSide("uid")

    def refuse(record: bytes, file: LogFile) -> bytes:
        raise AssertionError(record)

    monkeypatch.setattr(side, "key", refuse)
    clean = [
        [b'{"a":%d,"uid":"k%d","b":[1,2]}' % (i, i) for i in range(50)],
        [b'{"uid":"k%d","b":{"c":{}}}' % i for i in range(50)],
        [b'{"b":{"c":"{}"},"uid":"k%d","d":{}}' % i for i in range(50)],
        [b'{"a":"say \\"hi\\" \\u00e9","uid": "k%d"}' % i for i in range(50)],
    ]
    for rows in clean:
        assert side.keys(b"\n".join(rows) + b"\n", FILE) == [b"k%d" % i for i in range(50)]
    numbers = [b'{"a":1,"uid":%d,"b":2}' % (i + 1) for i in range(50)]
    assert side.keys(b"\n".join(numbers) + b"\n", FILE) == [b"%d" % (i + 1) for i in range(50)]


ONE_MAKE = st.sampled_from(
    [b'{"uid":"%s","n":1}', b'{"a":1,"uid": "%s"}', b'{"uid":"%s"}', b'{"time":"12345678","uid":"%s","q":[1,2]}']
)
ODD_ONES = st.sampled_from(
    [
        b'{"uid":"%s","uid":"y"}',
        b'{"uid":"%s","a":{"uid":"y"}}',
        b'{"uid":"%s","a":{}}',
        b'{"uid":"%s","a":"\\\\"}',
        b'{"uie":"%s","n":1}',
        b'{"uid":1,"a":"%s"}',
        b'["uid":"%s","n":1}',
        b' {"uid":"%s"}',
        b'{"uid":"%s',
        b'{"uid":""}%.0s',
        b"{}%.0s",
        b"%.0s",
        b"{{%.0s",
        b'"uid"%.0s',
    ]
)


ANY_LENGTH = st.lists(st.text("abc{}:,1 é", max_size=5), min_size=1, max_size=8)
ONE_LENGTH = st.lists(st.text('ab"\0', min_size=3, max_size=3), min_size=1, max_size=8)


@given(ONE_MAKE, ANY_LENGTH | ONE_LENGTH, st.lists(ODD_ONES, max_size=2),
       st.randoms(use_true_random=False), st.sampled_from([b"\n", b"\r\n"]))  # fmt: skip
@settings(deadline=None, max_examples=600)
def test_lines_of_one_make_and_odd_ones_among_them(
    make: bytes, keys: list[str], odd: list[bytes], random: Any, end: bytes
) -> None:
    side = JsonLinesSide("uid")
    rows = [make % key.encode() for key in keys]
    for each in odd:
        rows.insert(random.randrange(len(rows) + 1), each % b"key")
    agree(rows, side.keys(b"".join(row + end for row in rows), FILE), side)


def test_lines_of_one_make_are_proven_all_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object) -> None:
        raise AssertionError(args)

    monkeypatch.setattr(json_scan.KeyScan, "_plain_keys", refuse)
    side = JsonLinesSide("uid")
    for make in (b'{"uid":"k%d","b":[1,2]}', b'{"a":123,"uid": "k%d"}'):
        rows = [make % number for number in range(50)]
        assert side.keys(b"\n".join(rows) + b"\n", FILE) == [b"k%d" % number for number in range(50)]


@pytest.mark.parametrize(
    ("later", "key"), [(b'"un"', b"k"), (b'{"uid":"y"}', b"k"), (b'1,"uid":"y"', b"y"), (b"{}", b"k")]
)
def test_what_stands_behind_the_begin_of_a_block_counts(
    later: bytes, key: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pairs of bytes of the name, the name itself, and braces, where the block's beginning has no more than
    one each."""
    monkeypatch.setattr(json_scan, "PROBE_BYTES", 40)
    rows = [b'{"uid":"k","n":%s}' % (later if number == 30 else b"1") for number in range(50)]
    keys = JsonLinesSide("uid").keys(b"\n".join(rows) + b"\n", FILE)
    assert keys == [key if number == 30 else b"k" for number in range(50)]


def test_keys_of_one_length_are_not_looked_for_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_scan, "repeat", None)
    rows = [b'{"a":123,"uid": "k%03d","b":"xyz"}' % number for number in range(50)]
    assert JsonLinesSide("uid").keys(b"\n".join(rows) + b"\n", FILE) == [b"k%03d" % number for number in range(50)]


def test_keys_of_records_at_once_are_those_of_each_alone() -> None:
    """Also next to one that is not JSON text, of which the scan would make a candidate."""
    side = JsonLinesSide("uid")
    rows = [b'{"a":{"uid":1},"uid":"k%d"}' % number for number in range(SCANNED_MIN)]
    for odd in (b'{"uid":"k","b":}', b'{"uid":"k"} ', b'{"uid":"\\u006b"}', b'{"uid":"k"', b"{}", b""):
        records = [*rows, odd]
        assert side.keys_of(records, FILE) == [side._key_or_none(each, FILE) for each in records]

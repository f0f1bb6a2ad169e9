"""The syntax check agrees with parsing, except for numbers that no double holds."""

from __future__ import annotations

import msgspec
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from photon.adapters.contract import LogFile
from photon.adapters.faults import are_payloads, payload_fault
from photon.adapters.formats.json_check import LEVELS_MAX, are_json, is_json
from photon.adapters.formats.json_lines import JsonLinesSide
from photon.adapters.formats.json_values import LEVELS, parse_line
from photon.outputs.records import decode

VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)
MUTATIONS = st.lists(
    st.tuples(st.integers(0, 400), st.sampled_from(["set", "cut", "add"]), st.integers(0, 255)), max_size=3
)


def parsed(text: bytes) -> bool:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError as error:
        return "infinite" in str(error)
    return True


@given(VALUES, MUTATIONS)
def test_it_agrees_with_the_parser(value: object, mutations: list[tuple[int, str, int]]) -> None:
    text = bytearray(orjson.dumps(value))
    for at, how, byte in mutations:
        at %= len(text) + 1
        text[at : at + (how != "add")] = b"" if how == "cut" else bytes([byte])
    assert is_json(bytes(text)) == parsed(bytes(text))


@pytest.mark.parametrize("depth", [900, 1000, 1024, 1025, 100_000])
def test_depth_is_bounded_as_by_the_parser(depth: int) -> None:
    assert is_json(b"[" * depth + b"]" * depth) == (depth <= 1024)


@pytest.mark.parametrize("levels", [LEVELS_MAX - 1, LEVELS_MAX, LEVELS_MAX + 1, 1000, 1022])
@pytest.mark.parametrize(("begin", "end"), [(b"[", b"]"), (b'{"]":', b"}"), (b'["\\"]",', b"]")])
def test_a_payload_that_some_reader_could_not_parse_is_kept_as_bytes(levels: int, begin: bytes, end: bytes) -> None:
    record = b'{"id":"c","q":"q","t":1,"x":%b}' % (begin * (levels - 1) + b"1" + end * (levels - 1))
    deep = levels > LEVELS_MAX
    side = JsonLinesSide("q")
    assert side.payload(record, LogFile("a")) == (None if deep else record)
    assert dict(enumerate(side.payloads([record], [LogFile("a")]).payloads)) == {0: None if deep else record}
    assert (payload_fault(record) is not None) == deep
    assert are_payloads([record]) != deep
    if not deep:
        line = (
            b'{"source":{"file":"a","offset":0},"event_id":"c","key":"q","event_time_ns":1,"foreign":%b}\n' % record
        )
        assert decode(line).torn == [None]


def test_numbers_may_be_of_any_size() -> None:
    assert is_json(b'{"a":1e999,"b":' + b"9" * 400 + b"}")


@pytest.mark.parametrize("levels", [1, LEVELS - 1, LEVELS, 250, 254, 255, 1000, 1022, 1024])
@pytest.mark.parametrize(("begin", "end"), [(b"[", b"]"), (b'{"]":', b"}")])
@pytest.mark.parametrize("inner", [b"1", b"1e999", b"-" + b"9" * 400, b'"\\\\\\"[{1e999"'])
def test_what_it_accepts_can_be_parsed_and_written_again(levels: int, begin: bytes, end: bytes, inner: bytes) -> None:
    text = begin * levels + inner + end * levels
    assert levels >= 1000 or is_json(text)
    found = parse_line(b'{"foreign":%b,"then":[1e-999,2e999]}' % text)
    assert found["then"] == [0.0, "2e999"]
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(found)) == found
    assert orjson.loads(orjson.dumps({"foreign": [found]}))["foreign"] == [found]
    value, steps = found["foreign"], 0
    while isinstance(value, dict | list):
        (value,), steps = value.values() if isinstance(value, dict) else value, steps + 1
    assert steps == min(levels, LEVELS - 1)
    left = text[steps * len(begin) : len(text) - steps]
    assert value == (parse_line(left) if levels < LEVELS else left.decode())


@pytest.mark.parametrize("text", [b"", b"[1e999", b"1e9e9", b'{"a":1e999,}', b"[" * 300, b"NaN", b"\xff", b"]" * 300])
def test_what_is_no_json_is_not_parsed(text: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 the parser's texts
        parse_line(text)


@pytest.mark.parametrize(
    "lines",
    [b'{}\n{"a":', b"{}\n\n", b'{}\n{"a":"\xff"}\n', b'{}\n{"a":1}}\n', b"[" * 2000 + b"]" * 2000 + b"\n"],
)
def test_lines_are_told_with_their_number(lines: bytes) -> None:
    assert are_json(b'{}\n{"a":"\xc3\xbc"}\n', 2)
    assert not are_json(lines, 2)

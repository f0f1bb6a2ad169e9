"""Headers of JSON records read without parsing the whole record are those of the parser."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from photon.adapters.contract import BadRecord, ForeignHeader, LogFile
from photon.adapters.formats.json_lines import JsonLinesSide
from photon.adapters.times import Iso8601Time, NumberTime

FILE = LogFile("a.log")
SIDES = {
    "id and number": JsonLinesSide("k", "id", "ts", NumberTime("us")),
    "no id": JsonLinesSide("k", None, "ts", NumberTime("s")),
    "the key is the id": JsonLinesSide("k", "k", "ts", NumberTime("s")),
    "the time is the id": JsonLinesSide("k", "ts", "ts", NumberTime("s")),
    "text time": JsonLinesSide("k", "id", "ts", Iso8601Time()),
    "paths": JsonLinesSide("a.k", "id", "a.ts", NumberTime("s")),
    "odd names": JsonLinesSide('k"', "\u00e9", "ts", NumberTime("s")),
}
NAMES = ["k", "id", "ts", "a.k", "a", "x", 'k\\"', "\u00e9", "\\u006b", "t\\u0073"]
VALUES = [
    '"a"', '""', '"\u00e9"', '"\\u00e9"', '"\\ud800"', '"\\ud83d\\ude00"', '"10.0.0.1:7:123"', '"2018-02-26"',
    '"noon"', '"5"', "5", "-0", "-7", "1.5", "1.0", "1e3", "1e300", "true", "null", "[]", "{}", '{"k":"b","ts":1}',
    '{"ts":[1,{"k":2}]}', "99999999999", "18446744073709551616", "9" * 30, "01", "+1", "1.", "NaN", '"\x01"', "",
]  # fmt: skip
member = st.tuples(st.sampled_from(NAMES), st.sampled_from(VALUES)).map(lambda pair: f'"{pair[0]}":{pair[1]}')
usual = st.sampled_from(["1700000000", "1700000000.125"]).map(lambda at: ['"k":"a"', '"id":"i"', f'"ts":{at}'])
spaces = st.sampled_from(["", " ", "\t", "\r"])


@st.composite
def records(draw: st.DrawFn) -> bytes:
    members = draw(usual | st.just([])) + draw(st.lists(member, max_size=4))
    space = draw(spaces)
    record = (space + "{" + f",{space}".join(draw(st.permutations(members))) + "}" + space).encode()
    if draw(st.integers(0, 3)) == 0:  # a byte more, less or other
        at = draw(st.integers(0, len(record)))
        record = record[:at] + draw(st.sampled_from([b"", b"\xff", b"\x00", b"}", b'"', b"\\"])) + record[at + 1 :]
    return record


def parsed(side: JsonLinesSide, record: bytes) -> ForeignHeader | BadRecord:
    try:
        return side._parsed_header(record, side._time)
    except BadRecord as bad:
        return bad


@pytest.mark.parametrize("side", SIDES.values(), ids=SIDES)
@given(st.lists(records(), min_size=1, max_size=8))
def test_as_the_parser_reads_them(side: JsonLinesSide, some: list[bytes]) -> None:
    for record, header in zip(some, side.headers(some, FILE).rows(), strict=True):
        expected = parsed(side, record)
        assert repr(header) == repr(expected), record


def test_an_infinite_number_elsewhere_does_not_matter() -> None:
    side = SIDES["id and number"]
    record = b'{"k":"a","id":"i","ts":1,"x":1e999}'
    assert side.header(record, FILE) == ForeignHeader(b"a", 1000, b"i")
    assert side.key(record, FILE) == b"a"
    assert side.payload(record, FILE) == record


@pytest.mark.parametrize("depth", [50, 5000])
def test_deep_records(depth: int) -> None:
    side = SIDES["id and number"]
    record = b'{"k":"a","id":"i","ts":1,"x":%b%b}' % (b"[" * depth, b"]" * depth)
    (header,) = side.headers([record], FILE).rows()
    assert isinstance(header, BadRecord) == (depth > 1024)
    with pytest.raises(BadRecord, match="too deeply"):  # bytes that are not UTF-8 have another parser
        side.key(b"[" * 100_000 + b'"\xff"', FILE)

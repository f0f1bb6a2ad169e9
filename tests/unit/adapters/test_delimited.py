"""CSV and TSV: fields, headers per file, and the fast cut that equals the slow one."""

from __future__ import annotations

import csv
import io

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from photon.adapters.contract import BadRecord, ForeignHeader, LogFile
from photon.adapters.formats import delimited
from photon.adapters.formats.base import SideReader
from photon.adapters.formats.delimited import DelimitedSide
from photon.adapters.times import Iso8601Time, NumberTime
from tests.unit.refusals import one_line

FILE = LogFile("a.csv")
ABC = DelimitedSide("b", columns=("a", "b", "c"))


@pytest.mark.parametrize(
    ("record", "fields"),
    [
        (b"1,2,3", [b"1", b"2", b"3"]),
        (b",2,", [b"", b"2", b""]),
        (b'"1","2","3"', [b"1", b"2", b"3"]),
        (b'"a, b",2,"say ""hi"""', [b"a, b", b"2", b'say "hi"']),
        (b'"",2,""""', [b"", b"2", b'"']),
        (b'5" pipe,2,x"y"', [b'5" pipe', b"2", b'x"y"']),
        (b" 1 , 2 ,\xff", [b" 1 ", b" 2 ", b"\xff"]),
    ],
)
def test_fields(record: bytes, fields: list[bytes]) -> None:
    assert ABC._split(record) == fields
    assert ABC.key(record, FILE) == fields[1]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (b"", "empty"),
        (b"1,2", "2 fields, not 3"),
        (b"1,2,3,4", "4 fields, not 3"),
        (b"1,,3", "key field 'b' is empty"),
        (b'1,"",3', "key field 'b' is empty"),
        (b'1,"2,3', "field 2 has unbalanced quotes"),
        (b'1,"2"x,3', "field 2 has unbalanced quotes"),
        (b'"1"",2,3', "field 1 has unbalanced quotes"),
    ],
)
def test_bad_records(record: bytes, reason: str) -> None:
    with one_line(BadRecord, reason):
        ABC.key(record, FILE)


@given(st.lists(st.text("a\"', é;\t", max_size=5), min_size=1, max_size=6))
@settings(deadline=None)
def test_what_the_csv_module_writes_is_read_back(row: list[str]) -> None:
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator="").writerow(row)
    side = DelimitedSide("c0", columns=tuple(f"c{i}" for i in range(len(row))))
    assert side._split(out.getvalue().encode()) == [field.encode() for field in row]


FIELD = st.one_of(
    st.sampled_from(
        [
            b"",
            b"k",
            b'"k"',
            b'"k"',
            b'"1"',
            b'"a,b"',
            b'"',
            b'x"y',
            b'""',
            b"\xff",
            b"\r",
            b"12",
            b'"a\xfeb"',
            b'"a""b"',
        ]
    ),
    st.binary(max_size=3).map(lambda data: data.replace(b"\n", b"")),
)
ROW = st.one_of(st.lists(FIELD, max_size=5), st.lists(FIELD, min_size=3, max_size=3)).map(b",".join)


@given(st.lists(st.tuples(ROW, st.sampled_from([b"\n", b"\r\n", b"\r\r\n"])), max_size=12), st.integers(0, 2))
@settings(deadline=None, max_examples=400)
@pytest.mark.parametrize("quote", [b'"', b""])
@pytest.mark.parametrize("width", [1, 3])
@pytest.mark.parametrize("multiline", [False, True])
def test_fast_cut_equals_one_by_one(
    width: int, quote: bytes, multiline: bool, rows: list[tuple[bytes, bytes]], key: int
) -> None:
    columns = tuple("xyz"[:width])
    side = DelimitedSide(columns[key % width], columns=columns, quote=quote, multiline=multiline)
    block = b"".join(line + end for line, end in rows)
    assert side.keys(block, FILE) == SideReader.keys(side, block, FILE)


def test_files_may_order_their_columns_differently() -> None:
    side = DelimitedSide("id", None, "at", NumberTime("s"))
    one, two = LogFile("1", b"at,id,x\r"), LogFile("2", b'\xef\xbb\xbf"x","id","at"')
    assert side.header(b"5,k,z", one) == side.header(b"z,k,5", two) == ForeignHeader(b"k", 5 * 10**9)
    assert side.keys(b"5,k,z\n5,l,z\n", one) == side.keys(b"z,k,5\nz,l,5\n", two) == [b"k", b"l"]
    assert side.payload(b"5,k,z", one) == b'{"at":"5","id":"k","x":"z"}'
    assert side.payload(b"z,k,5", two) == b'{"x":"z","id":"k","at":"5"}'


@pytest.mark.parametrize(
    ("header", "reason"),
    [
        (b"", "no header"),
        (b"at,x", "key column 'id' is missing, there are 'at', 'x'"),
        (b"id,x", "time column 'at' is missing"),
        (b"id,at,id", "column 'id' stands there twice"),
        (b'id,"at', "unbalanced"),
    ],
)
def test_a_file_whose_header_is_wrong_has_no_readable_records(header: bytes, reason: str) -> None:
    side = DelimitedSide("id", None, "at", NumberTime("s"))
    file = LogFile("x", header)
    with one_line(BadRecord, reason):
        side.header(b"1,2", file)
    assert side.keys(b"1,2\n3,4\n", file) == [None, None]


def test_headers_with_ids_and_times() -> None:
    side = DelimitedSide("k", "id", "at", Iso8601Time(), delimiter=b"\t", columns=("id", "k", "at"))
    got = side.headers([b"i\tk\t1970-01-01", b"i\tk\t", b"\tk\t1970-01-01", b"i\tk\tnoon", b"i\tk"], FILE).rows()
    assert got[0] == ForeignHeader(b"k", 0, b"i")
    reasons = [bad.reason for bad in got[1:] if isinstance(bad, BadRecord)]
    assert [reason.split(" ", 2)[0] for reason in reasons] == ["time", "id", "time", "has"]
    assert "'noon' is not ISO 8601" in reasons[2]


def test_payloads() -> None:
    assert ABC.payload('é,"a\tb",x\x01'.encode(), FILE) == orjson.dumps({"a": "é", "b": "a\tb", "c": "x\x01"})
    assert ABC.payload(b"\xff,2,3", FILE) is None
    with pytest.raises(BadRecord):
        ABC.payload(b"1,2", FILE)
    odd = DelimitedSide("k")
    assert odd.payload(b"1,2", LogFile("x", b"k,\xff")) is None
    assert odd.key(b"1,2", LogFile("x", b"k,\xff")) == b"1"


def test_remembered_headers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delimited, "LAYOUTS_MAX", 4)
    side = DelimitedSide("k")
    for i in range(20):
        assert side.key(b"1,2", LogFile("x", b"k,c%d" % i)) == b"1"
    assert side._layout_of_header.cache_info().currsize <= 4

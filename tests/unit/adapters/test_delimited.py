"""CSV and TSV: fields, headers per file, and the fast cut that equals the slow one."""

from __future__ import annotations

import csv
import io

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from photon.adapters.contract import LogFile
from photon.adapters.formats import delimited
from photon.adapters.formats.base import SideReader
from photon.adapters.formats.delimited import DelimitedSide

FILE = LogFile("a.csv")


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


def test_remembered_headers_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(delimited, "LAYOUTS_MAX", 4)
    side = DelimitedSide("k")
    for i in range(20):
        assert side.key(b"1,2", LogFile("x", b"k,c%d" % i)) == b"1"
    assert side._layout_of_header.cache_info().currsize <= 4

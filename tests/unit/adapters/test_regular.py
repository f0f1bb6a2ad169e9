"""Records taken apart by a regular expression."""

from __future__ import annotations

import re

import pytest

from photon.adapters.contract import LogFile
from photon.adapters.formats.regular import RegexSide
from photon.adapters.times import PatternTime

FILE = LogFile("access.log")
PATTERN = re.compile(rb'(?P<host>[^ ]+) \[(?P<at>[^\]]+)\] "GET /c\?q=(?P<q>[^ &"]*)(?:&u=(?P<u>[^ "]*))?')
SIDE = RegexSide(PATTERN, "q", "host", "at", PatternTime("%d/%b/%Y:%H:%M:%S %z"))
LINE = b'h1 [10/Oct/2000:13:55:36 -0700] "GET /c?q=abc HTTP/1.1" 200'


@pytest.mark.parametrize(
    ("line", "at", "wanted"),
    [
        (b"h1 [x] POST", 7, r'"GET /c\?q=(?P<q>[^ &"]*)(?:&u=(?P<u>[^ "]*))?'),
        (b" nothing", 0, PATTERN.pattern.decode()),
        (b'h1 [x] "GET /d', 13, r'c\?q=(?P<q>[^ &"]*)(?:&u=(?P<u>[^ "]*))?'),
    ],
)
def test_where_a_record_ceases_to_fit(line: bytes, at: int, wanted: str) -> None:
    assert SIDE.stops_at(line) == (at, wanted)


def test_where_nothing_can_be_said_of_a_record() -> None:
    assert SIDE.stops_at(LINE) is None
    assert SIDE.stops_at(b"") is None

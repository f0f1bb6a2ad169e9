"""Records taken apart by a regular expression."""

from __future__ import annotations

import re

import pytest

from photon.adapters.contract import BadRecord, ForeignHeader, LogFile
from photon.adapters.formats.base import SideReader
from photon.adapters.formats.regular import RegexSide
from photon.adapters.times import PatternTime
from tests.unit.refusals import one_line

FILE = LogFile("access.log")
PATTERN = re.compile(rb'(?P<host>[^ ]+) \[(?P<at>[^\]]+)\] "GET /c\?q=(?P<q>[^ &"]*)(?:&u=(?P<u>[^ "]*))?')
SIDE = RegexSide(PATTERN, "q", "host", "at", PatternTime("%d/%b/%Y:%H:%M:%S %z"))
LINE = b'h1 [10/Oct/2000:13:55:36 -0700] "GET /c?q=abc HTTP/1.1" 200'


def test_reading() -> None:
    assert SIDE.key(LINE, FILE) == b"abc"
    assert SIDE.header(LINE, FILE) == ForeignHeader(b"abc", 971_211_336 * 10**9, b"h1")
    assert SIDE.payload(LINE, FILE) == b'{"host":"h1","at":"10/Oct/2000:13:55:36 -0700","q":"abc"}'
    with_user = LINE.replace(b"abc", b"abc&u=\xc3\xa9")
    assert (
        SIDE.payload(with_user, FILE) == '{"host":"h1","at":"10/Oct/2000:13:55:36 -0700","q":"abc","u":"é"}'.encode()
    )
    assert SIDE.payload(LINE.replace(b"abc", b"abc&u=\xff"), FILE) is None


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"", "empty"),
        (b"something else", "does not match"),
        (LINE.replace(b"abc", b""), "key group 'q' is empty"),
        (LINE.replace(b"Oct", b"Okt"), "time field 'at' = '10/Okt/2000:13:55:36 -0700' does not have the format"),
    ],
)
def test_bad_records(line: bytes, reason: str) -> None:
    with one_line(BadRecord, reason):
        SIDE.header(line, FILE)


def test_many_keys_are_one_by_one_keys() -> None:
    block = b"\n".join([LINE, b"x", LINE.replace(b"abc", b""), LINE + b"\r", b""]) + b"\n"
    assert SIDE.keys(block, FILE) == SideReader.keys(SIDE, block, FILE) == [b"abc", None, None, b"abc", None]


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

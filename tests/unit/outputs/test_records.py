"""Contents of lines of each kind, against the code that builds them."""

from __future__ import annotations

from dataclasses import fields

from photon.adapters.contract import Joined, LogFile
from photon.adapters.envelope import Envelope
from photon.batch.records import PrimaryRecord
from photon.outputs import decode
from tests.lines import CLICKS, event_of, joined_lines, undone_lines

QUERIES = LogFile("queries.log")
NOT_UTF8 = b"\xff\xfe"


def test_a_joined_line() -> None:
    events = [event_of(b"a", b"k", 5, b"{}"), event_of(b'"\n\xc3\xa9', NOT_UTF8, -5, NOT_UTF8)]
    primaries = [PrimaryRecord(b"{}", QUERIES, 9), PrimaryRecord(NOT_UTF8, QUERIES, 9)]
    payloads = [Joined(b'{"f": 1}', b"[ 2 ]"), Joined(None, None)]
    lines = joined_lines(Envelope(), events, primaries, payloads, token=255, at_ns=0)
    found = decode(b"".join(lines), 100)
    assert found.offset == [100, 100 + len(lines[0])]
    assert found.event_id == [b"a", b'"\n\xc3\xa9']
    assert found.key == [b"k", NOT_UTF8]
    assert found.event_time_ns == [5, -5]
    assert found.foreign == [b'{"f": 1}', b'"//4="']
    assert found.primary == [b"[ 2 ]", b'"//4="']
    assert found.source_file == ["a/clicks.log"] * 2
    assert found.source_offset == [42, 42]
    assert found.primary_file == ["queries.log"] * 2
    assert found.primary_offset == [9, 9]
    assert found.pair == found.pairs == [None, None]
    assert found.written_at == ["1970-01-01T00:00:00.000000Z"] * 2
    assert found.token == ["00000000000000ff"] * 2
    assert found.reason == found.record == found.line == found.torn == [None, None]


def test_lines_that_are_no_join_and_bad_ones() -> None:
    envelope = Envelope()
    event, primary = event_of(b"a", b"k", 5, NOT_UTF8), PrimaryRecord(b"", QUERIES, 9)
    [undone] = undone_lines(envelope, [event], ["why"], token=None, at_ns=0, primaries=[primary])
    unreadable = envelope.unreadable(b"junk", CLICKS, 3, "not JSON", at_ns=0)
    bad = [b"{\n", b'{"event_id":"x"}\n', b'{"event_id_raw_base64":"!","source":{"file":"f","offset":1}}\n', b"{\0"]
    found = decode(b"".join([undone, unreadable, *bad]))
    assert found.event_id == [b"a", None, None, None, None, None]
    assert found.reason == ["why", "not JSON", None, None, None, None]
    assert found.record == [NOT_UTF8, b"junk", None, None, None, None]
    assert found.primary_file == ["queries.log", None, None, None, None, None]
    assert found.line == [None, None, *bad]
    assert [bool(why) for why in found.torn] == [False, False, True, True, True, True]
    assert {len(getattr(found, column.name)) for column in fields(found)} == {6}
    assert decode(b"").offset == []

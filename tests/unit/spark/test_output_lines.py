"""Lines of output logs as columns: the envelope's fields, payloads byte for byte."""

from __future__ import annotations

import pytest

from photon.adapters.contract import Joined, LogFile
from photon.adapters.envelope import Envelope
from photon.batch.events import ForeignEvent
from photon.batch.records import PrimaryRecord
from photon.spark.output_lines import NoRecord, OutputLine, read_output_line, read_output_lines
from tests.lines import event_of, joined_lines, undone_lines

AT_NS = 1_700_000_000_123_456_000
TIME = "2023-11-14T22:13:20.123456Z"
EVENT = event_of()
PRIMARY = PrimaryRecord(b"1", LogFile("queries.log"), 99)


def joined(payload: Joined, event: ForeignEvent = EVENT, *, token: int = 0xAB) -> bytes:
    (line,) = joined_lines(Envelope(), [event], [PRIMARY], [payload], token=token, at_ns=AT_NS)
    return line.removesuffix(b"\n")


@pytest.mark.parametrize(
    "payload", [b'{"a" : 1.0e+2,  "b":"\\u00e4"}', b'"text"', b"[1, 2]", b"null", b'{"primary":{"x":1}}', b"1e999"]
)
def test_payloads_are_cut_out_as_they_stand(payload: bytes) -> None:
    line = read_output_line(joined(Joined(payload, b"{ }")), "joined")
    places = ("a/clicks.log", 42), ("queries.log", 99)
    assert line == OutputLine(b"c1", b"q1", 123, 123, payload, b"{ }", None, None, *places, TIME, f"{0xAB:016x}")


def test_what_is_no_text_stands_as_base64() -> None:
    event = event_of(event_id=b"\xff\x00", key=b"k\xff", record=b"\xfe\xfd")
    line = read_output_line(joined(Joined(None, b"1"), event), "joined")
    assert (line.event_id, line.key, line.foreign) == (b"\xff\x00", b"k\xff", b'"/v0="')


@pytest.mark.parametrize("kind", ["unmatched", "filtered", "rejected", "late"])
def test_lines_that_are_no_join(kind: str) -> None:
    event = event_of(record=b'not "json" \xc3\xa4')
    (made,) = undone_lines(Envelope(), [event], ["why"], token=None, at_ns=AT_NS)
    line = read_output_line(made.removesuffix(b"\n"), kind)
    assert (line.record, line.reason, line.token, line.foreign) == (event.record, "why", None, None)
    assert (line.event_id, line.event_time_ns, line.written_at) == (b"c1", 123, TIME)


def test_a_record_without_id_or_time() -> None:
    made = Envelope().unreadable(b"\xff", LogFile("x.log"), 5, "no time", at_ns=AT_NS)
    line = read_output_line(made.removesuffix(b"\n"), "rejected")
    assert (line.event_id, line.key, line.event_time_ns, line.record) == (None, None, None, b"\xff")
    assert line.source == ("x.log", 5)


def test_a_record_that_is_withheld_is_a_record() -> None:
    made = Envelope().unreadable(b"junk", LogFile("x.log"), 5, "no time", at_ns=AT_NS).removesuffix(b"\n")
    line = read_output_line(made.replace(b'"junk"', b"null"), "rejected")
    assert (line.record, line.reason, line.source) == (None, "no time", ("x.log", 5))
    with pytest.raises(NoRecord):
        read_output_line(made.replace(b'"record":"junk",', b""), "rejected")


def test_what_a_computation_publishes_is_a_record() -> None:
    made = b'{"event_id":"i0:17","event_time_ns":5,"foreign":{"cents":1},"source":{"file":"i0","offset":17}}'
    line = read_output_line(made, "joined")
    assert (line.event_id, line.key, line.event_time_ns, line.foreign) == (b"i0:17", None, 5, b'{"cents":1}')
    assert (line.primary, line.source, line.primary_source) == (None, ("i0", 17), None)
    for bad in (made.replace(b"17}}", b"18}}"), made.replace(b"foreign", b"foreigm")):
        with pytest.raises(NoRecord, match="lacks members of a joined record"):
            read_output_line(bad, "joined")


def test_what_is_no_record_says_why() -> None:
    good = joined(Joined(b"{}", b"{}"))
    for cut in range(len(good)):
        with pytest.raises(NoRecord):
            read_output_line(good[:cut], "joined")
    for bad in (b"{}", b"[]", good.replace(b'"key"', b'"kez"'), good.replace(b"00ab", b"00AB"), good + b"}"):
        with pytest.raises(NoRecord):
            read_output_line(bad, "joined")


def test_a_torn_line_does_not_hide_its_neighbours() -> None:
    good = joined(Joined(b"{}", b"{}")) + b"\n"
    columns = read_output_lines(good + b'{"event_id":"x\n' + good, 1000, "joined")
    assert columns.offsets == [1000, 1000 + len(good), 1000 + len(good) + 15]
    assert [line is None for line in columns.lines] == [False, True, False]
    assert [why is None for why in columns.torn] == [True, False, True]


def test_members_that_no_line_of_its_kind_has() -> None:
    made = joined(Joined(b"{}", b"{}"))
    assert not read_output_line(made, "joined").added
    for more in (b'"campaign":1,', b'"decided_at":"x",', b'"record_raw_base64":"",'):
        assert read_output_line(b"{" + more + made[1:], "joined").added, more
    undone = b'{"reason":"no","record":"r","source":{"file":"f","offset":1}}'
    assert not read_output_line(undone, "rejected").added
    for more in (b'"campaign":1,', b'"joined_at":"x",', b'"foreign":{},', b'"pair":1,"pairs":1,'):
        assert read_output_line(b"{" + more + undone[1:], "rejected").added, more

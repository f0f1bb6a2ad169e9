"""Blocks to events: offsets, ids, digests, and unreadable records."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from photon.adapters.contract import Adapter, BadRecord, ForeignHeader, Headers, LogFile
from photon.adapters.logs.api import Block
from photon.adapters.logs.place_ids import place_ids
from photon.batch.events import ForeignEvent
from photon.joiner.foreign_columns import Unreadable, events_of, records_of
from tests.unit.dispatcher.world import DIGESTER, Words, block


def parsed(what: Block, adapter: Adapter, as_of_ns: int = 0) -> tuple[list[ForeignEvent], list[Unreadable]]:
    events, unreadable, _ = events_of(what, *records_of(what), adapter, DIGESTER, as_of_ns)
    return events.rows(), unreadable


@settings(deadline=None)
@given(st.lists(st.sampled_from([b"", b"\r", b"a", b"bb\r", b"\0", b"c c c"])), st.integers(0, 100))
def test_each_record_stands_at_its_offset(lines: list[bytes], start: int) -> None:
    data = b"".join(line + b"\n" for line in lines)
    records, offsets = records_of(block(data, start))
    assert len(records) == len(offsets) == sum(bool(line.strip(b"\r")) for line in lines)
    for record, offset in zip(records, offsets, strict=True):
        assert data[offset - start :].startswith(record)
        assert data[offset - start + len(record) :].lstrip(b"\r").startswith(b"\n")
        assert offset == start or data[offset - start - 1] == 0x0A


def test_ids_digests_and_times() -> None:
    what = block(b"i1 k1 5\n- k2 -3\n", 100)
    (one, two), unreadable = parsed(what, Words({}), 77)
    assert not unreadable
    assert (one.event_id, one.key, one.event_time_ns, one.offset) == (b"i1", b"k1", 5 * 3_600_000_000_000, 100)
    (placed,) = place_ids(what.data, what.offset, what.before, [b"- k2 -3"], [108])
    assert (two.event_id, two.offset, two.record) == (placed, 108, b"- k2 -3")
    assert one.digest == DIGESTER.digest(b"i1")
    assert two.digest == DIGESTER.digest(placed)
    assert one.unmatched_as_of_ns == 77


def test_unreadable_records_do_not_touch_their_neighbours() -> None:
    what = block(b"i1 k 1\nbad\ni2 k 2\ni3 k 99999999\ni4 k x\n")
    events, unreadable = parsed(what, Words({}))
    assert [e.event_id for e in events] == [b"i1", b"i2"]
    assert [e.digest for e in events] == [DIGESTER.digest(b"i1"), DIGESTER.digest(b"i2")]
    reasons = {bad.record: bad.reason for bad in unreadable}
    assert reasons[b"bad"] == "1 words, not 3"
    assert reasons[b"i3 k 99999999"] == "the event time is out of range"
    assert "ValueError" in reasons[b"i4 k x"]


class Nonsense(Words):
    """header_columns returns something invalid."""

    def header_columns(self, records: Sequence[bytes], file: LogFile) -> Headers:
        return self.options["answer"]  # type: ignore[no-any-return]


def test_an_adapter_that_returns_nonsense_is_asked_one_by_one() -> None:
    what = block(b"i1 k 1\n")
    for answer in (["what?"], Headers([], [], [], {}), Headers([b"k"], [1], [b"i"], {0: "what?"})):  # type: ignore[dict-item]
        events, unreadable = parsed(what, Nonsense({"answer": answer}))
        assert ([e.event_id for e in events], unreadable) == ([b"i1"], [])  # one at a time instead


class Odd(Words):
    """foreign_header returns the values in the options."""

    def foreign_header(self, record: bytes, file: LogFile) -> ForeignHeader:
        answer = self.options["answer"]
        if isinstance(answer, BaseException):
            raise answer
        return answer  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (None, "the adapter's foreign_header gave a NoneType, not a ForeignHeader"),
        (ForeignHeader("k", 1, b"i"), "the adapter's key is str; it must be bytes"),  # type: ignore[arg-type]
        (ForeignHeader(bytearray(b"k"), 1, b"i"), "the adapter's key is bytearray; it must be bytes"),  # type: ignore[arg-type]
        (ForeignHeader(b"k", 1.5, b"i"), "the adapter's event_time_ns is float, not int"),  # type: ignore[arg-type]
        (ForeignHeader(b"k", None, b"i"), "the adapter's event_time_ns is NoneType, not int"),  # type: ignore[arg-type]
        (ForeignHeader(b"k", 1, "i"), "the adapter's event_id is str, not bytes"),  # type: ignore[arg-type]
        (ForeignHeader(b"k", 1, b""), "the adapter's event_id is empty; an event without an id of its own has None"),
        (ForeignHeader(b"k", 2**63, b"i"), "the event time is out of range"),
        (BadRecord(17), "17"),  # type: ignore[arg-type]
    ],
)
def test_a_header_that_breaks_the_contract_is_rejected_with_the_reason(answer: object, reason: str) -> None:
    what = block(b"i1 k 1\n")
    events, unreadable = parsed(what, Odd({"answer": answer}))
    assert not events
    assert [bad.reason for bad in unreadable] == [reason]


def test_an_adapter_that_exits_rejects_its_record_only() -> None:
    what = block(b"i1 k 1\n")
    _, (bad,) = parsed(what, Odd({"answer": SystemExit(3)}))
    assert bad.reason.startswith("the adapter raised SystemExit: 3")


def test_nothing_gives_nothing() -> None:
    what = block(b"\n\r\n")
    assert records_of(what) == ([], [])
    assert parsed(what, Words({})) == ([], [])

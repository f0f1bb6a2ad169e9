"""Look-ups on the wire: every answer comes back as it was, large replies come in parts, nonsense is refused."""

from __future__ import annotations

import pytest

from photon.adapters.contract import LogFile
from photon.eventstore import columns
from photon.eventstore import eventstore_pb2 as pb
from photon.eventstore.api import EventLookUps, LookUpCode, PrimaryPlace, PrimaryRecord

A, B = LogFile("a.log", b"head"), LogFile("b.log")
CODES = "FOUND NOT_YET FOUND ABSENT UNAVAILABLE FOUND"
FOUND = EventLookUps.of(
    [LookUpCode[name] for name in CODES.split()],
    [PrimaryRecord(b"one", A, 1 << 40), None, PrimaryRecord(b"", B, 0), None, None, PrimaryRecord(b"three", A, 7)],
    {0: PrimaryPlace(B, 1 << 39), 5: PrimaryPlace(A, 8)},
)


@pytest.mark.parametrize(("bytes_max", "count"), [(0, 2), (3, 5), (7, 5), (8, 6)])
def test_a_large_reply_answers_a_prefix(bytes_max: int, count: int) -> None:
    message = columns.reply(FOUND, bytes_max)
    ambiguous = {row: place for row, place in FOUND.ambiguous.items() if row < count}
    part = columns.answered(message, 6)
    assert (part.answers, part.records) == (FOUND.answers[:count], FOUND.records[:count])
    assert part.ambiguous == ambiguous


def test_requests_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "KEYS_MAX", 3)
    monkeypatch.setattr(columns, "KEYS_BYTES_MAX", 10)
    keys = [b"1", b"2", b"3", b"4", b"x" * 30, b"y" * 9, b"z" * 2, b"u" * 8]
    slices = columns.request_slices(keys)
    assert [keys[s] for s in slices] == [[b"1", b"2", b"3"], [b"4"], [b"x" * 30], [b"y" * 9], [b"z" * 2, b"u" * 8]]
    assert columns.request_slices([]) == []
    with pytest.raises(columns.WireError, match="at most 3"):
        columns.asked(columns.request("j", [b"k"] * 4, [0] * 4))
    with pytest.raises(columns.WireError, match="as_of"):
        columns.asked(pb.EventLookUpRequest(keys=[b"k"], as_of=b"1234"))
    with pytest.raises(columns.WireError, match="times has 4 bytes for 1 keys"):
        columns.asked(pb.EventLookUpRequest(keys=[b"k"], as_of=b"12345678", times=b"1234"))
    assert columns.asked(columns.request("j", [b"k", b"l"], [1, 2], [-5, 6])) == ([b"k", b"l"], [1, 2], [-5, 6])
    assert columns.asked(columns.request("j", [b"k"], [1])) == ([b"k"], [1], None)
    with pytest.raises(columns.WireError, match="20 bytes of rows for 4 keys"):
        columns.sought_of(columns.seek_reply([0, 1, 2, 3, 3]), 4)


@pytest.mark.parametrize(
    "change", [{"ambiguous_offsets": [1]}, {"ambiguous_rows": [1, 5]}, {"ambiguous_rows": [0, 6]}]
)
def test_ambiguous_keys_are_among_the_found(change: dict[str, list[int]]) -> None:
    message = columns.reply(FOUND)
    for name, value in change.items():
        getattr(message, name)[:] = value
    with pytest.raises(columns.WireError, match="ambiguous"):
        columns.answered(message, 6)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("answers", bytes([1])),
        ("answers", bytes([9])),
        ("answers", b""),
        ("offsets", b""),
        ("file_indexes", len(columns.reply(FOUND).files).to_bytes(4, "little") * 3),
    ],
)
def test_columns_that_do_not_fit_are_refused(name: str, value: bytes) -> None:
    message = columns.reply(FOUND)
    setattr(message, name, value)
    with pytest.raises(columns.WireError):
        columns.answered(message, 6)

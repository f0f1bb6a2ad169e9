"""Bytes to records, in any chunks: compared with splitting the whole."""

from __future__ import annotations

from hypothesis import example, given, settings
from hypothesis import strategies as st

from photon.adapters.logs.framing import OVERSIZED_HEAD_BYTES, LongRecord, Piece, frame

lines = st.lists(st.binary(max_size=40).map(lambda b: b.replace(b"\n", b"\0")), max_size=12)


def expected(data: bytes, max_record: int, final: bool) -> tuple[list[tuple[int, bytes]], list[tuple[int, int]]]:
    """(offset, line) of the whole records, (offset, length) of the oversized ones."""
    good, long = [], []
    at = 0
    while at < len(data):
        stop = data.find(b"\n", at)
        if stop < 0:
            if not final:
                break
            stop = len(data)
        if stop - at > max_record:
            long.append((at, stop - at))
        else:
            good.append((at, data[at:stop]))
        at = stop + 1
    return good, long


def records_of(pieces: list[Piece]) -> list[tuple[int, bytes]]:
    out = []
    for piece in pieces:
        at = piece.offset
        for line in piece.data.split(b"\n")[:-1]:
            out.append((at, line))
            at += len(line) + 1
    return out


def feed(data: bytes, sizes: list[int], max_record: int, final: bool) -> list[Piece]:
    """Like the follower: continues reading at ``next``, and reads more when a record does not fit into the bytes
    read."""
    pieces: list[Piece] = []
    at, long, turn = 0, None, 0
    while True:
        size = sizes[turn % len(sizes)]
        turn += 1
        while True:
            chunk = data[at : at + size]
            at_end = len(chunk) < size
            if at_end or long or b"\n" in chunk or size > max_record:
                break
            size = min(size * 2, max_record + 1)
        framed = frame(chunk, at, max_record=max_record, final=final and at_end, long=long)
        pieces += framed.pieces
        at, long = framed.next, framed.long
        if at_end:
            return pieces


@settings(deadline=None)
@given(lines, st.booleans(), st.lists(st.integers(1, 60), min_size=1, max_size=4), st.integers(1, 50), st.booleans())
@example([b"one", b"tw"], False, [9], 50, False)  # a partial last line waits
@example([b"one", b"tw"], False, [9], 50, True)
@example([b"a\r", b"\0b\0", b"\r"], True, [20], 9, False)
def test_any_chunks_give_the_same_records(
    content: list[bytes], ended: bool, sizes: list[int], max_record: int, final: bool
) -> None:
    data = b"\n".join(content) + (b"\n" if ended else b"")
    good, long = expected(data, max_record, final)
    pieces = feed(data, sizes, max_record, final)
    assert records_of(pieces) == good
    assert [(o.offset, o.length) for p in pieces for o in p.oversized] == long
    for piece in pieces:  # a reader that stops after any piece loses and doubles nothing
        behind = [o for o in [*good, *long] if o[0] >= piece.end]
        assert sorted(behind) == sorted(o for o in [*good, *long] if o[0] > piece.offset and o[0] >= piece.end)
        assert piece.end == len(data) or data[piece.end - 1 : piece.end] == b"\n"
        for o in piece.oversized:
            assert o.head == data[o.offset : o.offset + min(o.length, OVERSIZED_HEAD_BYTES)][: len(o.head)]


def test_oversized_record_between_others_is_reported_with_its_place() -> None:
    framed = frame(b"ab\n" + b"x" * 50 + b"\ncd\n", 0, max_record=10)
    first, second = framed.pieces
    assert (first.data, first.offset, first.end) == (b"ab\n", 0, 54)
    assert [(o.offset, o.length, o.head) for o in first.oversized] == [(3, 50, b"x" * 50)]
    assert second == Piece(54, b"cd\n", 57)


def test_oversized_record_over_many_reads_keeps_only_its_head() -> None:
    framed = frame(b"y" * 5000, 0, max_record=2000)
    assert framed.long == LongRecord(0, 5000, b"y" * OVERSIZED_HEAD_BYTES)
    framed = frame(b"z" * 5000, framed.next, max_record=2000, long=framed.long)
    assert framed.pieces == []
    framed = frame(b"z\nok\n", framed.next, max_record=2000, long=framed.long)
    assert [(o.offset, o.length, len(o.head)) for o in framed.pieces[0].oversized] == [
        (0, 10001, OVERSIZED_HEAD_BYTES)
    ]
    assert framed.pieces[0].end == 10002
    assert framed.pieces[1] == Piece(10002, b"ok\n", 10005)

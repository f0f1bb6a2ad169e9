"""Ids of events whose records carry none: a pure function of the log's bytes. Pure.

The id of a record is a digest of the record and of what stands directly before it, and the record's offset in the
uncompressed log. Neither the file's name nor what a reader has seen is part of it. So renaming, linking, moving,
compressing and copying a log leave its ids as they are, in every datacentre and for every reader, and two logs get
different ids from the record on in which they first differ. ``docs/dispatcher.md`` says what follows for users.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xxhash import xxh3_128_hexdigest

from photon.adapters.formats.delimited import LINE_END_MARK

CONTEXT_BYTES = 4096
"""Upper bound on the bytes before a record that count. Fewer would merge logs that differ further back."""


def place_ids(
    data: bytes, begin: int, before: bytes, records: Sequence[bytes], offsets: Sequence[int]
) -> list[bytes]:
    """The ids of some records of a block.

    ``data``: the block's bytes, from offset ``begin`` of the log on. ``before``: the CONTEXT_BYTES in front of them,
    or all where there are fewer. ``records`` without their line ends, ``offsets`` where they begin in the log.
    """
    if len(before) < min(CONTEXT_BYTES, begin):
        raise ValueError(f"an id by place needs the bytes before offset {begin}, and only {len(before)} were given")
    context = before + data
    if LINE_END_MARK in context:  # line ends inside quotes count alike whether they are marked or not
        context = context.replace(LINE_END_MARK, b"\n")
    view, shift = memoryview(context), len(before) - begin
    ids = []
    for record, offset in zip(records, offsets, strict=True):
        at = offset + shift
        digest = xxh3_128_hexdigest(view[max(at - CONTEXT_BYTES, 0) : at + len(record)])
        ids.append(f"{digest}:{offset}".encode())
    return ids


def place_id(record: bytes, offset: int, read: Callable[[int, int], bytes]) -> bytes:
    """The id of one record. ``read(offset, length)`` gives the log's bytes."""
    front = min(CONTEXT_BYTES, offset)
    return place_ids(record, offset, read(offset - front, front), [record], [offset])[0]

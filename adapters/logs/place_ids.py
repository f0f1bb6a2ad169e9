"""Makes ids for events whose records have none. An id is a pure function of the log's bytes.

The id of a record is a digest of the record, of the bytes directly before it, and of its offset in the uncompressed
log. Neither the file's name nor the reader's history is part of it. So renaming, linking, moving, compressing and
copying a log do not change its ids, in any datacentre and for any reader, and two logs get different ids from the
first record in which they differ. ``docs/dispatcher.md`` describes the consequences for users.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from xxhash import xxh3_128_hexdigest

from photon.adapters.formats.delimited import unmarked

# Most bytes before a record that count. With fewer, logs that differ further back would be merged.
CONTEXT_BYTES = 4096


def place_ids(
    data: bytes, begin: int, before: bytes, records: Sequence[bytes], offsets: Sequence[int]
) -> list[bytes]:
    """Returns the ids of some records of a block.

    ``data``: the block's bytes, from offset ``begin`` of the log. ``before``: the CONTEXT_BYTES before them, or fewer
    at the start of the log. ``records``: without their line ends. ``offsets``: where they begin in the log.
    """
    if len(before) < min(CONTEXT_BYTES, begin):
        raise ValueError(f"an id by place needs the bytes before offset {begin}, but only {len(before)} were given")
    context = unmarked(before + data)  # line ends inside quotes count the same whether they are marked or not
    view, shift = memoryview(context), len(before) - begin
    ids = []
    for record, offset in zip(records, offsets, strict=True):
        at = offset + shift
        digest = xxh3_128_hexdigest(view[max(at - CONTEXT_BYTES, 0) : at + len(record)])
        ids.append(f"{digest}:{offset}".encode())
    return ids


def place_id(record: bytes, offset: int, read: Callable[[int, int], bytes]) -> bytes:
    """Returns the id of one record. ``read(offset, length)`` returns the log's bytes."""
    front = min(CONTEXT_BYTES, offset)
    return place_ids(record, offset, read(offset - front, front), [record], [offset])[0]

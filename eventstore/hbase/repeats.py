"""How many entries of the map have a hash that an earlier one has: entries less distinct hashes."""

from __future__ import annotations

from collections.abc import Mapping

from photon.eventstore.file_map import unpack
from photon.eventstore.hbase import schema
from photon.eventstore.hbase.api import HBase
from photon.eventstore.hbase.pending import PendingEntries


def stored_repeats(hbase: HBase, table: bytes, life: bytes, numbers: Mapping[bytes, int]) -> int:
    """Those in the table: a scan of all that the map has there. ``numbers``: logs by digest."""
    repeats = 0
    for salt in range(256):
        start = bytes([salt]) + life
        for row, cells in hbase.scan(table, start, _behind(start)):
            if len(row) == schema.DENSE_ROW_BYTES:
                repeats += max(0, sum(1 for _ in schema.dense_places(cells, numbers)) - 1)
    return repeats


def pending_repeats(
    hbase: HBase, table: bytes, life: bytes, numbers: Mapping[bytes, int], pending: PendingEntries
) -> int:
    """Those that will be repeats once the pending entries are in the table."""
    hashes, locations = pending.dense()
    if not len(hashes):
        return 0
    rows = schema.dense_rows(life, hashes)
    found = hbase.read(table, list(set(rows)))
    there = {(row, place) for row, cells in found.items() for place in schema.dense_places(cells, numbers)}
    known = {row for row, _ in there}
    logs, offsets = unpack(locations)
    repeats = 0
    for row, place in zip(rows, zip(logs.tolist(), offsets.tolist(), strict=True), strict=True):
        if (row, place) not in there:
            repeats += row in known
            known.add(row)
    return repeats


def _behind(prefix: bytes) -> bytes:
    """The first row that does not begin with ``prefix``; b"" when there is none."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else b""

"""Records in blocks and their keys; what an adapter raises is kept to the record that it raised on."""

from __future__ import annotations

from photon.adapters.contract import Adapter, LogFile


def record_at(data: bytes, start: int) -> bytes:
    """The record at ``start``, without its line end."""
    end = data.find(b"\n", start)
    if end < 0:
        end = len(data)
    if end > start and data[end - 1] == 13:
        end -= 1
    return data[start:end]


def key_of(adapter: Adapter, record: bytes, file: LogFile) -> bytes | None:
    """The record's key; None when it cannot be read: whatever the adapter raises makes this record a bad one."""
    try:
        return adapter.primary_key(record, file)
    except (Exception, SystemExit):
        return None


def keys_of_block(adapter: Adapter, data: bytes, file: LogFile) -> list[bytes | None]:
    """The key of each record of a block (whole records, each ended by a newline)."""
    try:
        return adapter.primary_keys(data, file)
    except (Exception, SystemExit):  # one record that the adapter raises on must not take the others with it
        return [key_of(adapter, line.removesuffix(b"\r"), file) for line in data.split(b"\n")[:-1]]

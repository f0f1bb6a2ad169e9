"""Records in blocks and their keys; what an adapter raises is kept to the record that it raised on."""

from __future__ import annotations

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.containment import Fault, Guard
from photon.adapters.contract import Adapter, LogFile
from photon.adapters.formats.json_scan import cut_lines
from photon.eventstore.index import I64


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
    guard = Guard(adapter)
    keys = guard.many(lambda: adapter.primary_keys(data, file))
    if not isinstance(keys, Fault):
        return keys
    # One record that the adapter raises on, or does not come back from, must not take the others with it.
    lines = data.split(b"\n")[:-1]
    alone = guard.each(lines, lambda line: adapter.primary_key(line.removesuffix(b"\r"), file))
    return [None if isinstance(each, Fault) else each for each in alone]


def located_keys_of_block(adapter: Adapter, data: bytes, file: LogFile) -> tuple[list[bytes | None], I64]:
    """Them, and where each line begins: found once where adapter and format can say so."""
    if type(adapter) is ConfiguredAdapter:  # another class may mean something else by its keys
        found = Guard(adapter).many(lambda: adapter.located_primary_keys(data, file))
        if found is not None and not isinstance(found, Fault):
            return found
    _, starts, _ = cut_lines(data)
    return keys_of_block(adapter, data, file), starts

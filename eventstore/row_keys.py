"""Canonical event ids and the row keys of the sparse file map: pure, shared by every backend.

A canonical id is ``ServerIP:ProcessID:TimestampMicros`` and rises strictly within its process (paper, section 3.1).
A row key has fixed-width big-endian parts, so the order of the bytes is the order of ids:

    salt (1) | server ip (16, IPv4 mapped) | process id (4) | timestamp, microseconds (8)

The salt is a hash of the process: it spreads writers over an ordered table's regions, while one process, and so one
range scan, stays in one region.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b

from photon import eventid

SALTS = 64
PREFIX_BYTES = 21
ROW_KEY_BYTES = PREFIX_BYTES + 8
_PROCESSES_REMEMBERED = 1 << 16


@lru_cache(maxsize=_PROCESSES_REMEMBERED)
def process_prefix(process: bytes) -> bytes | None:
    """The row keys' prefix of ``ServerIP:ProcessID``; None when it is not written canonically.

    Two spellings of one process would share row keys and yet be different keys.
    """
    parts = eventid.process(process)
    if parts is None:
        return None
    ip, pid = parts
    packed = ip.packed if ip.version == 6 else b"\0" * 10 + b"\xff\xff" + ip.packed
    body = packed + pid.to_bytes(4, "big")
    return bytes([blake2b(body, digest_size=1).digest()[0] % SALTS]) + body


def parse_event_id(key: bytes) -> tuple[bytes, int] | None:
    """(row key prefix of the process, timestamp in microseconds); None when the key is not a canonical id."""
    parts = eventid.split(key)
    if parts is None:
        return None
    prefix = process_prefix(parts[0])
    return None if prefix is None else (prefix, parts[1])


def row_key(prefix: bytes, micros: int) -> bytes:
    """The row of an id. Times before the process's first, as in a range's start, are clamped to 0."""
    return prefix + max(0, micros).to_bytes(8, "big")


def micros_of(row: bytes) -> int:
    return int.from_bytes(row[PREFIX_BYTES:], "big")

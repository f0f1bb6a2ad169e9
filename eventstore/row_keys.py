"""Canonical event ids and the row keys of the sparse file map: pure, shared by every backend.

A canonical id is ``ServerIP:ProcessID:TimestampMicros`` and rises strictly within its process (paper, section 3.1).
A row key has fixed-width big-endian parts, so the order of the bytes is the order of ids:

    salt (1) | server ip (16, IPv4 mapped) | process id (4) | timestamp, microseconds (8)

The salt is a hash of the process: it spreads writers over an ordered table's regions, while one process, and so one
range scan, stays in one region.
"""

from __future__ import annotations

import ipaddress
from functools import lru_cache
from hashlib import blake2b

SALTS = 64
PREFIX_BYTES = 21
ROW_KEY_BYTES = PREFIX_BYTES + 8
MICROS_MAX = 2**63 - 1
_PROCESSES_REMEMBERED = 1 << 16


@lru_cache(maxsize=_PROCESSES_REMEMBERED)
def process_prefix(process: bytes) -> bytes | None:
    """The row keys' prefix of ``ServerIP:ProcessID``; None when it is not written canonically.

    Only one spelling is canonical (no leading zeros, compressed lower-case IPv6): two spellings of one
    process would share row keys and yet be different keys.
    """
    ip_text, colon, pid_text = process.rpartition(b":")
    if not colon or not _canonical_number(pid_text):
        return None
    pid = int(pid_text)
    try:
        ip = ipaddress.ip_address(ip_text.decode("ascii"))
    except ValueError:  # UnicodeDecodeError is one
        return None
    if pid >= 1 << 32 or str(ip).encode() != ip_text:
        return None
    packed = ip.packed if ip.version == 6 else b"\0" * 10 + b"\xff\xff" + ip.packed
    body = packed + pid.to_bytes(4, "big")
    return bytes([blake2b(body, digest_size=1).digest()[0] % SALTS]) + body


def _canonical_number(text: bytes) -> bool:
    return text.isdigit() and (text[0] != 48 or text == b"0") and len(text) <= 19


def parse_event_id(key: bytes) -> tuple[bytes, int] | None:
    """(row key prefix of the process, timestamp in microseconds); None when the key is not a canonical id."""
    process, _, micros_text = key.rpartition(b":")
    if not _canonical_number(micros_text):
        return None
    prefix = process_prefix(process)
    micros = int(micros_text)
    return None if prefix is None or micros > MICROS_MAX else (prefix, micros)


def row_key(prefix: bytes, micros: int) -> bytes:
    """The row of an id. Times before the process's first, as in a range's start, are clamped to 0."""
    return prefix + max(0, micros).to_bytes(8, "big")


def micros_of(row: bytes) -> int:
    """The timestamp of a row key, microseconds."""
    return int.from_bytes(row[PREFIX_BYTES:], "big")

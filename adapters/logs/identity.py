"""Which log a file is: pure functions of its name and its first bytes.

Identity = BLAKE2b-128 of (log name without its rotation suffix, first data record). It survives renaming by a
rotation, compression and restarts, and is the same in every datacentre that holds a byte-identical copy.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TypeVar

from xxhash import xxh3_128_digest

from photon.adapters.contract import LINES, Framing
from photon.adapters.formats.delimited import LINE_END_MARK

T = TypeVar("T")
BOM = b"\xef\xbb\xbf"
PROOF_BYTES = 4096
"""A position is proved by so many bytes before it: a page, read at once, that in most logs holds several records with
their ids and times. That the bytes before these are the same is not proved: that would cost reading them all."""
ALIKE_MARK = "~"
"""Between the identity that name and first record make, and the number of a log that has them from another one."""
IDENTITY_BYTES = 1 << 16
"""How much of the first data record decides; the rest of a longer one is not looked at."""
HEAD_BYTES = 4 * IDENTITY_BYTES
"""Header, blank lines and the deciding part of the first record must stand in so many bytes."""
FINGERPRINT_BYTES = 1024
"""So much of the first record is compared at each read, to notice that a file was replaced under its name."""

_NUMBER = re.compile(r"\.\d{1,4}$")
_DATE = re.compile(r"(?:[-_.]\d{8}(?:[-_.T]?\d{2,6})?|[-_.]\d{4}-\d{2}-\d{2}(?:[-_.T]\d{2}(?:[-_:.]?\d{2}){0,2})?)$")


def log_name(path: str) -> str:
    """The relative path without what a rotation puts behind it: ``.gz`` or ``.zst``, one number, one date."""
    directory, slash, name = path.rpartition("/")
    name = _strip(name, re.compile(r"\.(?:gz|zst)$"))
    before = ""
    number, date = True, True
    while before != name:
        before = name
        if number and (shorter := _strip(name, _NUMBER)) != name:
            name, number = shorter, False
        elif date and (shorter := _strip(name, _DATE)) != name:
            name, date = shorter, False
    return directory + slash + name


def _strip(name: str, suffix: re.Pattern[str]) -> str:
    shorter = suffix.sub("", name)
    return shorter or name


@dataclass(frozen=True, slots=True)
class Head:
    """The first bytes of a file."""

    identity: str  # 32 hex digits
    header: bytes  # without line end
    data_start: int  # offset of the first byte after byte order mark and header record
    fingerprint: bytes  # the first data record with its line end, or its begin; to be found again at each read.
    # Empty where other bytes make another file
    fingerprint_at: int  # its offset
    record: str  # digest of what decides of the first data record; equal in files that hold the same log

    def same_bytes(self, other: Head) -> bool:
        """Both were read from the same log, whatever its name."""
        return self.record == other.record and self.fingerprint_at == other.fingerprint_at


def read_head(
    path: str, head: bytes, *, has_header: bool, final: bool, framing: Framing = LINES, by_path: bool = False
) -> Head | None:
    """The identity of a file that begins with ``head`` (HEAD_BYTES of it, or all there is yet).

    None: the first data record is not complete yet. ``final``: no more will come, a last line needs no line end.
    ``by_path``: a file is one log for ever, and known by its path alone.
    In Zeek's logs lines that begin with ``#`` are no records; a log of messages has no byte order mark.
    """
    start = len(BOM) if head.startswith(BOM) and not framing.forward else 0
    raw = head
    if framing.kind == "quoted":  # the same log, whether its bytes come marked or as they are
        head = head.replace(LINE_END_MARK, b"\n")
    header = b""
    comments = framing.kind == "zeek"
    full = len(head) >= HEAD_BYTES
    if has_header:
        stop = head.find(b"\n", start)
        if stop < 0 and not (full or final):
            return None
        stop = len(head) if stop < 0 else stop
        header = head[start:stop].removesuffix(b"\r")
        start = min(stop + 1, len(head))
    begin = start
    while True:  # blank lines tell no log from another
        stop = head.find(b"\n", begin)
        if stop < 0 or (head[begin:stop].strip(b"\r") and not (comments and head.startswith(b"#", begin))):
            break
        begin = stop + 1
    if stop < 0 and not (full or final or len(head) - begin >= IDENTITY_BYTES + 2):
        return None
    record = head[begin : len(head) if stop < 0 else stop].removesuffix(b"\r")[:IDENTITY_BYTES]
    if stop < 0 and (not record or (comments and record.startswith(b"#"))):
        return None  # a header and nothing else
    return Head(
        identity_of(path, b"") if by_path else identity_of(log_name(path), record),
        header,
        start,
        b"" if by_path else raw[begin : min(len(head) if stop < 0 else stop + 1, begin + FINGERPRINT_BYTES)],
        begin,
        identity_of("", record),
    )


def proof_of(before: bytes) -> bytes:
    """16 bytes that tell the log that was read up to a position from others; empty at a log's begin, where there is
    nothing to prove. ``before``: the PROOF_BYTES in front of the position, or all where there are fewer.

    Line ends inside quotes count alike whether they are marked or not, as in a log's identity.
    """
    if not before:
        return b""
    if LINE_END_MARK in before:
        before = before.replace(LINE_END_MARK, b"\n")
    return xxh3_128_digest(before)  # twice a read; nobody who may write logs has to forge it


def proof_of_whole(key: tuple[int, int]) -> bytes:
    """In place of a position's proof: this file is final, and was read to its end."""
    return xxh3_128_digest(b"whole %d %d" % key)


def head_by_path(path: str, header: bytes = b"") -> Head:
    """Of a final file, without looking into it; a byte order mark is met when it is read."""
    return Head(identity_of(path, b""), header, 0, b"", 0, "")


def may_be_copies(one: bytes, other: bytes) -> bool:
    """Whether two files that begin so are the same as far as both go: then one may be a copy of the other."""
    common = min(len(one), len(other))
    return one[:common] == other[:common]


def copies(files: Sequence[T], first_bytes: Callable[[T], bytes]) -> list[list[tuple[int, T]]]:
    """Files of one identity as groups of copies; each group after the first is a log that begins alike. With each
    file, of how many bytes that is known: of copies the longest is to be read.
    """
    groups: list[tuple[bytes, list[tuple[int, T]]]] = []
    for file in files:
        data = first_bytes(file) if len(files) > 1 else b""
        group = next((members for begin, members in groups if may_be_copies(begin, data)), None)
        if group is None:
            groups.append((data, [(len(data), file)]))
        else:
            group.append((len(data), file))
    return [members for _, members in groups]


def numbered(first: str, number: int) -> str:
    """The identity of a log that begins like the one whose name and first record make ``first``; 0: of that one."""
    return f"{first}{ALIKE_MARK}{number}" if number else first


def identity_of(name: str, record: bytes) -> str:
    """32 hex digits."""
    encoded = name.encode()
    h = blake2b(len(encoded).to_bytes(4, "little"), digest_size=16)
    h.update(encoded)
    h.update(record)
    return h.hexdigest()

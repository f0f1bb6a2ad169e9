"""Which log a file is: pure functions of its name and its first bytes.

An identity is 32 hex digits: 16 of the first data record, and 16 of that and the log name (the path without its
rotation suffix). It names a log in a reader's own state, and no event id is made of it (``place_ids``). Files of
another name whose first record is the same are compared with what was read: ``same_beginnings``.
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
Read = Callable[[int, int], bytes]
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
"""So much of the first record is compared at each read, to notice that a file was replaced under its name. So many
bytes from there on are kept of each file, to tell most logs apart without opening them again."""

RELATIVES_MAX = 256
"""Upper bound on the logs beginning with its first record that a file is compared with. One that is not recognised is
read as a log of its own, which costs time and no record."""

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
    begin: bytes = b""  # the first FINGERPRINT_BYTES from there on, as far as the file went

    def same_record(self, other: Head) -> bool:
        """True if both begin with the same data record, at the same place."""
        same = record_of(self.identity) == record_of(other.identity)
        return same and self.fingerprint_at == other.fingerprint_at


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
    if by_path:
        return head_by_path(path, header, start, begin)
    return Head(
        identity_of(log_name(path), record),
        header,
        start,
        raw[begin : min(len(head) if stop < 0 else stop + 1, begin + FINGERPRINT_BYTES)],
        begin,
        raw[begin : begin + FINGERPRINT_BYTES],
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


def head_by_path(path: str, header: bytes = b"", data_start: int = 0, at: int = 0) -> Head:
    """Of a final file, without looking into it; a byte order mark is met when it is read."""
    return Head(blake2b(path.encode(), digest_size=16).hexdigest(), header, data_start, b"", at)


def may_be_copies(one: bytes, other: bytes) -> bool:
    """Whether two files that begin so are the same as far as both go: then one may be a copy of the other."""
    common = min(len(one), len(other))
    return one[:common] == other[:common]


def are_copies(one: Read, other: Read, taken: bool | None, begin: int = 0) -> bool:
    """True if two files are the same from ``begin`` on as far as both go, and ``preference`` takes the longer one.

    ``taken``: True if that is ``one``; ``None`` means both are plain, and their sizes tell. Behind the first bytes
    the size of a compressed file does not tell how far it goes.
    """
    while True:
        data, other_data = one(begin, HEAD_BYTES), other(begin, HEAD_BYTES)
        if not may_be_copies(data, other_data):
            return False
        if min(len(data), len(other_data)) < HEAD_BYTES:
            if not begin or taken is None:
                return True
            return len(data) >= len(other_data) if taken else len(other_data) >= len(data)
        begin += HEAD_BYTES


def takes(one: tuple[str, int], other: tuple[str, int]) -> bool | None:
    """Which of two files (path, size) with the same first bytes ``preference`` takes; as ``are_copies`` wants it."""
    if not any(path.endswith((".gz", ".zst")) for path, _ in (one, other)):
        return None
    return preference(one[0], 0, one[1]) < preference(other[0], 0, other[1])


def copies(files: Sequence[T], head_of: Callable[[T], Head], same: Callable[[T, T], bool]) -> dict[str, list[T]]:
    """The logs that these files hold, by identity, each with its files: one, and its copies under any name.

    Files are taken in their order; the first of copies gives the identity, with a number where another log has it.
    """
    logs: dict[str, list[T]] = {}
    of_record: dict[str, list[str]] = {}
    for file in files:
        head = head_of(file)
        relatives = of_record.setdefault(record_of(head.identity), [])
        for identity in relatives[-RELATIVES_MAX:]:
            other = logs[identity][0]
            alike = may_be_copies(head.begin, head_of(other).begin)
            if alike and same(other, file):
                logs[identity].append(file)
                break
        else:
            number = 0
            while (identity := numbered(head.identity, number)) in logs:
                number += 1
            logs[identity] = [file]
            relatives.append(identity)
    return logs


def preference(path: str, head_length: int, size: int) -> tuple[int, bool, int, int, str]:
    """Of copies the least is read: the one that goes furthest, as far as first bytes tell; a plain one before its
    compressed twin; the largest; the shortest name.
    """
    return -head_length, path.endswith((".gz", ".zst")), -size, len(path), path


def numbered(first: str, number: int) -> str:
    """The identity of a log that begins like the one whose name and first record make ``first``; 0: of that one."""
    return f"{first}{ALIKE_MARK}{number}" if number else first


def identity_of(name: str, record: bytes) -> str:
    """32 hex digits."""
    named = blake2b(name.encode() + b"\0" + record, digest_size=8)
    return blake2b(record, digest_size=8).hexdigest() + named.hexdigest()


def record_of(identity: str) -> str:
    """The part of an identity that logs of any name have in common if they begin with the same record."""
    return identity[:16]

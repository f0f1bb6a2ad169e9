"""Identifies the log that a file holds: pure functions of its name and its first bytes.

An identity is 32 hex digits: a 16-digit hash of the first data record, and one of that record and the log name (the
path without its rotation suffix). It names a log in a reader's own state; event ids do not depend on it
(``place_ids``). Files of another name with the same first record are compared with the bytes already read:
``same_beginnings``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TypeVar

from xxhash import xxh3_128_digest

from photon.adapters.contract import LINES, Framing
from photon.adapters.formats.delimited import unmarked

T = TypeVar("T")
Read = Callable[[int, int], bytes]
ZSTD_SUFFIXES = (".zst", ".zstd")  # Spark uses the second for its event logs
COMPRESSED_SUFFIXES = (".gz", *ZSTD_SUFFIXES, ".bz2", ".xz")
BOM = b"\xef\xbb\xbf"
# Bytes before a position that prove it: a page, read at once, that in most logs holds several records with their ids
# and times. Earlier bytes are not proved: that would require reading them all.
PROOF_BYTES = 4096
ALIKE_MARK = "~"  # separates an identity from a number, for logs that share name and first record
IDENTITY_BYTES = 1 << 16  # bytes of the first data record that count; the rest of a longer one is ignored
# Bytes that must contain header, blank lines and the deciding part of the first record.
HEAD_BYTES = 4 * IDENTITY_BYTES
# Bytes of the first record compared at each read, to notice that a file was replaced under its name. The same number
# of bytes from there on is kept of each file, to tell most logs apart without opening them again.
FINGERPRINT_BYTES = 1024

FIRST_LINE_BYTES = 256  # of a file's first line that count as its header (``Framing.first_line``): its time is there

# Most logs with the same first record that a file is compared with. One that is not recognised is read as a log of
# its own, which costs time but no record.
RELATIVES_MAX = 256

_FIRST_LINE = re.compile(rb"[\r\n\v\t ]*([^\r\n\v\t]*)")
_NUMBER = re.compile(r"\.\d{1,4}$")
_DATE = re.compile(r"(?:[-_.]\d{8}(?:[-_.T]?\d{2,6})?|[-_.]\d{4}-\d{2}-\d{2}(?:[-_.T]\d{2}(?:[-_:.]?\d{2}){0,2})?)$")


def log_name(path: str) -> str:
    """Returns the relative path without rotation suffixes: at most one compression, one number and one date."""
    directory, slash, name = path.rpartition("/")
    name = _strip(name, re.compile(r"\.(?:gz|zstd?|bz2|xz)$"))
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
    fingerprint: bytes  # the first data record with its line end, or its start; compared at each read.
    # Empty for a file known by its path alone
    fingerprint_at: int  # its offset
    begin: bytes = b""  # the first FINGERPRINT_BYTES from there on, as far as the file went

    def same_record(self, other: Head) -> bool:
        """True if both begin with the same data record at the same offset."""
        same = record_of(self.identity) == record_of(other.identity)
        return same and self.fingerprint_at == other.fingerprint_at


def read_head(
    path: str, head: bytes, *, has_header: bool, final: bool, framing: Framing = LINES, by_path: bool = False
) -> Head | None:
    """Returns the identity of a file that begins with ``head`` (HEAD_BYTES, or all existing bytes).

    ``None`` if the first data record is incomplete. ``final``: nothing more will come, a last line needs no line end.
    ``by_path``: a file is permanently one log, identified by its path alone. In Zeek's logs, lines that begin with
    ``#`` are not records; logs of messages have no byte order mark.
    """
    start = len(BOM) if head.startswith(BOM) and not framing.forward else 0
    raw = head
    if framing.kind == "quoted":  # the identity must not depend on marked line ends
        head = unmarked(head)
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
    if framing.gathers:  # the first line is known before its record, which may continue
        line = _FIRST_LINE.match(head, start)
        begin, stop = (start, start) if line is None else line.span(1)
        if begin == stop:
            return None
        record, rest = head[begin:stop][:IDENTITY_BYTES], raw[begin : begin + FINGERPRINT_BYTES]
        if by_path:
            return head_by_path(path, header, start, begin)
        return Head(identity_of(log_name(path), record), header, start, rest[: stop - begin], begin, rest)
    while True:  # skips blank lines, which do not distinguish logs
        stop = head.find(b"\n", begin)
        if stop < 0 or (head[begin:stop].strip(b"\r") and not (comments and head.startswith(b"#", begin))):
            break
        begin = stop + 1
    if stop < 0 and not (full or final or len(head) - begin >= IDENTITY_BYTES + 2):
        return None
    record = head[begin : len(head) if stop < 0 else stop].removesuffix(b"\r")[:IDENTITY_BYTES]
    if stop < 0 and (not record or (comments and record.startswith(b"#"))):
        return None  # only a header
    if framing.first_line:
        header = record[:FIRST_LINE_BYTES]
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
    """Returns 16 bytes that prove that a file holds the log read up to a position; empty at the log's start.

    ``before``: the PROOF_BYTES before the position, or fewer at the start. Line ends inside quotes count the same
    whether they are marked or not, as in a log's identity.
    """
    if not before:
        return b""
    return xxh3_128_digest(unmarked(before))  # twice a read; writers of logs have no reason to forge it


def proof_of_whole(key: tuple[int, int]) -> bytes:
    """Returns the proof used for a final file that was read to its end."""
    return xxh3_128_digest(b"whole %d %d" % key)


def head_by_path(path: str, header: bytes = b"", data_start: int = 0, at: int = 0) -> Head:
    """Returns the head of a final file without opening it; a byte order mark is handled when it is read."""
    return Head(blake2b(path.encode(), digest_size=16).hexdigest(), header, data_start, b"", at)


def may_be_copies(one: bytes, other: bytes) -> bool:
    """True if two files with these first bytes may be copies: the bytes are equal up to the end of the shorter."""
    common = min(len(one), len(other))
    return one[:common] == other[:common]


def are_copies(one: Read, other: Read, taken: bool | None, begin: int = 0) -> bool:
    """True if two files are equal from ``begin`` to the end of the shorter, and ``preference`` selects the longer.

    ``taken``: True if ``preference`` selects ``one``; ``None`` means that both are plain, so their sizes decide. The
    size of a compressed file does not tell how many bytes it holds.
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
    """Returns the argument ``taken`` of ``are_copies`` for two files (path, size) with the same first bytes."""
    if not any(path.endswith(COMPRESSED_SUFFIXES) for path, _ in (one, other)):
        return None
    return preference(one[0], 0, one[1]) < preference(other[0], 0, other[1])


def copies(files: Sequence[T], head_of: Callable[[T], Head], same: Callable[[T, T], bool]) -> dict[str, list[T]]:
    """Returns the logs that these files hold: identity -> the log's file and its copies, under any names.

    The first file of several copies determines the identity, with a number appended if another log has it.
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
    """Returns a sort key for copies, of which the least is read: the longest head first, then a plain file before a
    compressed one, then the largest, then the shortest name.
    """
    return -head_length, path.endswith(COMPRESSED_SUFFIXES), -size, len(path), path


def numbered(first: str, number: int) -> str:
    """Returns the identity of log ``number`` among the logs that begin like ``first``; 0 is ``first`` itself."""
    return f"{first}{ALIKE_MARK}{number}" if number else first


def identity_of(name: str, record: bytes) -> str:
    """Returns a log's identity, 32 hex digits."""
    named = blake2b(name.encode() + b"\0" + record, digest_size=8)
    return blake2b(record, digest_size=8).hexdigest() + named.hexdigest()


def record_of(identity: str) -> str:
    """Returns the part of an identity shared by logs of any name that begin with the same record."""
    return identity[:16]

"""Encodes a column's meta and its versions as readable bytes.

    commit  C1 COMMIT START MARKS
    lock    L1 START WALL_MS TOKEN COMMIT LAST_START MARKS\n["table","row","column"]\n=VALUE
    version START=VALUE

``-`` in place of ``=VALUE``: the column is deleted.
"""

from __future__ import annotations

from typing import NamedTuple

import orjson

from photon.tables.api import Cell, StoreFailed


class Commit(NamedTuple):
    """The newest version of a column, and the number of roll-backs after it. (commit, marks) never decreases."""

    commit: int
    start: int  # the start timestamp of the transaction that wrote it
    marks: int


NEVER = Commit(0, 0, 0)  # of a column without a meta: never written


class Lock(NamedTuple):
    """A transaction is about to write the column."""

    start: int
    wall_ms: int  # when it was locked or prolonged, by its client's clock
    token: str  # its client's token
    before: Commit
    primary: Cell
    value: bytes | None  # None means that the column will be deleted


def read_meta(meta: bytes | None) -> Commit | Lock:
    """Decodes a meta. Raises StoreFailed if it is damaged, or has an unknown version."""
    if meta is None:
        return NEVER
    try:
        if meta.startswith(b"C1 "):
            _, commit, start, marks = meta.split()
            return Commit(int(commit), int(start), int(marks))
        if meta.startswith(b"L1 "):
            head, primary, value = meta.split(b"\n", 2)
            _, at, wall_ms, token, commit, last, marks = head.split()
            before = Commit(int(commit), int(last), int(marks))
            return Lock(
                int(at), int(wall_ms), token.decode(), before, Cell(*orjson.loads(primary)),
                value[1:] if value.startswith(b"=") else None,
            )  # fmt: skip
    except (ValueError, TypeError):
        pass
    raise StoreFailed(
        f"a cell holds {meta[:60]!r}, which this version cannot read; the store may belong to another program"
    )


def commit_meta(at: Commit) -> bytes:
    return b"C1 %d %d %d" % at


def rolled_back(before: Commit) -> bytes:
    """Returns the meta after a roll-back, which differs from all earlier metas of the cell."""
    return b"C1 %d %d %d" % (before.commit, before.start, before.marks + 1)


def primary_line(primary: Cell) -> bytes:
    """Encodes the parameter ``primary`` of ``lock_meta``, once for all locks of a transaction."""
    return orjson.dumps([*primary])


def lock_meta(start: int, wall_ms: int, token: bytes, before: Commit, primary: bytes, value: bytes | None) -> bytes:
    head = (start, wall_ms, token, before.commit, before.start, before.marks, primary)
    if value is None:
        return b"L1 %d %d %s %d %d %d\n%s\n-" % head
    return b"L1 %d %d %s %d %d %d\n%s\n=%s" % (*head, value)


def is_lock(meta: bytes | None) -> bool:
    return meta is not None and meta.startswith(b"L")


def version_of(start: int, value: bytes | None) -> bytes:
    return b"%d-" % start if value is None else b"%d=%s" % (start, value)


def value_of(version: bytes | None) -> bytes | None:
    """Returns the value in a version; ``None`` if the column was deleted or never written."""
    if version is None:
        return None
    _, is_value, value = version.partition(b"=")
    return value if is_value else None


def start_of(version: bytes) -> int:
    """Returns the start timestamp of the transaction that wrote the version."""
    start = version.partition(b"=")[0]
    return int(start[:-1] if start.endswith(b"-") else start)

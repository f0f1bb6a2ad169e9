"""Reads and writes ``intervals.json`` in a state: each owner's keys, the pending move, and the topology's version.

All processes of a topology check it once a second and follow its changes. As JSON::

    {"photon_computing":1,"topology":"spend","intervals":[[0,4294967296,"i0"]],"id":"…","free":1,
     "version":2,"shape":"…","move":[["i0"],[[0,2147483648,"i1"],[2147483648,4294967296,"i2"]]]}

A move is written here before it begins, so an interrupted one is repeated at the next start. ``version`` grows with
each change of the topology; an owner accepts nothing from owners with a newer version. ``shape`` identifies the
topology.
"""

from __future__ import annotations

import fcntl
import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec
from msgspec.structs import replace

from photon.computing.intervals import Interval, Intervals, Move, even
from photon.config.decoding import DECODE_ERRORS
from photon.config.disk import Disk
from photon.config.errors import UsageError
from photon.config.versioned_file import decoded

NAME = "intervals.json"
SPARK_NAME = "spark.json"  # replaces it in a state on Spark (``photon.spark.computing``)
LOCK_NAME = "intervals.lock"
Closing = Literal["", "closing", "reopening"]
_Ranges = tuple[tuple[int, int, str], ...]


class _File(msgspec.Struct, frozen=True, omit_defaults=True, tag_field="photon_computing", tag=1):
    topology: str
    intervals: _Ranges
    id: str
    free: int = 0
    version: int = 0
    shape: str = ""
    move: tuple[tuple[str, ...], _Ranges] | None = None
    refused: str = ""
    closing: Closing = ""
    ends: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class Known:
    """The content of the table."""

    topology: str
    intervals: Intervals
    id: str  # the state's id, for published streams
    free: int  # the first number not yet used in a name of an interval
    version: int  # the version of the topology to run, identified by ``shape``
    shape: str
    move: Move | None  # the pending move
    refused: str  # why the last move was not made; empty if it was
    # ``closing``: a run with ``--once`` has begun; ``reopening``: it is done, and watermarks are being reset.
    closing: Closing
    ends: Mapping[str, bytes]  # in a run with ``--once``: source -> position up to which all owners read


class Table:
    """The table of one topology, which any process may change. Raises UsageError if it is unreadable, or belongs to
    another topology."""

    def __init__(self, disk: Disk, state: Path, topology: str | None = None) -> None:
        """``topology``: ``None`` accepts a table of any topology."""
        self._disk, self._state, self.path, self._topology = disk, state, state / NAME, topology

    def make(self, processes: int, agree: Callable[[bytes], bytes] | None = None) -> None:
        """Creates the table unless it exists. ``agree``: called with this machine's table; returns the table that the
        first machine made."""
        self._disk.make_dir(self._state)
        with self._changing():
            if not self.path.exists():
                ranges = _ranges(even(processes).all)
                new = _encoded(_File(self._topology or "", ranges, secrets.token_hex(8), len(ranges)))
                self._disk.replace(self.path, new if agree is None else agree(new))

    def look(self) -> Known:
        known = self._read()
        move = None if known.move is None else Move(known.move[0], _intervals(known.move[1]))
        free = max(known.free, len(known.intervals))
        intervals = Intervals(_intervals(known.intervals))
        return Known(
            known.topology, intervals, known.id, free, known.version, known.shape, move, known.refused, known.closing,
            {stream: position.encode() for stream, position in known.ends.items()},
        )  # fmt: skip

    def begin(self, move: Move) -> None:
        """Begins a move. Raises UsageError if another move is pending, or was made since the intervals were read."""
        with self._changing():
            known, free = self._read(), self.look().free
            if known.move is not None:
                raise UsageError(f"{self._state}: another split or merge is in progress; wait until it ends")
            if [each.id for each in move.new] != [f"i{free + n}" for n in range(len(move.new))]:
                raise UsageError(f"{self._state}: its intervals were split or merged meanwhile; check them again")
            free += len(move.new)
            self._write(replace(known, move=(move.old, _ranges(move.new)), refused="", free=free))

    def settle(self, move: Move, refused: str = "") -> None:
        """Ends a move that was carried out or refused."""
        with self._changing():
            now = self.look().intervals
            ranges = _ranges((now if refused else now.after(move)).all)
            self._write(replace(self._read(), intervals=ranges, move=None, refused=refused))

    def close(self, closing: Closing, ends: Mapping[str, bytes] = {}) -> None:
        said = {stream: position.decode() for stream, position in ends.items()}
        with self._changing():
            self._write(replace(self._read(), closing=closing, ends=said))

    def adopt(self, shape: str, *, again: bool = False) -> int:
        """Makes the topology of this shape the current one for all processes. Returns its version, which is new if
        the shape differs, or if ``again`` is set, as different code may have the same shape."""
        with self._changing():
            known = self._read()
            if known.shape != shape or again:
                known = replace(known, shape=shape, version=known.version + 1)
                self._write(known)
            return known.version

    def _read(self) -> _File:
        try:
            known = decoded(self._disk.read(self.path), _File)
        except FileNotFoundError:
            raise UsageError(f"{self._state}: no state of computations; create one with photon compute run") from None
        except DECODE_ERRORS as bad:
            raise UsageError(f"{self.path}: unreadable ({bad}); restore it") from None
        if self._topology not in (None, known.topology):
            raise UsageError(
                f"{self._state}: is the state of {known.topology}, not of {self._topology}; name another one"
            )
        return known

    def _write(self, known: _File) -> None:
        self._disk.replace(self.path, _encoded(known))

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Locks the table for a change. Others wait, since a change is quick."""
        descriptor = os.open(self._state / LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _encoded(known: _File) -> bytes:
    return msgspec.json.encode(known) + b"\n"


def _ranges(intervals: Iterable[Interval]) -> _Ranges:
    return tuple((each.low, each.high, each.id) for each in intervals)


def _intervals(ranges: _Ranges) -> tuple[Interval, ...]:
    return tuple(Interval(*each) for each in ranges)

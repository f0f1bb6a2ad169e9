"""``intervals.json`` in a state: which keys each owner has, which move of keys is under way, the topology's version.

All processes of a topology look at it once a second, and follow: it is how they are asked to change. As JSON::

    {"photon_computing":1,"topology":"spend","intervals":[[0,4294967296,"i0"]],"id":"…","free":1,
     "version":2,"shape":"…","move":[["i0"],[[0,2147483648,"i1"],[2147483648,4294967296,"i2"]]]}

A move is written down before it begins, so one that was broken off is done again at the next start. ``version`` grows
with each change of the topology, whose ``shape`` says which one: an owner takes nothing from who has a newer one.
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
SPARK_NAME = "spark.json"  # in its place, in a state on Spark (``photon.spark.computing``)
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
    """What stands there."""

    topology: str
    intervals: Intervals
    id: str  # of the state, for what it publishes
    free: int  # from this number on names of intervals were never used
    version: int  # of the topology that all are to run, as is ``shape``
    shape: str
    move: Move | None  # what is under way
    refused: str  # why the last move was not made; empty: it was
    closing: Closing
    """``closing``: a run with ``--once`` has begun; ``reopening``: all of it is done, and watermarks go back."""
    ends: Mapping[str, bytes]  # of a run with ``--once``: source -> up to which position all owners read


class Table:
    """Of the state of one topology; any process may change it. Raises UsageError where it is unreadable, or another
    topology's."""

    def __init__(self, disk: Disk, state: Path, topology: str | None = None) -> None:
        """``topology``: None: whichever it is."""
        self._disk, self._state, self._path, self._topology = disk, state, state / NAME, topology

    def make(self, processes: int, agree: Callable[[bytes], bytes] | None = None) -> None:
        """A new one, unless there is one. ``agree``: of several machines, the first one's."""
        self._disk.make_dir(self._state)
        with self._changing():
            if not self._path.exists():
                ranges = _ranges(even(processes).all)
                new = _encoded(_File(self._topology or "", ranges, secrets.token_hex(8), len(ranges)))
                self._disk.replace(self._path, new if agree is None else agree(new))

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
        """Raises UsageError where another one is under way, or was since the intervals were looked at: then its names
        may be those of others."""
        with self._changing():
            known, free = self._read(), self.look().free
            if known.move is not None:
                raise UsageError(f"{self._state}: another split or merge is under way: wait for its end")
            if [each.id for each in move.new] != [f"i{free + n}" for n in range(len(move.new))]:
                raise UsageError(f"{self._state}: its intervals were split or merged meanwhile: look at them again")
            free += len(move.new)
            self._write(replace(known, move=(move.old, _ranges(move.new)), refused="", free=free))

    def settle(self, move: Move, refused: str = "") -> None:
        """It was made, or not."""
        with self._changing():
            now = self.look().intervals
            ranges = _ranges((now if refused else now.after(move)).all)
            self._write(replace(self._read(), intervals=ranges, move=None, refused=refused))

    def close(self, closing: Closing, ends: Mapping[str, bytes] = {}) -> None:
        said = {stream: position.decode() for stream, position in ends.items()}
        with self._changing():
            self._write(replace(self._read(), closing=closing, ends=said))

    def adopt(self, shape: str, *, again: bool = False) -> int:
        """Makes the topology of this shape the one that all are to run, and returns its version: a new one where the
        shape is another, or with ``again``, as code that is another has the same shape."""
        with self._changing():
            known = self._read()
            if known.shape != shape or again:
                known = replace(known, shape=shape, version=known.version + 1)
                self._write(known)
            return known.version

    def _read(self) -> _File:
        try:
            known = decoded(self._disk.read(self._path), _File)
        except FileNotFoundError:
            raise UsageError(f"{self._state}: no state of computations; photon compute run makes one") from None
        except DECODE_ERRORS as bad:
            raise UsageError(f"{self._path}: unreadable ({bad}); put it back") from None
        if self._topology not in (None, known.topology):
            raise UsageError(
                f"{self._state}: is the state of {known.topology}, not of {self._topology}; give it another one"
            )
        return known

    def _write(self, known: _File) -> None:
        self._disk.replace(self._path, _encoded(known))

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Alone; a change takes a moment, so others wait."""
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

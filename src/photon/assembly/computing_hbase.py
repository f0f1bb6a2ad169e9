"""A topology whose state is in HBase, where processes on several machines have its intervals.

``hbase.json`` in a machine's state directory says where. HBase has, besides what the owners keep (``hbase_store``),

    TOPOLOGY 0 0            c:m  the intervals, as ``intervals.json``: whoever is first makes them
    TOPOLOGY 0 INTERVAL 0 g c:m  to which machine it is given, by ``photon compute init``: the last word counts
    TOPOLOGY 0 INTERVAL 0 p STREAM  c:m  the directory where it publishes this stream, which it may not change
    TOPOLOGY 0 INTERVAL 0 s c:m  its owner's status, once a second

A machine that was replaced and comes back is refused at its start; what it still has running is fenced by the store.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TypeVar

import msgspec

from photon.computing.errors import ComputingError, Fenced
from photon.computing.hbase_rows import VersionedRows
from photon.computing.hbase_store import HBaseStore, prefix_of
from photon.computing.intervals import Interval
from photon.computing.journal import Status
from photon.computing.store import fenced
from photon.config.decoding import DECODE_ERRORS
from photon.config.disk import Disk
from photon.config.errors import UsageError
from photon.config.versioned_file import decoded
from photon.outputs.output_places import EMBEDDED_STATE

FILE_NAME = "hbase.json"
TABLE = "photon_computing"
DIRECTORY_NAME = "computing.id"
_CELL = b"m"
T = TypeVar("T")


class Place(msgspec.Struct, frozen=True, kw_only=True, tag_field="photon_computing", tag=1):
    """``hbase.json``."""

    thrift: list[str]
    """host:port of each Thrift 2 server."""
    table: str = TABLE
    durable: bool
    """The operator's word: see ``photon compute init``."""
    machine: str
    """The id of this state directory."""


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """Which machine has an interval. ``name``: for people."""

    machine: str
    name: str


class _Id(msgspec.Struct, frozen=True):
    """Of ``intervals.json``."""

    id: str


def read_place(disk: Disk, state: Path) -> Place | None:
    """None: the state is in this directory. Raises UsageError."""
    path = state / FILE_NAME
    if not disk.exists(path):
        return None
    try:
        return decoded(disk.read(path), Place)
    except DECODE_ERRORS as bad:
        raise UsageError(f"{path}: unreadable ({bad}); photon compute init writes it") from None


def write_place(disk: Disk, state: Path, place: Place) -> None:
    disk.replace(state / FILE_NAME, msgspec.json.encode(place) + b"\n")


class Shared:
    """What HBase has of one topology. Raises UsageError, ComputingError."""

    def __init__(self, place: Place, topology: str, rows: VersionedRows | None = None) -> None:
        self.place = place
        self.rows = rows or VersionedRows(place.thrift, place.table)
        self._topology = topology

    def store(self, interval: Interval) -> HBaseStore:
        return HBaseStore(self.rows, self._topology, interval)

    def intervals(self, made: bytes) -> bytes:
        """Those of the topology: ``made`` where there are none."""
        return self._first(prefix_of(self._topology, ""), made)

    @property
    def id(self) -> str | None:
        """Of them; None: there are none."""
        [cells] = self.rows.get([prefix_of(self._topology, "")])
        return _decoded(cells[_CELL].value, _Id).id if _CELL in cells else None

    def give(self, intervals: Iterable[str], name: str) -> None:
        """To this machine, whoever had them."""
        new = msgspec.json.encode(Given(machine=self.place.machine, name=name))
        for each in intervals:
            row = self._row(each, b"g")
            while True:
                [cells] = self.rows.get([row])
                before = cells.get(_CELL)
                if before is not None and before.value == new:
                    break
                expected, version = (None, 0) if before is None else before
                if self.rows.replace(row, _CELL, expected, {_CELL: new}, version + 1):
                    break

    def given(self, intervals: Sequence[str]) -> dict[str, Given]:
        found = self.rows.get([self._row(each, b"g") for each in intervals])
        named = zip(intervals, found, strict=True)
        return {each: _decoded(cells[_CELL].value, Given) for each, cells in named if _CELL in cells}

    def check_given(self, intervals: Sequence[str]) -> None:
        """Raises Fenced where one is another machine's."""
        for interval, given in self.given(intervals).items():
            if given.machine != self.place.machine:
                raise Fenced(fenced(interval))

    def check_directory(self, disk: Disk, interval: str, stream: str, directory: Path) -> None:
        """What an interval has published it continues where it did, wherever its owner runs: its numbers are in the
        files. Raises UsageError for another directory."""
        own = _id_of(disk, directory)
        if self._first(self._row(interval, b"p" + stream.encode()), own) != own:
            raise UsageError(
                f"{directory}: is not the directory where {interval} has published {stream} so far: machines that "
                "may have an interval publish on one file system, which all of them see"
            )

    def say(self, status: Status) -> None:
        self.rows.put([(self._row(status.interval, b"s"), {_CELL: msgspec.json.encode(status)})], status.at_ns)

    def statuses(self, intervals: Sequence[str]) -> list[Status]:
        """Of the owners on all machines, as they said them last."""
        found = self.rows.get([self._row(each, b"s") for each in intervals])
        out = []
        for cells in found:
            with contextlib.suppress(ComputingError):  # of another release
                out += [_decoded(cells[_CELL].value, Status)] if _CELL in cells else []
        return out

    def close(self) -> None:
        self.rows.close()

    def _row(self, interval: str, kind: bytes) -> bytes:
        return prefix_of(self._topology, interval) + kind

    def _first(self, row: bytes, value: bytes) -> bytes:
        """What stands there: ``value`` where nothing did."""
        if self.rows.replace(row, _CELL, None, {_CELL: value}, 1):
            return value
        return self.rows.get([row])[0][_CELL].value


def machine_id() -> str:
    return secrets.token_hex(8)


def _id_of(disk: Disk, directory: Path) -> bytes:
    """Made by the first who asks."""
    path = directory / EMBEDDED_STATE / DIRECTORY_NAME
    if not disk.exists(path):
        disk.make_dir(path.parent)
        new = path.with_name(f"{DIRECTORY_NAME}.{machine_id()}")
        new.write_bytes(machine_id().encode())
        with contextlib.suppress(FileExistsError):
            os.link(new, path)
        new.unlink()
    return disk.read(path)


def _decoded(data: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(data, type=kind)
    except DECODE_ERRORS as error:
        raise ComputingError(f"what HBase has is damaged: {error}") from None

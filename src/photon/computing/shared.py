"""Keeps a topology's state in HBase, so that its intervals can be spread over processes on several machines.

``hbase.json`` in a machine's state directory names the HBase servers and the table. Besides the rows of
``photon.computing.store``, HBase has

    TOPOLOGY 0 0            c:m  the intervals, as in ``intervals.json``; made by the first process
    TOPOLOGY 0 INTERVAL 0 g c:m  the machine that ``photon compute init`` gave it to; the last entry is valid
    TOPOLOGY 0 INTERVAL 0 p STREAM  c:m  the directory where it publishes this stream, which it may not change
    TOPOLOGY 0 INTERVAL 0 s c:m  its owner's status, once a second

A replaced machine that returns is refused at its start; the store fences its running processes.
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
from photon.computing.intervals import Interval
from photon.computing.journal import Status
from photon.computing.store import Store, fenced, hbase_rows, on_hbase, prefix_of
from photon.config.decoding import DECODE_ERRORS
from photon.config.disk import Disk
from photon.config.errors import UsageError
from photon.config.versioned_file import decoded
from photon.outputs.output_places import EMBEDDED_STATE
from photon.rows.api import Cell, Change, Put, Read
from photon.rows.hbase.rows import HBaseRows

FILE_NAME = "hbase.json"
TABLE = "photon_computing"
DIRECTORY_NAME = "computing.id"
_COLUMN = b"cm"
T = TypeVar("T")


class Place(msgspec.Struct, frozen=True, kw_only=True, tag_field="photon_computing", tag=1):
    """The content of ``hbase.json``: the HBase servers, and the table that has the state."""

    thrift: list[str]  # host:port of each Thrift 2 server
    table: str = TABLE
    durable: bool  # the operator's assertion: see ``photon compute init``
    machine: str  # the id of this state directory


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """The machine that owns an interval. ``name``: for display."""

    machine: str
    name: str


class _Id(msgspec.Struct, frozen=True):
    """The id of ``intervals.json``."""

    id: str


def read_place(disk: Disk, state: Path) -> Place | None:
    """Reads the state's place in HBase; `None` if the state is in this directory. Raises UsageError."""
    path = state / FILE_NAME
    if not disk.exists(path):
        return None
    try:
        return decoded(disk.read(path), Place)
    except DECODE_ERRORS as bad:
        raise UsageError(f"{path}: unreadable ({bad}); rewrite it with photon compute init") from None


def write_place(disk: Disk, state: Path, place: Place) -> None:
    disk.replace(state / FILE_NAME, msgspec.json.encode(place) + b"\n")


class Shared:
    """The state of one topology in HBase. Raises UsageError, ComputingError, RowsFailed."""

    def __init__(self, place: Place, topology: str, rows: HBaseRows | None = None) -> None:
        self.place = place
        self.rows = rows or hbase_rows(place.thrift, place.table)
        self._topology = topology

    def store(self, interval: Interval) -> Store:
        return on_hbase(self.rows, self._topology, interval)

    def intervals(self, made: bytes) -> bytes:
        """Returns the topology's intervals; stores ``made`` if there are none yet."""
        return self._first(prefix_of(self._topology, ""), made)

    @property
    def id(self) -> str | None:
        """The id of the intervals; ``None`` if there are none."""
        [cell] = self._read([prefix_of(self._topology, "")])
        return _decoded(cell.value, _Id).id if cell else None

    def give(self, intervals: Iterable[str], name: str) -> None:
        """Gives intervals to this machine, even if another machine owns them."""
        new = msgspec.json.encode(Given(machine=self.place.machine, name=name))
        for each in intervals:
            row = self._row(each, b"g")
            while True:
                [before] = self._read([row])
                if before is not None and before.value == new:
                    break
                version, expected = (0, None) if before is None else (before.version, before.value)
                if self.rows.commit(Change(row, [Cell(_COLUMN, version + 1, new)], expected), []):
                    break

    def given(self, intervals: Sequence[str]) -> dict[str, Given]:
        found = self._read([self._row(each, b"g") for each in intervals])
        return {each: _decoded(cell.value, Given) for each, cell in zip(intervals, found, strict=True) if cell}

    def check_given(self, intervals: Sequence[str]) -> None:
        """Raises Fenced if one of these intervals belongs to another machine."""
        for interval, given in self.given(intervals).items():
            if given.machine != self.place.machine:
                raise Fenced(fenced(interval))

    def check_directory(self, disk: Disk, interval: str, stream: str, directory: Path) -> None:
        """Raises UsageError if an interval would publish a stream to another directory than before."""
        own = _id_of(disk, directory)
        if self._first(self._row(interval, b"p" + stream.encode()), own) != own:
            raise UsageError(
                f"{directory}: is not the directory where {interval} has published {stream} so far; all machines "
                "must publish on one shared file system"
            )

    def say(self, status: Status) -> None:
        cell = Cell(_COLUMN, status.at_ns, msgspec.json.encode(status))
        self.rows.put([Put(self._row(status.interval, b"s"), [cell])])

    def statuses(self, intervals: Sequence[str]) -> list[Status]:
        """Returns the last status of the owners on all machines."""
        out = []
        for cell in self._read([self._row(each, b"s") for each in intervals]):
            with contextlib.suppress(ComputingError):  # written by another release
                out += [_decoded(cell.value, Status)] if cell else []
        return out

    def close(self) -> None:
        self.rows.close()

    def _row(self, interval: str, kind: bytes) -> bytes:
        return prefix_of(self._topology, interval) + kind

    def _first(self, row: bytes, value: bytes) -> bytes:
        """Returns the stored value; if there is none, stores and returns ``value``."""
        if self.rows.commit(Change(row, [Cell(_COLUMN, 1, value)], None), []):
            return value
        [cell] = self._read([row])
        assert cell is not None
        return cell.value

    def _read(self, rows: Sequence[bytes]) -> list[Cell | None]:
        found = self.rows.read([Read(row, (_COLUMN,)) for row in rows])
        return [cells[0] if cells else None for cells in found]


def machine_id() -> str:
    return secrets.token_hex(8)


def _id_of(disk: Disk, directory: Path) -> bytes:
    """Returns the id kept in the directory, which the first call makes."""
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
        raise ComputingError(f"the data in HBase is damaged: {error}") from None

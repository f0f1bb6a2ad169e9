"""What one pipeline has published as joined, as logs of the next join: byte by byte, a file for each output file.

Nothing is made of the lines, so the same bytes come again whatever happens: a copy that is torn is written on, and
two datacentres that copy the same output have the same logs. Only what is published is copied
(``photon.outputs``), so nothing that was copied is ever taken back.

``DIRECTORY/.NAME.cursor`` says how far each slot was copied durably; what a file holds beyond it is compared with
what it should be. Finished files may be moved away.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from photon.config.clock import NS_PER_S
from photon.config.disk import AppendFile, Disk
from photon.config.errors import PhotonError
from photon.outputs.cursor import Cursor, CursorFile
from photon.outputs.damaged import filler
from photon.outputs.output_places import OutputPlace
from photon.outputs.reader import Reader

KIND = "joined"
WHOLE_NAME = ".whole"
"""In the directory: up to when all that was published stands there, Unix time in nanoseconds."""


SAID_NS = NS_PER_S
"""Said so often at most."""


@dataclass(slots=True, eq=False)
class RelayedLogLost(PhotonError):
    """A log that is being written is not what it was."""

    path: Path
    copied: int
    found: int

    def __str__(self) -> str:
        return (
            f"{self.path}: {self.copied} bytes were copied into it and it has {self.found}; put it back plain (the "
            f"newest file of a slot has to stay), or delete all of {self.path.parent} to copy everything once more"
        )


@dataclass(slots=True)
class _Log:
    path: Path
    file: AppendFile


class CopiedLogs:
    """Files of a directory that are written on byte by byte, of each source the newest. The same bytes come again
    after a crash: what a file holds beyond what is known to be copied is compared with them."""

    def __init__(self, disk: Disk, directory: Path) -> None:
        self._disk = disk
        self._directory = directory
        self._logs: dict[str, _Log] = {}

    def append(self, source: str, name: str, start: int, data: bytes) -> None:
        """``start``: of the data in the file ``name``. Raises RelayedLogLost, OSError."""
        log = self._log(source, name, start)
        there = log.file.size - start
        if there > 0:  # an earlier process wrote it, and had not saved how far it was
            written = self._disk.read(log.path, start, min(there, len(data)))
            if written != data[: len(written)]:
                log.file.close()
                self._disk.truncate(log.path, start)
                log.file = self._disk.append(log.path)
                there = 0
        log.file.write(data[there:])

    def skip(self, source: str, name: str, start: int, end: int) -> None:
        """Fills the file from ``start`` to ``end`` with blank lines: a damaged range is skipped, and offsets stay.

        Raises RelayedLogLost, OSError.
        """
        log = self._log(source, name, start)
        for part in filler(max(end - log.file.size, 0)):
            log.file.write(part)

    def sync(self) -> None:
        """Makes all of it durable. Raises RelayedLogLost, OSError."""
        for log in self._logs.values():
            self._sync(log)
        self._disk.sync_dir(self._directory)

    def close(self) -> None:
        for log in self._logs.values():
            log.file.close()

    def _sync(self, log: _Log) -> None:
        """What went into a file that is not there any more counts as not copied."""
        there = self._disk.size(log.path) if self._disk.exists(log.path) else 0
        if there != log.file.size:
            raise RelayedLogLost(log.path, log.file.size, there)
        log.file.sync()

    def _log(self, source: str, name: str, start: int) -> _Log:
        path = self._directory / name
        log = self._logs.get(source)
        if log is None or log.path != path:
            there = self._disk.size(path) if self._disk.exists(path) else 0
            if there < start:
                raise RelayedLogLost(path, start, there)
            if log is not None:
                self._sync(log)
                log.file.close()
            log = self._logs[source] = _Log(path, self._disk.append(path))
        return log


def whole_ns(directory: Path) -> int:
    """Up to when all that was published by then stands in the directory. Before anything was copied: 0."""
    try:
        return int((directory / WHOLE_NAME).read_bytes())
    except (FileNotFoundError, ValueError):
        return 0


def say_whole(disk: Disk, directory: Path, time_ns: int) -> None:
    """Raises OSError."""
    disk.replace(directory / WHOLE_NAME, b"%d\n" % time_ns)


class Relay:
    """Of one output into one directory. One thread at a time."""

    complete = True
    """All that was there when the last ``step`` began has been copied, if it came to its end."""

    def __init__(self, disk: Disk, place: OutputPlace, directory: Path, name: str) -> None:
        """``name``: of the output, unique in the directory. Raises UsageError where another process copies it there,
        CursorUnreadable, OSError."""
        self._disk = disk
        self._place = place
        self._directory = directory
        disk.make_dir(directory)
        self._kept = CursorFile(disk, directory / f".{name}.cursor")
        self._cursor = self._saved = self._kept.load() or Cursor()
        self._reader = Reader(disk, place, (KIND,), cursor=self._cursor)
        self._logs = CopiedLogs(disk, directory)
        self._said_ns = 0
        self.bytes = self.events = 0
        """Copied since the start."""

    def step(self) -> Iterator[int]:
        """Copies all that is published now; yields the bytes of each block after it was copied.

        Raises RelayedLogLost, CursorLost, OutputMissing, PublishedDamaged, OSError; then this relay has come to its
        end.
        """
        for block in self._reader.read():
            name, at = Path(block.name).name, self._cursor.positions.get(block.place)
            start = at.offset if at is not None and at.number == block.number else 0
            if block.damaged is None:
                self._logs.append(block.place.slot, name, block.start, block.data)
            elif start > 0 or block.start < block.length:  # a log of blank lines alone would have no identity
                self._logs.skip(block.place.slot, name, start, block.start)
            self._cursor = self._cursor.moved(block.place, block.end(), block.output)
            self.bytes += len(block.data)
            self.events += block.data.count(b"\n")
            yield len(block.data)

    def pass_on(self) -> None:
        """Copies all that is published now, durably. Raises as ``step``."""
        for _ in self.step():
            pass
        self.save()

    def pass_on_whole(self, now_ns: int) -> None:
        """The same, and says in the directory up to when all stands there: nothing else is copied into it. Raises
        as ``step``."""
        self.pass_on()
        if now_ns >= self._said_ns + SAID_NS:
            say_whole(self._disk, self._directory, now_ns)
            self._said_ns = now_ns

    def slots(self) -> set[str]:
        """That publish where this is read. Raises OSError."""
        return {state.name for state in self._place.states(self._disk)}

    def behind(self) -> int:
        """Bytes that are published and not copied. Raises PublishedDamaged, OSError."""
        total = 0
        for slot in self._place.published(self._disk, (KIND,)):
            at = next((at for log, at in self._cursor.positions.items() if log.slot == slot.slot), None)
            for file in slot.of(KIND):
                if at is None or file.number > at.number:
                    total += file.length
                elif file.number == at.number:
                    total += max(file.length - at.offset, 0)
        return total

    def save(self) -> None:
        """Makes durable what was copied, and then how far that is. Raises OSError."""
        if self._cursor == self._saved:
            return
        self._logs.sync()
        self._kept.save(self._cursor)
        self._saved = self._cursor

    def close(self) -> None:
        self._logs.close()
        self._kept.close()

"""The rejected and late logs: each line once, whatever the moment of a crash.

A line comes into the outbox with the transaction that counts its event, from there into the file, is synced there,
and leaves the outbox together with the file's new length. At start the file is cut back to its recorded length and
what is left in the outbox is written again, the same bytes.

How far each file is recorded is published for readers, after each transaction, in the form that slots use
(``photon.outputs.published``). What lies behind is written again at the next start, the same bytes, so what was
published stays.

Nothing but that is ever cut: where a file holds more than the database knows of, and its outbox does not write again,
the database was lost or is an older one, and readers were shown lines that it has forgotten. Such files stay as they
are, and another one is begun.

Each worker has an outbox and files of its own, which belong to whoever holds the lock on its name: to itself while
its process lives, however long it stands still; to any other worker when it is dead and does not come back.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from photon.config.disk import AppendFile, Disk
from photon.config.errors import PhotonError
from photon.dispatcher.events import LATE, REJECTED
from photon.dispatcher.state import State
from photon.outputs.output_places import EXPORTS_DIRECTORY
from photon.outputs.published import DURABLE_NAME, OutputFile, durable_bytes, name_of, read_slot

ROLL_BYTES = 128 << 20
FLUSH_LINES = 10_000  # how many lines are written between two transactions
LOGS = (REJECTED, LATE)
LOOK_BYTES = 1 << 12


class Exports:
    """Files ``OUTPUT/<log>/dispatcher-<6 digits>.jsonl``, or ``dispatcher-<worker>-<6 digits>.jsonl``."""

    def __init__(
        self,
        output: Path,
        disk: Disk,
        state: State,
        *,
        warn: Callable[[str], None],
        roll_bytes: int = ROLL_BYTES,
        worker: str = "",
        published: Path | None = None,
    ) -> None:
        """Cuts back and writes what an earlier process left in the worker's outbox. Raises OSError, StateError.

        ``published``: the pipeline's state directory, where readers look; None: nothing is published.
        """
        self._worker = worker
        self._name = f"dispatcher-{worker}" if worker else "dispatcher"
        self._file = re.compile(re.escape(self._name) + r"-([0-9]{1,18})\.jsonl(?:\.gz)?")
        self._output = output
        self._disk = disk
        self._state = state
        self._roll_bytes = roll_bytes
        self._files: dict[str, AppendFile] = {}
        self._numbers: dict[str, int] = {}
        self._published = None if published is None else published / EXPORTS_DIRECTORY / self._name
        self._lengths: dict[str, int] = {}
        for log in LOGS:
            self._recover(log, warn)
        self._begin_publishing()
        self.flush()

    def _path(self, log: str, number: int) -> Path:
        return self._output / name_of(log, self._name, number)

    def _recover(self, log: str, warn: Callable[[str], None]) -> None:
        recorded, length = self._state.export_place(log, self._worker)
        number = recorded or 1  # the first one may have been begun without being recorded
        path, following = self._path(log, number), self._path(log, number + 1)
        newest = max(self._newest(log), self._shown(log))
        if newest > (number, length) and not self._writes_again(log, number, length, newest):
            self._numbers[log] = newest[0] + 1
            after = self._path(log, newest[0] + 1).name
            self._state.exported({log: (newest[0] + 1, 0)}, 0, self._worker)
            warn(f"{path}: the state was lost or is older than it; what is there stays, going on in {after}")
            return
        size = self._disk.size(path) if self._disk.exists(path) else -1
        if size > length:
            self._disk.truncate(path, length)
        if self._disk.exists(following):  # begun, but not recorded
            self._disk.truncate(following, 0)
        if recorded and max(size, 0) < length:
            warn(f"{path}: {'is gone' if size < 0 else 'is shorter than it was'}; going on in {following.name}")
            number += 1
        self._numbers[log] = number

    def _newest(self, log: str) -> tuple[int, int]:
        """Number and bytes of the newest file that holds anything; (0, 0): none does."""
        directory = self._path(log, 0).parent
        found = [each for each in map(self._file.fullmatch, self._disk.names(directory)) if each is not None]
        places = ((int(each[1]), self._disk.size(directory / each[0])) for each in found)
        return max((place for place in places if place[1]), default=(0, 0))

    def _shown(self, log: str) -> tuple[int, int]:
        """Up to which file and byte readers were shown it; (0, 0): nowhere, or it is not known any more."""
        files = (file for file in self._published_files() if file.kind == log)
        return max(((file.number, file.length) for file in files), default=(0, 0))

    def _writes_again(self, log: str, number: int, length: int, newest: tuple[int, int]) -> bool:
        """Whether all lines behind the recorded place are what the next flush writes, and nobody was shown any."""
        outbox = self._state.outbox(FLUSH_LINES, self._worker)
        lines = {export.line for _, export in outbox if export.log == log}
        behind = [(each, length if each == number else 0) for each in (number, number + 1)]
        paths = [(self._path(log, each), begin) for each, begin in behind if self._disk.exists(self._path(log, each))]
        size = sum(max(0, self._disk.size(path) - begin) for path, begin in paths)
        if newest[0] > number + 1 or self._shown(log) > (number, length) or size > sum(map(len, lines)):
            return False
        # After a power cut there may be holes, and a torn end.
        found = [line for path, begin in paths for line in self._disk.read(path, begin).split(b"\n")[:-1]]
        return all(line + b"\n" in lines for line in found if b"\0" not in line)

    def flush(self) -> None:
        """Writes the outbox out, durably. Raises OSError: the process must end, and writes it at the next start."""
        while lines := self._state.outbox(FLUSH_LINES, self._worker):
            by_log: dict[str, list[bytes]] = {}
            for _, export in lines:
                by_log.setdefault(export.log, []).append(export.line)
            places = {log: self._append(log, chunk) for log, chunk in by_log.items()}
            self._state.exported(places, lines[-1][0], self._worker)
            self._lengths.update({name_of(log, self._name, place[0]): place[1] for log, place in places.items()})
            self._publish()

    def _begin_publishing(self) -> None:
        """Publishes what was recorded before."""
        if self._published is None:
            return
        files = self._published_files()
        known = {file.name: file.length for file in files if file.number < self._numbers.get(file.kind, 0)}
        for log in LOGS:
            number, length = self._state.export_place(log, self._worker)
            for each in range(1, self._numbers[log] + 1):
                path, name = self._path(log, each), name_of(log, self._name, each)
                if self._disk.exists(path):
                    size = self._disk.size(path)
                    known[name] = min(size, length) if each == number else _whole(self._disk, path, size)
        self._lengths = {name: length for name, length in known.items() if length}
        self._publish()

    def _published_files(self) -> Sequence[OutputFile]:
        if self._published is None:
            return ()
        try:
            return read_slot(self._disk, self._published).files
        except PhotonError:  # it is only a copy of what is known here
            return ()

    def _publish(self) -> None:
        """Only now: readers are shown nothing that is not recorded."""
        if self._published is None:
            return
        path = self._published / DURABLE_NAME
        if not self._lengths and not self._disk.exists(path):
            return
        current = {name_of(log, self._name, self._numbers[log]) for log in LOGS}
        self._disk.make_dir(self._published)
        content = durable_bytes(self._name, self._lengths, self._lengths.keys() - current)
        self._disk.replace(path, content)

    def _append(self, log: str, lines: list[bytes]) -> tuple[int, int]:
        file = self._files.get(log) or self._open(log)
        if file.size >= self._roll_bytes:
            self._files.pop(log).close()
            self._numbers[log] += 1
            file = self._open(log)
        file.write(b"".join(lines))
        file.sync()
        return self._numbers[log], file.size

    def _open(self, log: str) -> AppendFile:
        path = self._path(log, self._numbers[log])
        self._disk.make_dir(path.parent)
        file = self._files[log] = self._disk.append(path)
        self._disk.sync_dir(path.parent)
        return file

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()


def _whole(disk: Disk, path: Path, size: int) -> int:
    """Bytes of a file up to the end of its last whole line."""
    at = size
    while at:
        begin = max(0, at - LOOK_BYTES)
        if end := disk.read(path, begin, at - begin).rfind(b"\n") + 1:
            return begin + end
        at = begin
    return 0

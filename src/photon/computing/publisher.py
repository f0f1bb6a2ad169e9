"""Published streams: productions as files in the form of a slot's output, so that whoever reads Photon reads them.

``DIRECTORY`` is then an output like that of ``photon join``: ``joined/SLOT-<number>.jsonl``, published lengths in
``.photon/slots/SLOT/durable.json``, a slot for each sender. A line is a record as joined ones are, with the value as
``foreign`` and without ``primary``::

    {"event_id":"i0:17","key":"acme","event_time_ns":…,"foreign":{…},"source":{"file":"i0","offset":17}}

Exactly once. A sender numbers what it has committed, and sends it again, the same, until it is acknowledged. Here
lines are appended and synced, their length is published, and only then they are acknowledged. A start cuts the files
back to what is published; the number of the last line there is the last one that was taken, and what comes again up
to it is dropped. So there is no state but the files. One process at a time: it holds a lock.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path

import orjson

from photon.computing.model import JSON_OPTIONS, as_text
from photon.computing.wire import NEVER_NS, Item
from photon.config.disk import AppendFile, Disk
from photon.config.errors import UsageError
from photon.config.file_lock import lock_file
from photon.outputs.identity import ID_BYTES, identify
from photon.outputs.output_places import EMBEDDED_STATE, SLOTS_DIRECTORY
from photon.outputs.published import DURABLE_NAME, OutputFile, PublishedDamaged, durable_bytes, name_of, read_slot

KIND = "joined"
ROLL_BYTES = 128 << 20
LOOK_BYTES = 64 << 10
STATE_NAME = "state"  # in the slot's directory: the id of the state that publishes there
ENDED_NAME = "ended"  # is there once the sender publishes nothing more: its interval was split or merged
LATE_NAME = "late.json"
"""In the slot's directory: how many of its records came after its watermark had passed them (``watermarks.Late``)."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


def has_ended(disk: Disk, directory: Path, sender: str) -> bool:
    """Whether it publishes nothing more in this stream; who never opened it does not either."""
    state = _state(directory, sender)
    return not disk.exists(state / STATE_NAME) or disk.exists(state / ENDED_NAME)


def _state(directory: Path, sender: str) -> Path:
    return directory / EMBEDDED_STATE / SLOTS_DIRECTORY / sender


class NotOfThisState(UsageError):
    """Published files and the state of who publishes them do not belong together."""

    exit_code = 3


class Publisher:
    """The files of one sender in one published stream. One thread at a time."""

    def __init__(
        self,
        disk: Disk,
        directory: Path,
        sender: str,
        *,
        state: str = "",
        where: str = "the state",
        committed: int | None = None,
        shown: int = -1,
        roll_bytes: int = ROLL_BYTES,
    ) -> None:
        """``state``, ``where``: the id and the place of what the sender keeps; ``committed``: the last number that it
        had given when it started, None where that is not known; ``shown``: the last one that it knows to be published
        here. Refuses files of another state, and files that are newer or older than the state: records would be
        published twice or never. Nothing is cut before. Raises NotOfThisState for that, UsageError where another
        process has it, PublishedDamaged, OSError."""
        if _NAME.fullmatch(sender) is None:
            raise UsageError(f"{sender}: no name for files; letters, digits, _ . and - make one")
        self._disk, self._directory, self._sender, self._roll_bytes = disk, directory, sender, roll_bytes
        self._state = _state(directory, sender)
        for each in (self._state, directory / KIND):
            disk.make_dir(each)
        held = lock_file(self._state / "lock")
        if held is None:
            raise UsageError(f"{self._state}: another process publishes there; stop it, or publish elsewhere")
        self._lock = held
        drawn = sha256(f"{state} {directory}".encode()).hexdigest()  # the same for all senders, who may start at once
        identify(disk, directory / EMBEDDED_STATE, drawn[: 2 * ID_BYTES], sender)
        self._lengths: dict[str, int] = {}  # of all files, as published
        self._number = 1
        self._file: AppendFile | None = None
        self.taken = -1  # number of the last item
        self._late: tuple[int, int, int] | None = None
        """How many are late, the oldest, and up to which number they are counted."""
        try:
            self._read(read_slot(disk, self._state).files)
            self._check(state, where, committed, shown)
            self._cut()
        except BaseException:
            self.close()
            raise

    def _read(self, published: tuple[OutputFile, ...]) -> None:
        self._lengths = {file.name: file.length for file in published}
        if published:
            last = published[-1]
            self._number = last.number
            if (size := self._size(self._number)) < last.length:
                raise PublishedDamaged(self._path(last.number), f"has {size} bytes, but {last.length} were published")
            self.taken = self._last_number(last)

    def _cut(self) -> None:
        for number in (self._number, self._number + 1):  # the next one may have been begun
            length = self._lengths.get(self._name(number), 0)
            if self._size(number) > length:
                self._disk.truncate(self._path(number), length)

    def _size(self, number: int) -> int:
        path = self._path(number)
        return self._disk.size(path) if self._disk.exists(path) else 0

    def _check(self, state: str, where: str, committed: int | None, shown: int) -> None:
        path = self._state / STATE_NAME
        known = self._disk.read(path).decode().strip() if self._disk.exists(path) else None
        if known not in (None, state) or (committed is not None and self.taken > committed):
            raise NotOfThisState(
                f"{self._directory}: was published from another state, or from a newer one than {where}: put that "
                "back, or publish into an empty directory"
            )
        if self.taken < shown:
            kept = f"ends with record {self.taken}" if self.taken >= 0 else f"has nothing ({DURABLE_NAME})"
            raise NotOfThisState(
                f"{self._directory}: {self._sender} {kept} here, but {where} has published it up to record {shown}: "
                f"put back all of the newest {self._directory}, or publish into another directory"
            )
        if known is None:
            self._disk.replace(path, f"{state}\n".encode())

    def _last_number(self, file: OutputFile) -> int:
        path, size = self._directory / file.name, LOOK_BYTES
        while True:
            begin = max(0, file.length - size)
            data = self._disk.read(path, begin, file.length - begin)
            at = data[:-1].rfind(b"\n") + 1
            if at or begin == 0:
                break
            size *= 4
        try:
            return int(orjson.loads(data[at:])["source"]["offset"])
        except (ValueError, KeyError, TypeError):
            raise PublishedDamaged(path, "its last published line is no record of a computation") from None

    def publish(self, items: Iterable[Item], exact_ns: int = NEVER_NS) -> int:
        """Takes what was not taken yet; when it returns, readers are shown it, and the sender may forget it. How many
        records these are. ``exact_ns``: what is before it is late. Raises OSError; then the process must end."""
        new = [item for item in items if item.number > self.taken]
        if not new:
            return 0
        if self._file is not None and self._file.size >= self._roll_bytes:
            self._file.close()
            self._file = None
            self._number += 1
        begun = self._file is None
        file = self._file = self._file or self._disk.append(self._path(self._number))
        file.write(b"".join(map(self._line, new)))
        file.sync()
        if late := [item for item in new if item.time_ns < exact_ns]:
            self._count(late, file.size)
        if begun:
            self._disk.sync_dir(self._directory / KIND)
        name = self._name(self._number)
        self._lengths[name] = file.size
        content = durable_bytes(self._sender, self._lengths, self._lengths.keys() - {name})
        self._disk.replace(self._state / DURABLE_NAME, content)
        self.taken = new[-1].number
        return len(new)

    def _count(self, late: Sequence[Item], end: int) -> None:
        """Before they are shown: what comes again after a crash is counted once."""
        path = self._state / LATE_NAME
        if self._late is None:
            known = orjson.loads(self._disk.read(path)) if self._disk.exists(path) else {}
            self._late = (known.get("records", 0), known.get("oldest_ns", late[0].time_ns), known.get("upto", -1))
        records, oldest_ns, upto = self._late
        new = [item for item in late if item.number > upto]
        if not new:
            return
        records, oldest_ns = records + len(new), min(oldest_ns, *(item.time_ns for item in new))
        self._late = (records, oldest_ns, new[-1].number)
        found = {"photon_late": 1, "file": self._name(self._number), "end": end, "records": records}
        self._disk.replace(path, orjson.dumps({**found, "oldest_ns": oldest_ns, "upto": new[-1].number}) + b"\n")

    def end(self) -> None:
        """Its sender sends nothing more, and all was taken: those that have its keys now may publish here."""
        self._disk.replace(self._state / ENDED_NAME, b"")

    def _line(self, item: Item) -> bytes:
        return orjson.dumps(
            {
                "event_id": f"{self._sender}:{item.number}",
                **({"key": item.key} if item.key else {}),
                "event_time_ns": item.time_ns,
                "foreign": item.decoded(),
                "source": {"file": self._sender, "offset": item.number},
            },
            as_text,
            JSON_OPTIONS,
        )

    def _name(self, number: int) -> str:
        return name_of(KIND, self._sender, number)

    def _path(self, number: int) -> Path:
        return self._directory / self._name(number)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

"""Published streams: productions as files in the form of a slot's output, so that whoever reads Photon reads them.

``DIRECTORY`` is then an output like that of ``photon join``: ``joined/NAME-<number>.jsonl``, published lengths in
``.photon/slots/NAME/durable.json``. A line is a record as joined ones are, with the value as ``foreign`` and without
``primary``::

    {"event_id":"Spend/acme/17","key":"acme","event_time_ns":…,"foreign":{…},"source":{"file":"Spend","offset":17}}

Exactly once. The order: the lines are appended and synced; the engine commits their end (a ``Place``) with the state
that they were made from; only then is it published. A kill before the commit leaves bytes behind the committed
place, which nobody was shown and no later owner continues: an owner's files are numbered by its sequencer
(``sequencer × 10^6 + n``), so that two never append to one file. A kill after the commit, and before it is
published: the next owner publishes the committed place first. Readers are never taken back: an owner whose successor
has published is refused.
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
import orjson

from photon.config.disk import AppendFile, Disk
from photon.config.errors import PhotonError, UsageError
from photon.outputs.output_places import EMBEDDED_STATE, SLOTS_DIRECTORY
from photon.outputs.published import DURABLE_NAME, OutputFile, durable_bytes, name_of, read_slot

KIND = "joined"
ROLL_BYTES = 128 << 20
FILES_OF_OWNER = 1_000_000
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


class OwnerDeposed(PhotonError):
    """Another process owns what this one wrote."""


class Place(msgspec.Struct, frozen=True, order=True):
    """The end of what is committed: everything of earlier files, and so many bytes of this one."""

    number: int = 0
    length: int = 0


@dataclass(frozen=True, slots=True)
class Line:
    """A record to publish."""

    id: str
    key: str
    time_ns: int
    value: object
    source: str
    number: int

    def encode(self) -> bytes:
        """With its newline. Raises orjson.JSONEncodeError (a TypeError)."""
        return orjson.dumps(
            {
                "event_id": self.id,
                "key": self.key,
                "event_time_ns": self.time_ns,
                "foreign": self.value,
                "source": {"file": self.source, "offset": self.number},
            },
            option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS,
        )


class Publisher:
    """The files of one owner in one published stream. One thread at a time."""

    def __init__(
        self,
        disk: Disk,
        directory: Path,
        slot: str,
        sequencer: int,
        committed: Place,
        *,
        roll_bytes: int = ROLL_BYTES,
    ) -> None:
        """``committed``: what the engine's last commit says of it. Publishes that. Raises OwnerDeposed,
        PublishedDamaged, OSError."""
        if NAME.fullmatch(slot) is None:
            raise UsageError(f"{slot}: no name for files; letters, digits, _ . and - make one")
        self._disk, self._directory, self._slot, self._roll_bytes = disk, directory, slot, roll_bytes
        self._state = directory / EMBEDDED_STATE / SLOTS_DIRECTORY / slot
        for each in (self._state, directory / KIND):
            disk.make_dir(each)
        self._number = sequencer * FILES_OF_OWNER
        self._file: AppendFile | None = None
        self._lengths: dict[str, int] = {}
        """Of all files, as published."""
        self.place = committed
        """The end of what was appended."""
        shown = self._shown()
        if shown and _end(shown) > committed:
            raise UsageError(
                f"{self._state}: more was published than this state knows of, so it was lost or is an older one; put "
                "the newest back, or publish into another directory"
            )
        self._published = Place()
        self.publish()

    def append(self, lines: Sequence[bytes]) -> Place:
        """Durable when it returns; nobody is shown it. The place to commit. Raises OSError."""
        if not lines:
            return self.place
        if self._file is not None and self._file.size >= self._roll_bytes and self._published == self.place:
            self._file.close()
            self._file = None
            self._number += 1
        begun = self._file is None
        file = self._file = self._file or self._disk.append(self._path(self._number))
        file.write(b"".join(lines))
        file.sync()
        if begun:
            self._disk.sync_dir(self._directory / KIND)
        self.place = Place(self._number, file.size)
        return self.place

    def publish(self) -> None:
        """Shows readers what was appended: it is committed. Raises OwnerDeposed where a later owner has published."""
        if not self.place.length:
            return
        lock = os.open(self._state / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self._publish()
        finally:
            os.close(lock)

    def _publish(self) -> None:
        shown = self._shown()
        if shown and _end(shown) > self.place:
            raise OwnerDeposed(f"{self._state}: another process has published there; this one owns it no more")
        lengths = {file.name: file.length for file in shown}
        lengths[self._name(self.place.number)] = self.place.length
        if lengths != {file.name: file.length for file in shown}:
            content = durable_bytes(self._slot, lengths, lengths.keys() - {self._name(self.place.number)})
            self._disk.replace(self._state / DURABLE_NAME, content)
        self._published = self.place

    def _shown(self) -> Sequence[OutputFile]:
        return read_slot(self._disk, self._state).files

    def _name(self, number: int) -> str:
        return name_of(KIND, self._slot, number)

    def _path(self, number: int) -> Path:
        return self._directory / self._name(number)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def _end(shown: Sequence[OutputFile]) -> Place:
    return Place(shown[-1].number, shown[-1].length)

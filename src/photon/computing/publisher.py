"""Publishes productions as files in the format of a slot's output, so that any reader of Photon's output can read
them.

``DIRECTORY`` then has the layout of a ``photon join`` output: ``joined/SLOT-<number>.jsonl``, published lengths in
``.photon/slots/SLOT/durable.json``, with a slot for each sender. A line has the format of a joined record, with the
value as ``foreign`` and without ``primary``::

    {"event_id":"i0:17","key":"acme","event_time_ns":…,"foreign":{…},"source":{"file":"i0","offset":17}}

Each item is published exactly once. A sender numbers its committed items, and repeats them unchanged until they are
acknowledged. The publisher appends and syncs their lines, publishes the length with the number of the last item, and
only then acknowledges them (``photon.outputs.log.writer``). Repeated items up to that number are dropped. So the
files are the only state. A lock admits one process at a time.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path

import orjson

from photon.computing.model import line_of
from photon.computing.wire import NEVER_NS, Item
from photon.config.disk import Disk
from photon.config.errors import UsageError
from photon.config.file_lock import lock_file
from photon.outputs.identity import ID_BYTES, identify
from photon.outputs.log.writer import ROLL_BYTES, LogWriter, NotOfThisState
from photon.outputs.output_places import EMBEDDED_STATE, SLOTS_DIRECTORY

KIND = "joined"
STATE_NAME = "state"  # in the slot's directory: the id of the state that publishes there
ENDED_NAME = "ended"  # exists once the sender publishes nothing more: its interval was split or merged
# In the slot's directory: the number of its records behind its watermark (``watermarks.Late``).
LATE_NAME = "late.json"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


def has_ended(disk: Disk, directory: Path, sender: str) -> bool:
    """True if the sender has ended, or never published to the stream."""
    state = _state(directory, sender)
    return not disk.exists(state / STATE_NAME) or disk.exists(state / ENDED_NAME)


def _state(directory: Path, sender: str) -> Path:
    return directory / EMBEDDED_STATE / SLOTS_DIRECTORY / sender


class Publisher:
    """The files of one sender in one published stream. For one thread at a time."""

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
        since_ns: int = NEVER_NS,
        roll_bytes: int = ROLL_BYTES,
    ) -> None:
        """``state``, ``where``: the id and the place of the sender's state; ``committed``: its last number when it
        started, ``None`` if unknown; ``shown``: the last number that it knows to be published here; ``since_ns``:
        earlier items are accepted but not published (``photon.computing.replay``). Before it cuts anything, it checks
        that the files belong to this state, and are neither newer nor older; otherwise records would be published
        twice or never. Raises NotOfThisState if the check fails, UsageError if another process holds the lock,
        PublishedDamaged, OSError."""
        if _NAME.fullmatch(sender) is None:
            raise UsageError(f"{sender}: cannot be used in file names; use letters, digits, _ . and -")
        self._disk, self._directory, self._sender = disk, directory, sender
        self._state, self._since_ns = _state(directory, sender), since_ns
        for each in (self._state, directory / KIND):
            disk.make_dir(each)
        held = lock_file(self._state / "lock")
        if held is None:
            raise UsageError(f"{self._state}: another process publishes there; stop it, or publish elsewhere")
        self._lock = held
        # The number of late records, the oldest, and the number up to which they are counted.
        self._late: tuple[int, int, int] | None = None
        try:
            # The same for all senders, which may start at once
            drawn = sha256(f"{state} {directory}".encode()).hexdigest()
            identify(disk, directory / EMBEDDED_STATE, drawn[: 2 * ID_BYTES], sender)
            self._log = LogWriter(disk, directory, self._state, sender, [KIND], roll_bytes=roll_bytes)
            self._log.load()
            self._check(state, where, committed, shown)
            self._log.recover(KIND)
        except BaseException:
            self._unlock()
            raise

    @property
    def taken(self) -> int:
        """The number of the last published item; -1 if there is none."""
        return self._log.upto

    def _check(self, state: str, where: str, committed: int | None, shown: int) -> None:
        path = self._state / STATE_NAME
        known = self._disk.read(path).decode().strip() if self._disk.exists(path) else None
        if known not in (None, state) or (committed is not None and self.taken > committed):
            raise NotOfThisState(
                f"{self._directory}: was published from another state, or from a newer one than {where}: restore "
                "that, or publish into an empty directory"
            )
        self._log.expect(shown, where)
        if known is None:
            self._disk.replace(path, f"{state}\n".encode())

    def publish(self, items: Iterable[Item], exact_ns: int = NEVER_NS) -> int:
        """Publishes items that it has not published before. When it returns, readers see them, and the sender may
        forget them. Returns the number of records published. ``exact_ns``: earlier records are late. Raises OSError,
        after which the process must end."""
        new = [item for item in items if item.number > self.taken]
        if not new:
            return 0
        shown = [item for item in new if item.time_ns >= self._since_ns]
        if shown:
            self._log.append(KIND, b"".join(map(self._line, shown)))
            self._log.sync()
        if late := [item for item in shown if item.time_ns < exact_ns]:
            self._count(late)
        self._log.publish(new[-1].number)
        return len(shown)

    def _count(self, late: Sequence[Item]) -> None:
        """Counts late records before they are published, so that items repeated after a crash are counted once."""
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
        file = f"{KIND}/{self._log.path(KIND).name}"
        found = {"photon_late": 1, "file": file, "end": self._log.end(KIND), "records": records}
        self._disk.replace(path, orjson.dumps({**found, "oldest_ns": oldest_ns, "upto": new[-1].number}) + b"\n")

    def end(self) -> None:
        """Marks the sender as ended after the items published so far, so that the new owners of its keys may publish
        here."""
        self._disk.replace(self._state / ENDED_NAME, b"")

    def _line(self, item: Item) -> bytes:
        return line_of(
            {
                "event_id": f"{self._sender}:{item.number}",
                **({"key": item.key} if item.key else {}),
                "event_time_ns": item.time_ns,
                "foreign": item.decoded(),
                "source": {"file": self._sender, "offset": item.number},
            }
        )

    def close(self) -> None:
        """Closes the open file and releases the lock."""
        self._log.close()
        self._unlock()

    def _unlock(self) -> None:
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

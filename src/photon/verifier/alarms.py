"""Records the continuous verifier's findings in a bounded log of alarms per slot, each reported once.

``alarms.jsonl`` has a head line, a line for each alarm, and another one when the alarm ends. At ALARMS_BYTES it
becomes ``alarms.1.jsonl``, and open alarms are copied to a new file. An alarm is appended and synced before a
position moves past its lines. After a crash between the two the verifier finds the same again, but does not report it
twice.
"""

from __future__ import annotations

import enum
from contextlib import closing
from pathlib import Path

import msgspec

from photon.config.decoding import DECODE_ERRORS
from photon.config.disk import Disk
from photon.config.errors import PhotonError
from photon.config.structured import get_logger
from photon.config.versioned_file import decoded

ALARMS_BYTES = 1 << 20
# Open alarms of one slot; beyond it further ones about lines and files are not reported: the disk is failing.
OPEN_MAX = 1_000
WHAT_CHARS_MAX = 500
ID_CHARS_MAX = 200
NAME, OLD_NAME = "alarms.jsonl", "alarms.1.jsonl"

log = get_logger(__name__)


class AlarmKind(enum.StrEnum):
    """The kind of an alarm; docs/verification.md has the remedies."""

    DOUBLED = "doubled"  # the same event was written twice
    NOT_OWNED = "not-owned"  # the line's token does not own its id: invented, or written twice
    TORN = "torn"  # a line below the published length that is not an output record
    DIFFERS = "differs"  # the line does not match its source records
    NO_SOURCE = "no-source"  # no log has the line's source record
    OWNED = "owned-too-long"  # ids are registered but not written
    DAMAGED = "damaged"  # a file that the verifier relies on cannot be read
    CHANGED = "changed"  # an output file is no longer as it was published


ENDS_ITSELF = (AlarmKind.OWNED, AlarmKind.DAMAGED, AlarmKind.CHANGED)

ADVICE = {
    AlarmKind.DOUBLED: "bill it once; keep both files, and find their writers by their tokens",
    AlarmKind.NOT_OWNED: "do not bill the line, unless its event has no other; report it",
    AlarmKind.TORN: "check this disk; find the event by the raw log, and repair it with photon spark recover",
    AlarmKind.DIFFERS: "compare the line with its source; restore the one that was changed",
    AlarmKind.NO_SOURCE: "compare the line with the log it names; restore the log, or treat the line as invented",
    AlarmKind.OWNED: "start a joiner in this slot; if its disk is permanently gone, retire the slot",
    AlarmKind.DAMAGED: "do what the alarm says; the slot is then checked again automatically",
    AlarmKind.CHANGED: "restore the file from a copy; without one: photon spark verify, then photon spark recover",
}


class Alarm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One finding. ``file`` and ``offset``: the line's place in the output, if it is about a line."""

    at_ns: int
    finding: str
    what: str  # one line: the fault, with its evidence
    file: str = ""
    offset: int = 0
    event_id: str = ""
    todo: str = ""
    over: bool = False  # it no longer holds, or was acknowledged

    @property
    def key(self) -> tuple[str, str, int]:
        """Two alarms with the same key are the same alarm."""
        return self.finding, self.file, self.offset


class _Head(msgspec.Struct, frozen=True, tag_field="version", tag=1):
    pass


class AlarmsDamaged(PhotonError):
    """The log of alarms cannot be read. The message is one line."""


class AlarmLog:
    """The alarms of one slot. Each alarm's ``what`` is logged once, at level error."""

    def __init__(self, disk: Disk, directory: Path, slot: str, *, bytes_max: int = ALARMS_BYTES) -> None:
        """``directory`` must exist. Raises AlarmsDamaged."""
        self._disk = disk
        self._path = directory / NAME
        self._old = directory / OLD_NAME
        self._slot = slot
        self._bytes_max = bytes_max
        older, lines = read_lines(disk, self._old), read_lines(disk, self._path)
        if older and not disk.exists(self._path):  # a crash before the new file existed
            self._begin(lines := list(_open(older).values()))
        self._open = _open(lines)
        self._told = _lines_told([*older, *lines])
        self._full_at = -1  # the file's size when the limit of open alarms was reached
        _mend(disk, self._path)

    @property
    def open(self) -> int:
        return len(self._open)

    def is_open(self, finding: AlarmKind, file: str = "", offset: int = 0) -> bool:
        return (finding.value, file, offset) in self._open

    def tell(
        self, finding: AlarmKind, what: str, at_ns: int, *, file: str = "", offset: int = 0, event_id: bytes = b""
    ) -> None:
        """Durably records an alarm and logs it. Does nothing for an alarm that was reported before, unless its kind
        ends by itself and it has ended since.
        """
        alarm = Alarm(at_ns, finding.value, what[:WHAT_CHARS_MAX], file, offset, shown(event_id), ADVICE[finding])
        if alarm.key in self._open or alarm.key in self._told:
            return
        if finding not in (AlarmKind.OWNED, AlarmKind.DAMAGED) and self._is_full():
            return
        self._append(alarm)  # on a full disk the next attempt reports it again
        self._open[alarm.key] = alarm
        if finding not in ENDS_ITSELF:
            self._told.add(alarm.key)
        log.error(
            "verifier alarm", slot=self._slot, finding=alarm.finding, what=alarm.what, file=file, offset=offset,
            event_id=alarm.event_id, todo=alarm.todo,
        )  # fmt: skip

    def _is_full(self) -> bool:
        """True if the limit of open alarms is reached. Rereads a changed log, as some may have been acknowledged."""
        if len(self._open) < OPEN_MAX:
            return False
        size = self._disk.size(self._path)
        if size != self._full_at:
            self._open = _open(read_lines(self._disk, self._path))
            self._full_at = size
            if len(self._open) >= OPEN_MAX:
                log.error("no further alarms of this kind are reported", slot=self._slot, stand=len(self._open))
        return len(self._open) >= OPEN_MAX

    def over(self, finding: AlarmKind, at_ns: int, *, file: str = "", offset: int = 0) -> None:
        alarm = self._open.get((finding.value, file, offset))
        if alarm is not None:
            self._append(msgspec.structs.replace(alarm, at_ns=at_ns, over=True))
            del self._open[alarm.key]
            log.info("verifier alarm over", slot=self._slot, finding=alarm.finding, what=alarm.what)

    def _append(self, alarm: Alarm) -> None:
        line = msgspec.json.encode(alarm) + b"\n"
        if not self._disk.exists(self._path):
            self._begin(list(self._open.values()))  # alarms may be open if there was no room to begin the file
        elif self._disk.size(self._path) + len(line) > self._bytes_max:
            lines = read_lines(self._disk, self._path)
            self._disk.rename(self._path, self._old)
            self._told = _lines_told(lines)
            self._begin(list(_open(lines).values()))
        append(self._disk, self._path, line)

    def _begin(self, kept: list[Alarm]) -> None:
        lines = [msgspec.json.encode(_Head()), *map(msgspec.json.encode, kept)]
        self._disk.replace(self._path, b"\n".join(lines) + b"\n")


def shown(event_id: bytes) -> str:
    return event_id.decode("utf-8", "backslashreplace")[:ID_CHARS_MAX]


def _mend(disk: Disk, path: Path) -> None:
    """Removes a line torn by a crash or a full disk, which no reader relies on."""
    if disk.exists(path) and (size := disk.size(path)) and disk.read(path, size - 1, 1) != b"\n":
        disk.truncate(path, disk.read(path).rfind(b"\n") + 1)


def append(disk: Disk, path: Path, lines: bytes) -> None:
    """Durably appends lines, with one write because another process may append too."""
    _mend(disk, path)
    with closing(disk.append(path)) as file:
        file.write(lines)
        file.sync()


def acknowledge(disk: Disk, directory: Path, at_ns: int) -> int:
    """Ends all open alarms. Returns their number. Raises AlarmsDamaged."""
    stand = open_alarms(disk, directory)
    lines = [msgspec.json.encode(msgspec.structs.replace(each, at_ns=at_ns, over=True)) + b"\n" for each in stand]
    if lines:
        append(disk, directory / NAME, b"".join(lines))
    return len(lines)


def open_alarms(disk: Disk, directory: Path) -> list[Alarm]:
    """Returns the open alarms, oldest first. For processes other than the verifier. Raises AlarmsDamaged."""
    return list(_open(read_lines(disk, directory / NAME)).values())


def read_lines(disk: Disk, path: Path) -> list[Alarm]:
    """Reads the lines of one file, except a torn last one. Raises AlarmsDamaged."""
    data = disk.read(path) if disk.exists(path) else b""
    head, *lines = data[: data.rfind(b"\n") + 1].splitlines() or [b""]
    if not head:
        return []
    try:
        decoded(head, _Head)
        return [msgspec.json.decode(line, type=Alarm) for line in lines]
    except DECODE_ERRORS as bad:
        raise AlarmsDamaged(f"{path}: unreadable ({bad}); move it away, and it is started again") from None


def _lines_told(lines: list[Alarm]) -> set[tuple[str, str, int]]:
    """Returns the keys of alarms about lines: these end when acknowledged, but are not reported again."""
    return {alarm.key for alarm in lines if alarm.finding not in ENDS_ITSELF}


def _open(lines: list[Alarm]) -> dict[tuple[str, str, int], Alarm]:
    found: dict[tuple[str, str, int], Alarm] = {}
    for alarm in lines:
        if alarm.over:
            found.pop(alarm.key, None)
        else:
            found[alarm.key] = alarm
    return found

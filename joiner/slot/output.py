"""The output logs of a slot: one JSON line a record, one log for each kind of verdict.

Files are ``<root>/<kind>/<slot>-<6 digits>.jsonl``; numbers are never reused. Whole batches are appended with one
write. The durable length of each file is published in a small file that is replaced atomically and durably, always
after the output's own sync and before a frame leaves the redo log: every byte above it is still in the log. So what
stands above it and in no log was written under another state (``recovery.check_age``). Readers and verifier are shown
what the witness has of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from photon.config.decoding import DECODE_ERRORS
from photon.config.disk import AppendFile, Disk
from photon.config.errors import PhotonError
from photon.config.versioned_file import decoded
from photon.idregistry.api import Kind
from photon.idregistry.witness import Witness, WitnessLog
from photon.joiner.slot.place import DIRECTORY_OF, KINDS, Place
from photon.joiner.slot.witness import PrefixHash, hash_file, shown
from photon.outputs.formats import Durable

SUFFIX = ".jsonl"
FINAL_SUFFIX = ".jsonl.gz"
_PLACES = {DIRECTORY_OF[kind]: at for at, kind in enumerate(KINDS)}


@dataclass(frozen=True, slots=True)
class OutputLimits:
    """When a file is closed and its successor begun, and whether it is compressed once it is final."""

    roll_bytes: int = 128 << 20
    roll_after_s: float = 300.0
    compress: bool = False


@dataclass(slots=True, eq=False)
class OutputDamaged(PhotonError):
    """Output that had been made durable is not there any more."""

    path: str
    why: str

    def __str__(self) -> str:
        return f"{self.path}: {self.why}; restore the file, or retire the slot: going on would lose records"


class OutputFiles:
    """Names, numbers and the published durable lengths of one slot's output files."""

    def __init__(self, disk: Disk, root: Path, durable_path: Path, slot: str) -> None:
        self.disk = disk
        self.root = root
        self.slot = slot
        self._durable_path = durable_path
        self.lengths: dict[str, int] = {}
        self.rolled: set[str] = set()
        self.witness: Witness | None = None  # None: there is none, all that is durable is shown
        self.held: Witness | None = None  # what the copy has; None: there is to be no copy
        self._clearable: dict[str, int] | None = None
        self.published: dict[str, int] = {}
        """What readers were shown, as of the last publishing that was read here; so is ``log``."""
        self.log: tuple[int, int] | None = None
        self.log_end: Callable[[], tuple[int, int] | None] = lambda: self.log
        """How far the redo log is durable now; may be asked on any thread."""
        self.final: Callable[[str], int] = lambda name: -1  # length of a file that the manifest lists; -1: of none

    def close_older(self) -> None:
        """Files with a successor are closed for ever, also those that a start took from the copy."""
        for kind in KINDS:
            older = (self.name(kind, number) for number in self.numbers(kind)[:-1])
            self.rolled.update(name for name in older if self.final(name) < 0)

    def prepare(self) -> None:
        """Makes the directories, durably, and ``load``."""
        for kind in KINDS:
            self.disk.make_dir(self.root / DIRECTORY_OF[kind])
        self.disk.make_dir(self._durable_path.parent)
        # They may have been made by a predecessor that was killed before their names were durable.
        for directory in (self.root, self.root.parent, self._durable_path.parent, self._durable_path.parent.parent):
            self.disk.sync_dir(directory)
        self.load()

    def load(self) -> None:
        """Reads the published lengths; changes nothing. Raises OutputDamaged for an unreadable file."""
        if not self.disk.exists(self._durable_path):
            return
        try:
            durable = decoded(self.disk.read(self._durable_path), Durable)
        except DECODE_ERRORS as bad:
            raise OutputDamaged(str(self._durable_path), f"unreadable ({bad})") from bad
        if durable.slot != self.slot:
            raise OutputDamaged(str(self._durable_path), f"of slot {durable.slot}, not of {self.slot}")
        self.log, self.published = durable.log, durable.files
        self.lengths = dict(durable.files if durable.durable is None else durable.durable)
        self.rolled = set(durable.rolled if durable.closed is None else durable.closed)

    def publish(self) -> None:
        durable = Durable(self.slot, self.lengths, sorted(self.rolled))
        if self.witness is not None:
            files = self._all_shown()
            if files != self.lengths:
                rolled = [name for name in durable.rolled if files.get(name) == self.lengths.get(name)]
                durable = Durable(self.slot, files, rolled, self.lengths, durable.rolled)
        durable.log = self.log_end()
        durable.clearable = self._clearable = self._held_back(durable.files)
        self.disk.replace(self._durable_path, msgspec.json.encode(durable))

    def hold(self, held: Witness) -> None:
        """The copy has so much now. Publishes where that changes what may be cleared."""
        self.held = held
        if self._held_back(self._all_shown()) != self._clearable:
            self.publish()

    def _all_shown(self) -> dict[str, int]:
        if self.witness is None:
            return self.lengths
        return {name: self._shown(name, length, self.witness) for name, length in self.lengths.items()}

    @property
    def unpublished_bytes(self) -> int:
        return sum(self.lengths.values()) - sum(self._all_shown().values())

    def _held_back(self, shown_: dict[str, int]) -> dict[str, int] | None:
        """Of files that are shown further than the copy has them: how much it has."""
        if self.held is None:
            return None
        has = {name: self._shown(name, length, self.held) for name, length in shown_.items()}
        return {name: length for name, length in has.items() if length < shown_[name]} or None

    def newest_log(self, kind: Kind) -> WitnessLog | None:
        for number in reversed(self.numbers(kind)):
            name = self.name(kind, number)
            if length := self.lengths.get(name, 0):
                return hash_file(self.disk, self.root / name, length).log(number, length)
        return None

    def _shown(self, name: str, length: int, witness: Witness) -> int:
        return shown(witness, *self.place_of(name), length)

    def place_of(self, name: str) -> tuple[int, int]:
        """Place in KINDS and number of a plain file."""
        directory, file = name.split("/")
        return _PLACES[directory], int(file[len(self.slot) + 1 : -len(SUFFIX)])

    def name(self, kind: Kind, number: int, suffix: str = SUFFIX) -> str:
        """Relative to the output root."""
        return f"{DIRECTORY_OF[kind]}/{self.slot}-{number:06d}{suffix}"

    def numbers(self, kind: Kind, suffix: str = SUFFIX) -> list[int]:
        prefix = f"{self.slot}-"
        numbers = []
        for name in self.disk.names(self.root / DIRECTORY_OF[kind]):
            middle = name[len(prefix) : -len(suffix)]
            if name.startswith(prefix) and name.endswith(suffix) and middle.isdigit():
                numbers.append(int(middle))
        return sorted(numbers)


class _Log:
    """The output log of one kind: at most one open file."""

    def __init__(self, files: OutputFiles, kind: Kind, number: int, current: bool) -> None:
        self._files = files
        self._kind = kind
        self.number = number  # of the open file, or of the one to be created next
        self._file: AppendFile | None = None
        self._opened_at: float | None = None
        self._directory_dirty = False
        self._dirty = False
        self._hash = PrefixHash()
        if current:
            path = files.root / files.name(kind, number)
            self._file = files.disk.append(path)
            self._hash = hash_file(files.disk, path, self._file.size)
        self.witness = self._hash.log(number, self.size) if self.size else files.newest_log(kind)
        """Of the newest file that has anything durable; None: this log has no plain file."""

    @property
    def size(self) -> int:
        return self._file.size if self._file is not None else 0

    def append(self, data: bytes, now: float) -> None:
        if self._file is None:
            self._file = self._files.disk.append(self._files.root / self._files.name(self._kind, self.number))
            self._directory_dirty = True
        if self._opened_at is None:
            self._opened_at = now
        self._file.write(data)
        self._hash.update(data)
        self._dirty = True

    def sync(self) -> bool:
        """Makes what was appended durable, with its name. True when the durable length grew."""
        if self._file is None or not self._dirty:
            return False
        size = self._file.size
        self._file.sync()
        if self._directory_dirty:
            self._files.disk.sync_dir(self._files.root / DIRECTORY_OF[self._kind])
            self._directory_dirty = False
        self._dirty = False
        self._files.lengths[self._files.name(self._kind, self.number)] = size
        self.witness = self._hash.log(self.number, size)
        return True

    def is_due(self, now: float, limits: OutputLimits) -> bool:
        if not self.size:
            return False
        return self.size >= limits.roll_bytes or (
            self._opened_at is not None and now - self._opened_at >= limits.roll_after_s
        )

    def roll(self) -> None:
        """Closes the file for ever; it is durable before its successor can exist."""
        assert self._file is not None
        self.sync()
        self._file.close()
        self._files.rolled.add(self._files.name(self._kind, self.number))
        self._file = None
        self._opened_at = None
        self.number += 1
        self._hash = PrefixHash()  # the witness goes on to name the file just closed, until this one has something

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class Outputs:
    """The open output logs of a slot. Used by one thread at a time; ``place`` may be read from any."""

    def __init__(self, files: OutputFiles, limits: OutputLimits, starts: dict[Kind, tuple[int, bool]]) -> None:
        """``starts``: for each kind the file's number, and whether it exists and is to be continued."""
        self._files = files
        self._limits = limits
        self._logs = {kind: _Log(files, kind, *starts[kind]) for kind in KINDS}
        seen = files.witness or ()
        self._before = [*seen, *(WitnessLog(starts[kind][0], 0) for kind in KINDS[len(seen) :])]
        self.place: Place = self._place()
        self.witness: Witness = self._witness()  # of all that is durable and published; may be read from any thread

    def _witness(self) -> Witness:
        """What an earlier process had witnessed goes on to count where that file has become final since."""
        found = (log.witness for log in self._logs.values())
        return tuple(
            new if new is not None and new.number >= before.number else before
            for new, before in zip(found, self._before, strict=True)
        )

    def _place(self) -> Place:
        return tuple((self._logs[kind].number, self._logs[kind].size) for kind in KINDS)

    def write(self, chunks: Sequence[tuple[Kind, bytes]], now: float) -> None:
        """Appends whole lines. ``now``: monotonic seconds."""
        by_kind: dict[Kind, list[bytes]] = {}
        for kind, data in chunks:
            by_kind.setdefault(kind, []).append(data)
        for kind, parts in by_kind.items():
            self._logs[kind].append(parts[0] if len(parts) == 1 else b"".join(parts), now)
        # One assignment: readers on other threads see a place from before or after, never a mixture.
        self.place = self._place()

    def sync(self, now: float) -> None:
        """Makes all output durable and publishes its length; rolls the files that are due."""
        grown = [log.sync() for log in self._logs.values()]
        due = [log for log in self._logs.values() if log.is_due(now, self._limits)]
        for log in due:
            log.roll()
        if any(grown) or due:
            self.place = self._place()
            self._files.publish()
            self.witness = self._witness()

    def roll(self) -> None:
        """Closes all files that hold anything (drain, and end of a run)."""
        for log in self._logs.values():
            if log.size:
                log.roll()
        self.place = self._place()
        self._files.publish()
        self.witness = self._witness()

    def close(self) -> None:
        """Closes the open files; what is not synced stays in the redo log."""
        for log in self._logs.values():
            log.close()

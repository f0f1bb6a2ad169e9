"""A slot's output logs: one log for each kind of verdict, one JSON line per record.

``photon.outputs.log.writer`` writes and publishes them. File numbers are never reused. Whole batches are appended
with one write. ``durable.json`` is always replaced after the output is synced and before a frame leaves the redo log,
so every byte above the durable length is still in the log. Bytes above it that are not in the log were written under
another state (``recovery.check_age``). Readers and verifier see only the part that the witness covers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from photon.config.disk import Disk
from photon.config.errors import PhotonError
from photon.idregistry.api import Kind
from photon.idregistry.witness import Witness, WitnessLog
from photon.joiner.slot.place import DIRECTORIES, DIRECTORY_OF, Place, place_of
from photon.joiner.slot.witness import PrefixHash, hash_file, shown, witness_log
from photon.outputs.log.format import Durable
from photon.outputs.log.writer import LogWriter


@dataclass(frozen=True, slots=True)
class OutputLimits:
    """The limits at which a file is closed and the next one begins. ``compress``: compress final files."""

    roll_bytes: int = 128 << 20
    roll_after_s: float = 300.0
    compress: bool = False


@dataclass(slots=True, eq=False)
class OutputDamaged(PhotonError):
    """Output that had been made durable is missing."""

    path: Path
    why: str

    def __str__(self) -> str:
        return f"{self.path}: {self.why}; restore the file, or retire the slot: continuing would lose records"


class SlotLog(LogWriter):
    """The output logs of one slot. Not thread-safe, except that any thread may read ``place`` and ``durable``."""

    def __init__(self, disk: Disk, root: Path, state: Path, slot: str, limits: OutputLimits | None = None) -> None:
        limits = limits or OutputLimits()
        super().__init__(
            disk, root, state, slot, DIRECTORIES, roll_bytes=limits.roll_bytes, roll_after_s=limits.roll_after_s
        )
        self.witness: Witness | None = None  # ``None`` means that there is none, and all durable output is shown
        self.held: Witness | None = None  # the content of the copy; ``None`` without a copy
        self._clearable: dict[str, int] | None = None
        # Returns how far the redo log is durable now; may be called on any thread.
        self.log_end: Callable[[], tuple[int, int] | None] = lambda: self.log
        self.final: Callable[[str], int] = lambda name: -1  # length of a file listed in the manifest; -1 for others
        self._hashes = {kind: PrefixHash() for kind in self.kinds}  # of the open files
        # The newest file with anything durable; ``None`` if this log has no plain file.
        self._newest: dict[str, WitnessLog | None] = {}
        self._before: list[WitnessLog] = []
        self.place: Place = ()
        self.durable: Witness = ()  # the witness's next value: all output that is durable and published

    # -- start -----------------------------------------------------------------------------------------------
    def prepare(self) -> None:
        """Makes the directories, durably, and calls ``load``."""
        for kind in self.kinds:
            self.disk.make_dir(self.root / kind)
        self.disk.make_dir(self.state)
        # A predecessor killed before the names were durable may have made them.
        for directory in (self.root, self.root.parent, self.state, self.state.parent):
            self.disk.sync_dir(directory)
        self.load()

    def load(self) -> None:
        """Reads the published lengths; changes nothing. Raises OutputDamaged for an unreadable file."""
        self._read(lambda path, why: OutputDamaged(path, f"unreadable ({why})"))

    def close_older(self) -> None:
        """Permanently closes files that have a successor, including files fetched from the copy."""
        for kind in self.kinds:
            older = (self.name(kind, number) for number in self.numbers(kind)[:-1])
            self.rolled.update(name for name in older if self.final(name) < 0)

    def begin(self, starts: Mapping[str, tuple[int, bool]]) -> None:
        """Opens a file for each kind. ``starts``: the file's number, and True to continue an existing file."""
        for kind, (number, goes_on) in starts.items():
            self.current[kind] = number
            if goes_on:
                self._files[kind] = self.disk.append(self.path(kind))
                self._hashes[kind] = hash_file(self.disk, self.path(kind), self.end(kind))
            size = self.end(kind)
            self._newest[kind] = self._hashes[kind].log(number, size) if size else self._newest_log(kind)
        seen = self.witness or ()
        # If a file that an earlier process had witnessed has become final since, its witness still counts.
        self._before = [*seen, *(WitnessLog(starts[kind][0], 0) for kind in self.kinds[len(seen) :])]
        self._look()

    def _newest_log(self, kind: str) -> WitnessLog | None:
        for number in reversed(self.numbers(kind)):
            name = self.name(kind, number)
            if length := self.lengths.get(name, 0):
                return witness_log(self.disk, self.root / name, number, length)
        return None

    # -- writing ---------------------------------------------------------------------------------------------
    def write(self, chunks: Sequence[tuple[Kind, bytes]], now: float) -> None:
        """Appends whole lines. ``now``: monotonic seconds."""
        by_kind: dict[Kind, list[bytes]] = {}
        for kind, data in chunks:
            by_kind.setdefault(kind, []).append(data)
        for kind, parts in by_kind.items():
            self.append(DIRECTORY_OF[kind], parts[0] if len(parts) == 1 else b"".join(parts), now)
        self.place = self._place()

    def append(self, kind: str, lines: bytes, now: float = 0.0) -> None:
        super().append(kind, lines, now)
        self._hashes[kind].update(lines)

    def sync(self) -> bool:
        unsynced = tuple(self._unsynced)
        grown = super().sync()
        for kind in unsynced:
            self._newest[kind] = self._hashes[kind].log(self.current[kind], self.end(kind))
        return grown

    def go_on(self, kind: str, number: int) -> None:
        super().go_on(kind, number)
        self._hashes[kind] = PrefixHash()  # the witness refers to the file just closed until the next one has content

    def publish(self, upto: int | None = None, *, now: float | None = 0.0) -> None:
        super().publish(upto, now=now)
        self._look()

    def _look(self) -> None:
        """Updates ``place`` and ``durable``, each in one assignment, so that other threads never see a mixture."""
        self.place = self._place()
        newest = (self._newest[kind] for kind in self.kinds)
        self.durable = tuple(
            new if new is not None and new.number >= before.number else before
            for new, before in zip(newest, self._before, strict=True)
        )

    def _place(self) -> Place:
        return tuple(
            (self.current[kind], self._files[kind].size if kind in self._files else 0) for kind in self.kinds
        )

    # -- what readers see ------------------------------------------------------------------------------------
    def _shown(self) -> Durable:
        durable = super()._shown()
        if self.witness is not None:
            shown_ = {name: self._seen(name, length, self.witness) for name, length in self.lengths.items()}
            if shown_ != self.lengths:
                rolled = [name for name in durable.rolled if shown_.get(name) == self.lengths.get(name)]
                durable = Durable(self.slot, shown_, rolled, self.lengths, durable.rolled)
        durable.log = self.log_end()
        durable.clearable = self._clearable = self._held_back(durable.files)
        return durable

    def hold(self, held: Witness) -> None:
        """Notes the copy's new content, and publishes if that changes what may be cleared."""
        self.held = held
        if self._held_back(self.published) != self._clearable:
            self.show()

    @property
    def unpublished_bytes(self) -> int:
        return sum(self.lengths.values()) - sum(self.published.values())

    def _held_back(self, shown_: Mapping[str, int]) -> dict[str, int] | None:
        """Returns the length in the copy of each file that is published beyond it."""
        if self.held is None:
            return None
        has = {name: self._seen(name, length, self.held) for name, length in shown_.items()}
        return {name: length for name, length in has.items() if length < shown_[name]} or None

    def _seen(self, name: str, length: int, witness: Witness) -> int:
        return shown(witness, *place_of(name), length)

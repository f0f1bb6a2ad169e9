"""One slot's copy on the keeper's disk (rule 14), which always is a byte-wise prefix of the slot's output.

``copy.json``: the slot, the newest incarnation seen, and the copy's end; replaced after each extension's sync and
before its answer. ``output/<kind>/<slot>-<6 digits>.jsonl``: the bytes, plain. ``durable.json`` and
``manifest.jsonl``: the slot's published output as far as the copy has it, in the form of every slot: growing or
partly published files are in the first, others in the second, so that neither grows with each extension.
``sealed.json``: the slot is being retired and the copy no longer changes; ``retired.json`` then names the part to
read.

Bytes beyond the ends in ``copy.json`` were never acknowledged; a start cuts them off. After an OSError in a write or
sync the process must end (rule 7).
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from photon.config.decoding import DECODE_ERRORS
from photon.config.disk import Disk
from photon.config.errors import PhotonError
from photon.config.versioned_file import decoded
from photon.idregistry.witness import Witness
from photon.joiner.copies.api import EMPTY, CopyAnswer, CopyBytes, CopyOf, Extension, Part, Status
from photon.joiner.slot.place import DIRECTORIES, KINDS, place_of
from photon.joiner.slot.witness import PrefixHash, hash_file, shown
from photon.outputs.log.format import RETIRED_NAME, Durable, ManifestEntry
from photon.outputs.log.manifest import Manifest
from photon.outputs.log.writer import LogWriter
from photon.outputs.output_places import COPY_NAME, OUTPUT_NAME, SEALED_NAME

READ_BYTES = 1 << 20  # returned per request when a slot takes bytes from its copy


class CopyState(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="version", tag=1):
    slot: str
    datacentre: str
    incarnation: int  # the newest incarnation seen
    ends: Witness = EMPTY


class CopyDamaged(PhotonError):
    """The kept copy cannot be used. One line."""


class KeptCopy(LogWriter):
    """The copy of one slot: a log writer that fences earlier incarnations. Not thread-safe. Call ``load`` first."""

    def __init__(self, disk: Disk, directory: Path, of: CopyOf) -> None:
        super().__init__(disk, directory / OUTPUT_NAME, directory, of.slot, DIRECTORIES)
        self.current = dict.fromkeys(DIRECTORIES, 0)  # the slot decides the number of the first file
        self._of = of
        self._state = CopyState(of.slot, of.datacentre, 0)
        self._hashes = [PrefixHash() for _ in KINDS]
        self._manifest = Manifest(disk, directory)
        self._told: Witness = EMPTY  # the slot's published output
        self._last: Durable | None = None

    # -- start -----------------------------------------------------------------------------------------------
    def load(self) -> None:
        """Loads the copy, if it exists; creates nothing. Raises CopyDamaged, OSError."""
        if not self.disk.exists(self.state / COPY_NAME):
            return
        self._state = read_copy_state(self.disk, self.state, self._of)
        if self.sealed:
            return  # sealed, so it must not change
        self._save(self._state.incarnation, self._state.ends)  # the bytes just read may be only in the cache
        self._manifest.load(lambda path, why: CopyDamaged(f"{path}: {why}; set {self.state} aside"))
        for at, end in enumerate(self._state.ends):
            path = self.root / self.name(DIRECTORIES[at], end.number)
            self._cut(at, end.number, end.length)
            if end.length:
                self._hashes[at] = hash_file(self.disk, path, end.length)
                if self._hashes[at].log(end.number, end.length) != end:
                    raise CopyDamaged(
                        f"{path}: lacks some of the {end.length} acknowledged bytes; restore it, or set "
                        f"{self.state} aside so that the copy is made again"
                    )

    def _cut(self, at: int, number: int, length: int) -> None:
        kind, changed = DIRECTORIES[at], False
        self.current[kind] = number
        for each in self.numbers(kind):
            name = self.name(kind, each)
            path = self.root / name
            if each > number:
                self.disk.remove(path)
                changed = True
                continue
            if each == number and self.disk.size(path) > length:
                self.disk.truncate(path, length)
            self.lengths[name] = self.disk.size(path)
        if changed:
            self.disk.sync_dir(self.root / kind)

    # -- what the slot asks ----------------------------------------------------------------------------------
    @property
    def sealed(self) -> bool:
        return any(self.disk.exists(self.state / name) for name in (SEALED_NAME, RETIRED_NAME))

    @property
    def incarnation(self) -> int:
        return self._state.incarnation

    def open(self, incarnation: int) -> CopyAnswer:
        """Durably fences every earlier incarnation. Raises OSError."""
        if self.sealed:
            return self._answer(Status.SEALED)
        if incarnation < self._state.incarnation:
            return self._answer(Status.STALE)
        if incarnation > self._state.incarnation:
            self._prepare()
            self._save(incarnation, self._state.ends)
        return self._answer(Status.OK)

    def look(self) -> CopyAnswer:
        return self._answer(Status.SEALED if self.sealed else Status.OK)

    def extend(self, extension: Extension) -> CopyAnswer:
        """Appends to the copy; the bytes are durable if the answer is OK. After an OSError the process must end."""
        if (status := self._refusal(extension)) is not Status.OK:
            return self._answer(status)
        if extension.parts:
            self._save(self._state.incarnation, self._append(extension.parts))
        self._tell(extension.shown)
        return self._answer(Status.OK)

    def _refusal(self, extension: Extension) -> Status:
        if self.sealed:
            return Status.SEALED
        if extension.incarnation != self._state.incarnation:
            # A later incarnation whose opening was lost here is unknown, so it has to open the copy first.
            return Status.STALE if extension.incarnation < self._state.incarnation else Status.ELSEWHERE
        return Status.OK if extension.ends == self._state.ends else Status.ELSEWHERE

    def _append(self, parts: tuple[Part, ...]) -> Witness:
        """Writes and syncs the parts. Returns the copy's new ends."""
        for part in parts:
            kind = DIRECTORIES[part.log]
            if part.number > self.current[kind]:
                self.go_on(kind, part.number)
                self._hashes[part.log] = PrefixHash()
            self.append(kind, part.data)
            self._hashes[part.log].update(part.data)
        self.sync()
        self.close()
        places = [(self.current[kind], self.end(kind)) for kind in DIRECTORIES]
        return tuple(each.log(*place) for each, place in zip(self._hashes, places, strict=True))

    def read(self, log: int, number: int, offset: int) -> CopyBytes:
        """Returns some bytes of one file. Raises OSError."""
        name = self.name(DIRECTORIES[log], number)
        length = self.lengths.get(name)
        if length is None or not self.disk.exists(self.root / name):
            return CopyBytes(-1, b"")
        return CopyBytes(length, self.disk.read(self.root / name, offset, max(0, min(READ_BYTES, length - offset))))

    # -- inside ----------------------------------------------------------------------------------------------
    def _answer(self, status: Status) -> CopyAnswer:
        return CopyAnswer(status, self._state.incarnation, self._state.ends)

    def _prepare(self) -> None:
        for kind in DIRECTORIES:
            self.disk.make_dir(self.root / kind)
        # A predecessor killed before the names were durable may have made them.
        for directory in (self.root, self.state, *self.state.parents[:3]):
            self.disk.sync_dir(directory)

    def _save(self, incarnation: int, ends: Witness) -> None:
        self._state = CopyState(self._of.slot, self._of.datacentre, incarnation, ends)
        self.disk.replace(self.state / COPY_NAME, msgspec.json.encode(self._state))

    # -- what readers see ------------------------------------------------------------------------------------
    def _tell(self, witness: Witness) -> None:
        """Publishes the slot's published output to readers of the copy, as far as the copy has it."""
        self._told = witness
        whole = [
            ManifestEntry(name, length, length)
            for name, length in self._growing()
            for log, number in [place_of(name)]
            if number < min(self._state.ends[log].number, witness[log].number)
        ]
        self._manifest.add(*whole)
        if (durable := self._shown()) != self._last:
            self.show()
            self._last = durable

    def _growing(self) -> list[tuple[str, int]]:
        return [(name, length) for name, length in self.lengths.items() if name not in self._manifest.entries]

    def _shown(self) -> Durable:
        growing = self._growing()
        return Durable(self.slot, {name: shown(self._told, *place_of(name), length) for name, length in growing})


def read_copy_state(disk: Disk, directory: Path, of: CopyOf) -> CopyState:
    """Reads ``copy.json`` of an existing copy. Raises CopyDamaged, OSError."""
    path = directory / COPY_NAME
    try:
        state = decoded(disk.read(path), CopyState)
    except DECODE_ERRORS as bad:
        raise CopyDamaged(
            f"{path}: unreadable ({bad}); set {directory} aside so that the copy is made again"
        ) from None
    if (state.slot, state.datacentre) != (of.slot, of.datacentre):
        raise CopyDamaged(f"{path}: belongs to slot {state.slot} of {state.datacentre}; set it aside")
    if len(state.ends) != len(KINDS):
        raise CopyDamaged(f"{path}: names {len(state.ends)} logs, not {len(KINDS)}; set it aside")
    return state

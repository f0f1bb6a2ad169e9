"""One slot's copy on the keeper's disk (rule 14): what it accepts, and how it stays a byte-wise prefix.

``copy.json``: whose it is, the newest incarnation seen, and where the copy ends, replaced after each extension's own
sync and before its answer. ``output/<kind>/<slot>-<6 digits>.jsonl``: the bytes, plain. ``durable.json`` and
``manifest.jsonl``: what readers may read of them, in the form of every slot. ``sealed.json``: the slot is being
retired, nothing changes any more; ``retired.json`` then says what is to be read.

What lies behind the ends that ``copy.json`` names was never acknowledged: a start cuts it off. Any OSError in a write
or sync means that the process must end (rule 7).

Readers may read what its slot has published, as far as the copy has it: in the form of every slot
(``photon.outputs.published``): ``durable.json`` for files that grow or are not published whole yet,
``manifest.jsonl`` for the others, so that neither grows with each extension.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import msgspec

from photon.config.decoding import DECODE_ERRORS
from photon.config.disk import Disk
from photon.config.errors import PhotonError
from photon.config.versioned_file import decoded
from photon.idregistry.witness import Witness
from photon.joiner.copies.api import EMPTY, CopyAnswer, CopyBytes, CopyOf, Extension, Part, Status
from photon.joiner.slot.place import DIRECTORY_OF, KINDS
from photon.joiner.slot.witness import PrefixHash, hash_file, shown
from photon.outputs.formats import ManifestEntry
from photon.outputs.output_places import COPY_NAME, OUTPUT_NAME, SEALED_NAME
from photon.outputs.published import (
    DURABLE_NAME,
    MANIFEST_NAME,
    PLAIN_SUFFIX,
    RETIRED_NAME,
    durable_bytes,
    name_of,
    number_of,
)

_LOG_OF = {DIRECTORY_OF[kind]: at for at, kind in enumerate(KINDS)}


class KeptPublished:
    """Of one copy. Raises OSError."""

    def __init__(self, disk: Disk, directory: Path, slot: str) -> None:
        self._disk = disk
        self._durable = directory / DURABLE_NAME
        self._manifest = directory / MANIFEST_NAME
        self._slot = slot
        self._listed: set[str] = set()
        self._last = b""

    def load(self) -> None:
        """Which files are listed already. A last line that is torn was never relied on, and is cut."""
        if not self._disk.exists(self._manifest):
            return
        data = self._disk.read(self._manifest)
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            self._disk.truncate(self._manifest, whole)
        self._disk.rewrite(self._manifest, 0)  # what was read may stand in the cache only
        self._disk.sync_dir(self._manifest.parent)
        entries = [decoded(line, ManifestEntry) for line in data[:whole].split(b"\n")[:-1]]
        self._listed = {each.name for each in entries}

    def show(self, lengths: Mapping[str, int], ends: Witness, witness: Witness) -> None:
        """``lengths``: plain name -> bytes that are kept; ``witness``: what the slot has published."""
        growing: dict[str, int] = {}
        whole: dict[str, int] = {}
        for name, length in lengths.items():
            if name in self._listed:
                continue
            log, number = _log_of(name)
            growing[name] = shown(witness, log, number, length)
            if number < ends[log].number and number < witness[log].number:
                whole[name] = length
        self._list(whole)
        durable = durable_bytes(self._slot, {name: at for name, at in growing.items() if name not in whole}, ())
        if durable != self._last:
            self._disk.replace(self._durable, durable)
            self._last = durable

    def _list(self, whole: Mapping[str, int]) -> None:
        if not whole:
            return
        lines = [msgspec.json.encode(ManifestEntry(name, length, length)) for name, length in whole.items()]
        with closing(self._disk.append(self._manifest)) as file:
            file.write(*(line + b"\n" for line in lines))
            file.sync()
        self._disk.sync_dir(self._manifest.parent)
        self._listed.update(whole)


def _log_of(name: str) -> tuple[int, int]:
    """Place in KINDS and file number."""
    directory, _, file = name.partition("/")
    return _LOG_OF[directory], number_of(file)


READ_BYTES = 1 << 20  # given back at once when a slot takes bytes from its copy


class CopyState(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="version", tag=1):
    slot: str
    datacentre: str
    incarnation: int  # the newest seen
    ends: Witness = EMPTY


class CopyDamaged(PhotonError):
    """What was kept cannot be used. One line."""


class KeptCopy:
    """Of one slot. One thread at a time; ``load`` first."""

    def __init__(self, disk: Disk, directory: Path, of: CopyOf) -> None:
        self._disk = disk
        self._directory = directory
        self._output = directory / OUTPUT_NAME
        self._of = of
        self._state = CopyState(of.slot, of.datacentre, 0)
        self._hashes = [PrefixHash() for _ in KINDS]
        self._lengths: dict[str, int] = {}  # of each file of the copy: 100 bytes of memory a file
        self._published = KeptPublished(disk, directory, of.slot)

    # -- start -----------------------------------------------------------------------------------------------
    def load(self) -> None:
        """What is there; nothing is made where there is nothing. Raises CopyDamaged, OSError."""
        path = self._directory / COPY_NAME
        if not self._disk.exists(path):
            return
        self._state = read_copy_state(self._disk, self._directory, self._of)
        if self.sealed:
            return  # not ours to touch any more
        self._disk.replace(path, msgspec.json.encode(self._state))  # what was read may stand in the cache only
        self._published.load()
        for at, end in enumerate(self._state.ends):
            self._cut(at, end.number, end.length)
            if end.length:
                self._hashes[at] = hash_file(self._disk, self._path(at, end.number), end.length)
                if self._hashes[at].log(end.number, end.length) != end:
                    raise CopyDamaged(
                        f"{self._path(at, end.number)}: does not hold the {end.length} bytes that were acknowledged; "
                        f"restore it, or set {self._directory} aside: the copy is then made anew"
                    )

    def _cut(self, at: int, number: int, length: int) -> None:
        directory = DIRECTORY_OF[KINDS[at]]
        prefix, changed = f"{self._of.slot}-", False
        for file in self._disk.names(self._output / directory):
            middle = file.removeprefix(prefix).removesuffix(PLAIN_SUFFIX)
            if not (file.startswith(prefix) and file.endswith(PLAIN_SUFFIX) and middle.isdigit()):
                continue
            path, size = self._output / directory / file, self._disk.size(self._output / directory / file)
            if int(middle) > number:
                self._disk.remove(path)
                changed = True
                continue
            if int(middle) == number and size > length:
                self._disk.truncate(path, length)
                size = length
            self._lengths[f"{directory}/{file}"] = size
        if changed:
            self._disk.sync_dir(self._output / directory)

    # -- what the slot asks ----------------------------------------------------------------------------------
    @property
    def sealed(self) -> bool:
        return any(self._disk.exists(self._directory / name) for name in (SEALED_NAME, RETIRED_NAME))

    @property
    def incarnation(self) -> int:
        return self._state.incarnation

    def open(self, incarnation: int) -> CopyAnswer:
        """Fences every earlier incarnation, durably. Raises OSError."""
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
        """Durable when it answers OK. Raises OSError: then the process must end."""
        if (status := self._refusal(extension)) is not Status.OK:
            return self._answer(status)
        if extension.parts:
            self._save(self._state.incarnation, self._append(extension.parts))
        self._published.show(self._lengths, self._state.ends, extension.shown)
        return self._answer(Status.OK)

    def _refusal(self, extension: Extension) -> Status:
        if self.sealed:
            return Status.SEALED
        if extension.incarnation != self._state.incarnation:
            # Of a later one whose opening was lost here nothing is known: it has to open first.
            return Status.STALE if extension.incarnation < self._state.incarnation else Status.ELSEWHERE
        return Status.OK if extension.ends == self._state.ends else Status.ELSEWHERE

    def _append(self, parts: tuple[Part, ...]) -> Witness:
        """Writes and syncs; where the copy ends then."""
        lengths = [end.length for end in self._state.ends]
        numbers = [end.number for end in self._state.ends]
        dirty: dict[int, int] = {}
        for part in parts:
            if part.number > numbers[part.log]:
                self._sync(dirty, part.log)  # whole before its successor is there
                numbers[part.log], lengths[part.log] = part.number, 0
                self._hashes[part.log] = PrefixHash()
            with closing(self._disk.append(self._path(part.log, part.number))) as file:
                file.write(part.data)
            self._hashes[part.log].update(part.data)
            lengths[part.log] += len(part.data)
            dirty[part.log] = part.number
            self._lengths[self._name(part.log, part.number)] = lengths[part.log]
        for log in list(dirty):
            self._sync(dirty, log)
        return tuple(map(PrefixHash.log, self._hashes, numbers, lengths))

    def _sync(self, dirty: dict[int, int], log: int) -> None:
        """Of the file of a log that was written to: its bytes, and its name."""
        if (number := dirty.pop(log, None)) is None:
            return
        path = self._path(log, number)
        with closing(self._disk.append(path)) as file:
            file.sync()
        self._disk.sync_dir(path.parent)

    def read(self, log: int, number: int, offset: int) -> CopyBytes:
        """Some bytes of one file. Raises OSError."""
        path, length = self._path(log, number), self._lengths.get(self._name(log, number))
        if length is None or not self._disk.exists(path):
            return CopyBytes(-1, b"")
        return CopyBytes(length, self._disk.read(path, offset, max(0, min(READ_BYTES, length - offset))))

    # -- inside ----------------------------------------------------------------------------------------------
    def _answer(self, status: Status) -> CopyAnswer:
        return CopyAnswer(status, self._state.incarnation, self._state.ends)

    def _prepare(self) -> None:
        for kind in KINDS:
            self._disk.make_dir(self._output / DIRECTORY_OF[kind])
        # They may have been made by a predecessor that was killed before their names were durable.
        for directory in (self._output, self._directory, *self._directory.parents[:3]):
            self._disk.sync_dir(directory)

    def _save(self, incarnation: int, ends: Witness) -> None:
        self._state = CopyState(self._of.slot, self._of.datacentre, incarnation, ends)
        self._disk.replace(self._directory / COPY_NAME, msgspec.json.encode(self._state))

    def _name(self, log: int, number: int) -> str:
        return name_of(DIRECTORY_OF[KINDS[log]], self._of.slot, number)

    def _path(self, log: int, number: int) -> Path:
        return self._output / self._name(log, number)


def read_copy_state(disk: Disk, directory: Path, of: CopyOf) -> CopyState:
    """``copy.json`` of a copy that is there. Raises CopyDamaged, OSError."""
    path = directory / COPY_NAME
    try:
        state = decoded(disk.read(path), CopyState)
    except DECODE_ERRORS as bad:
        raise CopyDamaged(f"{path}: unreadable ({bad}); set {directory} aside: the copy is then made anew") from None
    if (state.slot, state.datacentre) != (of.slot, of.datacentre):
        raise CopyDamaged(f"{path}: of slot {state.slot} of {state.datacentre}; set it aside")
    if len(state.ends) != len(KINDS):
        raise CopyDamaged(f"{path}: names {len(state.ends)} logs, not {len(KINDS)}; set it aside")
    return state

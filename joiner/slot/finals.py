"""Final files: rolled output whose ids are all cleared is listed in the manifest, and never changes again (rule 4).

A file stays as it is, or is compressed (``[output] compress``). Both forms may stand in one manifest: a file keeps
the form in which it was listed. Order, each step durable before the next:

    plain        its line in the manifest; ``durable.json`` without it
    compressed   a temporary file; renamed; its line in the manifest; the plain file removed; ``durable.json``
                 without it

A crash between two steps leaves a file that is not listed, which a later ``finish`` does again from the beginning, or
a listed one, which ``settle`` brings to its end: it removes the plain file next to a compressed one, and takes the
name out of the published lengths. The manifest is synced before ``durable.json`` is replaced, so at every moment one
of the two has the file's length durably. From the manifest's line on nobody appends to the file, cuts it or looks for
logged lines in it: it is whole and durable, because it was rolled, and none of its ids can be given away, because
they are cleared. Its number is not used again, even if the file was moved away.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import msgspec
from isal import isal_zlib

from photon.config.decoding import DECODE_ERRORS
from photon.config.disk import AppendFile, Disk
from photon.config.versioned_file import decoded
from photon.idregistry.api import Kind
from photon.joiner.slot.output import FINAL_SUFFIX, SUFFIX, OutputDamaged, OutputFiles
from photon.joiner.slot.place import DIRECTORY_OF
from photon.outputs.cleared import Clearing
from photon.outputs.event_times import EventTimes
from photon.outputs.formats import ManifestEntry
from photon.outputs.published import read_damaged

COPY_CHUNK_BYTES = 4 << 20
COMPRESSION_LEVEL = 2
"""Of igzip's four: an eighth larger than what zlib makes at its level 6, in a thirteenth of the time, which was a
third of what a joiner did."""
_GZIP = 31  # zlib's window bits for a gzip stream


class Finals:
    """Makes files final. One thread at a time."""

    def __init__(self, disk: Disk, root: Path, manifest: Path, *, compress: bool = False) -> None:
        self._disk = disk
        self._root = root
        self._manifest = manifest
        self._compress = compress
        self._listed: dict[str, ManifestEntry] = {}  # by plain name
        self._damaged: frozenset[str] = frozenset()  # plain names of files with a damaged range

    def load(self) -> None:
        """Reads the manifest; a torn last line was never relied on and is cut. Raises OutputDamaged,
        PublishedDamaged."""
        self._disk.make_dir(self._manifest.parent)
        self._damaged = frozenset(each.file for each in read_damaged(self._disk, self._manifest.parent))
        if not self._disk.exists(self._manifest):
            return
        # The manifest as read may stand in the cache only, and files are removed, or not looked into, because of it.
        self._disk.rewrite(self._manifest, 0)
        self._disk.sync_dir(self._manifest.parent)
        data = self._disk.read(self._manifest)
        whole = data.rfind(b"\n") + 1
        for number, line in enumerate(data[:whole].split(b"\n")[:-1], 1):
            try:
                entry = decoded(line, ManifestEntry)
            except DECODE_ERRORS as bad:
                raise OutputDamaged(str(self._manifest), f"line {number} is unreadable ({bad})") from bad
            self._listed[entry.name] = entry
        if whole < len(data):
            self._disk.truncate(self._manifest, whole)

    def length_of(self, name: str) -> int:
        """Uncompressed bytes of a file that is final, by its plain name; -1 when it is not listed."""
        entry = self._listed.get(name)
        return -1 if entry is None else entry.uncompressed_bytes

    def unseen(self, name: str) -> int:
        """As ``length_of``, of a file that cannot be compared with anything: its plain form is not there, or readers
        skip a damaged range of it. -1 of any other file."""
        if name in self._damaged or not self._disk.exists(self._root / name):
            return self.length_of(name)
        return -1

    def kept(self, slot: str, kind: Kind) -> dict[int, int]:
        """File number -> uncompressed bytes of those that are listed and still there."""
        there = set(self._disk.names(self._root / DIRECTORY_OF[kind]))
        return {
            number: self._listed[name].uncompressed_bytes
            for number, name in self._numbers(slot, kind)
            if not there.isdisjoint(_forms(name.rpartition("/")[2]))
        }

    def settle(self, files: OutputFiles) -> None:
        """At start: finishes what a crash cut short."""
        for name, entry in self._listed.items():
            plain = self._root / name
            if entry.compressed and self._disk.exists(plain) and self._disk.exists(self._root / entry.file):
                self._disk.remove(plain)
                self._disk.sync_dir(plain.parent)
        listed = self._listed.keys() & (files.lengths.keys() | files.rolled)
        for name in listed:
            files.lengths.pop(name, None)
            files.rolled.discard(name)
        if listed:
            files.publish()

    def highest(self, slot: str) -> dict[Kind, int]:
        """The highest file number of each kind that was ever listed: numbers are not used again."""
        numbers = {kind: [number for number, _ in self._numbers(slot, kind)] for kind in DIRECTORY_OF}
        return {kind: max(found) for kind, found in numbers.items() if found}

    def _numbers(self, slot: str, kind: Kind) -> list[tuple[int, str]]:
        """Number and plain name of the listed files of a slot."""
        prefix = f"{DIRECTORY_OF[kind]}/{slot}-"
        found = [(name[len(prefix) : -len(SUFFIX)], name) for name in self._listed if name.startswith(prefix)]
        return [(int(number), name) for number, name in found if number.isdigit()]

    def finish(self, name: str) -> ManifestEntry:
        """Makes one rolled and cleared file final, in the form that is asked for."""
        plain, final = (self._root / form for form in _forms(name))
        temporary = final.with_name(final.name + ".tmp")
        if self._disk.exists(temporary):
            self._disk.remove(temporary)
        if self._compress:
            entry = self._compressed(name, temporary, final)
            self._list(entry)
            self._disk.remove(plain)
            self._disk.sync_dir(plain.parent)
        else:
            if self._disk.exists(final):  # of a start that compressed, and was killed before it listed it
                self._disk.remove(final)
            entry = self._measured(name, name)
            self._list(entry)
        return entry

    def _compressed(self, name: str, temporary: Path, final: Path) -> ManifestEntry:
        """Writes the compressed file next to the plain one, durably."""
        with closing(self._disk.append(temporary)) as out:
            entry = self._measured(name, _forms(name)[1], out)
        self._disk.rename(temporary, final)
        self._disk.sync_dir(final.parent)
        return entry

    def _measured(self, name: str, stored: str, out: AppendFile | None = None) -> ManifestEntry:
        """Reads a plain file and makes its entry, under the name ``stored``; writes it to ``out``, compressed and
        synced."""
        gzip = isal_zlib.compressobj(COMPRESSION_LEVEL, isal_zlib.DEFLATED, _GZIP)
        at = records = crc = 0
        times = EventTimes()
        while part := self._disk.read(self._root / name, at, COPY_CHUNK_BYTES):
            at += len(part)
            records += part.count(b"\n")
            crc = isal_zlib.crc32(part, crc)
            times.add(part)
            if out is not None:
                out.write(gzip.compress(part))
        if out is not None:
            out.write(gzip.flush())
            out.sync()
        return ManifestEntry(stored, at, at if out is None else out.size, records, crc, *times.span())

    def _list(self, entry: ManifestEntry) -> None:
        if entry.name in self._listed:
            return
        created = not self._disk.exists(self._manifest)
        with closing(self._disk.append(self._manifest)) as file:
            file.write(msgspec.json.encode(entry) + b"\n")
            file.sync()
        if created:
            self._disk.sync_dir(self._manifest.parent)
        self._listed[entry.name] = entry


def _forms(plain: str) -> tuple[str, str]:
    """A file's names, plain and compressed."""
    return plain, plain.removesuffix(SUFFIX) + FINAL_SUFFIX


def ready(files: OutputFiles, clearing: Clearing) -> Iterable[str]:
    """Files that are rolled, durable to their end, and cleared to their end, without trouble in them."""
    cleared = {name: length for name, length in clearing.files.items() if name not in clearing.trouble}
    return [name for name in sorted(files.rolled) if cleared.get(name, -1) >= files.lengths.get(name, 1 << 62)]

"""Makes files final: a rolled file whose ids are all cleared is listed in the manifest, and never changes again (rule
4).

A file stays plain or is compressed (``[output] compress``), and keeps the form in which it was listed; a manifest may
list both. The steps, each durable before the next:

    plain        its line in the manifest; ``durable.json`` without it
    compressed   a temporary file; renamed; its line in the manifest; the plain file removed; ``durable.json``
                 without it

If a crash leaves a file unlisted, a later ``finish`` starts again; if listed, ``settle`` completes it: it removes the
plain file next to a compressed one, and the name from the published lengths. The manifest is synced before
``durable.json`` is replaced, so one of the two always has the file's length durably. Once a file is in the manifest,
nothing appends to it, cuts it or searches it for logged lines: it is whole and durable, since it was rolled, and none
of its ids can be given away, since they are cleared. Its number is never reused, even if the file is moved away.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

from isal import isal_zlib

from photon.config.disk import AppendFile
from photon.joiner.slot.output import OutputDamaged
from photon.outputs.cleared import Clearing
from photon.outputs.content import gzip_stream
from photon.outputs.event_times import EventTimes
from photon.outputs.log.format import FINAL_SUFFIX, ManifestEntry, gzip_name, number_of
from photon.outputs.log.manifest import Manifest
from photon.outputs.log.writer import LogWriter
from photon.outputs.published import read_damaged

COPY_CHUNK_BYTES = 4 << 20


class Finals:
    """Makes files of one slot final. Not thread-safe."""

    def __init__(self, files: LogWriter, *, compress: bool = False) -> None:
        self._files, self._disk, self._root = files, files.disk, files.root
        self._manifest = Manifest(files.disk, files.state)
        self._listed = self._manifest.entries
        self._compress = compress
        self._damaged: frozenset[str] = frozenset()  # plain names of files with a damaged range

    def load(self) -> None:
        """Reads the manifest. Raises OutputDamaged, PublishedDamaged."""
        self._disk.make_dir(self._files.state)
        self._damaged = frozenset(each.file for each in read_damaged(self._disk, self._files.state))
        self._manifest.load(OutputDamaged)

    def length_of(self, name: str) -> int:
        """Returns the uncompressed size of a final file, by its plain name; -1 if it is not listed."""
        entry = self._listed.get(name)
        return -1 if entry is None else entry.uncompressed_bytes

    def unseen(self, name: str) -> int:
        """Like ``length_of``, but -1 for files that can be compared. The others lack the plain form, or have a
        damaged range that readers skip.
        """
        if name in self._damaged or not self._disk.exists(self._root / name):
            return self.length_of(name)
        return -1

    def kept(self, kind: str) -> dict[int, int]:
        """Returns file number -> uncompressed size, for listed files that still exist."""
        here = {*self._files.numbers(kind), *self._files.numbers(kind, FINAL_SUFFIX)}
        return {
            number_of(name): entry.uncompressed_bytes
            for name, entry in self._listed.items()
            if name.startswith(f"{kind}/") and number_of(name) in here
        }

    def settle(self) -> None:
        """Completes work that a crash interrupted. Called at a start."""
        for name, entry in self._listed.items():
            plain = self._root / name
            if entry.compressed and self._disk.exists(plain) and self._disk.exists(self._root / entry.file):
                self._disk.remove(plain)
                self._disk.sync_dir(plain.parent)
        listed = self._listed.keys() & (self._files.lengths.keys() | self._files.rolled)
        if listed:
            self._files.forget(listed)
            self._files.show()

    def highest(self) -> dict[str, int]:
        """Returns the highest file number of each kind ever listed: numbers are never reused."""
        found: dict[str, int] = {}
        for name in self._listed:
            kind = name.partition("/")[0]
            found[kind] = max(found.get(kind, 0), number_of(name))
        return found

    def finish(self, name: str) -> ManifestEntry:
        """Makes one rolled and cleared file final, in the requested form."""
        plain, final = self._root / name, self._root / gzip_name(name)
        temporary = final.with_name(final.name + ".tmp")
        if self._disk.exists(temporary):
            self._disk.remove(temporary)
        if self._compress:
            entry = self._compressed(name, temporary, final)
            self._manifest.add(entry)
            self._disk.remove(plain)
            self._disk.sync_dir(plain.parent)
        else:
            if self._disk.exists(final):  # left by a process killed between compressing and listing it
                self._disk.remove(final)
            entry = self._measured(name, name)
            self._manifest.add(entry)
        return entry

    def _compressed(self, name: str, temporary: Path, final: Path) -> ManifestEntry:
        """Writes the compressed file next to the plain one, durably."""
        with closing(self._disk.append(temporary)) as out:
            entry = self._measured(name, gzip_name(name), out)
        self._disk.rename(temporary, final)
        self._disk.sync_dir(final.parent)
        return entry

    def _measured(self, name: str, stored: str, out: AppendFile | None = None) -> ManifestEntry:
        """Reads a plain file and makes its entry, named ``stored``. Writes it compressed to ``out``, and syncs."""
        gzip = gzip_stream()
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


def ready(files: LogWriter, clearing: Clearing) -> Iterable[str]:
    """Returns the files that are rolled, durable, fully cleared and undamaged."""
    cleared = {name: length for name, length in clearing.files.items() if name not in clearing.trouble}
    return [name for name in sorted(files.rolled) if cleared.get(name, -1) >= files.lengths.get(name, 1 << 62)]

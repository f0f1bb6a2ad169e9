"""Final files: rolled output whose ids are all cleared is compressed, listed in the manifest, and immutable (rule 4).

Order: compress to a temporary file, sync; rename, sync the directory; list in the manifest, sync; remove the plain
file, sync the directory. A start repeats what a crash cut short: a plain file that is listed is removed, another one
is compressed again. While both names exist, the plain file is the one to read.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import msgspec
from isal import isal_zlib

from photon.config.decoding import DECODE_ERRORS
from photon.config.disk import Disk
from photon.config.versioned_file import decoded
from photon.idregistry.api import Kind
from photon.joiner.slot.output import FINAL_SUFFIX, SUFFIX, OutputDamaged, OutputFiles
from photon.joiner.slot.place import DIRECTORY_OF
from photon.outputs.cleared import Clearing
from photon.outputs.event_times import EventTimes
from photon.outputs.formats import ManifestEntry

COPY_CHUNK_BYTES = 4 << 20
COMPRESSION_LEVEL = 2
"""Of igzip's four: an eighth larger than what zlib makes at its level 6, in a thirteenth of the time, which was a
third of what a joiner did."""
_GZIP = 31  # zlib's window bits for a gzip stream


class Finals:
    """Makes files final. One thread at a time."""

    def __init__(self, disk: Disk, root: Path, manifest: Path) -> None:
        self._disk = disk
        self._root = root
        self._manifest = manifest
        self._listed: dict[str, ManifestEntry] = {}

    def load(self) -> None:
        """Reads the manifest; a torn last line was never relied on and is cut. Raises OutputDamaged."""
        self._disk.make_dir(self._manifest.parent)
        if not self._disk.exists(self._manifest):
            return
        # What a start reads may stand in the cache only; plain files are removed on the strength of it.
        self._disk.rewrite(self._manifest, 0)
        self._disk.sync_dir(self._manifest.parent)
        data = self._disk.read(self._manifest)
        whole = data.rfind(b"\n") + 1
        for number, line in enumerate(data[:whole].split(b"\n")[:-1], 1):
            try:
                entry = decoded(line, ManifestEntry)
            except DECODE_ERRORS as bad:
                raise OutputDamaged(str(self._manifest), f"line {number} is unreadable ({bad})") from bad
            self._listed[entry.file] = entry
        if whole < len(data):
            self._disk.truncate(self._manifest, whole)

    def length_of(self, plain: str) -> int:
        """Uncompressed bytes of a file that is final, by its plain name; -1 when it is not listed."""
        entry = self._listed.get(plain.removesuffix(SUFFIX) + FINAL_SUFFIX)
        return -1 if entry is None else entry.uncompressed_bytes

    def kept(self, slot: str, kind: Kind) -> dict[int, int]:
        """File number -> uncompressed bytes of those that are listed and still there."""
        prefix = f"{DIRECTORY_OF[kind]}/{slot}-"
        there = set(self._disk.names(self._root / DIRECTORY_OF[kind]))
        return {
            int(name[len(prefix) : -len(FINAL_SUFFIX)]): entry.uncompressed_bytes
            for name, entry in self._listed.items()
            if name.startswith(prefix)
            and name[len(prefix) : -len(FINAL_SUFFIX)].isdigit()
            and name.rpartition("/")[2] in there
        }

    def settle(self, files: OutputFiles) -> None:
        """At start: finishes what a crash cut short."""
        changed = False
        for final in self._listed:
            plain = final.removesuffix(FINAL_SUFFIX) + SUFFIX
            if self._disk.exists(self._root / plain) and self._disk.exists(self._root / final):
                self._disk.remove(self._root / plain)
                self._disk.sync_dir((self._root / plain).parent)
            if plain in files.lengths and not self._disk.exists(self._root / plain):
                del files.lengths[plain]
                files.rolled.discard(plain)
                changed = True
        if changed:
            files.publish()

    def highest(self, slot: str) -> dict[Kind, int]:
        """The highest file number of each kind that was ever listed: numbers are not used again."""
        found: dict[Kind, int] = {}
        for kind, directory in DIRECTORY_OF.items():
            prefix = f"{directory}/{slot}-"
            for name in self._listed:
                middle = name[len(prefix) : -len(FINAL_SUFFIX)]
                if name.startswith(prefix) and middle.isdigit():
                    found[kind] = max(found.get(kind, 0), int(middle))
        return found

    def finish(self, name: str) -> ManifestEntry:
        """Compresses one rolled and cleared file, lists it, removes the plain one."""
        plain = self._root / name
        final_name = name.removesuffix(SUFFIX) + FINAL_SUFFIX
        final = self._root / final_name
        entry = self._compress(plain, final.with_name(final.name + ".tmp"), final_name)
        self._disk.rename(final.with_name(final.name + ".tmp"), final)
        self._disk.sync_dir(final.parent)
        if final_name not in self._listed:
            self._list(entry)
        self._disk.remove(plain)
        self._disk.sync_dir(plain.parent)
        return entry

    def _compress(self, plain: Path, temporary: Path, final_name: str) -> ManifestEntry:
        if self._disk.exists(temporary):
            self._disk.remove(temporary)
        out = self._disk.append(temporary)
        gzip = isal_zlib.compressobj(COMPRESSION_LEVEL, isal_zlib.DEFLATED, _GZIP)
        at = records = crc = 0
        times = EventTimes()
        try:
            while part := self._disk.read(plain, at, COPY_CHUNK_BYTES):
                at += len(part)
                records += part.count(b"\n")
                crc = isal_zlib.crc32(part, crc)
                times.add(part)
                out.write(gzip.compress(part))
            out.write(gzip.flush())
            out.sync()
            return ManifestEntry(final_name, at, out.size, records, crc, *times.span())
        finally:
            out.close()

    def _list(self, entry: ManifestEntry) -> None:
        created = not self._disk.exists(self._manifest)
        with closing(self._disk.append(self._manifest)) as file:
            file.write(msgspec.json.encode(entry) + b"\n")
            file.sync()
        if created:
            self._disk.sync_dir(self._manifest.parent)
        self._listed[entry.file] = entry


def ready(files: OutputFiles, clearing: Clearing) -> Iterable[str]:
    """Files that are rolled, durable to their end, and cleared to their end, without trouble in them."""
    cleared = {name: length for name, length in clearing.files.items() if name not in clearing.trouble}
    return [name for name in sorted(files.rolled) if cleared.get(name, -1) >= files.lengths.get(name, 1 << 62)]

"""Final output files as objects below a prefix, under their names, and ``manifest.jsonl``, which says which count.

A final file never changes, so there is nothing to remember: what is there with its size is not written again. An
object appears whole; the manifest is replaced after all that it names is there. A line of it is
``{"file", "bytes", "uncompressed_bytes", "first_ns", "last_ns"}``. What a retired slot's records no longer count is
left out of the next one (docs/output.md).
"""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import orjson

from photon.config.disk import Disk
from photon.objects.directory import bucket_of
from photon.objects.paths import ObjectPath
from photon.objects.transfer import below, put_file, told
from photon.outputs.content import FileContent
from photon.outputs.output_places import OutputPlace
from photon.outputs.published import FINAL_SUFFIX, PLAIN_SUFFIX, OutputFile

MANIFEST = "manifest.jsonl"
READ_BYTES = 1 << 20


@dataclass(slots=True)
class Mirrored:
    """Since the start."""

    files: int = 0
    bytes: int = 0


class ObjectSink:
    """Of one output. One caller at a time."""

    def __init__(self, disk: Disk, place: OutputPlace, into: ObjectPath, kinds: Collection[str]) -> None:
        """Raises ObjectsUnavailable."""
        self._disk = disk
        self._place = place
        self._into = into
        self._kinds = kinds
        self.mirrored = Mirrored()
        with told(into):
            self._there = {name: meta.size for name, meta in below(into).items()}
            self._manifest = b"" if MANIFEST in self._there else None

    def pass_(self) -> int:
        """Writes what is not there; how many files. Raises PublishedDamaged, ObjectsUnavailable, OSError."""
        lines, before = list[bytes](), self.mirrored.files
        for slot in self._place.published(self._disk, self._kinds):
            output = slot.output or self._place.output
            for file in slot.files:
                if slot.retired:
                    lines.append(self._sealed(output, file))
                elif file.final and (line := self._final(output, file)):
                    lines.append(line)
        self._say(b"".join(sorted(lines)))
        return self.mirrored.files - before

    def _final(self, output: Path, file: OutputFile) -> bytes:
        """Its line of the manifest; empty where it is neither here nor there."""
        name = file.name.removesuffix(PLAIN_SUFFIX) + FINAL_SUFFIX
        path = output / name
        try:
            size = path.stat().st_size
        except FileNotFoundError:  # moved away: it counts as long as its object is there
            return _line(name, self._there[name], file) if name in self._there else b""
        if self._there.get(name) != size:
            self._put(name, path)
        return _line(name, size, file)

    def _sealed(self, output: Path, file: OutputFile) -> bytes:
        """Of a retired slot: what counts may be less than what was written of its file before, so it has a name of
        its own."""
        name = f"{file.name.removesuffix(PLAIN_SUFFIX)}.sealed-{file.length}{FINAL_SUFFIX}"
        if name not in self._there:
            content = FileContent(self._disk, output / file.name, 0)
            with tempfile.NamedTemporaryFile(prefix="photon-") as packed:
                with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as into:
                    while content.at < file.length and (
                        data := content.read(min(READ_BYTES, file.length - content.at))
                    ):
                        into.write(data)
                packed.flush()
                self._put(name, Path(packed.name))
        return _line(name, self._there[name], file)

    def _put(self, name: str, path: Path) -> None:
        to = self._into / name
        assert isinstance(to, ObjectPath)
        with told(to):
            size = put_file(path, to)
        self._there[name] = size
        self.mirrored.files += 1
        self.mirrored.bytes += size

    def _say(self, manifest: bytes) -> None:
        if manifest == self._manifest:
            return
        to = self._into / MANIFEST
        assert isinstance(to, ObjectPath)
        with told(to):
            bucket_of(to).objects.write(to.key, [manifest])
        self._manifest = manifest


def _line(name: str, size: int, file: OutputFile) -> bytes:
    said = {"file": name, "bytes": size, "uncompressed_bytes": file.length}
    return orjson.dumps({**said, "first_ns": file.first_ns, "last_ns": file.last_ns}) + b"\n"

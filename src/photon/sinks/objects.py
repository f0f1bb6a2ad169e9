"""Output files as objects below a prefix, and ``manifest.jsonl``, which says which count.

A final file has its own name and never changes, so there is nothing to remember: what is there with its size is not
written again. What a file that is not final holds at the end is an object whose name says how long it is
(``joined/east-1-000003.upto-52144.jsonl.gz``), and so is what still counts of a retired slot (docs/output.md). An
object appears whole; the manifest is replaced after all that it names is there, and before what it does not name any
more is deleted. A line of it is ``{"file", "bytes", "uncompressed_bytes", "first_ns", "last_ns"}``.
"""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path

import orjson

from photon.config.disk import Disk
from photon.objects.directory import bucket_of
from photon.objects.paths import ObjectPath
from photon.objects.transfer import below, put_file, told
from photon.outputs.content import FileContent, OutputMissing
from photon.outputs.output_places import OutputPlace
from photon.outputs.published import FINAL_SUFFIX, PLAIN_SUFFIX, OutputFile

MANIFEST = "manifest.jsonl"
PART = ".upto-"
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
        self._manifest: bytes | None = None

    def pass_(self, *, all_of_it: bool = False) -> None:
        """Writes what is not there. ``all_of_it``: also what files that are not final hold now. Raises
        PublishedDamaged, OutputMissing, ObjectsUnavailable, OSError."""
        counting: dict[str, OutputFile] = {}
        for slot in self._place.published(self._disk, self._kinds):
            output = slot.output or self._place.output
            for file in slot.files:
                if not slot.retired and file.final:
                    name = self._final(output, file)
                elif slot.retired or all_of_it:
                    name = self._part(output, file) if file.length else ""
                else:
                    name, file = self._shown(file)
                if name:
                    counting[name] = file
        self._say(b"".join(_line(name, self._there[name], counting[name]) for name in sorted(counting)))
        self._clear({name for name in self._there if PART in name} - counting.keys())

    def _final(self, output: Path, file: OutputFile) -> str:
        """Its name there; empty where it is neither here nor there."""
        name = file.name.removesuffix(PLAIN_SUFFIX) + FINAL_SUFFIX
        path = output / name
        try:
            size = path.stat().st_size
        except FileNotFoundError:  # moved away: it counts as long as its object is there
            return name if name in self._there else ""
        if self._there.get(name) != size:
            self._put(name, path)
        return name

    def _part(self, output: Path, file: OutputFile) -> str:
        """Of a file that may still grow, or of which less counts than was written: its name says how much it is."""
        name = f"{file.name.removesuffix(PLAIN_SUFFIX)}{PART}{file.length}{FINAL_SUFFIX}"
        if name not in self._there:
            content = FileContent(self._disk, output / file.name, 0)
            with tempfile.NamedTemporaryFile(prefix="photon-") as packed:
                with gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as into:
                    while data := content.read(min(READ_BYTES, file.length - content.at)):
                        into.write(data)
                if content.at < file.length:
                    what = f"has {content.at} bytes, but {file.length} were published"
                    raise OutputMissing(output / file.name, what)
                packed.flush()
                self._put(name, Path(packed.name))
        return name

    def _shown(self, file: OutputFile) -> tuple[str, OutputFile]:
        """What an earlier run has written of a file that is not final still: readers were shown it, so it counts
        until there is more of it. Empty: nothing."""
        stem = file.name.removesuffix(PLAIN_SUFFIX) + PART
        ends = [name.removeprefix(stem).removesuffix(FINAL_SUFFIX) for name in self._there if name.startswith(stem)]
        length = max((int(end) for end in ends if end.isdecimal() and int(end) <= file.length), default=0)
        return f"{stem}{length}{FINAL_SUFFIX}" if length else "", replace(file, length=length)

    def _clear(self, names: Collection[str]) -> None:
        """Parts that count no more, after the manifest has said so."""
        for name in names:
            with told(self._into):
                bucket_of(self._into).objects.delete(self._to(name).key)
            del self._there[name]

    def _put(self, name: str, path: Path) -> None:
        to = self._to(name)
        with told(to):
            size = put_file(path, to)
        self._there[name] = size
        self.mirrored.files += 1
        self.mirrored.bytes += size

    def _to(self, name: str) -> ObjectPath:
        to = self._into / name
        assert isinstance(to, ObjectPath)
        return to

    def _say(self, manifest: bytes) -> None:
        if manifest == self._manifest:
            return
        to = self._to(MANIFEST)
        with told(to):
            bucket_of(to).objects.write(to.key, [manifest])
        self._manifest = manifest


def _line(name: str, size: int, file: OutputFile) -> bytes:
    said = {"file": name, "bytes": size, "uncompressed_bytes": file.length}
    return orjson.dumps({**said, "first_ns": file.first_ns, "last_ns": file.last_ns}) + b"\n"

"""Output files as objects below a prefix, and ``manifest.jsonl``, which says which count (``outputs/mirrored.py``).

A final file has its own name and never changes, so there is nothing to remember: what is there with its size is not
written again. What a file that is not final holds at the end is an object whose name says how long it is
(``joined/east-1-000003.upto-52144.jsonl.gz``), and so is what still counts of a retired slot (docs/output.md). An
object appears whole; the manifest is replaced after all that it names is there. What it does not name any more is
deleted an hour later, so that whoever has read the manifest before finds it.

**One writer.** The manifest is swapped: it is written only over the one that this sink has read or written last. So
of two sinks one ends before anybody sees what it wrote, and the manifest never goes back. A prefix whose manifest
names files of another output is refused.
"""

from __future__ import annotations

import gzip
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from photon.config.clock import NS_PER_S, Clock, SystemClock
from photon.config.disk import Disk
from photon.config.errors import PhotonError, UsageError
from photon.objects.api import Meta, ObjectChanged
from photon.objects.directory import bucket_of
from photon.objects.paths import ObjectPath
from photon.objects.transfer import ObjectsUnavailable, below, put_file, told
from photon.outputs.content import FileContent, OutputMissing
from photon.outputs.mirrored import MANIFEST, PART, MirroredFile, manifest_of
from photon.outputs.output_places import OutputPlace
from photon.outputs.published import FINAL_SUFFIX, PLAIN_SUFFIX, OutputFile, SlotOutput

READ_BYTES = 1 << 20
FOLLOW_S = 5.0
"""Between two looks at what has become final."""
KEPT_NS = 3600 * NS_PER_S
"""An object that counts no more stays for so long."""


class PrefixTaken(PhotonError):
    """Another sink writes there. One line."""


@dataclass(slots=True)
class Mirrored:
    """Since the start."""

    files: int = 0
    bytes: int = 0


def follow(
    open_: Callable[[], ObjectSink],
    pause: Callable[[float], bool],
    tell: Callable[[str], object],
    wrote: Callable[[int], object] = lambda size: None,
) -> ObjectSink:
    """Until ``pause``, which waits for so many seconds, says that it is to end: then also what is not final. A store
    that does not answer is waited for once it has answered: ``tell`` hears why, and the empty text once it answers.
    ``wrote``: hears the bytes in all. Raises as ObjectSink and ``pass_``."""
    sink, away = open_(), False
    sink.pass_()
    while not pause(FOLLOW_S):
        try:
            sink.pass_()
        except ObjectsUnavailable as error:
            if not away:
                tell(f"{error.what}; trying again")
            away = True
            continue
        if away:
            tell("")
        away = False
        wrote(sink.mirrored.bytes)
    sink.pass_(all_of_it=True)
    return sink


class ObjectSink:
    """Of one output. One caller at a time."""

    def __init__(
        self, disk: Disk, place: OutputPlace, into: ObjectPath, kinds: Collection[str], clock: Clock | None = None
    ) -> None:
        """Raises UsageError, PublishedDamaged, ObjectsUnavailable."""
        self._disk = disk
        self._place = place
        self._into = into
        self._kinds = kinds
        self._clock = clock or SystemClock()
        self.mirrored = Mirrored()
        with told(into):
            there = below(into)
        self._there = {name: meta.size for name, meta in there.items()}
        self._at = there.get(MANIFEST)
        self._manifest = self._read() if self._at is not None else None
        self._counting = manifest_of(self._manifest or b"", self._to(MANIFEST))
        self._known = not self._counting
        """The prefix holds this output, as far as can be seen."""
        since = 0 if self._at is None else self._at.modified_ns
        self._gone = {name: since for name in there if PART in name and name not in self._counting}
        """Parts that do not count, and since when at the latest."""

    def pass_(self, *, all_of_it: bool = False) -> None:
        """Writes what is not there. ``all_of_it``: also what files that are not final hold now. Raises
        PublishedDamaged, OutputMissing, ObjectsUnavailable, PrefixTaken, UsageError, OSError."""
        published = self._place.published(self._disk, self._kinds)
        self._check(published)
        counting: dict[str, MirroredFile] = {}
        for slot in published:
            for name, file in self._files(slot, all_of_it):
                counting[name] = MirroredFile(
                    file=name, bytes=self._there[name], uncompressed_bytes=file.length, first_ns=file.first_ns,
                    last_ns=file.last_ns, closed=PART in name and file.closed, retired=slot.retired,
                )  # fmt: skip
        self._say(counting)
        self._clear()

    def _files(self, slot: SlotOutput, all_of_it: bool) -> Iterator[tuple[str, OutputFile]]:
        output = slot.output or self._place.output
        newest = {file.kind: file.number for file in slot.files if file.final}
        for file in slot.files:
            if not slot.retired and file.final:
                name = self._final(output, file)
            # Readers go from file to file: none is passed over because a later one is final already.
            elif slot.retired or all_of_it or file.number < newest.get(file.kind, -1):
                name = self._part(output, file) if file.length else ""
            else:
                name, file = self._shown(file)
            if name:
                yield name, file

    def _check(self, published: Sequence[SlotOutput]) -> None:
        """Raises UsageError: the prefix holds another output."""
        if self._known:
            return
        lengths = {_object(file): file.length for slot in published for file in slot.files}
        ours = [
            name
            for name in self._counting
            if name in lengths or f"{name.partition(PART)[0]}{FINAL_SUFFIX}" in lengths
        ]
        changed = [name for name in ours if lengths.get(name, self._length(name)) != self._length(name)]
        if not ours or changed:
            what = f"{changed[0]} is another one" if changed else "nothing of what is there is of this output"
            raise UsageError(
                f"{self._into}: holds another output, or other kinds of it ({what}); name another prefix"
            )
        self._known = True

    def _length(self, name: str) -> int:
        return self._counting[name].uncompressed_bytes

    def _final(self, output: Path, file: OutputFile) -> str:
        """Its name there; empty where it is neither here nor there."""
        name = _object(file)
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
        shown = replace(file, length=length, closed=file.closed and length == file.length)
        return f"{stem}{length}{FINAL_SUFFIX}" if length else "", shown

    def _clear(self) -> None:
        """Parts that have not counted for long."""
        now_ns = self._clock.now_ns()
        for name in [name for name, since_ns in self._gone.items() if now_ns - since_ns >= KEPT_NS]:
            with told(self._into):
                bucket_of(self._into).objects.delete(self._to(name).key)
            del self._there[name], self._gone[name]

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

    def _read(self) -> bytes:
        to = self._to(MANIFEST)
        with told(to):
            objects = bucket_of(to).objects
            self._at = objects.head(to.key)  # with its version, which listings do not tell
            return objects.read(self._at, 0, self._at.size) if self._at.size else b""

    def _say(self, counting: Mapping[str, MirroredFile]) -> None:
        manifest = b"".join(msgspec.json.encode(counting[name]) + b"\n" for name in sorted(counting))
        if manifest != self._manifest:
            self._at, self._manifest = self._swapped(manifest), manifest
        now_ns = self._clock.now_ns()
        self._gone = {
            name: self._gone.get(name, now_ns) for name in self._there if PART in name and name not in counting
        }
        self._counting = dict(counting)

    def _swapped(self, manifest: bytes) -> Meta:
        to = self._to(MANIFEST)
        with told(to):
            try:
                return bucket_of(to).objects.swap(to.key, manifest, self._at)
            except ObjectChanged:
                if self._read() == manifest and self._at is not None:  # by an attempt that was not answered
                    return self._at
        raise PrefixTaken(
            f"{self._into}: another sink writes there, for its manifest is not the one that this one has written; "
            "end one of the two, or name another prefix"
        )


def _object(file: OutputFile) -> str:
    """The name of a final file's."""
    return file.name.removesuffix(PLAIN_SUFFIX) + FINAL_SUFFIX

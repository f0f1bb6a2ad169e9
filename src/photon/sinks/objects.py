"""Copies output files to objects below a prefix, and lists the valid ones in ``manifest.jsonl``
(``outputs/mirrored.py``).

A final file's object has the file's name and never changes. A compressed file is copied as it is, unless the object
exists with its size; a plain file is compressed on the way, and not copied again if the manifest lists it with its
length, or this process has written it. The content of a file that is not final becomes an object named by its
length (``joined/east-1-000003.upto-52144.jsonl.gz``), as do the valid parts of a retired slot (docs/reading.md). An
object appears whole; the manifest is replaced once all its objects exist. Objects that it no longer names are deleted
an hour later, so that readers of the previous manifest still find them.

**One writer.** The manifest is replaced only if it is still the one that this sink last read or wrote. So of two
sinks one stops before its files are visible. A prefix whose manifest names files of another output, or of kinds that
this sink does not write, is refused.

**Making room.** The sink deletes nothing locally: ``removable`` lists the final files that an operator may delete.

**Nothing is withdrawn.** Each manifest includes the previous one's content, or more of the same file, regardless of
the current published state (a disk that is not mounted, a power cut); for a retired slot, its final files.
"""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from photon.config.clock import NS_PER_S, Clock, SystemClock
from photon.config.disk import Disk
from photon.config.errors import PhotonError, UsageError
from photon.objects.api import Meta, ObjectChanged
from photon.objects.directory import bucket_of
from photon.objects.paths import ObjectPath
from photon.objects.transfer import ObjectsUnavailable, below, put_file, told
from photon.outputs.content import OutputMissing, gzip_stream
from photon.outputs.damaged import FilledContent
from photon.outputs.log.format import FINAL_SUFFIX, PLAIN_SUFFIX, gzip_name, name_of
from photon.outputs.mirrored import MANIFEST, PART, MirroredFile, current_manifest, manifest_bytes, manifest_of
from photon.outputs.output_places import OutputPlace
from photon.outputs.published import OutputFile, SlotOutput

READ_BYTES = 1 << 20
FILES_MAX = 5_000_000  # most files below one prefix; a slot makes up to 288 a day
FOLLOW_S = 5.0  # interval of checks for new final files
KEPT_NS = 3600 * NS_PER_S  # how long an object that is no longer valid stays
SWAPS = 4  # attempts to replace a manifest that an unanswered attempt of this sink may have written


class PrefixTaken(PhotonError):
    """Another sink writes to the prefix. The message is one line."""

    def __init__(self, into: ObjectPath) -> None:
        super().__init__(
            f"{into}: another sink writes there, as its manifest differs from the one written here; stop one of "
            "the two, or name another prefix"
        )


def follow(
    sink: ObjectSink,
    pause: Callable[[float], bool],
    tell: Callable[[str], object],
    wrote: Callable[[int], object] = lambda size: None,
) -> None:
    """Copies files as they become final until ``pause``, which waits for the given seconds, returns true; then also
    the files that are not final. Waits if the store stops answering, except at the start: ``tell`` receives the
    reason, and an empty text once it answers again. ``wrote`` receives the total bytes. Raises like ``pass_``."""
    away = False
    sink.pass_()
    tell("")
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
        wrote(sink.bytes)
    sink.pass_(all_of_it=True)


class ObjectSink:
    """Copies one output to a prefix. One caller at a time."""

    def __init__(
        self, disk: Disk, place: OutputPlace, into: ObjectPath, kinds: Collection[str], clock: Clock | None = None,
    ) -> None:  # fmt: skip
        """Reads the prefix's manifest and objects. Raises PublishedDamaged, ObjectsUnavailable."""
        self._disk, self._place, self._into, self._kinds = disk, place, into, kinds
        self._clock = clock or SystemClock()
        self.files = self.bytes = 0  # files and bytes written since the start
        self._at: Meta | None = None
        self._manifest: bytes | None = None
        self._unanswered: set[bytes] = set()  # digests of the manifests that may exist
        with told(into):
            with contextlib.suppress(FileNotFoundError):
                self._at, self._manifest = current_manifest(into / MANIFEST)
            there = below(into, FILES_MAX)  # listed after the manifest, so that its objects exist
        self._there = {name: meta.size for name, meta in there.items()}
        self._written = set[str]()  # written by this process
        self._counting = manifest_of(self._manifest or b"", into / MANIFEST)
        self._known = not self._counting  # true if the prefix is known to have this output
        since = 0 if self._at is None else self._at.modified_ns
        # Parts that are no longer valid -> the latest time when they became so.
        self._gone = {
            name: max(since, meta.modified_ns)  # as another sink may have just written it for its next manifest
            for name, meta in there.items()
            if PART in name and name not in self._counting
        }

    def pass_(self, *, all_of_it: bool = False) -> None:
        """Copies missing files, and writes the manifest. ``all_of_it``: also files that are not final. Raises
        PublishedDamaged, OutputMissing, ObjectsUnavailable, PrefixTaken, UsageError, OSError."""
        published = self._place.published(self._disk, self._kinds)
        self._check(published)
        counting: dict[str, MirroredFile] = {}
        output = self._place.identity(self._disk)
        for slot in published:
            for name, file in self._files(slot, all_of_it):
                counting[name] = MirroredFile(
                    file=name, bytes=self._there[name], uncompressed_bytes=file.length, first_ns=file.first_ns,
                    last_ns=file.last_ns, closed=PART in name and file.closed, retired=slot.retired, output=output,
                    damaged=file.damaged,
                )  # fmt: skip
        self._keep(counting, published)
        self._say(counting)
        self._clear()

    def removable(self) -> list[Path]:
        """Returns the local final files that may be deleted: the manifest lists them, and their objects exist with
        the right size. Omits the newest of each kind, which the slot's next start needs. Writes nothing. Raises
        PublishedDamaged, UsageError."""
        published, found = self._place.published(self._disk, self._kinds), []
        self._check(published)
        for slot in published:
            if slot.retired or slot.output is not None:
                continue
            newest = {file.kind: file.number for file in slot.files if file.final}
            for file in slot.files:
                if file.final and file.number < newest[file.kind] and _object(file) in self._counting:
                    path = _path(self._place.output, file)
                    found += [path] if path is not None and self._has(file, path) else []
        return found

    def _has(self, file: OutputFile, path: Path) -> bool:
        """True if the final file at ``path`` also exists below the prefix."""
        name = _object(file)
        size, there = path.stat().st_size, self._there.get(name)
        if path.name.endswith(FINAL_SUFFIX):
            return there == size
        if name in self._written:
            return True
        shown = self._counting.get(name)
        return shown is not None and (shown.bytes, shown.uncompressed_bytes) == (there, file.length)

    def _files(self, slot: SlotOutput, all_of_it: bool) -> Iterator[tuple[str, OutputFile]]:
        output = slot.output or self._place.output
        newest = {file.kind: file.number for file in slot.files if file.final}
        named = set[str]()
        for file in slot.files:
            name = ""
            if not slot.retired and file.final:
                name = self._final(output, file)
                if not name and file.kind in named:  # as readers would otherwise skip it
                    raise OutputMissing(
                        output / _object(file), f"was moved away before it was copied to {self._into}"
                    )
            elif slot.retired and self._counts(file):
                name = _object(file)
            # Readers go from file to file, so none may be left out just because a later one is final.
            elif file.length and (slot.retired or all_of_it or file.number < newest.get(file.kind, -1)):
                name = self._part(output, file)
            if name:
                named.add(file.kind)
                yield name, file
        if slot.retired and not named:  # so that readers positioned in it notice
            none = OutputFile(name_of(min(self._kinds), slot.slot, 0), 0, True, False)
            yield self._part(output, none), none

    def _counts(self, file: OutputFile) -> bool:
        """True if the prefix has all valid content of a retired slot's file as a final object."""
        shown = self._counting.get(_object(file))
        return shown is not None and shown.file in self._there and shown.uncompressed_bytes == file.length

    def _keep(self, counting: dict[str, MirroredFile], published: Sequence[SlotOutput]) -> None:
        """Keeps all content valid that readers have seen, until there is more or its slot is retired. Final files
        stay valid: their ids are cleared, so retiring gives none up, and they may be the only copy."""
        retired = {slot.slot for slot in published if slot.retired}
        now = {each.plain: each for each in counting.values()}
        for name, shown in self._counting.items():
            if name not in self._there or (shown.slot in retired and PART in name):
                continue
            found = now.get(shown.plain)
            if found is None or found.uncompressed_bytes < shown.uncompressed_bytes:
                if found is not None:
                    del counting[found.file]
                counting[name] = msgspec.structs.replace(shown, retired=shown.retired or shown.slot in retired)

    def _check(self, published: Sequence[SlotOutput]) -> None:
        """Raises UsageError if the prefix holds another output."""
        if self._known:
            return
        if others := {each.kind for each in self._counting.values()} - set(self._kinds):
            raise UsageError(
                f"{self._into}: also holds {', '.join(sorted(others))}, which would not be updated; name these "
                "kinds as well, or another prefix"
            )
        retired = {slot.slot for slot in published if slot.retired}
        lengths = {file.name: file.length for slot in published if not slot.retired for file in slot.files}
        ours = [each for each in self._counting.values() if each.plain in lengths or each.slot in retired]
        changed = [each.file for each in ours if each.plain in lengths and _other(each, lengths[each.plain])]
        if not ours or changed:
            what = f"{changed[0]} is a different file" if changed else "it has no file of this output"
            raise UsageError(f"{self._into}: holds another output ({what}); name another prefix")
        self._known = True

    def _final(self, output: Path, file: OutputFile) -> str:
        """Copies a final file if it is missing; returns its object's name, or "" if the file exists nowhere."""
        name, path = _object(file), _path(output, file)
        if path is None:  # moved away, but valid as long as its object exists
            if name not in self._there and file.readable(0) == (file.length, file.length):  # no part of it is read
                with tempfile.NamedTemporaryFile(prefix="photon-") as empty:
                    self._put(name, Path(empty.name))
            return name if name in self._there else ""
        if not self._has(file, path):
            if path.name.endswith(FINAL_SUFFIX):
                self._put(name, path)
            else:
                self._pack(name, output, file)
        return name

    def _part(self, output: Path, file: OutputFile) -> str:
        """Copies a file that may still grow or is only partly valid; returns its object's name, with the length."""
        name = f"{file.name.removesuffix(PLAIN_SUFFIX)}{PART}{file.length}{FINAL_SUFFIX}"
        if name not in self._there:
            self._pack(name, output, file)
        return name

    def _pack(self, name: str, output: Path, file: OutputFile) -> None:
        """Compresses a file's published bytes and writes them as an object."""
        content = FilledContent(self._disk, output / file.name, 0, file.damaged)
        with tempfile.NamedTemporaryFile(prefix="photon-") as packed:
            gzip = gzip_stream()
            while (left := file.length - content.at) and (data := content.read(min(READ_BYTES, left))):
                packed.write(gzip.compress(data))
            packed.write(gzip.flush())
            if content.at < file.length:
                what = f"has {content.at} bytes, but {file.length} were published"
                raise OutputMissing(output / file.name, what)
            packed.flush()
            self._put(name, Path(packed.name))

    def _clear(self) -> None:
        """Deletes parts that became invalid long ago."""
        now_ns = self._clock.now_ns()
        for name in [name for name, since_ns in self._gone.items() if now_ns - since_ns >= KEPT_NS]:
            with told(self._into):
                bucket_of(self._into).objects.delete((self._into / name).key)
            del self._there[name], self._gone[name]

    def _put(self, name: str, path: Path) -> None:
        to = self._into / name
        with told(to):
            size = self._there[name] = put_file(path, to)
        self._written.add(name)
        self.files += 1
        self.bytes += size

    def _say(self, counting: Mapping[str, MirroredFile]) -> None:
        manifest = manifest_bytes(counting.values())
        if manifest != self._manifest:
            self._swap(manifest)
        now_ns = self._clock.now_ns()
        self._gone = {
            name: self._gone.get(name, now_ns) for name in self._there if PART in name and name not in counting
        }
        self._counting = dict(counting)

    def _swap(self, manifest: bytes) -> None:
        to, over = self._into / MANIFEST, self._at
        with told(to):
            for _ in range(SWAPS):
                self._unanswered.add(_digest(manifest))
                try:
                    over, found = bucket_of(to).objects.swap(to.key, manifest, over), manifest
                except ObjectChanged:
                    over, found = current_manifest(to)
                if found == manifest:  # perhaps written by an unanswered attempt
                    self._unanswered.clear()
                    self._at, self._manifest = over, manifest
                    return
                if found != self._manifest and _digest(found) not in self._unanswered:
                    break
        raise PrefixTaken(self._into)


def _digest(manifest: bytes) -> bytes:
    return hashlib.blake2b(manifest, digest_size=16).digest()


def _other(shown: MirroredFile, length: int) -> bool:
    """True if a file with ``length`` published bytes cannot be the one in the manifest."""
    return length < shown.uncompressed_bytes if PART in shown.file else length != shown.uncompressed_bytes


def _object(file: OutputFile) -> str:
    """Returns the name of a final file's object."""
    return gzip_name(file.name)


def _path(output: Path, file: OutputFile) -> Path | None:
    """Returns the local final file, compressed or plain; ``None`` if it was moved away."""
    forms = (output / _object(file), output / file.name)
    return next((path for path in (forms if file.compressed else reversed(forms)) if path.exists()), None)

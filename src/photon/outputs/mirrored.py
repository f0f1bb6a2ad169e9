"""Reads output that ``photon sink objects`` copied below a URL. It has the same slots, files, offsets and cursors as
the original.

The files in its manifest are published. A part of a file has its length in its name
(``joined/east-1-000003.upto-52144.jsonl.gz``); a later manifest replaces it by a longer part, or by the whole file.
"""

from __future__ import annotations

import errno
import re
import time
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import msgspec

from photon.config.decoding import DECODE_ERRORS
from photon.config.disk import Disk
from photon.config.errors import UsageError
from photon.objects.api import Meta
from photon.objects.directory import bucket_of
from photon.objects.paths import ObjectPath
from photon.outputs.log.format import FINAL_SUFFIX, PLAIN_SUFFIX, DamagedRange, slot_of
from photon.outputs.output_places import NotBegun, OutputPlace
from photon.outputs.published import Listing, OutputFile, PublishedDamaged, SlotOutput, ordered

MANIFEST = "manifest.jsonl"
PART = ".upto-"
LOOK_S = 2.0  # minimum time between reads of the manifest, as requests are billed
LOOKS = 8  # attempts to read a manifest that is being replaced
_NAME = re.compile(rf"[a-z]+/[^/]+-[0-9]{{1,18}}(?:{re.escape(PART)}[0-9]{{1,18}})?{re.escape(FINAL_SUFFIX)}")


class MirroredFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line of the manifest."""

    file: str  # the object, below the prefix
    bytes: int
    uncompressed_bytes: int
    first_ns: int | None  # first and last event time of its records, if known
    last_ns: int | None
    closed: bool = False  # True for a part whose file has no more bytes
    retired: bool = False  # As ``SlotOutput.retired``; a slot without files is marked by one part without bytes.

    output: str = ""  # the identity of the output
    damaged: tuple[DamagedRange, ...] = ()

    @property
    def plain(self) -> str:
        """``OutputFile.name``."""
        return self.file.partition(PART)[0].removesuffix(FINAL_SUFFIX) + PLAIN_SUFFIX

    @property
    def kind(self) -> str:
        return self.file.partition("/")[0]

    @property
    def slot(self) -> str:
        return slot_of(self.plain)


_LINES = msgspec.json.Decoder(MirroredFile)


def manifest_of(data: bytes, where: Path) -> dict[str, MirroredFile]:
    """Decodes a manifest into files by name. Raises PublishedDamaged."""
    try:
        lines = _LINES.decode_lines(data)
    except DECODE_ERRORS as bad:
        raise PublishedDamaged(where, str(bad)) from None
    for each in lines:
        if _NAME.fullmatch(each.file) is None:
            raise PublishedDamaged(where, f"{each.file!r} is not the name of an output file")
    return {each.file: each for each in lines}


def manifest_bytes(files: Iterable[MirroredFile]) -> bytes:
    """Encodes a manifest, for ``manifest_of``."""
    return b"".join(msgspec.json.encode(each) + b"\n" for each in sorted(files, key=lambda each: each.file))


def current_manifest(where: ObjectPath, meta: Meta | None = None) -> tuple[Meta, bytes]:
    """Returns the current manifest. ``meta``: metadata of a recent one. Raises FileNotFoundError, OSError."""
    objects, left = bucket_of(where).objects, LOOKS
    while True:
        left -= 1
        meta = meta or objects.head(where.key)  # including its version, which listings lack
        try:
            return meta, objects.read(meta, 0, meta.size) if meta.size else b""
        except OSError as error:
            if error.errno != errno.ESTALE or not left:  # otherwise a newer one was written meanwhile
                raise
            meta = None


def slots_of(manifest: Iterable[MirroredFile]) -> list[SlotOutput]:
    """Returns the published slots according to a manifest."""
    files: dict[str, dict[str, OutputFile]] = {}
    retired = set()
    for each in manifest:
        closed = PART not in each.file or each.closed or each.retired
        if each.retired:
            retired.add(each.slot)
        files.setdefault(each.slot, {})[each.plain] = OutputFile(
            each.plain, each.uncompressed_bytes, closed, True, each.first_ns, each.last_ns,
            stored=each.file.removesuffix(FINAL_SUFFIX) + PLAIN_SUFFIX, damaged=each.damaged, compressed=True,
        )  # fmt: skip
    return [SlotOutput(slot, ordered(own), slot in retired) for slot, own in sorted(files.items())]


class _Read(NamedTuple):
    """A manifest, cached as long as the object is unchanged."""

    meta: Meta | None
    slots: Mapping[str, SlotOutput]
    output: str


_NOTHING = _Read(None, {}, "")  # before there is a manifest

_read: OrderedDict[ObjectPath, _Read] = OrderedDict()  # the process's cache, newest last
READ_MAX = 64


def _read_now(where: ObjectPath) -> _Read:
    """Reads the manifest with one request, or two if it has changed."""
    meta = bucket_of(where).objects.head(where.key)
    known = _read.pop(where, None)
    if known is None or known.meta != meta:
        meta, data = current_manifest(where, meta)
        files = manifest_of(data, where).values()
        output = next((each.output for each in files if each.output), "")
        known = _Read(meta, {each.slot: each for each in slots_of(files)}, output)
    _read[where] = known
    if len(_read) > READ_MAX:
        _read.popitem(last=False)
    return known


@dataclass(frozen=True, slots=True)
class MirroredPlace(OutputPlace):
    """Output below a URL. ``output`` and ``state`` are both that URL. Not thread-safe."""

    may_begin: bool = False  # True: until there was a manifest, a missing one means that the output has not begun.
    monotonic: Callable[[], float] = field(default=time.monotonic, compare=False)
    _looked: list[tuple[float, _Read]] = field(default_factory=list, compare=False)  # the last read, and its time

    @classmethod
    def at(cls, url: ObjectPath) -> MirroredPlace:
        """Opens the output below a URL. Raises NotBegun if there is none, OSError."""
        place = cls(url, url)
        try:
            place.look_up()
        except FileNotFoundError:
            why = f"{url}: has no {MANIFEST}: photon sink objects has not written an output there"
            raise NotBegun(why, cls(url, url, may_begin=True)) from None
        return place

    def identity(self, disk: Disk) -> str:
        """Returns the output's identity; empty if it has none yet.

        Raises PublishedDamaged, OSError.
        """
        return self._look().output

    def look_up(self) -> Mapping[str, SlotOutput]:
        """Returns the slots by name. Raises PublishedDamaged, OSError."""
        return self._look().slots

    def _look(self) -> _Read:
        if not self._looked or self.monotonic() - self._looked[0][0] >= LOOK_S:
            self._looked[:] = [(self.monotonic(), self._now())]
        return self._looked[0][1]

    def _now(self) -> _Read:
        try:
            return _read_now(ObjectPath(self.output) / MANIFEST)
        except FileNotFoundError:
            if self.may_begin and all(before is _NOTHING for _, before in self._looked):
                return _NOTHING
            raise

    def states(self, disk: Disk) -> list[Path]:
        """Returns a path for each slot, by which to name the slot: no such files exist."""
        return [self.state / slot for slot in self.look_up()]

    def is_slot(self, state: Path) -> bool:
        """Raises UsageError, as mirrored output has no cleared lengths."""
        raise UsageError(f"{self.output}: has no cleared lengths; read the original output")

    def listing(self, disk: Disk, state: Path, kinds: Collection[str] | None) -> Listing:
        return _Slot(self, state.name, kinds)


@dataclass(slots=True)
class _Slot:
    """Implements Listing."""

    place: MirroredPlace
    slot: str
    kinds: Collection[str] | None

    def look(self) -> SlotOutput:
        found = self.place.look_up().get(self.slot, SlotOutput(self.slot, ()))
        files = (file for file in found.files if self.kinds is None or file.kind in self.kinds)
        return replace(found, files=tuple(files))

    def forget(self, kind: str, below: int) -> None:
        """Does nothing: the whole manifest is kept."""


def place_at(output: Path) -> OutputPlace:
    """Opens the output of ``photon join`` in a directory, or mirrored output below a URL. Raises NotBegun,
    UsageError, OSError.
    """
    return MirroredPlace.at(output) if isinstance(output, ObjectPath) else OutputPlace.of_join(output)

"""Seals a surviving copy of a lost slot's output (protocol rule 14).

The copy is a byte-wise prefix of the slot's output. Sealing makes its whole lines durable, clears each id in it by
compare on the token, and then publishes it: readers continue in it at their old offsets. All of that precedes the
first reopening, or its ids would be joined again in addition to their records.
"""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
import numpy as np

from photon.adapters.envelope_reader import EnvelopeError, OutputRefs, lacking_pairs, read_block
from photon.config.decoding import DECODE_ERRORS
from photon.config.disk import Disk, RealDisk
from photon.config.errors import PhotonError
from photon.config.settings import Settings
from photon.config.versioned_file import decoded
from photon.idregistry.api import I64, U8, U64, Answer, Digester
from photon.idregistry.witness import Witness
from photon.joiner.copies.api import CopyOf
from photon.joiner.copies.kept import KeptCopy, read_copy_state
from photon.joiner.slot.place import DIRECTORIES
from photon.joiner.slot.witness import difference
from photon.outputs.content import OutputMissing
from photon.outputs.damaged import FilledContent, add_damaged
from photon.outputs.log.format import (
    FINAL_SUFFIX,
    PLAIN_SUFFIX,
    RETIRED_NAME,
    DamagedRange,
    gzip_name,
    name_of,
    numbers_of,
    retired_bytes,
)
from photon.outputs.output_places import OUTPUT_NAME, SEALED_NAME, is_kept, kept_directory
from photon.outputs.published import read_damaged

BLOCK_BYTES = 4 << 20
CLEAR_IDS = 8192
BLANKS = re.compile(rb"^\n+", re.MULTILINE)
RETIRING_NAME = "retiring.json"

Clear = Callable[[bytes, I64, U64], Awaitable[U8]]  # digests, times and tokens -> answers, none of them UNKNOWN


class Retiring(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="version", tag=1):
    """``retiring.json``: written before the intent, so that a repeated command continues consistently."""

    slot: str
    copy: str | None


class Sealed(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="version", tag=1):
    """``sealed.json``: marks a copy that its keeper may no longer extend."""

    slot: str


@dataclass(slots=True, eq=False)
class CopyRefused(PhotonError):
    """The named copy cannot be sealed."""

    path: Path
    why: str

    def __str__(self) -> str:
        return f"{self.path}: {self.why}"


@dataclass(frozen=True, slots=True)
class CopiedFile:
    name: str  # plain name, relative to the output
    path: Path
    # All its ids were cleared before it was compressed. For a plain file that is unknown, so they are cleared again.
    compressed: bool
    damaged: tuple[DamagedRange, ...] = ()  # readers skip these; the file may be gone


@dataclass(slots=True)
class Copy:
    root: Path
    files: list[CopiedFile]
    lengths: dict[str, int] = field(default_factory=dict)  # uncompressed bytes of whole lines, by plain name
    # Bytes that readers may have read but the copy lacks, by plain name
    lacking: dict[str, int] = field(default_factory=dict)
    cleared: int = 0
    # The keeper's directory (``photon.outputs.output_places``); None means an output directory that the operator
    # names
    kept: Path | None = None
    slot: str = ""


def add_marks(disk: Disk, copy: Copy, state: Path) -> Copy:
    """Adds the damaged ranges noted in a state directory. Their events were given back, so they are not sealed.

    Raises PublishedDamaged, OSError.
    """
    files = {file.name: file for file in copy.files}
    for each in read_damaged(disk, state):
        file = files.get(each.file) or CopiedFile(each.file, copy.root / each.file, True)
        if each not in file.damaged:
            damaged = sorted((*file.damaged, each), key=lambda each: each.start)
            files[each.file] = replace(file, damaged=tuple(damaged))
    copy.files = [files[name] for name in sorted(files)]
    return copy


def find_kept(disk: Disk, directory: Path, slot: str) -> Copy:
    """Returns the keeper's copy in this directory, which may have no files yet."""
    root = directory / OUTPUT_NAME
    return add_marks(disk, Copy(root, _files(disk, root, slot), kept=directory, slot=slot), directory)


def _files(disk: Disk, root: Path, slot: str) -> list[CopiedFile]:
    """Returns the slot's files; the uncompressed form if both exist."""
    found = {}
    for kind in DIRECTORIES:
        names = disk.names(root / kind)
        for suffix in (FINAL_SUFFIX, PLAIN_SUFFIX):
            for number in numbers_of(names, slot, suffix):
                name = name_of(kind, slot, number)
                compressed = suffix == FINAL_SUFFIX
                found[name] = CopiedFile(name, root / (gzip_name(name) if compressed else name), compressed)
    return [found[name] for name in sorted(found)]


def kept_copies(disk: Disk, settings: Settings, base: Path, of: CopyOf) -> list[Copy]:
    """Returns the keepers' copies on this machine, the most recently extended first."""
    found = []
    for pipeline in settings.datacentre.values():
        directory = kept_directory(base / pipeline.state, of.datacentre, of.slot)
        if is_kept(disk, directory):
            found.append((read_copy_state(disk, directory, of).incarnation, directory))
    return [find_kept(disk, directory, of.slot) for _, directory in sorted(found, reverse=True)]


def seal(disk: Disk, directory: Path, of: CopyOf) -> None:
    """Seals the copy, which the keeper can then no longer extend. Hold the copy's lock. May be repeated.

    Bytes never acknowledged by the keeper are cut off, as they may be torn. Raises CopyDamaged, OSError.
    """
    if not disk.exists(directory / SEALED_NAME):
        KeptCopy(disk, directory, of).load()
        disk.replace(directory / SEALED_NAME, msgspec.json.encode(Sealed(of.slot)))


def find_copy(root: Path, slot: str) -> Copy:
    """Returns the slot's files below an output directory. Raises CopyRefused if there are none."""
    files = _files(RealDisk(), root, slot)
    if not files:
        raise CopyRefused(root, f"has no output files of slot {slot} in {', '.join(DIRECTORIES)}")
    return Copy(root, files, slot=slot)


def measure(disk: Disk, copy: Copy, witness: Witness) -> None:
    """Fills in lengths, and the bytes that the copy lacks compared with the witness. Changes no file. Raises
    CopyRefused, OSError."""
    copy.lengths, copy.lacking = {}, {}
    for file in copy.files:
        length = sum(map(len, blocks(disk, file)))
        at_damage = bool(file.damaged) and length <= file.damaged[-1].end
        copy.lengths[file.name] = length if file.compressed or at_damage else _to_whole_events(disk, file, length)
    for at, log in enumerate(witness[: len(DIRECTORIES)]):
        if not log.length:
            continue
        name = name_of(DIRECTORIES[at], copy.slot, log.number)
        file_of = {file.name: file for file in copy.files}
        known = file_of.get(name)
        length = copy.lengths.get(name, 0)
        if length < log.length:
            copy.lacking[name] = log.length - length
        elif known is not None and not (known.compressed or known.damaged) and difference(disk, known.path, log):
            why = f"its first {log.length} bytes differ from those the registry saw: it is not a copy of this slot"
            raise CopyRefused(known.path, why)


def _to_whole_events(disk: Disk, file: CopiedFile, length: int) -> int:
    """Returns the length; without the last event's records if some of them are missing."""
    size = BLOCK_BYTES
    while length:
        begin = max(length - size, 0)
        data = disk.read(file.path, begin, length - begin)
        skipped = data.find(b"\n") + 1 if begin else 0  # as it may be the middle of a line
        lacking = lacking_pairs(data[skipped:]) if skipped < len(data) else -1
        if lacking is None:
            return length
        if lacking >= 0 or not begin:
            return begin + skipped + max(lacking, 0)
        size *= 2
    return length


def blocks(disk: Disk, file: CopiedFile) -> Iterator[bytes]:
    """Yields whole lines, blank ones in place of damaged ranges; skips a torn last one. Raises CopyRefused for a
    damaged compressed file, OSError."""
    rest = b""
    for part in _parts(disk, file):
        data = rest + part
        end = data.rfind(b"\n") + 1
        if end:
            yield data[:end]
        rest = data[end:]


def _parts(disk: Disk, file: CopiedFile) -> Iterator[bytes]:
    if file.damaged:
        content = FilledContent(disk, file.path.parents[1] / file.name, 0, file.damaged)
        try:
            while part := content.read(BLOCK_BYTES):
                yield part
        except OutputMissing as missing:
            if content.at < file.damaged[-1].end:
                raise CopyRefused(missing.path, f"{missing.why}; photon spark verify finds its events") from None
        return
    if not file.compressed:
        at = 0
        while part := disk.read(file.path, at, BLOCK_BYTES):
            yield part
            at += len(part)
        return
    try:
        with gzip.open(file.path, "rb") as opened:
            while part := opened.read(BLOCK_BYTES):
                yield part
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise CopyRefused(
            file.path, f"cannot be unpacked ({error}); all its ids are cleared, so without it they are in no output: "
            "remove the file if nothing else has it"
        ) from None  # fmt: skip


def make_durable(disk: Disk, copy: Copy) -> None:
    """Cuts torn last lines; syncs all files and their names."""
    here = [file for file in copy.files if disk.exists(file.path)]
    for file in here:
        if not file.compressed and disk.size(file.path) > copy.lengths[file.name]:
            disk.truncate(file.path, copy.lengths[file.name])
        opened = disk.append(file.path)
        opened.sync()
        opened.close()
    for directory in sorted({file.path.parent for file in copy.files}):
        disk.sync_dir(directory)


async def clear_copy(disk: Disk, copy: Copy, digester: Digester, clear: Clear, tell: Callable[[int], None]) -> None:
    """Clears every id in uncompressed files. Raises CopyRefused if a record's token does not own its id.

    ``tell`` receives the number of ids cleared so far.
    """
    for file in copy.files:
        if file.compressed:
            continue
        for block in blocks(disk, file):
            refs = _refs(file, BLANKS.sub(b"", block) if file.damaged else block)
            for start in range(0, len(refs.event_ids), CLEAR_IDS):
                part = slice(start, start + CLEAR_IDS)
                ids = refs.event_ids[part]
                answers = await clear(
                    digester.digests(ids),
                    np.array(refs.event_times_ns[part], np.int64),
                    np.array(refs.tokens[part], np.uint64),
                )
                refused = np.flatnonzero(answers == Answer.REFUSED)
                if len(refused):
                    raise CopyRefused(
                        file.path, f"{len(refused)} of its ids are no longer owned by their records "
                        f"(the first: {ids[int(refused[0])]!r}): they were given up before this "
                        "copy was named, or the records are from another slot; the copy cannot be published"
                    )  # fmt: skip
                copy.cleared += len(ids)
                tell(copy.cleared)


def _refs(file: CopiedFile, block: bytes) -> OutputRefs:
    try:
        return read_block(block)
    except EnvelopeError as error:
        raise CopyRefused(file.path, f"{error}; cut the file before this line, or leave the copy out") from None


def publish(disk: Disk, state: Path, slot: str, copy: Copy | None, output: Path) -> None:
    """Shows readers what remains of the slot: the sealed copy, or nothing. ``output``: the pipeline's output."""
    disk.make_dir(state)
    if copy is None:
        disk.replace(state / RETIRED_NAME, retired_bytes(slot))
        return
    marks = [each for file in copy.files for each in file.damaged]
    if marks:
        add_damaged(disk, state, slot, marks)
    if copy.kept is not None:  # there first, as readers without the slot's own directories continue next to the copy
        disk.replace(copy.kept / RETIRED_NAME, retired_bytes(slot, dict(copy.lengths), copy.root))
        if copy.kept == state:
            return
    root = copy.root.resolve()
    elsewhere = None if root == output.resolve() else root
    disk.replace(state / RETIRED_NAME, retired_bytes(slot, dict(copy.lengths), elsewhere))


def was_begun(disk: Disk, state: Path) -> bool:
    """True if retiring this slot was begun on this machine."""
    return disk.exists(state / RETIRING_NAME)


def begun_with(disk: Disk, state: Path) -> Path | None:
    """Returns the copy named when retiring began; ``None`` without one, or if not begun. Raises CopyRefused."""
    path = state / RETIRING_NAME
    if not disk.exists(path):
        return None
    try:
        before = decoded(disk.read(path), Retiring)
    except DECODE_ERRORS as bad:
        raise CopyRefused(path, f"unreadable ({bad})") from None
    return None if before.copy is None else Path(before.copy)


def begin(disk: Disk, state: Path, slot: str, copy: Path | None, *, already: bool) -> None:
    """Records which copy the retirement uses, before the intent. ``already``: the registry has the intent.

    Raises CopyRefused if the retirement was begun with another copy.
    """
    path = state / RETIRING_NAME
    named = None if copy is None else str(copy.resolve())
    if disk.exists(path):
        before = begun_with(disk, state)
        if named != (None if before is None else str(before)):
            how = f"with --copy {before}" if before else "without a copy"
            raise CopyRefused(path, f"retiring slot {slot} was begun {how}, and must be continued that way")
        return
    if already and named is not None:
        raise CopyRefused(
            state, f"slot {slot} was retired before without this copy: its ids may have been given up, so it "
            "cannot be published; repeat without --copy"
        )  # fmt: skip
    disk.make_dir(state)
    disk.replace(path, msgspec.json.encode(Retiring(slot, named)))

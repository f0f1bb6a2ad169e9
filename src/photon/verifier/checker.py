"""Compares a slot's published lines with the raw records from which they were made, slice by slice.

``checked.json`` has one position per kind of output, since files of a kind are written one after another. It is
replaced after the slices' alarms are durable; after a crash between the two, they are checked again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from photon.adapters.envelope import Envelope
from photon.adapters.logs.reader import Source, open_source
from photon.config.disk import Disk
from photon.config.versioned_file import read_versioned
from photon.outputs.log.format import DAMAGED_NAME, DURABLE_NAME, gzip_name
from photon.outputs.published import OutputFile, read_slot
from photon.verifier.alarms import AlarmKind, shown
from photon.verifier.comparison import SourceRecord, differences
from photon.verifier.published_lines import NotPublished, PublishedLine, read_published
from photon.verifier.source_finder import FoundSource, SourceFinder, SourceGone, SourceMissing, name_of
from photon.verifier.verifier import OutputShort, VerifierDamaged, split_lines

NAME = "checked.json"
SLICE_BYTES = 128 << 10  # output read for one slice; longer lines are read completely
# The slice size while more than BEHIND_BYTES wait: records are read in the order of their logs, as compressed logs
# require.
CATCH_UP_BYTES = 2 << 20
BEHIND_BYTES = 64 << 20
GONE_NAMED_MAX = 20
SHOWN_MAX = 3  # differences named in an alarm


class CheckedFile(msgspec.Struct, forbid_unknown_fields=True, tag_field="version", tag=1):
    # kind of output -> (file number, length): everything before it is checked
    places: dict[str, tuple[int, int]] = {}
    lines: int = 0  # compared with their sources
    unverifiable: int = 0  # lines whose source log is gone
    gone: list[str] = []  # the last missing source logs, as named by the lines


@dataclass(frozen=True, slots=True)
class LineFinding:
    finding: AlarmKind
    offset: int
    what: str
    event_id: bytes = b""


@dataclass(slots=True)
class CheckedSlice:
    """The result of one step. It counts only after ``commit``."""

    file: OutputFile
    end: int
    lines: int = 0
    unverifiable: int = 0
    gone: list[str] = field(default_factory=list)
    found: list[LineFinding] = field(default_factory=list)
    missing: set[str] = field(default_factory=set)  # names of logs that lack a line's source record


class Checker:
    """Checks one slot. ``step`` blocks. Not thread-safe."""

    def __init__(self, disk: Disk, slot_state: Path, output: Path, sources: SourceFinder) -> None:
        """Raises VerifierDamaged."""
        self._disk = disk
        self._state = slot_state
        self._path = slot_state / "verifier" / NAME
        self._output = output
        self._sources = sources
        self._envelope = Envelope(with_joined_at=False, with_token=False, adapter=sources.adapter)
        self._open: tuple[str, Source] | None = None
        self._kind = ""
        self._dirty = False
        self._seen: list[bytes] | None = None  # durable.json and damaged.json at the last read of the files below
        self._files: tuple[OutputFile, ...] = ()
        self.checked = read_checked(disk, self._path)
        self.behind_bytes = 0

    def close(self) -> None:
        if self._open is not None:
            self._open[1].close()
            self._open = None

    def step(self, now_ns: int) -> CheckedSlice | None:
        """Checks the next slice; ``None`` once all published output is checked. Raises PublishedDamaged, OSError."""
        left = self._left()
        if not left and self._published():
            left = self._left()
        if not left:
            return None
        kinds = sorted(left)
        self._kind = next((kind for kind in kinds if kind > self._kind), kinds[0])  # kinds take turns
        try:
            return self._check(*left[self._kind], now_ns)
        except OutputShort:
            if not self._published():
                raise
            return self.step(now_ns)  # retried, as the range may have been marked as damaged meanwhile

    def _published(self) -> bool:
        """Rereads the list of published files if it may have changed, and then returns True."""
        paths = [self._state / name for name in (DURABLE_NAME, DAMAGED_NAME)]
        seen = [self._disk.read(path) if self._disk.exists(path) else b"" for path in paths]
        if seen == self._seen:
            return False
        self._files, self._seen = read_slot(self._disk, self._state).files, seen
        return True

    def _left(self) -> dict[str, tuple[OutputFile, int]]:
        """Returns kind -> (the next file to check, the offset in it)."""
        left: dict[str, tuple[OutputFile, int]] = {}
        behind = 0
        for file in self._files:
            number, at = self.checked.places.get(file.kind, (0, 0))
            begin, _ = file.readable(at if file.number == number else 0)
            if file.number >= number and begin < file.length:
                behind += file.length - begin
                left.setdefault(file.kind, (file, begin))
        self.behind_bytes = behind
        return left

    def commit(self, done: CheckedSlice) -> None:
        """Notes that the slice's findings are reported, so that it is not checked again."""
        known = self.checked
        known.places[done.file.kind] = (done.file.number, done.end)
        known.lines += done.lines
        known.unverifiable += done.unverifiable
        known.gone = list(dict.fromkeys([*known.gone, *done.gone]))[-GONE_NAMED_MAX:]
        self._dirty = True

    def save(self) -> None:
        """Makes the progress durable. Need not be called for each slice, as checking one again costs little."""
        if self._dirty:
            self._disk.replace(self._path, msgspec.json.encode(self.checked))
            self._dirty = False

    # -- one slice -------------------------------------------------------------------------------------------------
    def _check(self, file: OutputFile, begin: int, now_ns: int) -> CheckedSlice:
        data = self._read(file, begin)
        if data is None:  # removed since: the file is final, so its owner may do that
            return CheckedSlice(file, file.length, unverifiable=1, gone=[file.name])
        done = CheckedSlice(file, begin + len(data))
        lines: list[PublishedLine] = []
        offsets: list[int] = []
        at = begin
        for line in split_lines(data):
            try:
                if not line.startswith(b'{"reason":'):  # about a record that is not an event
                    lines.append(read_published(line))
                    offsets.append(at)
            except NotPublished as bad:
                done.found.append(LineFinding(AlarmKind.TORN, at, str(bad)))
            at += len(line)
        done.found += _broken_sets(lines, offsets)
        records = self._sources.find(lines, now_ns)
        there: list[tuple[int, PublishedLine, SourceRecord, SourceRecord | None]] = []
        for offset, published, (foreign, primary) in zip(offsets, lines, records, strict=True):
            if self._is_there(done, offset, published, foreign, primary):
                there.append((offset, published, foreign, primary))  # type: ignore[arg-type]  # so it says
        self._compare(done, there)
        done.found.sort(key=lambda each: each.offset)
        return done

    @staticmethod
    def _is_there(
        done: CheckedSlice, offset: int, line: PublishedLine, foreign: FoundSource, primary: FoundSource | None
    ) -> bool:
        for each in (foreign, primary):
            if isinstance(each, SourceMissing):
                place = each.place
                what = (
                    f"no log has the {each.side} record {place.file}:{place.offset} of event {shown(line.event_id)}"
                )
                done.found.append(LineFinding(AlarmKind.NO_SOURCE, offset, what, line.event_id))
                done.missing.add(f"{each.side} {name_of(place.file)}")
                return False
        for each in (foreign, primary):
            if isinstance(each, SourceGone):
                done.unverifiable += 1
                done.gone.append(each.file)
                return False
        return True

    def _compare(
        self, done: CheckedSlice, there: Sequence[tuple[int, PublishedLine, SourceRecord, SourceRecord | None]]
    ) -> None:
        done.lines += len(there)
        offsets, lines, foreign, primary = zip(*there, strict=True) if there else ((), (), (), ())
        found = differences(lines, done.file.kind, foreign, primary, self._sources.adapter, self._envelope)
        for offset, line, wrong in zip(offsets, lines, found, strict=True):
            if wrong:
                more = f" and {len(wrong) - SHOWN_MAX} more" if len(wrong) > SHOWN_MAX else ""
                what = f"event {shown(line.event_id)}: {'; '.join(wrong[:SHOWN_MAX])}{more}"
                done.found.append(LineFinding(AlarmKind.DIFFERS, offset, what, line.event_id))

    def _read(self, file: OutputFile, begin: int) -> bytes | None:
        """Reads a slice of whole lines from ``begin`` on; ``None`` if the file is gone. Raises OSError."""
        try:
            source = self._source(file)
        except FileNotFoundError:
            return None
        size = SLICE_BYTES if self.behind_bytes <= BEHIND_BYTES else CATCH_UP_BYTES
        _, end = file.readable(begin)
        while True:
            data = source.read(begin, min(size, end - begin))
            whole = data.rfind(b"\n") + 1
            if not data:
                raise OutputShort(self._output / file.name, begin, file.length)
            if whole or size >= end - begin:
                return data[:whole] if whole else data
            size *= 2

    def _source(self, file: OutputFile) -> Source:
        if self._open is not None and self._open[0] == file.name:
            return self._open[1]
        self.close()
        plain = self._output / file.name
        try:
            source = open_source(plain)
        except FileNotFoundError:
            source = open_source(plain.with_name(gzip_name(plain.name)))
        self._open = (file.name, source)
        return source


def _broken_sets(lines: Sequence[PublishedLine], offsets: Sequence[int]) -> list[LineFinding]:
    """Finds the places where an event's pairs are not complete and in order."""
    found = []
    for before, line, offset in zip(lines, lines[1:], offsets[1:], strict=False):
        expected = None
        if before.pair is not None and before.pair[0] < before.pair[1]:
            expected = (before.event_id, (before.pair[0] + 1, before.pair[1]))
        starts = line.pair is None or line.pair[0] == 1
        if (starts and expected is not None) or (not starts and expected != (line.event_id, line.pair)):
            whose = before if expected is not None else line
            number, of = whose.pair or (0, 0)
            place = "before another record" if expected is not None else "without those before it"
            what = f"event {shown(whose.event_id)}: pair {number} of {of} is {place}"
            found.append(LineFinding(AlarmKind.TORN, offset, what, whose.event_id))
    return found


def read_checked(disk: Disk, path: Path) -> CheckedFile:
    """Reads the progress of checking a slot; empty if it was never checked. Raises VerifierDamaged."""
    return read_versioned(disk, path, CheckedFile, VerifierDamaged) or CheckedFile()

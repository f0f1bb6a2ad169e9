"""Reads the published output of a pipeline as it grows: blocks of whole lines, with a cursor for resuming.

Each log (one kind of one slot) is read in order; logs take turns. Memory use is one block, and for each log the
memory to unpack a final file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from photon.config.disk import Disk
from photon.outputs.cleared import Clearing, read_clearing
from photon.outputs.content import FileContent, OutputMissing
from photon.outputs.cursor import Cursor, OutputLog, Position
from photon.outputs.damaged import tell_skipped
from photon.outputs.log.format import DamagedRange, gzip_name, name_of
from photon.outputs.next_read import CursorLost, NextRead, behind_all, next_read
from photon.outputs.output_places import OutputPlace
from photon.outputs.published import Listing, OutputFile, SlotOutput
from photon.outputs.replayed import Replayed, replayed

BLOCK_BYTES = 1 << 20
TURN_BYTES = 16 << 20  # bytes of one log that are read before the others' turn
LINE_BYTES_MAX = 1 << 30


@dataclass(frozen=True, slots=True)
class OutputBlock:
    """Whole lines of one file."""

    place: OutputLog
    name: str  # path of the plain file, relative to the output
    number: int
    start: int  # uncompressed bytes
    data: bytes
    output: str = ""  # the identity of the output
    damaged: DamagedRange | None = None  # set if there is no data: this range, up to ``start``, was skipped
    length: int = 0  # published bytes of the file

    def end(self, size: int | None = None) -> Position:
        """Returns the position after this block, or after its first ``size`` bytes."""
        return Position(self.number, self.start + (len(self.data) if size is None else size))


@dataclass(slots=True)
class _Log:
    at: Position | None
    content: FileContent | None = None
    path: Path | None = None


class Reader:
    """Reads all slots and dispatchers of one pipeline. Not thread-safe."""

    def __init__(
        self,
        disk: Disk,
        place: OutputPlace,
        kinds: Sequence[str] = ("joined",),
        *,
        cursor: Cursor | None = None,
        cleared_only: bool = False,
        block_bytes: int = BLOCK_BYTES,
    ) -> None:
        """``cleared_only``: read only lines that the verifier has cleared, even across retirement."""
        self._disk = disk
        self._place = place
        self._kinds = tuple(dict.fromkeys(kinds))
        self._cleared_only = cleared_only
        self._block_bytes = block_bytes
        self._listings: dict[Path, Listing] = {}
        self._output = ""
        self._begin = cursor or Cursor()
        self._logs = {at: _Log(position) for at, position in self._begin.positions.items()}
        self.replayed: Replayed | None = None  # at the last ``read``
        # With ``cleared_only``: files where reading stopped -> number of lines to which the verifier objects.
        self.held_back: dict[str, int] = {}

    def end(self) -> Cursor:
        """Returns the cursor after everything published now, of all kinds. Raises PublishedDamaged, OSError."""
        return self._place.end(self._disk)

    def check(self) -> None:
        """Raises OtherOutput if the initial cursor belongs to another output."""
        if not self._begin.output or not self._output:
            self._output = self._place.identity(self._disk)
            self._begin = self._begin.within(self._output, self._place.output)

    def read(self, upto: Cursor | None = None) -> Iterator[OutputBlock]:
        """Yields everything that is published now and not yet read, at most up to ``upto``.

        Yielded blocks count as read; a block without data follows a damaged range, which is skipped with one line in
        the log. The caller keeps the cursor for resuming: ``cursor = cursor.moved(block.place, block.end(),
        block.output)``. Raises OtherOutput, CursorLost, OutputMissing, PublishedDamaged, OSError; unusable after
        that; Replayed if there is nothing new in a retired output.
        """
        self.check()
        self.replayed = replayed(
            self._disk, self._place.output, self._place.state
        )  # checked first, after which it does not grow
        slots = self._look()
        progress, found = True, False
        while progress:
            progress = False
            for slot, clearing in slots:
                for kind in self._kinds:
                    for block in self._turn(slot, OutputLog(slot.slot, kind), clearing, upto):
                        progress = found = True
                        yield block
        if self.replayed is not None and not found and upto is None:
            raise self.replayed

    # -- published files ------------------------------------------------------------------------------------------
    def _look(self) -> list[tuple[SlotOutput, Clearing | None]]:
        found: list[tuple[SlotOutput, Clearing | None]] = []
        self.held_back = {}
        for state in self._place.states(self._disk):
            # First the cleared lengths: they never exceed the published lengths, which are read afterwards.
            clearing = read_clearing(self._disk, state) if self._cleared_only and self._place.is_slot(state) else None
            listing = self._listings.get(state) or self._place.listing(self._disk, state, self._kinds)
            self._listings[state] = listing
            slot = listing.look()
            found.append((slot, clearing))
            for kind in self._kinds:
                log = self._logs.get(OutputLog(slot.slot, kind))
                if log is not None and log.at is not None:
                    listing.forget(kind, log.at.number)
        self._check_known({slot.slot for slot, _ in found})
        return found

    def _check_known(self, slots: set[str]) -> None:
        for place, log in self._logs.items():
            if place.slot not in slots and place.kind in self._kinds and log.at is not None:
                raise CursorLost(place, log.at, f"there is no {place.slot} below {self._place.state}")

    # -- one log -----------------------------------------------------------------------------------------------
    def _turn(
        self, slot: SlotOutput, place: OutputLog, clearing: Clearing | None, upto: Cursor | None
    ) -> Iterator[OutputBlock]:
        log = self._logs.setdefault(place, _Log(None))
        files = slot.of(place.kind)
        if slot.retired and behind_all(files, log.at):
            return
        bounds = None
        if clearing is not None and not slot.retired:  # sealed lines are cleared before any reopening
            bounds = clearing.bounds(files)
            ahead = [file for file in files if log.at is None or (file.number, file.length) > log.at]
            self.held_back.update(clearing.trouble_in(ahead))
        if upto is not None:
            last = upto.positions.get(place, Position(-1, 0))
            files = tuple(file for file in files if file.number <= last.number)
            bounds = {**(bounds or {}), **{file.name: last.offset for file in files if file.number == last.number}}
            if not files:
                return
        if log.content is not None and not log.content.unpacked:
            log.content = None  # checks earlier content again, as a dispatcher may have lost its state
        left = TURN_BYTES
        while left > 0 and (step := self._next(place, files, log.at, bounds, slot.output)) is not None:
            if step.damaged is not None:
                tell_skipped(place.slot, step.damaged)
                log.content = None
                log.at = Position(step.file.number, step.end)
                yield self._block(place, step, b"")
                continue
            path = (slot.output or self._place.output) / step.file.path
            if log.content is None or log.path != path:
                log.content, log.path = self._content(path, place, step, log.at), path
            try:
                data = self._lines(log.content, step, path)
            except OutputMissing as missing:
                raise self._archived(path, place, step) or missing from None
            block = self._block(place, step, data)
            log.at = block.end()
            left -= len(data)
            yield block

    def _block(self, place: OutputLog, step: NextRead, data: bytes) -> OutputBlock:
        file, start = step.file, step.start if step.damaged is None else step.end
        return OutputBlock(place, file.name, file.number, start, data, self._output, step.damaged, file.length)

    def _next(
        self,
        place: OutputLog,
        files: Sequence[OutputFile],
        at: Position | None,
        bounds: Mapping[str, int] | None,
        output: Path | None,
    ) -> NextRead | None:
        try:
            return next_read(place, files, at, bounds)
        except CursorLost:
            # A power failure may undo the publishing, but not the bytes, which the next start publishes again.
            path = (output or self._place.output) / name_of(place.kind, place.slot, at.number if at else 0)
            if at is not None and self._disk.exists(path) and self._disk.size(path) >= at.offset:
                return None
            raise

    def _content(self, path: Path, place: OutputLog, step: NextRead, at: Position | None) -> FileContent:
        """Returns the content from ``step.start`` on. A cursor within the file must be at a line end."""
        if step.start == 0 or at is None or any(each.end == step.start for each in step.file.damaged):
            return FileContent(self._disk, path, step.start)
        content = FileContent(self._disk, path, step.start - 1)
        if content.read(1) != b"\n":
            raise CursorLost(place, at, "no line ends there")
        return content

    def _archived(self, path: Path, place: OutputLog, step: NextRead) -> OutputMissing | None:
        """Returns the error for a missing finished file, with the way to continue after it."""
        final = path.with_name(gzip_name(path.name))
        if not step.file.closed or any(self._disk.exists(each) for each in (path, final)):
            return None
        read = Cursor({each: log.at for each, log in self._logs.items() if log.at is not None}, self._output)
        after = read.moved(place, Position(step.file.number, step.file.length)).encode().decode()
        why = f"is gone: archived, or lost; its bytes {step.start} to {step.file.length} had not been read yet"
        return OutputMissing(final if step.file.compressed else path, f"{why}; the cursor after it is {after}")

    def _lines(self, content: FileContent, step: NextRead, path: Path) -> bytes:
        """Reads a block of whole lines. Moves ``content`` to the block's end."""
        wanted = min(self._block_bytes, step.end - step.start)
        data = content.read(wanted)
        while (end := data.rfind(b"\n") + 1) == 0:
            if len(data) < wanted:
                content.read(1)  # raises the error of the damage
                raise OutputMissing(path, f"has {content.at} bytes, but {step.file.length} were published")
            if content.at >= step.end or wanted >= LINE_BYTES_MAX:
                raise OutputMissing(path, f"no line end between byte {step.start} and byte {content.at}")
            more = min(wanted, step.end - content.at)
            data, wanted = data + content.read(more), wanted + more
        if content.at == step.file.length and end == len(data) and not step.file.damaged:
            # checked before the file's last lines are returned, so that the cursor stays within a damaged file
            content.check()
        content.give_back(data[end:])
        return data[:end]

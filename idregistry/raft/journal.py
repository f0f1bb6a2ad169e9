"""Keeps the log, term and vote of one group on disk.

One segment file is live at a time, ``journal-<16 digits>.log``; ``segment_file.py`` has its layout.

A full disk is not fatal: a partial write is cut off again, everything stays in memory, and ``sync`` may be tried
again. Until it succeeds, nothing that depends on it may leave the replica.

Each start writes all live entries to a new segment: so writes of an earlier process that it may have failed to sync
are durable before any answer depends on them (protocol rule 7). So does each snapshot, slice by slice, while the log
continues in the old segment (``Move``): even a long log causes no wait.
"""

from __future__ import annotations

import struct
from array import array
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import overload

from photon.config.disk import AppendFile, Disk
from photon.idregistry.raft.codec import NO_OP, is_command
from photon.idregistry.raft.entry_log import Entry, EntryLog
from photon.idregistry.raft.options import LOG_MEMORY_BYTES, DiskFull, RaftStopped, no_space
from photon.idregistry.raft.segment_file import (
    CUT,
    ENTRY,
    FRAME,
    FRAME_TARGET,
    HEADER_BYTES,
    KIND_CUT,
    KIND_ENTRY,
    KIND_TERM,
    NO_VOTE,
    TERM,
    Damaged,
    frame,
    frames,
    header,
    term_record,
)

SLICE_BYTES = 1 << 20


class Move:
    """Moves a journal to its next segment, which is written slice by slice while the live segment stays in
    use.

    First come the entries that were live at the beginning, then those appended to the live segment since, in the same
    order. When nothing is left, the new segment is whole and durable, and replaces the old one. After an OSError it
    must be closed, and another move begun.
    """

    def __init__(
        self, path: Path, disk: Disk, header: bytes, alive: Iterator[bytes], frame: Callable[[int, int, bytes], bytes]
    ) -> None:
        """``path``: temporary file. ``alive``: payloads. ``frame``: (number, durable bytes, payload) -> a frame."""
        self._path = path
        self._disk = disk
        self._header = header
        self._alive = alive
        self._frame = frame
        self._later: deque[bytes] = deque()
        self._file: AppendFile | None = None
        self.frames = 0  # written so far

    def add(self, payload: bytes) -> None:
        self._later.append(payload)

    def step(self) -> int | None:
        """Writes and syncs a slice; returns the file's size once it is complete, else ``None``. Raises OSError."""
        file = self._file
        parts: list[bytes] = []
        if file is None:
            if self._disk.exists(self._path):
                self._disk.remove(self._path)
            file = self._file = self._disk.append(self._path)
            parts.append(self._header)
        durable, size = file.size, 0
        ended = False
        while size < SLICE_BYTES:
            payload = next(self._alive, None)
            # The header's seal covers the initial entries, and each later frame's durable length the entries before
            # it.
            if payload is not None:
                parts.append(self._frame(self.frames, 0, payload))
            elif self._later:
                parts.append(self._frame(self.frames, durable, self._later.popleft()))
            else:
                ended = True
                break
            self.frames += 1
            size += len(parts[-1])
        file.write(*parts)
        file.sync()
        if not ended:
            return None
        size = file.size
        self.close()
        return size

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class Journal:
    """Implements the library's journal. Changes stay in memory until ``sync``. Not thread-safe.

    Raises RaftStopped for damaged files, OSError if writing fails; after either the replica must stop. After DiskFull
    nothing that is not synced may leave the replica, and ``sync`` must be called again before anything else.
    """

    def __init__(self, directory: Path, disk: Disk, memory: int = LOG_MEMORY_BYTES) -> None:
        """``memory``: how many bytes of the newest commands to keep, roughly; older ones are read when needed."""
        self._directory = directory
        self._disk = disk
        self._memory = memory
        self._term = 0
        self._vote: str | None = None
        self._pending = bytearray()
        self._rewrite = True
        self._number = 0
        self._whole = 0  # bytes of the file that were written completely
        self._synced = 0  # bytes of the file that are durable
        self._proven = True  # True if a frame after the durable part records it
        self._file: AppendFile | None = None
        self._move_wanted = False
        self._move: Move | None = None  # the move to the next segment under way
        self._move_end = 0  # bytes of the next segment, including those still to be written
        disk.make_dir(directory)
        segments = segments_in(disk, directory)
        self._segment = segments[-1] if segments else 0
        self._log = EntryLog(self._reader(self._segment))
        if segments:
            self._load(self._path(self._segment))

    # --- what the library calls -------------------------------------------------------------------------------

    def add(self, command: bytes, index: int, term: int) -> None:
        if len(self._log) and index != self.last + 1:
            raise RaftStopped(f"journal {self._directory}: entry {index} does not follow {self.last}")
        self._log.add(command, index, term, len(self._pending) + ENTRY.size)
        if not self._rewrite:
            self._pending += ENTRY.pack(KIND_ENTRY, index, term, len(command))
            self._pending += command

    def clear(self) -> None:
        self._log.clear()
        self._rewrite = True

    def deleteEntriesFrom(self, position: int) -> None:  # noqa: N802 - the library's name
        """Removes the entry at a position in the list, and all later ones."""
        if position >= len(self._log):
            return
        self._log.cut_from(position)
        if not self._rewrite:
            self._pending += CUT.pack(KIND_CUT, self._log.first + position)

    def deleteEntriesTo(self, position: int) -> None:  # noqa: N802 - the library's name
        """Removes the entries before a position; the next syncs shorten the file."""
        if position <= 0:
            return
        self._give_up_move()
        self._log.drop_before(position)
        self._move_wanted = True  # begins once nothing is pending, which would be in the new segment twice

    @overload
    def __getitem__(self, item: int) -> Entry: ...

    @overload
    def __getitem__(self, item: slice) -> list[Entry]: ...

    def __getitem__(self, item: int | slice) -> Entry | list[Entry]:
        """Returns a slice of entries, or a single one.

        A single entry has no command: the library asks for it often, and only for its index and term.
        """
        log = self._log
        if isinstance(item, slice):
            return [log.entry(position) for position in range(*item.indices(len(log)))]
        position = range(len(log))[item]
        return b"", log.first + position, log.term(position)

    def __len__(self) -> int:
        return len(self._log)

    def setRaftCommitIndex(self, index: int) -> None:  # noqa: N802
        """Does nothing: a separately saved commit index may be past the log, which hangs the library's start."""

    def getRaftCommitIndex(self) -> int:  # noqa: N802
        return 1

    def setCurrentTerm(self, term: int, vote: str | None) -> None:  # noqa: N802
        self._term, self._vote = term, vote
        if not self._rewrite:
            self._pending += term_record(term, vote)

    def getCurrentTerm(self) -> int:  # noqa: N802
        return self._term

    def getVotedForNodeId(self) -> str | None:  # noqa: N802
        return self._vote

    def onOneSecondTimer(self) -> None:  # noqa: N802
        """Does nothing: the library flushes here; we call ``sync`` instead."""

    def _destroy(self) -> None:
        self.close()

    # --- ours -------------------------------------------------------------------------------------------------

    def close(self) -> None:
        self._give_up_move()
        if self._file is not None:
            self._file.close()
            self._file = None

    @property
    def command_bytes(self) -> int:
        return self._log.bytes

    @property
    def first(self) -> int:
        return self._log.first

    @property
    def last(self) -> int:
        return self._log.last

    def term_at(self, index: int) -> int:
        return self._log.term(index - self._log.first)

    def bytes_of(self, first: int, last: int) -> int:
        """Returns the total size of the commands of entries ``first`` to ``last``."""
        return sum(map(self._log.length, range(first - self.first, last + 1 - self.first)))

    def entry_at(self, index: int) -> Entry:
        """Returns an entry with its command, from memory or disk."""
        return self._log.entry(index - self._log.first)

    def align(self, index: int, term: int) -> None:
        """Makes the log continue a snapshot of the state after entry (index, term).

        Later entries stay if the log contains that very entry; otherwise the log is emptied. If a process is killed
        between installing a snapshot and cutting the log, its next start does this.
        """
        if len(self._log) and self.first > index:
            raise RaftStopped(
                f"journal {self._directory} begins at entry {self.first}, but its snapshot ends at {index}: entries "
                f"in between are missing; replace this replica or restore its disk"
            )
        if len(self._log) and index <= self.last and self.term_at(index) == term:
            return
        self.clear()
        self.add(NO_OP, index, term)  # replaces an applied entry: only its index and term are ever read

    def cut_before(self, index: int, margin: int) -> None:
        """Forgets entries below ``index``, but keeps up to ``margin`` bytes of them."""
        position = index - self.first
        while position > 0 and margin >= self._log.length(position - 1):
            position -= 1
            margin -= self._log.length(position)
        self.deleteEntriesTo(position)

    def sync(self) -> None:
        """Makes all changes durable: one write and one fdatasync, or a new segment."""
        if self._rewrite:
            self._give_up_move()
            with no_space(self._directory):
                self._write_segment()
            self._move_wanted = False
        elif self._pending:
            self._write_pending()
        elif not self.moving:
            if not self._proven:
                self._append(b"")
                self._proven = True
            return
        if self._move_wanted:
            self._move, self._move_wanted = self._begin_move(), False
        if self._move is not None:
            self._move_on(self._move)
        self._log.forget_commands(self._memory)

    def _write_pending(self) -> None:
        payload = bytes(self._pending)
        begin = self._whole + FRAME.size
        self._append(payload)
        assert self._file is not None
        self._file.sync()
        self._synced, self._proven = self._whole, False
        self._pending.clear()
        if self._move is None:
            self._log.placed(begin, None)
            return
        self._move.add(payload)
        self._log.placed(begin, self._move_end + FRAME.size)
        self._move_end += FRAME.size + len(payload)

    @property
    def moving(self) -> bool:
        """True if a move to the next segment is under way or due, so that ``sync`` has work."""
        return self._move is not None or self._move_wanted

    def _move_on(self, move: Move) -> None:
        """Writes one slice of the next segment; the last slice makes it the live one."""
        try:
            with no_space(self._directory):
                size = move.step()
        except DiskFull:  # the old segment is intact; the next snapshot retries
            self._give_up_move()
            return
        if size is not None:
            self._move = None
            self._rewrite = True  # if this fails, the next start may find either segment
            with no_space(self._directory):
                self._put_in_place(self._segment + 1, move.frames, size)
            self._rewrite = self._proven = False

    def _give_up_move(self) -> None:
        if self._move is not None:
            self._move.close()
            self._move = None
        self._log.moving(None)

    def _append(self, payload: bytes) -> None:
        """Writes one frame, completely or not at all."""
        with no_space(self._directory):
            if self._file is None:
                path = self._path(self._segment)
                self._disk.truncate(path, self._whole)  # left by the last try on a full disk
                self._file = self._disk.append(path)
            try:
                self._file.write(frame(self._segment, self._number, self._synced, payload))
            except OSError:
                self._file.close()
                self._file = None
                raise
        self._whole = self._file.size
        self._number += 1

    def _write_segment(self) -> None:
        self._move = move = self._begin_move()
        try:
            while (size := move.step()) is None:
                pass
        except BaseException:
            self._give_up_move()
            raise
        self._move = None
        self._put_in_place(self._segment + 1, move.frames, size)
        self._rewrite = False

    def _begin_move(self) -> Move:
        segment = self._segment + 1
        first = term_record(self._term, self._vote)
        entries = self._log.copy()
        ends = _frame_ends(entries, len(first))
        offsets, self._move_end = _offsets(entries, ends, len(first))
        self._log.moving(offsets)
        return Move(
            self._directory / "journal.tmp",
            self._disk,
            header(segment, self._move_end),
            _payloads(first, entries, ends),
            partial(frame, segment),
        )

    def _put_in_place(self, segment: int, frames: int, size: int) -> None:
        """Makes the complete and durable temporary file the live segment."""
        path = self._path(segment)
        self._disk.rename(self._directory / "journal.tmp", path)
        self._disk.sync_dir(self._directory)
        self._log.moved(self._reader(segment))
        self.close()
        self._file = self._disk.append(path)
        self._segment, self._number = segment, frames
        self._whole = self._synced = size
        self._proven = True
        self._pending.clear()
        for old in segments_in(self._disk, self._directory):
            if old < segment:
                self._disk.remove(self._path(old))

    def _path(self, segment: int) -> Path:
        return self._directory / f"journal-{segment:016d}.log"

    def _reader(self, segment: int) -> partial[bytes]:
        return partial(self._disk.read, self._path(segment))

    def _load(self, path: Path) -> None:
        data = self._disk.read(path)
        try:
            for begin, payload in frames(data):
                self._replay(payload, begin)
        except (Damaged, struct.error, UnicodeDecodeError) as e:
            raise RaftStopped(
                f"journal {path} is damaged: {e}; acknowledged entries may be gone: do not delete it, "
                f"replace this replica or restore its disk"
            ) from None

    def _replay(self, payload: bytes, begin: int) -> None:
        """Applies the records of a frame whose payload begins at ``begin`` in the file."""
        at = 0
        while at < len(payload):
            kind = payload[at]
            if kind == KIND_ENTRY:
                _, index, term, length = ENTRY.unpack_from(payload, at)
                at += ENTRY.size
                command = payload[at : at + length]
                at += length
                if len(command) != length or not is_command(command):
                    raise Damaged(f"entry {index} is not a command")
                if len(self._log) and index != self.last + 1:
                    raise Damaged(f"entry {index} follows entry {self.last}")
                self._log.add_placed(command, index, term, begin + at - length)
            elif kind == KIND_TERM:
                _, self._term, length = TERM.unpack_from(payload, at)
                at += TERM.size
                self._vote = None if length == NO_VOTE else payload[at : at + length].decode()
                at += 0 if length == NO_VOTE else length
            elif kind == KIND_CUT:
                _, index = CUT.unpack_from(payload, at)
                at += CUT.size
                if not len(self._log) or index <= self.first:
                    raise Damaged(f"a cut at entry {index}, before the first entry")
                self.deleteEntriesFrom(index - self.first)
            else:
                raise Damaged(f"record of unknown kind {kind}")


def segments_in(disk: Disk, directory: Path) -> list[int]:
    return [
        int(name[8:-4]) for name in disk.names(directory) if name.startswith("journal-") and name.endswith(".log")
    ]


def _frame_ends(entries: EntryLog, size: int) -> list[int]:
    """Returns where a new segment's frames end, as entry positions. The first frame starts with ``size`` bytes."""
    ends = []
    for position in range(len(entries)):
        size += ENTRY.size + entries.length(position)
        if size >= FRAME_TARGET:
            ends.append(position + 1)
            size = 0
    return [*ends, len(entries)]


def _offsets(entries: EntryLog, ends: Sequence[int], size: int) -> tuple[array[int], int]:
    """Returns the commands' offsets in a new segment with these frames, and the segment's size in bytes."""
    offsets = array("Q")
    at, begin = HEADER_BYTES + size, 0
    for end in ends:
        at += FRAME.size
        for position in range(begin, end):
            at += ENTRY.size
            offsets.append(at)
            at += entries.length(position)
        begin = end
    return offsets, at


def _payloads(first: bytes, entries: EntryLog, ends: Sequence[int]) -> Iterator[bytes]:
    payload = bytearray(first)
    begin = 0
    for end in ends:
        for position in range(begin, end):
            command, index, term = entries.entry(position)
            payload += ENTRY.pack(KIND_ENTRY, index, term, len(command))
            payload += command
        yield bytes(payload)
        payload.clear()
        begin = end

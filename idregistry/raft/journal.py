"""The log, term and vote of one group on disk.

One segment file is live at a time: ``journal-<16 digits>.log``. Layout, little-endian:

    header   magic "PHOTJRNL", version u8, 7 zero bytes, segment u64, sealed u64, crc32 of these u32
    frame    mark "PJF2", length u32, crc32(segment, number, synced, payload) u32, number u64, synced u64,
             payload of `length` bytes

A frame is one write followed by one fdatasync: all that one step of the group appended. Its payload is records:
ENTRY (index, term, command), TERM (term, vote), CUT (entries from index on are gone). Frames are numbered from 0.
The first ``sealed`` bytes were written whole and synced before the file got its name; the first ``synced`` bytes were
durable when the frame was written. When nothing follows a synced frame at once, an empty frame says so; it is not
synced itself.

Reading: a bad frame in the part that any good frame, before or behind it, says was durable, is damage and stops the
replica. Behind that part nothing was promised: it is cut at the first bad frame. (What is left: a bit that flips in
the last frame *and* a power cut that takes the empty frame behind it look like a torn write.)

A full disk is not the end: what was written in part is cut off again, everything stays in memory, and ``sync`` may be
tried again. Until it succeeds nothing of it may leave the replica.

At each start all that is alive is written to a new segment: so what an earlier process wrote but perhaps failed to
sync is made durable before anything is answered from it (protocol rule 7). After each snapshot too, slice by slice,
while the log goes on in the old segment (``move.py``): however long the log is, nobody waits for it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from photon.config.disk import AppendFile, Disk
from photon.idregistry.raft.codec import NO_OP, is_command
from photon.idregistry.raft.move import Move
from photon.idregistry.raft.options import DiskFull, RaftStopped, no_space

MAGIC = b"PHOTJRNL"
VERSION = 2
MARK = b"PJF2"
FRAME_TARGET = 1 << 20
"""A rewrite starts a new frame after so many bytes."""
_HEADER = struct.Struct("<8sB7xQQ")
_CRC = struct.Struct("<I")
_FRAME = struct.Struct("<4sIIQQ")
_CHECKED = struct.Struct("<QQQ")
_ENTRY = struct.Struct("<BQQI")
_TERM = struct.Struct("<BQH")
_CUT = struct.Struct("<BQ")
_KIND_ENTRY, _KIND_TERM, _KIND_CUT = 1, 2, 3
_NO_VOTE = 0xFFFF
HEADER_BYTES = _HEADER.size + _CRC.size

Entry = tuple[bytes, int, int]
"""(command with its type byte, index, term), as the library holds it."""


class Journal:
    """Implements the library's journal. Changes are in memory until ``sync``. Not thread-safe.

    Raises RaftStopped for damaged files, OSError when writing fails; after either the replica must stop. DiskFull:
    nothing of what is not yet synced may leave the replica, and ``sync`` must be called again before anything else.
    """

    def __init__(self, directory: Path, disk: Disk) -> None:
        self._directory = directory
        self._disk = disk
        self._entries: list[Entry] = []
        self._term = 0
        self._vote: str | None = None
        self._pending = bytearray()
        self._rewrite = True
        self._number = 0
        self._whole = 0
        """Bytes of the file that were written whole."""
        self._synced = 0
        """Bytes of the file that are durable."""
        self._proven = True
        """A frame behind the durable part says so."""
        self._file: AppendFile | None = None
        self._segment = 0
        self._move_wanted = False
        self._move: Move | None = None
        """To the next segment, under way."""
        self.bytes = 0
        """Of all commands in the log."""
        self.syncs = 0
        disk.make_dir(directory)
        segments = segments_in(disk, directory)
        if segments:
            self._segment = segments[-1]
            self._load(self._path(self._segment))

    # --- what the library calls -------------------------------------------------------------------------------

    def add(self, command: bytes, index: int, term: int) -> None:
        if self._entries and index != self._entries[-1][1] + 1:
            raise RaftStopped(f"journal {self._directory}: entry {index} does not follow {self._entries[-1][1]}")
        self._entries.append((command, index, term))
        self.bytes += len(command)
        if not self._rewrite:
            self._pending += _ENTRY.pack(_KIND_ENTRY, index, term, len(command))
            self._pending += command

    def clear(self) -> None:
        self._entries = []
        self.bytes = 0
        self._rewrite = True

    def deleteEntriesFrom(self, position: int) -> None:  # noqa: N802 - the library's name
        """Removes the entry at the position in the list, and all after it."""
        if position >= len(self._entries):
            return
        index = self._entries[position][1]
        self.bytes -= sum(len(e[0]) for e in self._entries[position:])
        del self._entries[position:]
        if not self._rewrite:
            self._pending += _CUT.pack(_KIND_CUT, index)

    def deleteEntriesTo(self, position: int) -> None:  # noqa: N802 - the library's name
        """Removes the entries before the position; the file follows with the next syncs."""
        if position <= 0:
            return
        self.bytes -= sum(len(e[0]) for e in self._entries[:position])
        del self._entries[:position]
        self._give_up_move()
        self._move_wanted = True  # begins once nothing is pending: that would stand in the new segment twice

    def __getitem__(self, item: int) -> Entry:
        return self._entries[item]

    def __len__(self) -> int:
        return len(self._entries)

    def setRaftCommitIndex(self, index: int) -> None:  # noqa: N802
        """Not kept: a commit index saved beside the log can lie past it, and hangs the library's start."""

    def getRaftCommitIndex(self) -> int:  # noqa: N802
        return 1

    def setCurrentTerm(self, term: int, vote: str | None) -> None:  # noqa: N802
        self._term, self._vote = term, vote
        if not self._rewrite:
            self._pending += _term_record(term, vote)

    def getCurrentTerm(self) -> int:  # noqa: N802
        return self._term

    def getVotedForNodeId(self) -> str | None:  # noqa: N802
        return self._vote

    def onOneSecondTimer(self) -> None:  # noqa: N802
        """The library's moment to flush; sync() is ours."""

    def _destroy(self) -> None:
        self.close()

    # --- ours -------------------------------------------------------------------------------------------------

    def close(self) -> None:
        self._give_up_move()
        if self._file is not None:
            self._file.close()
            self._file = None

    @property
    def first(self) -> int:
        return self._entries[0][1]

    @property
    def last(self) -> int:
        return self._entries[-1][1]

    def term_at(self, index: int) -> int:
        return self._entries[index - self._entries[0][1]][2]

    def align(self, index: int, term: int) -> None:
        """Makes the log continue a snapshot of the state after entry (index, term).

        Entries behind it stay if the log holds that very entry; else the snapshot is all there is. A process killed
        between installing a snapshot and cutting the log leaves exactly this to be done at its next start.
        """
        if self._entries and self.first > index:
            raise RaftStopped(
                f"journal {self._directory} begins at entry {self.first}, its snapshot ends at {index}: entries "
                f"between are missing; replace this replica or restore its disk"
            )
        if self._entries and index <= self.last and self.term_at(index) == term:
            return
        self.clear()
        self.add(NO_OP, index, term)  # stands for an applied entry: only its index and term are ever looked at

    def cut_before(self, index: int, margin: int) -> None:
        """Forgets entries below ``index``, but keeps up to ``margin`` bytes of them."""
        position = index - self.first
        while position > 0 and margin >= len(self._entries[position - 1][0]):
            position -= 1
            margin -= len(self._entries[position][0])
        self.deleteEntriesTo(position)

    def sync(self) -> None:
        """Makes everything so far durable: one write and one fdatasync, or a new segment."""
        if self._rewrite:
            self._give_up_move()
            with no_space(self._directory):
                self._write_segment()
            self._move_wanted = False
        elif self._pending:
            payload = bytes(self._pending)
            self._append(payload)
            assert self._file is not None
            self._file.sync()
            self._synced, self._proven = self._whole, False
            self._pending.clear()
            if self._move is not None:
                self._move.add(payload)
        elif not self.moving:
            if not self._proven:
                self._append(b"")
                self._proven = True
            return
        if self._move_wanted:
            self._move, self._move_wanted = self._begin_move(), False
        if self._move is not None:
            self._move_on(self._move)
        self.syncs += 1

    @property
    def moving(self) -> bool:
        """Whether the next ``sync`` has something to do in any case."""
        return self._move is not None or self._move_wanted

    def _move_on(self, move: Move) -> None:
        """Writes one slice of the next segment; with the last one, that is the live one."""
        try:
            with no_space(self._directory):
                size = move.step()
        except DiskFull:  # the old segment is whole; the next snapshot tries again
            self._give_up_move()
            return
        if size is not None:
            self._move = None
            self._rewrite = True  # should this fail, nobody knows which segment the next start will find
            with no_space(self._directory):
                self._put_in_place(self._segment + 1, move.frames, size)
            self._rewrite = self._proven = False

    def _give_up_move(self) -> None:
        if self._move is not None:
            self._move.close()
            self._move = None

    def _append(self, payload: bytes) -> None:
        """One frame, whole or not at all."""
        path = self._path(self._segment)
        with no_space(path):
            if self._file is None:
                self._disk.truncate(path, self._whole)  # what a full disk left of the last try
                self._file = self._disk.append(path)
            try:
                self._file.write(_frame(self._segment, self._number, self._synced, payload))
            except OSError:
                self._file.close()
                self._file = None
                raise
        self._whole = self._file.size
        self._number += 1

    def _write_segment(self) -> None:
        move = self._begin_move()
        try:
            size = move.step(whole=True)
        finally:
            move.close()
        assert size is not None
        self._put_in_place(self._segment + 1, move.frames, size)
        self._rewrite = False

    def _begin_move(self) -> Move:
        """To the next segment, of what is alive now."""
        segment = self._segment + 1
        first = _term_record(self._term, self._vote)
        entries = list(self._entries)
        ends = _frame_ends(entries, len(first))
        records = len(first) + sum(_ENTRY.size + len(command) for command, _, _ in entries)
        header = _HEADER.pack(MAGIC, VERSION, segment, HEADER_BYTES + _FRAME.size * len(ends) + records)
        return Move(
            self._directory / "journal.tmp",
            self._disk,
            header + _CRC.pack(zlib.crc32(header)),
            _payloads(first, entries, ends),
            partial(_frame, segment),
        )

    def _put_in_place(self, segment: int, frames: int, size: int) -> None:
        """The temporary file, whole and durable, is the live segment from now on."""
        path = self._path(segment)
        self._disk.rename(self._directory / "journal.tmp", path)
        self._disk.sync_dir(self._directory)
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

    def _load(self, path: Path) -> None:
        data = self._disk.read(path)
        try:
            for payload in _frames(data):
                self._replay(payload)
        except (_Damaged, struct.error, UnicodeDecodeError) as e:
            raise RaftStopped(
                f"journal {path} is damaged: {e}; acknowledged entries may be gone: do not delete it, "
                f"replace this replica or restore its disk"
            ) from None

    def _replay(self, payload: bytes) -> None:
        at = 0
        while at < len(payload):
            kind = payload[at]
            if kind == _KIND_ENTRY:
                _, index, term, length = _ENTRY.unpack_from(payload, at)
                at += _ENTRY.size
                command = payload[at : at + length]
                at += length
                if len(command) != length or not is_command(command):
                    raise _Damaged(f"entry {index} is no command")
                if self._entries and index != self.last + 1:
                    raise _Damaged(f"entry {index} follows {self.last}")
                self._entries.append((command, index, term))
                self.bytes += length
            elif kind == _KIND_TERM:
                _, self._term, length = _TERM.unpack_from(payload, at)
                at += _TERM.size
                self._vote = None if length == _NO_VOTE else payload[at : at + length].decode()
                at += 0 if length == _NO_VOTE else length
            elif kind == _KIND_CUT:
                _, index = _CUT.unpack_from(payload, at)
                at += _CUT.size
                if not self._entries or index <= self.first:
                    raise _Damaged(f"a cut at entry {index} before its first")
                self.deleteEntriesFrom(index - self.first)
            else:
                raise _Damaged(f"record of unknown kind {kind}")


class _Damaged(Exception):
    pass


def segments_in(disk: Disk, directory: Path) -> list[int]:
    """Numbers of the complete segments, ascending."""
    return [
        int(name[8:-4]) for name in disk.names(directory) if name.startswith("journal-") and name.endswith(".log")
    ]


def _frame_ends(entries: Sequence[Entry], size: int) -> list[int]:
    """Where the frames of a new segment end, as positions in the entries; the first begins with ``size`` bytes."""
    ends = []
    for position, (command, _, _) in enumerate(entries):
        size += _ENTRY.size + len(command)
        if size >= FRAME_TARGET:
            ends.append(position + 1)
            size = 0
    return [*ends, len(entries)]


def _payloads(first: bytes, entries: Sequence[Entry], ends: Sequence[int]) -> Iterator[bytes]:
    payload = bytearray(first)
    begin = 0
    for end in ends:
        for command, index, term in entries[begin:end]:
            payload += _ENTRY.pack(_KIND_ENTRY, index, term, len(command))
            payload += command
        yield bytes(payload)
        payload.clear()
        begin = end


def _term_record(term: int, vote: str | None) -> bytes:
    if vote is None:
        return _TERM.pack(_KIND_TERM, term, _NO_VOTE)
    name = vote.encode()
    return _TERM.pack(_KIND_TERM, term, len(name)) + name


def _frame(segment: int, number: int, synced: int, payload: bytes) -> bytes:
    crc = zlib.crc32(payload, zlib.crc32(_CHECKED.pack(segment, number, synced)))
    return _FRAME.pack(MARK, len(payload), crc, number, synced) + payload


def _parse(data: bytes, at: int, segment: int) -> tuple[int, int, bytes] | None:
    """(number, synced, payload) of the good frame at an offset, else None."""
    if at + _FRAME.size > len(data):
        return None
    mark, length, crc, number, synced = _FRAME.unpack_from(data, at)
    payload = data[at + _FRAME.size : at + _FRAME.size + length]
    if mark != MARK or len(payload) != length:
        return None
    if zlib.crc32(payload, zlib.crc32(_CHECKED.pack(segment, number, synced))) != crc:
        return None
    return number, synced, payload


def _frames(data: bytes) -> Iterator[bytes]:
    """Payloads of a segment's frames, without a torn tail."""
    if len(data) < HEADER_BYTES or zlib.crc32(data[: _HEADER.size]) != _CRC.unpack_from(data, _HEADER.size)[0]:
        raise _Damaged("its header is bad")
    magic, version, segment, durable = _HEADER.unpack_from(data)
    if magic != MAGIC or version != VERSION:
        raise _Damaged(f"not a journal of version {VERSION}")
    if len(data) < durable:
        raise _Damaged(f"it has {len(data)} bytes, {durable} were sealed")
    at, expected = HEADER_BYTES, 0
    while at < len(data):
        parsed = _parse(data, at, segment)
        if parsed is None:
            if at < max(durable, _durable_after(data, at, segment)):
                raise _Damaged(f"frame {expected} at byte {at} is bad, and was durable")
            return
        number, synced, payload = parsed
        if number != expected:
            raise _Damaged(f"frame {number} at byte {at} stands where {expected} belongs")
        durable = max(durable, synced)
        yield payload
        at += _FRAME.size + len(payload)
        expected += 1
    if at < durable:
        raise _Damaged(f"it has {at} bytes, {durable} were durable")


def _durable_after(data: bytes, at: int, segment: int) -> int:
    """How many bytes of the file good frames behind an offset say were durable."""
    durable = 0
    found = data.find(MARK, at + 1)
    while found >= 0:
        parsed = _parse(data, found, segment)
        if parsed is not None:
            durable = max(durable, parsed[1])
        found = data.find(MARK, found + 1)
    return durable

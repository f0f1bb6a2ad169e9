"""A group's log entries: keeps the newest commands in memory, and reads older ones from the segment file.

A log may be as long as half a snapshot. Its commands are needed twice: when they are applied, a moment after they
arrive, and when they are sent to a follower that was away. So only the last ones are kept; of each older entry 24
bytes remain: term, length, checksum of the command, and its offset in the file.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Callable

from photon.idregistry.raft.options import RaftStopped

Entry = tuple[bytes, int, int]  # (command with its type byte, index, term), in the library's form

Read = Callable[[int, int], bytes]  # bytes of the segment file: offset, length; shorter at its end

WINDOW_BYTES = 256 << 10  # read at once, since entries are read in order


class EntryLog:
    """The live entries. Positions count from 0, the first entry. Not thread-safe.

    Entries become *placed*, in order, once they are durable in the segment file; only placed commands can be
    forgotten. ``_unplaced`` holds the offsets of the others in the next write.
    """

    def __init__(self, read: Read) -> None:
        self._read = read
        self._window: tuple[int, bytes] = (0, b"")
        self.first = 0  # index of the entry at position 0
        self._terms = array("Q")
        self._lengths = array("I")
        self._checksums = array("I")
        self._offsets = array("Q")  # file offsets of the placed entries
        self._offsets_next: array[int] | None = None  # their offsets in the next segment
        self._unplaced: list[int] = []
        self._commands: list[bytes] = []  # of the last entries
        self._in_memory = 0
        self.bytes = 0  # bytes of all commands

    def __len__(self) -> int:
        return len(self._terms)

    @property
    def last(self) -> int:
        """The index of the last entry. Use only if there are entries."""
        return self.first + len(self._terms) - 1

    def term(self, position: int) -> int:
        return self._terms[position]

    def length(self, position: int) -> int:
        return self._lengths[position]

    def entry(self, position: int) -> Entry:
        """Returns the entry at a position, with its command.

        Raises OSError, or RaftStopped if the bytes in the file are not those written.
        """
        begin = len(self._terms) - len(self._commands)
        command = self._commands[position - begin] if position >= begin else self._stored(position)
        return command, self.first + position, self._terms[position]

    def _stored(self, position: int) -> bytes:
        offset, length = self._offsets[position], self._lengths[position]
        begin, data = self._window
        if not begin <= offset <= offset + length <= begin + len(data):
            last = len(self._offsets) - 1  # bytes after it may be written again after a full disk
            ahead = min(WINDOW_BYTES, self._offsets[last] + self._lengths[last] - offset)
            begin, data = self._window = offset, self._read(offset, max(length, ahead))
        command = data[offset - begin : offset - begin + length]
        if len(command) != length or zlib.crc32(command) != self._checksums[position]:
            raise RaftStopped(
                f"entry {self.first + position} of the log, at byte {offset} of its file, is not the one written "
                "there: do not delete the file, replace this replica or restore its disk"
            )
        return command

    # --- changes ----------------------------------------------------------------------------------------------

    def add(self, command: bytes, index: int, term: int, place: int) -> None:
        """Appends an entry. ``place``: the command's offset in the next write."""
        self._extend(command, index, term)
        self._unplaced.append(place)
        self._commands.append(command)
        self._in_memory += len(command)

    def add_placed(self, command: bytes, index: int, term: int, offset: int) -> None:
        """Adds an entry found in the segment file, without keeping it in memory.

        Call it only while no command is in memory.
        """
        self._extend(command, index, term)
        self._offsets.append(offset)

    def _extend(self, command: bytes, index: int, term: int) -> None:
        if not self._terms:
            self.first = index
        self._terms.append(term)
        self._lengths.append(len(command))
        self._checksums.append(zlib.crc32(command))
        self.bytes += len(command)

    def cut_from(self, position: int) -> None:
        """Removes the entry at a position and all later ones."""
        self.bytes -= sum(self._lengths[position:])
        begin = len(self._terms) - len(self._commands)
        kept = max(position - begin, 0)
        self._in_memory -= sum(map(len, self._commands[kept:]))
        del self._commands[kept:]
        del self._unplaced[max(position - len(self._offsets), 0) :]
        self._cut_columns(slice(position, None))

    def drop_before(self, position: int) -> None:
        """Forgets the entries before a position. Call it only while no next segment is being written."""
        self.bytes -= sum(self._lengths[:position])
        begin = len(self._terms) - len(self._commands)
        gone = max(position - begin, 0)
        self._in_memory -= sum(map(len, self._commands[:gone]))
        del self._commands[:gone]
        del self._unplaced[: max(position - len(self._offsets), 0)]
        self._cut_columns(slice(position))
        self.first += position

    def _cut_columns(self, gone: slice) -> None:
        for column in (self._terms, self._lengths, self._checksums, self._offsets, self._offsets_next):
            if column is not None:
                del column[gone]

    def clear(self) -> None:
        self.cut_from(0)

    # --- places -----------------------------------------------------------------------------------------------

    def placed(self, begin: int, begin_next: int | None) -> None:
        """Records that unplaced entries are durable: they start at ``begin``, in the next file at ``begin_next``."""
        if self._offsets_next is not None and begin_next is not None:
            self._offsets_next.extend(begin_next + place for place in self._unplaced)
        self._offsets.extend(begin + place for place in self._unplaced)
        self._unplaced.clear()

    def moving(self, offsets: array[int] | None) -> None:
        """Records that the next segment is being written, with the entries at ``offsets``; ``None`` if it was given
        up.
        """
        self._offsets_next = offsets

    def moved(self, read: Read) -> None:
        assert self._offsets_next is not None
        self._offsets, self._offsets_next = self._offsets_next, None
        self._unplaced.clear()
        self._read, self._window = read, (0, b"")

    def forget_commands(self, keep: int) -> None:
        """Forgets older commands; keeps about ``keep`` bytes of the newest, and all that are not placed."""
        if self._in_memory <= 2 * keep:
            return
        begin = len(self._terms) - len(self._commands)
        gone = 0
        while begin + gone < len(self._offsets) and self._in_memory > keep:
            self._in_memory -= len(self._commands[gone])
            gone += 1
        del self._commands[:gone]

    def copy(self) -> EntryLog:
        """Returns a copy that later changes do not affect."""
        other = EntryLog(self._read)
        other.first = self.first
        other._terms, other._lengths = self._terms[:], self._lengths[:]
        other._checksums, other._offsets = self._checksums[:], self._offsets[:]
        other._commands = self._commands[:]
        return other

"""Follows all logs of a directory: new, growing, rolled, renamed, truncated, replaced and compressed files.

Two kinds of state (``tracked``): a ``TrackedFile`` is an inode with a name, as the last scan saw it, and says which
log it holds; a ``TrackedLog`` is a stream of bytes under one identity: how far it was read, and the file it is read
from now. A scan matches them; a poll reads. When in doubt a log is read again from its start: ids make duplicates
harmless, while a line left out is lost.

Not thread-safe: one caller at a time.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from photon.adapters.logs.api import Block, LogPosition
from photon.adapters.logs.discovery import Found, check_directory, compile_patterns, discover
from photon.adapters.logs.framing import LongRecord, Piece, frame
from photon.adapters.logs.identity import HEAD_BYTES, read_head
from photon.adapters.logs.problems import UNREAD, LogDirectoryError, Problem, ProblemKind, ProblemReporter
from photon.adapters.logs.reader import Source, open_source
from photon.adapters.logs.tracked import FINISHED, TrackedFile, TrackedLog

BLOCK_BYTES = 1 << 20
"""Bytes read at a time; a block is at most this, or one record where that is longer."""
TURN_BYTES = 16 << 20
"""After so much of one plain file the next one has its turn. Compressed files are read through: leaving one and
coming back may mean to inflate it again from its start."""
OPEN_FILES_MAX = 256
"""So many files are kept open, the one read longest ago is closed first."""
TAIL_BYTES = 64
"""So many bytes before a position are compared at each read, to notice that a file was rewritten in place."""
GRACE_SCANS = 3
"""Two files of one identity, or a compressed file cut short, are reported when so many scans saw them: a copy or
a compression may be in progress."""


class Follower:
    """Hands out blocks of whole records of every log below a directory."""

    def __init__(
        self,
        directory: Path,
        *,
        patterns: Sequence[str] = ("**/*",),
        has_header: bool,
        max_record: int = 1 << 20,
        positions: Iterable[LogPosition] = (),
        report: Callable[[Problem], None] | None = None,
    ) -> None:
        """``positions``: where each known log is read on. Raises LogDirectoryError."""
        check_directory(directory)
        if max_record < 1:
            raise ValueError(f"max_record must be at least 1, not {max_record}")
        self._directory = directory
        self._patterns = compile_patterns(patterns)
        self._has_header = has_header
        self._max_record = max_record
        self._problems = ProblemReporter(report)
        self._files: dict[tuple[int, int], TrackedFile] = {}
        self._logs: dict[str, TrackedLog] = {}
        for p in positions:
            self._logs[p.identity] = TrackedLog(p.identity, p.path, p.offset, p.header)
        self._ready: deque[TrackedLog] = deque()
        self._turn = 0  # bytes that the log in front has had
        self._sources: OrderedDict[str, Source] = OrderedDict()
        self._unfinished: set[tuple[int, int]] = set()  # files whose first record is not complete
        self._unsettled = False  # the next scan must match files and logs even if no file changed
        self._missed: set[str] = set()  # paths that held another file, or none, when they were opened after the scan
        self._missed_before: set[str] = set()
        self.lost_bytes = 0
        """Bytes on disk known to have been there and never read (vanished files)."""

    # -- what the reader asks ------------------------------------------------------------------------------------
    @property
    def problems(self) -> Counter[ProblemKind]:
        """How often what was wrong."""
        return self._problems.counts

    def unread(self, kinds: Sequence[ProblemKind] = UNREAD) -> list[Problem]:
        """Files that are there and not read, or not to their ends."""
        return self._problems.unsolved(kinds)

    def positions(self) -> list[LogPosition]:
        """How far each log was handed out."""
        return [LogPosition(log.identity, log.path, log.resume_at(), log.header) for log in self._logs.values()]

    def path_of(self, identity: str) -> Path | None:
        """Where a log's bytes stand now; None when its file is gone or was never seen."""
        log = self._logs.get(identity)
        if log is None or log.file is None or log.file.gone:
            return None
        return self._directory / log.file.path

    def caught_up(self) -> bool:
        """All that the last scan saw was handed out; partial last lines wait."""
        return not self._ready and not self._missed

    def backlog(self) -> tuple[int, int]:
        """(bytes on disk read, bytes on disk known) of the files that are there now."""
        read = known = 0
        for log in self._logs.values():
            if log.file is None or log.file.gone:
                continue
            size = max(log.file.size, 0)
            known += size
            if log.done is not None and log.done[0] == log.file.key:
                read += min(log.done[1], size)
            else:
                read += min(log.consumed if log.file.compressed else log.next, size)
        return read, known

    def close(self) -> None:
        """Closes the files."""
        for source in self._sources.values():
            source.close()
        self._sources.clear()

    # -- scan ------------------------------------------------------------------------------------------------------
    def scan(self) -> None:
        """Looks for new, renamed, grown, shrunk and vanished files. One stat for each file."""
        self._missed_before, self._missed = self._missed, set()
        try:
            found = discover(self._directory, self._patterns, self._problems)
        except OSError as err:
            self._problems.tell(ProblemKind.UNREADABLE, ".", f"the log directory cannot be listed ({err.strerror})")
            return
        self._problems.solved(ProblemKind.UNREADABLE, ".")
        seen = {each.key for each in found}
        gone = [key for key in self._files if key not in seen]
        for key in gone:
            self._problems.gone(self._files[key].path)
            self._files.pop(key).gone = True
            self._unfinished.discard(key)
        changed = [each for each in found if self._note(each)]
        if gone or changed or self._unsettled:
            self._match()
        self._tell_cut_short()
        self._make_ready()

    def _note(self, found: Found) -> bool:
        """Takes over what a scan saw of a file; whether that is news."""
        file = self._files.get(found.key)
        if file is None:
            file = self._files[found.key] = TrackedFile(found.path, found.key)
        elif (file.path, file.size, file.mtime_ns) == (found.path, found.size, found.mtime_ns):
            return False
        elif file.path != found.path:
            self._problems.gone(file.path)
        # Growth is checked when the new bytes are read; every other change may be another file on the same inode.
        grown = file.head is not None and found.path == file.path and found.size > file.size
        if file.compressed and found.size <= file.size and file.head is not None and found.path == file.path:
            self._close(self._logs[file.head.identity])  # its stream stands somewhere in what was there before
        file.path, file.size, file.mtime_ns = found.path, found.size, found.mtime_ns
        if not grown:
            self._identify(file)
        return True

    def _identify(self, file: TrackedFile, *, final: bool = False) -> None:
        """Reads the head. A file that cannot be read keeps the identity it had, and is tried at the next scan."""
        before = file.head
        self._unfinished.add(file.key)
        if file.size == 0:
            file.head = None
            return
        read = self._read_head_bytes(file)
        if read is None:
            file.mtime_ns = -1
            return
        data, damage, cut_short = read
        head = read_head(file.path, data, has_header=self._has_header, final=final and not (damage or cut_short))
        if head is None:
            file.head = None
            if damage or (final and cut_short):
                self._problems.tell(ProblemKind.DAMAGED, file.path, damage or CUT_SHORT)
            return
        if before is not None and before.same_bytes(head):
            # The same log, perhaps under a name that no rotation explains: its records keep their identity.
            head = replace(head, identity=before.identity)
        file.head = head
        self._unfinished.discard(file.key)

    def _read_head_bytes(self, file: TrackedFile) -> tuple[bytes, str, bool] | None:
        """The first bytes, what is damaged, and whether it is cut short; None when it cannot be read now."""
        source = self._open(file)
        if source is None:
            return None
        try:
            data = source.read(0, HEAD_BYTES)
            self._problems.solved(ProblemKind.UNREADABLE, file.path)
            return data, source.damage(), source.cut_short()
        except OSError as err:
            self._problems.tell(ProblemKind.UNREADABLE, file.path, f"cannot be read ({err.strerror})")
            return None
        finally:
            source.close()

    def _match(self) -> None:
        """Gives each log the file it is read from now."""
        claims: dict[str, list[TrackedFile]] = {}
        for file in sorted(self._files.values(), key=lambda f: f.path):
            if file.head is not None:
                claims.setdefault(file.head.identity, []).append(file)
        self._unsettled = False
        for log in self._logs.values():
            if log.identity in claims:
                log.unread = 0
            elif log.file is not None:
                self._orphaned(log)
            elif log.unread:
                self._tell_lost(log, log.unread)
        for identity, files in claims.items():
            self._assign(self._logs.setdefault(identity, TrackedLog(identity, files[0].path, 0)), files)

    def _assign(self, log: TrackedLog, files: list[TrackedFile]) -> None:
        # A plain file before its compressed twin; the one followed already before a newcomer; else the first by name.
        best = min(files, key=lambda f: (f.compressed, f is not log.file, f.path))
        head = best.head
        assert head is not None
        if log.file is not best and log.file is not None:
            self._close(log)
        log.file, log.path, log.header, log.data_start = best, best.path, head.header, head.data_start
        log.next = max(log.next, log.data_start)
        self._tell_rivals(log, best, [f for f in files if f is not best])

    def _tell_rivals(self, log: TrackedLog, best: TrackedFile, others: list[TrackedFile]) -> None:
        rivals = {f.path for f in others if not (f.compressed and not best.compressed)}
        for path in [p for p in log.rivals if p not in rivals]:
            del log.rivals[path]
            self._problems.solved(ProblemKind.DUPLICATE_IDENTITY, path)
        for path in sorted(rivals):
            self._unsettled = True
            log.rivals[path] += 1
            if log.rivals[path] >= GRACE_SCANS:
                self._tell_rival(log, path)

    def _tell_rival(self, log: TrackedLog, path: str) -> None:
        self._problems.tell(
            ProblemKind.DUPLICATE_IDENTITY,
            path,
            f"has the same log name and first record as {log.path}, so both are one log to Photon; only "
            f"{log.path} is read: remove one of them or give them different names",
        )

    def _orphaned(self, log: TrackedLog) -> None:
        """No file of this log is left. One that is open is read to its end, unless it was overwritten."""
        file = log.file
        assert file is not None
        source = self._sources.get(log.identity)
        if not file.gone or source is None:  # overwritten in its place, or gone and not open
            self._lose(log, file)
            return
        file.size = source.size()
        if log.done is not None and log.done[:2] == (file.key, file.size):
            self._close(log)
            log.file = None

    def _lose(self, log: TrackedLog, file: TrackedFile) -> None:
        """Forgets the file of a log that cannot be read any further."""
        known = log.done[1] if log.done is not None and log.done[0] == file.key else None
        if file.compressed:
            left = 0 if known is not None else max(file.size - log.consumed, 0)
        else:
            left = max((file.size if file.gone else known or 0) - log.next, 0)
        if left:
            self._tell_lost(log, left)
        self._close(log)
        log.file = log.done = None

    def _tell_lost(self, log: TrackedLog, left: int) -> None:
        log.unread = 0
        self.lost_bytes += left
        self._problems.tell(
            ProblemKind.VANISHED,
            log.path,
            f"{left} bytes at its end were gone before they were read; keep rolled files for a while",
            again=True,
        )

    def _tell_cut_short(self) -> None:
        for log in self._logs.values():
            if log.cut_scans < 0 or log.file is None or not log.is_done():
                continue
            log.cut_scans += 1
            if log.cut_scans == GRACE_SCANS:
                self._problems.tell(ProblemKind.DAMAGED, log.path, f"{CUT_SHORT}; read up to byte {log.next}")

    def _make_ready(self) -> None:
        front = self._ready[0] if self._ready else None
        ready = [log for log in self._logs.values() if not log.is_done()]
        ready.sort(key=lambda log: log.path)
        self._ready = deque(ready)
        if front is not None and front in self._ready:
            while self._ready[0] is not front:
                self._ready.rotate(-1)
        else:
            self._turn = 0

    # -- poll ------------------------------------------------------------------------------------------------------
    def poll(self, max_bytes: int, *, final: bool = False) -> list[Block]:
        """The next blocks, about ``max_bytes`` of them (one block at least); empty when everything is read.

        Logs are read in the order of their paths, taking turns. ``final``: nothing will be appended any more, so
        last lines without line end are whole. Call it so only when ``caught_up``.
        """
        while True:
            if final and not self._ready:
                self._finish()
            blocks = self._read_ready(max_bytes, final)
            if blocks or not self._missed:
                return blocks
            self.scan()  # what was renamed since the last one stands elsewhere: without it nothing is caught up

    def _read_ready(self, max_bytes: int, final: bool) -> list[Block]:
        blocks: list[Block] = []
        got = 0
        while self._ready and got < max_bytes:
            log = self._ready[0]
            pieces, more = self._read(log, final)
            for piece in pieces:
                blocks.append(log.block(piece))
                got += piece.end - piece.offset
                self._turn += piece.end - piece.offset
            if not more:
                self._ready.popleft()
                self._turn = 0
            elif self._turn >= TURN_BYTES and log.file is not None and not log.file.compressed:
                self._ready.rotate(-1)
                self._turn = 0
        return blocks

    def _finish(self) -> None:
        """No more will come: last lines count, and what a later scan might have explained is reported."""
        for key in sorted(self._unfinished):
            self._identify(self._files[key], final=True)
        self._match()
        for log in self._logs.values():
            for path in log.rivals:
                self._tell_rival(log, path)
            if not log.is_done(final=True):
                self._ready.append(log)
        self._ready = deque(sorted(self._ready, key=lambda log: log.path))

    def _read(self, log: TrackedLog, final: bool) -> tuple[list[Piece], bool]:
        """The log's next records, and whether there may be more of them now."""
        file = log.file
        source = self._source(log)
        if file is None or source is None:
            return [], False
        done = (file.key, file.size, FINISHED if final else file.mtime_ns)
        try:
            data, at_end = self._checked(log, source)
        except OSError as err:
            self._problems.tell(ProblemKind.UNREADABLE, log.path, f"cannot be read ({err.strerror})")
            self._close(log)
            return [], False
        if data is None:  # not the bytes it was
            self._replaced(log, file)
            return [], log.file is not None
        log.consumed = source.consumed()
        damage = source.damage() if at_end else ""
        cut_short = at_end and source.cut_short()
        last = final and at_end and not (damage or cut_short)
        framed = frame(data, log.next, max_record=self._max_record, final=last, long=log.long)
        self._advance(log, data, framed.next, framed.long)
        if at_end:
            log.done = done
            log.cut_scans = 0 if cut_short else -1
            if damage or (final and cut_short):
                self._problems.tell(
                    ProblemKind.DAMAGED, log.path, f"{damage or CUT_SHORT}; read up to byte {log.next}"
                )
            if file.gone:
                self._close(log)
                log.file = None
        return framed.pieces, not at_end

    def _advance(self, log: TrackedLog, data: bytes, to: int, long: LongRecord | None) -> None:
        used = to - log.next
        log.tail = (log.tail + data[max(used - TAIL_BYTES, 0) : used])[-TAIL_BYTES:]
        log.next, log.long = to, long

    def _checked(self, log: TrackedLog, source: Source) -> tuple[bytes | None, bool]:
        """Bytes from ``log.next`` on, and whether the file's end (as scanned) was met. None: not this log's bytes.

        What is compared is read together with the data or after it, so that a file that is overwritten meanwhile
        is noticed.
        """
        file = log.file
        assert file is not None
        before = min(TAIL_BYTES, log.next)
        want = BLOCK_BYTES
        while True:
            raw = source.read(log.next - before, before + want)
            data = raw[before:]
            at_end = len(data) < want
            if at_end or log.long or b"\n" in data or want > self._max_record:
                break
            want = min(want * 2, max(self._max_record + 1, BLOCK_BYTES + 1))
        if not source.compressed:
            head = file.head
            if head is not None and source.read(head.fingerprint_at, len(head.fingerprint)) != head.fingerprint:
                return None, False
        prefix = raw[:before]
        if len(prefix) < before:
            return (b"", True) if source.compressed and (source.damage() or source.cut_short()) else (None, False)
        if log.tail and not prefix.endswith(log.tail):
            return None, False
        if log.next > log.data_start and not log.long and not prefix.endswith(b"\n"):
            return self._grown_line(log, source, data), at_end
        return data, at_end

    def _grown_line(self, log: TrackedLog, source: Source, data: bytes) -> bytes:
        """The last line was handed out without its line end. If it went on since, it is handed out again, whole."""
        end = next((e for e in (b"\n", b"\r\n") if data.startswith(e)), b"")
        if end or not data or data == b"\r":
            log.next += len(end)
            log.tail = (log.tail + end)[-TAIL_BYTES:]
            return data[len(end) :] if end else b""
        begin = max(log.data_start, log.next - self._max_record - 1)
        line = source.read(begin, log.next - begin)
        start = max(begin + line.rfind(b"\n") + 1, log.data_start)
        self._problems.tell(
            ProblemKind.REWRITTEN,
            log.path,
            f"the line at byte {start} went on after it was taken for complete",
            again=True,
        )
        again = source.read(start, log.next - start)
        log.next, log.tail = start, b""
        return again + data

    def _replaced(self, log: TrackedLog, file: TrackedFile) -> None:
        """The file of a log holds other bytes than it did: truncated, rewritten, or another log by now."""
        self._close(log)
        old_size, old_head = file.size, file.head
        if file.gone:
            log.file = log.done = None
            return
        try:
            st = (self._directory / file.path).stat()
            file.size, file.mtime_ns = (st.st_size, st.st_mtime_ns) if (st.st_dev, st.st_ino) == file.key else (0, -1)
        except OSError:
            file.size, file.mtime_ns = 0, -1
        self._identify(file)
        if file.head is not None and old_head is not None and file.head.identity == old_head.identity:
            shrunk = min(file.size, old_size) < log.next
            log.next, log.tail, log.long, log.done = log.data_start, b"", None, None
            kind = ProblemKind.TRUNCATED if shrunk else ProblemKind.REWRITTEN
            how = "became shorter than what was read of it" if shrunk else "was rewritten in place"
            self._problems.tell(kind, log.path, f"{how}; it is read again from its start", again=True)
            return
        log.unread = 0 if file.compressed else max(old_size - log.next, 0)
        log.file = log.done = None
        self._unsettled = True
        # Neither log need wait for the next scan: what stands in this file now, and the copy of what stood in it.
        for each in sorted(self._files.values(), key=lambda f: f.path):
            if each.head is not None and (each is file or each.head.identity == log.identity):
                taker = self._logs.setdefault(each.head.identity, TrackedLog(each.head.identity, each.path, 0))
                if taker.file is None:
                    self._assign(taker, [each])
                    self._ready.append(taker)

    # -- open files --------------------------------------------------------------------------------------------------
    def _source(self, log: TrackedLog) -> Source | None:
        source = self._sources.get(log.identity)
        if source is not None:
            self._sources.move_to_end(log.identity)
            return source
        file = log.file
        if file is None or file.gone:
            if file is not None:
                self._lose(log, file)  # it was open once, but others needed the descriptor
            return None
        source = self._open(file)
        if source is None:
            return None
        self._problems.solved(ProblemKind.UNREADABLE, file.path)
        self._sources[log.identity] = source
        while len(self._sources) > OPEN_FILES_MAX:
            self._sources.popitem(last=False)[1].close()
        return source

    def _open(self, file: TrackedFile) -> Source | None:
        """None where it cannot be opened now. Renamed, deleted or replaced since the scan: the next one knows."""
        why = "is another file whenever it is opened"
        try:
            source = open_source(self._directory / file.path)
            if source.key == file.key:
                return source
            source.close()
            missed = True
        except OSError as err:
            missed, why = isinstance(err, FileNotFoundError), f"cannot be opened ({err.strerror})"
        if missed and file.path not in self._missed_before:
            self._missed.add(file.path)
        else:
            self._problems.tell(ProblemKind.UNREADABLE, file.path, why)
        return None

    def _close(self, log: TrackedLog) -> None:
        source = self._sources.pop(log.identity, None)
        if source is not None:
            source.close()


CUT_SHORT = "the compressed stream ends in its middle"


__all__ = ["Block", "Follower", "LogDirectoryError", "LogPosition", "Problem", "ProblemKind"]

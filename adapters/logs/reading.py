"""Continues reading one log: checks that the bytes are the log's own, and cuts them into whole records.

The bytes to compare (the first record, and those before the position) are read together with the data or after it, so
that overwriting the file in the meantime is noticed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from photon.adapters.contract import Framing
from photon.adapters.logs.api import Block
from photon.adapters.logs.assignment import Logs
from photon.adapters.logs.files import Files, ends_in_middle
from photon.adapters.logs.framing import Framed, Piece, frame
from photon.adapters.logs.framings import Lines, headed_blocks
from photon.adapters.logs.identity import BOM, PROOF_BYTES, proof_of, proof_of_whole
from photon.adapters.logs.open_files import OpenFiles
from photon.adapters.logs.own_framing import settle, waits_for_its_end
from photon.adapters.logs.problems import ProblemKind, ProblemReporter
from photon.adapters.logs.reader import Source
from photon.adapters.logs.same_beginnings import Alike
from photon.adapters.logs.tracked_logs import FINISHED, TrackedFile, TrackedLog

BLOCK_BYTES = 1 << 20  # bytes read at a time; a block is at most this, or one longer record


@dataclass(frozen=True, slots=True)
class ReadBytes:
    """``data`` from ``begin``, with the PROOF_BYTES before it, or fewer at the start of the log."""

    begin: int
    before: bytes
    data: bytes

    def ahead_of(self, at: int) -> bytes:
        """Returns the PROOF_BYTES before a position within the data, or at its end."""
        stop = at - self.begin
        if stop >= PROOF_BYTES:
            return self.data[stop - PROOF_BYTES : stop]
        return (self.before + self.data[:stop])[-PROOF_BYTES:]

    def proof(self, at: int) -> bytes:
        """Returns the proof of a position within the data, or at its end."""
        return proof_of(self.ahead_of(at))


class LogReader:
    """Reads logs from the files assigned by ``Logs``. ``ready`` is called when a log gets another file."""

    def __init__(
        self,
        files: Files,
        logs: Logs,
        alike: Alike,
        sources: OpenFiles,
        problems: ProblemReporter,
        *,
        max_record: int,
        framing: Framing,
        ready: Callable[[TrackedLog], None],
        touch: Callable[[str], None],
        whole_files: bool = False,
    ) -> None:
        """``touch``: makes the next scan match a log. ``whole_files``: files are never appended to."""
        self._whole_files = whole_files
        self._files = files
        self._logs = logs
        self._alike = alike
        self._sources = sources
        self._problems = problems
        self._max_record = max_record
        self._lines = Lines(framing, max_record)
        self._headed = framing.kind == "zeek"
        self._ready = ready
        self._touch = touch
        self._gathers = framing.gathers
        self.opens_at_rest = False  # the last record of the log that was read last is whole once its file is at rest
        self.awaiting = False  # bytes of the log that was read last are being fetched
        self._last = ReadBytes(0, b"", b"")  # result of ``read``; ``blocks`` asks for proofs of positions in it

    def read(self, log: TrackedLog, final: bool) -> tuple[list[Piece], bool]:
        """Returns the log's next records, and True if there may be more of them now."""
        self.awaiting = self.opens_at_rest = False
        file = log.file
        source = self._source(log)
        if file is None or source is None:
            return [], False
        done = (file.key, file.size, FINISHED if final else file.mtime_ns)
        try:
            read, at_end = self._checked(log, source)
        except BlockingIOError:
            self.awaiting = True
            return [], True
        except OSError as err:
            self._problems.tell(ProblemKind.UNREADABLE, log.path, f"cannot be read ({err.strerror})")
            self._sources.close(log.identity)
            return [], False
        if read is None:  # its bytes have changed
            return [], self._replaced(log, file)
        self._last, data = read, read.data
        if self._whole_files and read.begin == log.data_start:
            self._alike.met(log, data)
        log.consumed = source.consumed()
        damage = source.damage() if at_end else ""
        cut_short = at_end and source.cut_short()
        framed = self._frame(log, data, final=False)
        if final and at_end and not damage and (cut_short or self._waits(framed, log, data)):
            if not self._files.last_line_counts(file, _waiting_at(framed)):
                cut_short = False
            elif cut_short and settle(source):
                return self.read(log, final)
            elif not cut_short:
                framed = self._frame(log, data, final=True)
        self.opens_at_rest = (
            at_end and not final and self._gathers and not cut_short and self._waits(framed, log, data)
        )
        if self.opens_at_rest and self._files.is_at_rest(file):
            self.opens_at_rest = False
            framed = self._frame(log, data, final=True)
        if framed.next > log.next:
            log.proof = read.proof(framed.next)
        log.next, log.long = framed.next, framed.long
        if at_end:
            log.done = done
            self._logs.cut(log, cut_short and not waits_for_its_end(source))
            if self._whole_files and not (damage or cut_short):
                log.proof = proof_of_whole(file.key)
            if damage or (final and cut_short):
                why = damage or ends_in_middle(log.path)
                self._problems.tell(ProblemKind.DAMAGED, log.path, f"{why}; read up to byte {log.next}")
            if file.gone:
                self._logs.leave(log)
        return framed.pieces, not at_end

    def blocks(self, log: TrackedLog, piece: Piece) -> list[Block]:
        """Converts a piece of a log to blocks."""
        if not self._headed:
            proof = log.proof if piece.end == log.next else self._last.proof(piece.end)
            return [log.block(piece, proof, self._last.ahead_of(piece.offset))]
        try:
            blocks = headed_blocks(log, piece, self._source(log))
            rewritten, log.rewritten = log.rewritten, log.rewritten and not blocks
            last = self._last
            return [
                replace(block, proof=last.proof(block.end), before=last.ahead_of(block.offset), rewritten=rewritten)
                for block in blocks
            ]
        except OSError as err:
            log.next, log.proof, log.long, log.done = piece.offset, b"", None, None
            if isinstance(err, BlockingIOError):
                self.awaiting = True
                return []
            self._problems.tell(ProblemKind.UNREADABLE, log.path, f"cannot be read ({err.strerror})")
            return []

    def _frame(self, log: TrackedLog, data: bytes, *, final: bool) -> Framed:
        lines = self._lines.marked(data, inside=log.long is not None, final=final)
        return frame(lines, log.next, max_record=self._max_record, final=final, long=log.long)

    @staticmethod
    def _waits(framed: Framed, log: TrackedLog, data: bytes) -> bool:
        """True if the data ends in a record that is incomplete."""
        return framed.long is not None or framed.next < log.next + len(data)

    def _checked(self, log: TrackedLog, source: Source) -> tuple[ReadBytes | None, bool]:
        """Returns bytes from ``log.next``, and True if the file's end (as scanned) was reached. ``None`` means that
        the file's bytes are not the log's.

        The bytes to compare are read together with the data or after it, so that overwriting the file in the meantime
        is noticed.
        """
        file = log.file
        assert file is not None
        before = min(PROOF_BYTES, log.next)
        want = BLOCK_BYTES
        while True:
            if source.compressed:  # which is read sequentially
                raw = source.read(log.next - before, before + want)
                prefix, data = raw[:before], raw[before:]
            else:
                data = source.read(log.next, want)
            at_end = len(data) < want
            if at_end or log.long or want > self._max_record or self._lines.has_record(data):
                break
            want = min(want * 2, max(self._max_record + 1, BLOCK_BYTES + 1))
        if self._whole_files and not log.next and data.startswith(BOM):
            log.next = log.data_start = len(BOM)
            return ReadBytes(log.next, BOM, data[len(BOM) :]), at_end
        if not source.compressed:
            head = file.head
            if head is not None and source.read(head.fingerprint_at, len(head.fingerprint)) != head.fingerprint:
                return None, False
            prefix = source.read(log.next - before, before)
        if len(prefix) < before:
            waits = source.compressed and (source.damage() or source.cut_short())
            return (ReadBytes(log.next, prefix, b""), True) if waits else (None, False)
        proof = proof_of(prefix)
        if log.proof not in (b"", proof):
            return None, False
        log.proof = proof
        read = ReadBytes(log.next, prefix, data)
        if log.next > log.data_start and not log.long and not prefix.endswith(b"\n"):
            return self._grown_line(log, source, read), at_end
        return read, at_end

    def _grown_line(self, log: TrackedLog, source: Source, read: ReadBytes) -> ReadBytes:
        """Extends ``read`` back to the start of a last line that was returned as complete and has grown since."""
        data = read.data
        end = next((e for e in (b"\n", b"\r\n") if data.startswith(e)), b"")
        if end or not data or data == b"\r":
            log.next += len(end)
            before = (read.before + end)[-PROOF_BYTES:]
            log.proof = proof_of(before)
            return ReadBytes(log.next, before, data[len(end) :] if end else b"")
        begin = max(log.data_start, log.next - self._max_record - 1)
        line = source.read(begin, log.next - begin)
        start = max(begin + line.rfind(b"\n") + 1, log.data_start)
        self._problems.tell(
            ProblemKind.REWRITTEN,
            log.path,
            f"the line at byte {start} was returned as complete, and then continued",
            again=True,
        )
        front = min(PROOF_BYTES, start)
        again = source.read(start - front, front + log.next - start)
        log.next, log.proof = start, b""
        return ReadBytes(start, again[:front], again[front:] + data)

    def _replaced(self, log: TrackedLog, file: TrackedFile) -> bool:
        """Handles a log's file that no longer holds the log's bytes: truncated, rewritten, or holding another log.

        Returns True if reading the log can continue in its current state.
        """
        self._sources.close(log.identity)
        old_size, old_head = file.size, file.head
        if file.gone:
            log.done = None
            self._logs.leave(log)
            return False
        self._files.look_again(file)
        same = file.head is not None and old_head is not None and file.head.identity == old_head.identity
        if same and self._sources.look_elsewhere(file.path):
            log.done = None
            return False
        if same and (name := self._alike.known_as(log, file)) is not None:
            self._files.hold(file, name)
        elif same:
            at, shrunk = log.next, not file.compressed and min(file.size, old_size) < log.next
            log.next, log.proof, log.long, log.done, log.rewritten = log.data_start, b"", None, None, True
            kind = ProblemKind.TRUNCATED if shrunk else ProblemKind.REWRITTEN
            now = "is shorter now" if shrunk else "now holds different bytes before it"
            what = f"was read up to byte {at}, and {now}: it is read again from its start"
            self._problems.tell(kind, log.path, what, again=True)
            return True
        log.unread = 0 if same or file.compressed else max(old_size - log.next, 0)
        log.done = None
        self._logs.leave(log)
        self._touch(log.identity)
        # Neither the log now in this file nor the copy of its previous content needs to wait for the next scan.
        identities = {log.identity} if file.head is None else {log.identity, file.head.identity}
        for identity in sorted(identities):
            for each in self._files.claims(identity):
                if each is not file and identity != log.identity:
                    continue
                taker = self._logs.get(identity, each.path)
                if taker.file is None:
                    self._logs.assign(taker, [each])
                    self._ready(taker)
                self._touch(identity)
        return log.file is not None

    def _source(self, log: TrackedLog) -> Source | None:
        source = self._sources.get(log.identity)
        if source is not None:
            return source
        file = log.file
        if file is None or file.gone:
            if file is not None:
                self._logs.lose(log, file)  # it was open, but others needed the descriptor
            return None
        return self._sources.keep(log.identity, file)


def _waiting_at(framed: Framed) -> int:
    """Returns the start of the incomplete record."""
    return framed.next if framed.long is None else framed.long.offset

"""The exactly-once protocol of one slot, without I/O or a clock (protocol rules 1 to 5 and 12).

Theory of operation. A *frame* is the unit of logging: a batch of would-be records under one token, or rows carried
over under their original tokens. A frame goes through

    submit -> Append -> redo_synced -> Insert -> answered -> Write -> output_synced -> Release

and each row proceeds separately: COMMITTED rows are written, rows with another final answer are dropped, and UNKNOWN
rows are requested again with the same token until their answer is final. A frame may leave the log when no row is
open and all its written rows are synced. Open rows of a frame far behind the log's head are carried over to a new
frame, so that an unreachable shard does not pin the log.

Invariants
- No row is inserted before the frame that holds it is durable in the log (rule 1).
- A token names one batch of one incarnation (rule 2); a row keeps its token permanently (rule 3).
- A row is written if and only if it was answered COMMITTED, and only once: that answer closes it (rule 3).
- A caller gets a verdict only for closed rows; open rows are RETRY (rule 3).
- A frame is released only once it has no open row and its last write is synced (rule 4).
- Redone is emitted once, when the last frame with a token of an earlier incarnation is released (rule 13).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from photon.batch.columns import U8, Mask, RowIndexes, split_digests, take_digests
from photon.batch.ids import Ids
from photon.batch.verdicts import Verdicts
from photon.config.back_off import BackOff
from photon.config.clock import NEVER_NS
from photon.idregistry.api import Answer, Kind, token_of
from photon.joiner.api import Outcome
from photon.joiner.rows import Rows, concat


@dataclass(frozen=True, slots=True)
class Append:
    """Append the rows to the redo log as frame ``frame``, in order, and sync; then call ``redo_synced``."""

    frame: int
    rows: Rows


@dataclass(frozen=True, slots=True)
class Insert:
    """Send the insert to the registry once; then call ``answered``, with UNKNOWN for rows without an answer."""

    frame: int
    inserts: Ids


@dataclass(frozen=True, slots=True)
class Write:
    """Append the chunks of whole lines to the output logs of their kinds, in the order of ``number``.

    Then call ``written``. The output's sync may be delayed until ``SyncOutput`` requests it.
    """

    number: int
    chunks: tuple[tuple[Kind, bytes], ...]
    oldest_ns: int = field(default=NEVER_NS, compare=False)  # event time of its oldest record


@dataclass(frozen=True, slots=True)
class SyncOutput:
    """Sync all output written so far and publish its length durably; then call ``output_synced``."""


@dataclass(frozen=True, slots=True)
class Reply:
    """Answer the caller of ``frame`` with an outcome for each row. Comes once per frame."""

    frame: int
    verdicts: Verdicts
    same_line: Mask  # as in ``JoinAnswers``


@dataclass(frozen=True, slots=True)
class Release:
    frames: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Redone:
    """Publish that every batch of incarnations up to this one has left the log, including ids carried over (rule 13).

    Comes once, after the sync of the output that contains these batches.
    """

    upto: int


@dataclass(frozen=True, slots=True)
class Stop:
    """The process must end; ``reason`` is one line for the operator."""

    reason: str


Instruction = Append | Insert | Write | SyncOutput | Reply | Release | Redone | Stop


CARRY_ROWS_MAX = 4096  # rows of one carry-over frame
SMALL_ROWS = 512  # a frame with more open rows is not carried over merely because of the number of frames

_FINAL_OF_INSERT = frozenset(
    (Answer.COMMITTED, Answer.TAKEN, Answer.DONE, Answer.BELOW_BOUNDARY, Answer.TOO_NEW, Answer.UNKNOWN)
)
_FATAL = {
    Answer.FENCED: "this slot was retired (FENCED); remove its directory, or start the joiner with a new slot name",
    Answer.STALE_INCARNATION: "a newer process has opened this slot (STALE_INCARNATION); is its directory a copy, "
    "or was a second joiner started on it?",
}
# As numbers: numpy takes six times as long to compare with an enumeration's member.
_UNKNOWN, _COMMITTED, _TAKEN = int(Answer.UNKNOWN), int(Answer.COMMITTED), int(Answer.TAKEN)
_DONE, _TOO_NEW = int(Answer.DONE), int(Answer.TOO_NEW)
_OUTCOME_OF = np.zeros(256, np.uint8)
_OUTCOME_OF[[Answer.TAKEN, Answer.BELOW_BOUNDARY, Answer.TOO_NEW]] = Outcome.TAKEN, Outcome.LATE, Outcome.TOO_NEW
_NO_ROWS = Rows.decode(np.empty(0, np.uint64), bytes(4))
_KIND_OF = np.array([code if code in set(Kind) else Kind.JOINED for code in range(256)], np.uint8)


@dataclass(frozen=True, slots=True)
class CoreLimits:
    """Bounds and delays of the core. Times in seconds of the monotonic clock."""

    # Time after the first UNKNOWN for which the caller waits for the remaining rows, once its others are known; then
    # it is told that some are unknown.
    answer_after_s: float = 0.5
    retry: BackOff = BackOff(first=0.05, most=2.0)
    sync_output_after_s: float = 0.5
    sync_output_after_bytes: int = 64 << 20
    # A frame this far behind the log's head passes its open rows to a new one.
    carry_over_behind_bytes: int = 128 << 20
    # With more frames that have open rows, small ones are carried over, too: each is a separate request, and
    # thousands of requests to a shard that was silent would block each other when it returns.
    open_frames_max: int = 256


class OpenRecord(NamedTuple):
    """A would-be record. ``durable``: it is in the redo log, so it may be registered."""

    line: bytes
    kind: int
    token: int
    durable: bool


@dataclass(slots=True)
class _Frame:
    number: int
    rows: Rows
    open: RowIndexes  # rows whose fate is unknown
    bytes: int
    place: int  # position of the log's head when it was appended
    verdicts: Verdicts  # RETRY for open rows
    deadline: float = 0.0
    replied: bool = False
    synced: bool = False
    inserting: bool = False
    early: int = 0  # open rows that were TOO_NEW at the last request
    asked_before: bool = False  # an insert of these rows may have been applied without an answer reaching us
    retry_at: float = 0.0
    tries: int = 0
    last_write: int = 0
    carried_by: int | None = None
    carries: tuple[int, ...] = ()


class SlotCore:
    """One incarnation of one slot. All methods return instructions, to be executed in order."""

    def __init__(self, incarnation: int, limits: CoreLimits | None = None, *, next_frame: int = 0) -> None:
        self._incarnation = incarnation
        self._limits = limits or CoreLimits()
        self._next_batch = 0
        self._next_frame = next_frame
        self._head = 0  # bytes ever appended to the log
        self._unsynced: deque[_Frame] = deque()
        self._open: dict[int, _Frame] = {}  # frames logged or being logged, with open rows
        self._settled: list[_Frame] = []  # frames without open rows, waiting for the output's sync
        self._past: set[int] | None = set()  # frames with tokens of predecessors; ``None`` once Redone was returned
        self._outstanding: set[bytes] = set()  # digests answered UNKNOWN at least once, still open
        self._early: dict[bytes, int] = {}  # those of them that were TOO_NEW last, with their event times
        self._write_number = 0
        self._written = 0
        self._synced = 0
        self._sync_asked = False
        self._unsynced_since: float | None = None
        self._unsynced_bytes = 0
        self.open_rows = 0
        self.open_bytes = 0
        self.unwritten_bytes = 0

    # -- what the shell may ask ------------------------------------------------------------------------------
    @property
    def empty(self) -> bool:
        """True if the redo log no longer needs any frame."""
        return not self._open and not self._settled

    @property
    def outstanding(self) -> frozenset[bytes] | set[bytes]:
        """Digests whose registration is unknown. Answer RETRY: logging them again would only fill the log."""
        return self._outstanding

    @property
    def early(self) -> Mapping[bytes, int]:
        """Open digests that the registry accepts once its clock reaches their event times, with those times (ns)."""
        return self._early

    @property
    def waits_for_time(self) -> bool:
        """True if all remaining work waits for a clock."""
        return bool(self._open) and not self._settled and all(f.early == len(f.open) for f in self._open.values())

    @property
    def oldest_open_ns(self) -> int:
        """Event time of the oldest row whose fate is unknown; NEVER_NS if there is none."""
        oldest = [np.minimum.reduce(each.rows.times[each.open], initial=NEVER_NS) for each in self._open.values()]
        return int(min(oldest, default=NEVER_NS))

    def take_token(self) -> int:
        """Returns a token for the next batch. Each call returns a new one, even if the last was not used (rule 2)."""
        self._next_batch += 1
        return token_of(self._incarnation, self._next_batch)

    # -- events ----------------------------------------------------------------------------------------------
    def start(self, kept: Sequence[tuple[int, Rows]]) -> list[Instruction]:
        """Begins with ``kept``, rows that are in the log but not in the output: they are UNKNOWN ids of rule 3, under
        their own tokens (rule 5).
        """
        out: list[Instruction] = []
        self._past = {number for number, _ in kept}
        for number, rows in kept:
            frame = self._add_frame(number, rows, deadline=0.0)
            frame.replied = frame.synced = frame.asked_before = True
            self._next_frame = max(self._next_frame, number + 1)
            self._outstanding.update(rows.digest_list())
            if len(rows):
                out.append(self._insert(frame))
            else:
                out += self._settle(frame)
        return out + self._all_redone()

    def submit(self, rows: Rows, deadline: float) -> tuple[int, list[Instruction]]:
        """Starts a batch of would-be records under a token from ``take_token``. Its ids must be unique (rule 2).

        Returns the frame's number, which the Reply will have. Nothing is registered before ``redo_synced``.
        """
        number = self._next_frame
        self._next_frame += 1
        frame = self._add_frame(number, rows, deadline)
        self._unsynced.append(frame)
        return number, [Append(number, rows)]

    def redo_synced(self, upto: int) -> list[Instruction]:
        """Notes that all frames up to ``upto`` are durable in the log (rule 1)."""
        out: list[Instruction] = []
        while self._unsynced and self._unsynced[0].number <= upto:
            frame = self._unsynced.popleft()
            frame.synced = True
            for source in frame.carries:
                out += self._hand_over(self._open[source])
            out.append(self._insert(frame))
        return out

    def answered(self, number: int, answers: Verdicts, now: float) -> list[Instruction]:
        """Handles the registry's answers to this frame's Insert, one per id (rule 3)."""
        frame = self._open[number]
        frame.inserting = False
        asked = frame.open
        codes = answers.outcomes
        if reason := _must_stop(codes, len(asked)):
            return [Stop(reason)]
        if frame.asked_before:
            # An earlier insert may own the id by now, so a refusal made without reading the entry is inconclusive.
            self._note_early(frame, asked, codes == _TOO_NEW)
            codes = np.where(codes == _TOO_NEW, _UNKNOWN, codes).astype(np.uint8)
        out = self._commit(frame, asked[codes == _COMMITTED], now)
        self._drop(frame, asked, codes, answers)
        self._keep_unknown(frame, asked[codes == _UNKNOWN], now)
        if not len(frame.open):
            out += self._reply(frame)
            out += self._settle(frame)
        elif now >= frame.deadline:
            out += self._reply(frame)
        return out

    def written(self, number: int, size: int) -> list[Instruction]:
        """Notes that all Writes up to ``number`` are in the output, synced or not. ``size``: bytes since the last
        call.
        """
        self._written = number
        self.unwritten_bytes -= size
        return []

    def output_synced(self, number: int) -> list[Instruction]:
        """Notes that all Writes up to ``number`` are durable, under durable names (rule 4)."""
        self._synced = max(self._synced, number)
        self._sync_asked = False
        if self._synced == self._write_number:
            self._unsynced_since = None
        free = tuple(frame.number for frame in self._settled if frame.last_write <= self._synced)
        if not free:
            return []
        self._settled = [frame for frame in self._settled if frame.last_write > self._synced]
        return self._release(free)

    def tick(self, now: float, *, hurry: bool = False) -> list[Instruction]:
        """Does due work: retries, deadlines, carry-over, the delayed sync of the output (at once with ``hurry``)."""
        out: list[Instruction] = []
        for frame in list(self._open.values()):
            if not frame.replied and now >= frame.deadline:
                out += self._reply(frame)
        out += self._carry_over()
        for frame in list(self._open.values()):
            if self._waits(frame) and now >= frame.retry_at:
                out.append(self._insert(frame))
        if self._unsynced_since is not None and not self._sync_asked:
            old = now - self._unsynced_since >= self._limits.sync_output_after_s
            if hurry or old or self._unsynced_bytes >= self._limits.sync_output_after_bytes:
                self._sync_asked = True
                self._unsynced_since = now  # later writes start another wait
                self._unsynced_bytes = 0
                out.append(SyncOutput())
        return out

    # -- one frame -------------------------------------------------------------------------------------------
    def _add_frame(self, number: int, rows: Rows, deadline: float) -> _Frame:
        size = len(rows.digests) * 2 + sum(map(len, rows.lines))
        frame = _Frame(
            number=number,
            rows=rows,
            open=np.arange(len(rows), dtype=np.intp),
            bytes=size,
            place=self._head,
            verdicts=Verdicts.blank(len(rows), Outcome.RETRY),
            deadline=deadline,
        )
        self._head += size
        self._open[number] = frame
        self.open_rows += len(rows)
        self.open_bytes += size
        return frame

    def _insert(self, frame: _Frame) -> Insert:
        frame.inserting = True
        return Insert(frame.number, frame.rows.inserts(frame.open))

    def _waits(self, frame: _Frame) -> bool:
        return frame.synced and not frame.inserting and frame.carried_by is None

    def _commit(self, frame: _Frame, won: RowIndexes, now: float) -> list[Instruction]:
        if not len(won):
            return []
        self._write_number += 1
        chunks = _chunks(frame.rows, won)
        frame.last_write = self._write_number
        size = sum(len(chunk) for _, chunk in chunks)
        self.unwritten_bytes += size
        self._unsynced_bytes += size
        if self._unsynced_since is None:
            self._unsynced_since = now
        frame.verdicts.outcomes[won] = frame.rows.kinds[won]  # an outcome has its kind's number
        return [Write(self._write_number, chunks, int(np.minimum.reduce(frame.rows.times[won])))]

    def _note_early(self, frame: _Frame, asked: RowIndexes, early: Mask) -> None:
        if self._early:
            for digest in split_digests(take_digests(frame.rows.digests, asked)):
                self._early.pop(digest, None)
        frame.early = int(np.count_nonzero(early))
        if frame.early:
            rows = asked[early]
            digests = split_digests(take_digests(frame.rows.digests, rows))
            self._early.update(zip(digests, frame.rows.times[rows].tolist(), strict=True))

    def _drop(self, frame: _Frame, asked: RowIndexes, codes: U8, answers: Verdicts) -> None:
        """Drops rows with final answers other than COMMITTED, whose records are not written. (With DONE, the record
        was written and cleared before.)
        """
        dropped = (codes != _COMMITTED) & (codes != _UNKNOWN)
        if not dropped.any():
            return
        rows, codes = asked[dropped], codes[dropped]
        outcomes = np.where(codes == _DONE, frame.rows.kinds[rows], _OUTCOME_OF[codes])
        frame.verdicts.outcomes[rows] = outcomes
        taken = codes == _TAKEN
        if taken.any():
            frame.verdicts = frame.verdicts.put([(rows[taken], _owners(answers, np.flatnonzero(dropped)[taken]))])

    def _keep_unknown(self, frame: _Frame, unknown: RowIndexes, now: float) -> None:
        """Keeps unknown rows open under their tokens, to be requested again later."""
        closed = len(frame.open) - len(unknown)
        self.open_rows -= closed
        if not frame.asked_before:  # the caller can be answered once the rest is requested again
            frame.deadline = min(frame.deadline, now + self._limits.answer_after_s)
        if frame.asked_before and closed:
            before = take_digests(frame.rows.digests, frame.open)
            self._outstanding.difference_update(split_digests(before))
        frame.open = unknown
        if len(unknown):
            self._outstanding.update(split_digests(take_digests(frame.rows.digests, unknown)))
            frame.asked_before = True
            frame.tries += 1
            frame.retry_at = now + self._limits.retry.delay(frame.tries)

    def _reply(self, frame: _Frame) -> list[Instruction]:
        if frame.replied:
            return []
        frame.replied = True
        verdicts = frame.verdicts
        if len(frame.open):  # this caller does not wait for their fate
            verdicts = verdicts.take(np.arange(len(verdicts)))
        return [Reply(frame.number, verdicts, verdicts.owner_tags == frame.rows.tags)]

    def _settle(self, frame: _Frame) -> list[Instruction]:
        """Closes a frame without open rows. It leaves the log once its last write is durable."""
        del self._open[frame.number]
        self.open_bytes -= frame.bytes
        frame.rows = _NO_ROWS  # the lines are written or dropped, so release them before the sync
        if frame.last_write <= self._synced:
            return self._release((frame.number,))
        self._settled.append(frame)
        return []

    def _release(self, frames: tuple[int, ...]) -> list[Instruction]:
        if self._past:
            self._past.difference_update(frames)
            return [Release(frames), *self._all_redone()]
        return [Release(frames)]

    def _all_redone(self) -> list[Instruction]:
        """Returns Redone once no frame holds anything of an earlier incarnation (rule 13)."""
        if self._past is None or self._past:
            return []
        self._past = None
        return [Redone(self._incarnation - 1)]

    # -- looking on -------------------------------------------------------------------------------------------
    def open_records(self) -> list[OpenRecord]:
        return [
            OpenRecord(frame.rows.lines[row], int(frame.rows.kinds[row]), int(frame.rows.tokens[row]), frame.synced)
            for frame in self._open.values()
            for row in frame.open.tolist()
        ]

    # -- carry-over ------------------------------------------------------------------------------------------
    def _carry_over(self) -> list[Instruction]:
        """Moves open rows of frames far behind the head into one new frame, under their own tokens (rule 4)."""
        oldest = self._head - self._limits.carry_over_behind_bytes
        crowded = len(self._open) > self._limits.open_frames_max
        sources: list[_Frame] = []
        count = 0
        for frame in self._open.values():
            behind = frame.place < oldest
            if count >= CARRY_ROWS_MAX or not (behind or crowded):
                break
            if not behind and len(frame.open) > SMALL_ROWS:
                continue  # or the same rows would be logged repeatedly
            if self._waits(frame) and frame.asked_before:
                sources.append(frame)
                count += len(frame.open)
        if not sources or (len(sources) == 1 and sources[0].place >= oldest):
            return []
        out: list[Instruction] = []
        for frame in sources:
            out += self._reply(frame)
        rows = concat([frame.rows.take(frame.open) for frame in sources])
        number, appended = self.submit(rows, deadline=0.0)
        carrier = self._open[number]
        carrier.replied = carrier.asked_before = True
        carrier.tries = max(frame.tries for frame in sources)
        carrier.carries = tuple(frame.number for frame in sources)
        if self._past and not self._past.isdisjoint(carrier.carries):
            self._past.add(number)
        for frame in sources:
            frame.carried_by = number
        return out + appended

    def _hand_over(self, source: _Frame) -> list[Instruction]:
        """Removes the open rows from a frame, once the frame that carries them over is durable."""
        self.open_rows -= len(source.open)
        source.open = source.open[:0]
        return self._settle(source)


def _must_stop(codes: U8, expected: int) -> str:
    """Returns why the process must end after these answers; empty if it need not."""
    if len(codes) != expected:
        return f"the registry answered {len(codes)} of {expected} ids: its version is incompatible with this joiner's"
    for code in np.flatnonzero(np.bincount(codes)).tolist():
        if code in _FATAL:
            return _FATAL[Answer(code)]
        if code not in _FINAL_OF_INSERT:
            return f"the registry answered {code} to an insert: its version is incompatible with this joiner's"
    return ""


def _owners(answers: Verdicts, taken: RowIndexes) -> Verdicts:
    owners = answers.take(taken)
    outcomes = np.full(len(taken), Outcome.TAKEN, np.uint8)
    return replace(owners, outcomes=outcomes, owner_kinds=_KIND_OF[owners.owner_kinds])


def _chunks(rows: Rows, won: RowIndexes) -> tuple[tuple[Kind, bytes], ...]:
    lines = rows.lines
    kinds = rows.logs(won)
    first = int(kinds[0])
    if (kinds == first).all():
        chosen = lines if len(won) == len(lines) else [lines[i] for i in won.tolist()]
        return ((Kind(first), b"".join(chosen)),)
    return tuple(
        (Kind(kind), b"".join([lines[i] for i in won[kinds == kind].tolist()])) for kind in np.unique(kinds).tolist()
    )

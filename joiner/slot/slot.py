"""One slot on disk: executes the core's instructions on redo log and output, and reads both at a start.

Directories: ``state`` holds lock, slot.json, durable.json, manifest, redo/ and the verifier's own files; ``output``
holds joined/, filtered/, unmatched/ and rejected/, and may be shared by several slots.

Call ``log`` and ``release`` on one thread, ``write``, ``sync_output`` and ``forget`` on a second, and ``finish`` on a
third; call ``recover`` before all of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from photon.config.disk import Disk
from photon.idregistry.api import Kind, incarnation_of
from photon.idregistry.witness import Witness, Witnessed
from photon.joiner.copies.api import CopyOf, Keeper
from photon.joiner.copies.shipping import LocalOutput
from photon.joiner.copies.taking import Lacking, lacking, take
from photon.joiner.rows import Rows, concat
from photon.joiner.slot import recovery
from photon.joiner.slot.finals import Finals, ready
from photon.joiner.slot.identity import OutOfStep, SlotState
from photon.joiner.slot.output import OutputLimits, SlotLog
from photon.joiner.slot.place import KINDS, Place, decode_place, encode_place, oldest, place_of
from photon.joiner.slot.redo_log import SEGMENT_BYTES, Lost, RedoFrame, RedoLog, salvage, segments_in, set_aside
from photon.outputs.cleared import read_clearing
from photon.outputs.log.format import Redone
from photon.outputs.published import read_damaged

REDONE_NAME = "redone.json"


def write_redone(disk: Disk, state: Path, slot: str, upto: int, lengths: dict[str, int]) -> None:
    """Durably replaces ``redone.json`` in the slot's state. ``lengths``: the files' durable lengths."""
    disk.replace(state / REDONE_NAME, msgspec.json.encode(Redone(slot, upto, lengths)))


STATE_NAME = "slot.json"
REDO_NAME = "redo"
REDONE_ROWS_MAX = 4096
REDONE_BYTES_MAX = 8 << 20  # rows of the log's frames, and bytes of their lines, that a start merges into one frame


@dataclass(frozen=True, slots=True)
class SlotPaths:
    """A slot's directories, on one local disk."""

    state: Path
    output: Path


@dataclass(frozen=True, slots=True)
class Recovered:
    """The result of recovery. ``kept``: rows that the log has and the output lacks, by frame."""

    kept: list[tuple[int, Rows]]
    incarnations: tuple[int, ...]  # of the kept rows' tokens
    found: recovery.Found
    logged: int  # number of rows in the log
    lost: tuple[Lost, ...] = ()  # unreadable parts of the log, accepted as lost; the segments are set aside


class _Log(NamedTuple):
    """The redo log as read at a start."""

    frames: list[RedoFrame]
    rows: list[Rows]  # of each frame
    lines: recovery.Logged  # all of them
    lost: list[Lost]
    whole: bool  # read to its last byte, without any damage


@dataclass(frozen=True, slots=True)
class Ages:
    """Information for comparing ages at a start (rule 6)."""

    # On an operator's order: unreadable or missing parts of the log are left to recovery by token (rule 13).
    accept_damaged_log: bool = False
    # The registry belongs to this slot alone, and is never restored from a backup, so it has witnessed all shown
    # output.
    own_registry: bool = False
    # Durable end of the redo log (segment, bytes) when its dispatcher last counted a verdict, if reported.
    reached: tuple[int, int] | None = None


AGES = Ages()


@dataclass(eq=False)
class SlotStore:
    """A slot's state and output on disk. After any OSError the process must end (rule 7)."""

    disk: Disk
    paths: SlotPaths
    slot: str
    _: KW_ONLY
    output_limits: OutputLimits = field(default_factory=OutputLimits)
    segment_bytes: int = SEGMENT_BYTES

    def __post_init__(self) -> None:
        disk, paths = self.disk, self.paths
        self._redo = RedoLog(disk, paths.state / REDO_NAME, segment_bytes=self.segment_bytes)
        self._files = SlotLog(disk, paths.output, paths.state, self.slot, self.output_limits)
        self._files.log_end = lambda: self._redo.end or self._files.log
        self._finals = Finals(self._files, compress=self.output_limits.compress)
        self._files.final = self._finals.length_of
        self._log_read: _Log | None = None
        self._beyond: set[bytes] = set()  # logged lines that ``check_age`` found above the durable length
        # The output is copied: ``local_files`` is kept up to date, and files that the copy lacks are not made final.
        self.ships = False
        # For each of KINDS: (file number, durable length) in order, including final files; may be read from any
        # thread.
        self.local_files: tuple[tuple[tuple[int, int], ...], ...] = ()
        self.taken: list[str] = []  # files that the start took from the copy
        self._final_files: list[dict[int, int]] = [{} for _ in KINDS]

    @property
    def redo_end(self) -> tuple[int, int] | None:
        """The redo log's newest segment, and its durable length in bytes. Any thread may read it."""
        return self._redo.end

    @property
    def redo_bytes(self) -> int:
        return self._redo.size

    # -- start -----------------------------------------------------------------------------------------------
    def check_witness(self, witness: Witness) -> None:
        """Raises SlotRefused if the output lacks anything in the witness (rule 6). Call it before ``recover``.

        From then on nothing beyond the witness is published. An empty witness means that the slot has none yet.
        """
        self._finals.load()
        recovery.check_witness(self._files, self._finals, witness)
        self._files.witness = witness or None

    def check_age(self, state: SlotState, known: Witnessed, copied: Witness = (), ages: Ages = AGES) -> None:
        """Raises OutOfStep if state, output and other knowledge are not of the same age, RedoLogDamaged if the log is
        damaged (rule 6).

        Call before anything is changed. ``state``, ``known``: the slot according to the directory and the registry;
        ``copied``: the content of the output's copy.
        """
        # an unfinished opening may have made the newest
        if state.last and not state.nonce and state.last < known.newest:
            raise OutOfStep(
                f"{self.paths.state}: is an older copy of slot {self.slot}: its incarnation is {state.last}, but "
                f"the registry's is {known.newest}"
            )
        self._finals.load()
        self._files.load()
        if not state.last:
            recovery.check_never_opened(self._files)
        accept_damaged_log = ages.accept_damaged_log
        if ages.reached is not None and (why := self._redo.lacking(ages.reached)) and not accept_damaged_log:
            raise OutOfStep(
                f"{self.paths.state}: the dispatcher has counted events that this state of slot {self.slot} never "
                f"had ({why} of its redo log): it was lost, or is an older copy than the dispatcher's"
            )
        if ages.own_registry:
            recovery.check_registry(self._files, self._finals, known.witness)
        self._log_read = self._read_log(accept_damaged_log)
        logged = None if accept_damaged_log else self._log_read.lines
        self._beyond = recovery.check_age(self._files, self._finals, logged, copied)

    def standing(self) -> list[Rows]:
        """Returns the logged rows whose lines are in the output above the durable length, or will be once a torn line
        is completed.

        Call it after ``check_age``. No digest occurs twice in one ``Rows``.
        """
        assert self._log_read is not None, "check_age comes first"
        found = []
        for rows in self._log_read.rows if self._beyond else ():
            index = [row for row, line in enumerate(rows.lines) if not self._beyond.isdisjoint(_records_of(line))]
            found += [rows.take(np.array(index, dtype=np.intp))] if index else []
        return _together(found)

    def lacks(self, ends: Witness) -> Lacking:
        """Returns the logs in which the output lacks bytes of its copy. Raises SlotRefused, OSError."""
        self._finals.load()
        return lacking(self._files, self._finals, ends)

    async def take(
        self,
        wanted: Lacking,
        keeper: Keeper,
        of: CopyOf,
        pause: Callable[[float], Awaitable[None]],
        *,
        replaces: bool,
    ) -> list[str] | None:
        """Fetches output from the copy before ``recover``, like ``taking.take``. Raises SlotRefused, OSError."""
        taken = await take(self._files, wanted, keeper, of, pause, replaces=replaces)
        self.taken = taken or []
        return taken

    def copied_output(self) -> LocalOutput:
        return LocalOutput(
            self.disk,
            self.paths.output,
            lambda at, number: self._files.name(self._files.kinds[at], number),
            lambda: read_damaged(self.disk, self.paths.state),
        )

    @property
    def shown(self) -> Witness:
        """The published output. Any thread may read it."""
        return self._files.witness or ()

    @property
    def unpublished_bytes(self) -> int:
        """Returns the number of durable bytes not published yet. Call it on the output's thread, or after its end."""
        return self._files.unpublished_bytes

    @property
    def held(self) -> Witness:
        return self._files.held or ()

    def hold(self, held: Witness) -> None:
        """Notes the copy's content: readers may see more than that, but no more may be cleared. Call it on the
        output's thread.
        """
        self._files.hold(held)

    def show(self, witness: Witness) -> None:
        """Publishes the output up to the witness to readers and verifier. Call it on the output's thread."""
        self._files.witness = witness
        self._files.show()

    @property
    def witness(self) -> Witness:
        return self._files.durable

    def recover(self, *, accept_damaged_log: bool = False) -> Recovered:
        """Reads the log, repairs the output, and begins a new log with the missing rows (rules 5 and 7).

        ``accept_damaged_log``: an operator accepts damage; unreadable parts are left to recovery by token (rule 13).
        """
        self.disk.make_dir(self.paths.state / REDO_NAME)
        if self.ships:
            self._files.held = ()  # unknown until the keeper's next answer
        self._files.prepare()
        self._finals.load()
        self._finals.settle()
        self._files.close_older()
        frames, rows, logged, lost, whole = self._log_read or self._read_log(accept_damaged_log)
        self._log_read, self._beyond = None, set()
        for path in dict.fromkeys(each.path for each in lost):
            set_aside(self.disk, path)  # before the new log voids the old one
        place = oldest(decode_place(frame.note) for frame in frames) if frames else None
        found = recovery.repair_output(self._files, place, logged, log_is_whole=whole)
        starts = recovery.next_numbers(self._files, self._finals.highest(), place)
        self._files.begin(starts)
        self._final_files = [self._finals.kept(kind) if self.ships else {} for kind in self._files.kinds]
        self._look_at_files()
        kept = list(enumerate(_together(_missing(rows, found.lines))))
        note = encode_place(self._files.place)
        # Everything in the output is durable and published by now: only then may the log forget it.
        frames_kept = [(number, RedoFrame(note, each.tokens, each.encode())) for number, each in kept]
        self._redo.begin(frames_kept, after=self._files.log[0] if self._files.log else 0)
        # from now on the log of an earlier start is recognised without other information
        self._files.show()
        return Recovered(kept, incarnations_in([rows for _, rows in kept]), found, sum(map(len, rows)), tuple(lost))

    def _read_log(self, accept_damaged: bool) -> _Log:
        frames, lost = self._frames(accept_damaged)
        rows = [Rows.decode(frame.tokens, b"".join(frame.body)) for frame in frames]
        lines = {record: line[:-1] for each in rows for line in each.lines for record in _records_of(line)}
        return _Log(frames, rows, lines, lost, self._redo.whole and not accept_damaged)

    def _frames(self, accept_damaged: bool) -> tuple[list[RedoFrame], list[Lost]]:
        directory = self.paths.state / REDO_NAME
        if accept_damaged and self._files.log is not None and self._redo.lacking(self._files.log):
            # An older log: the frames that have left it since may have been given up meanwhile, and must not be
            # redone.
            return [], [Lost(path, 0, self.disk.size(path)) for _, path in segments_in(self.disk, directory)]
        if accept_damaged:
            return salvage(self.disk, directory)
        if self._files.log is not None:
            self._redo.check_reaches(self._files.log)
        return self._redo.read(), []

    # -- redo log --------------------------------------------------------------------------------------------
    def log(self, frames: Sequence[tuple[int, Rows]]) -> None:
        """Appends frames with one write, and makes them durable with one sync."""
        note = encode_place(self._files.place)
        self._redo.append([(number, RedoFrame(note, rows.tokens, rows.encode())) for number, rows in frames])
        self._redo.sync()

    def release(self, frames: Sequence[int]) -> None:
        self._redo.release(frames)

    # -- output ----------------------------------------------------------------------------------------------
    def write(self, chunks: Sequence[tuple[Kind, bytes]], now: float) -> None:
        """Appends whole lines to the output logs, not yet durable."""
        self._files.write(chunks, now)

    def sync_output(self, now: float) -> None:
        """Syncs all output files and their directory entries, publishes their lengths, and rolls due files."""
        self._files.publish(now=now)
        self._look_at_files()

    def _look_at_files(self) -> None:
        """Updates the list of durable files, from which output is shipped."""
        if self.ships:
            found = [dict(each) for each in self._final_files]
            for name, length in self._files.lengths.items():
                at, number = place_of(name)
                found[at][number] = length
            self.local_files = tuple(tuple(sorted(each.items())) for each in found)

    def publish_redone(self, upto: int) -> None:
        """Publishes that incarnations up to ``upto`` have nothing left in the log, and the output's durable lengths
        now (rule 13).
        """
        write_redone(self.disk, self.paths.state, self.slot, upto, self._files.lengths)

    def roll_output(self) -> None:
        """Closes the output files, so that they can become final."""
        self._files.publish(now=None)
        self._look_at_files()

    # -- final files -----------------------------------------------------------------------------------------
    def cleared(self) -> list[str]:
        """Returns rolled files that are fully cleared and completely in the copy: no redo needs them."""
        found = ready(self._files, read_clearing(self.disk, self.paths.state))
        if found:  # a damaged file stays unchanged, as a final one would differ from its published length
            damaged = {each.file for each in read_damaged(self.disk, self.paths.state)}
            found = [name for name in found if name not in damaged]
        return [name for name in found if not self.ships or self._is_held(name)]

    def _is_held(self, name: str) -> bool:
        at, number = place_of(name)
        length = self._files.lengths.get(name, 0)
        return at < len(self.held) and (number, length) <= (self.held[at].number, self.held[at].length)

    def finish(self, name: str) -> None:
        """Lists a file of ``cleared`` in the manifest, compressed if requested. Call ``forget`` next."""
        self._finals.finish(name)

    def forget(self, names: Sequence[str]) -> None:
        """Stops publishing these files as growing ones, as they are final now."""
        for name in names:
            at, number = place_of(name)
            self._final_files[at][number] = self._files.lengths.get(name, 0)
        if names:
            self._files.forget(names)
            self._files.show()
            self._look_at_files()

    def place(self) -> Place:
        return self._files.place

    def close(self) -> None:
        """Closes the files. Output that is not synced is still in the redo log."""
        self._files.close()
        self._redo.close()


def incarnations_in(frames: Sequence[Rows]) -> tuple[int, ...]:
    """Returns the incarnations of the frames' tokens, oldest first."""
    return tuple(sorted({incarnation_of(int(token)) for rows in frames for token in np.unique(rows.tokens)}))


def _records_of(line: bytes) -> list[bytes]:
    """Returns the records that a row writes, without line ends: one, or one per pair of its event."""
    return line[:-1].split(b"\n")


def _missing(frames: Sequence[Rows], present: set[bytes]) -> list[Rows]:
    """Returns the rows whose records are not all in the output. Rows carried over are in two frames, but are returned
    once.
    """
    seen: set[tuple[int, bytes]] = set()
    kept = []
    for rows in frames:
        index = []
        for row, mark in enumerate(zip(rows.tokens.tolist(), rows.lines, strict=True)):
            if mark not in seen and not present.issuperset(_records_of(mark[1])):
                seen.add(mark)
                index.append(row)
        if index:
            kept.append(rows.take(np.array(index, dtype=np.intp)))
    return kept


def _together(frames: Sequence[Rows]) -> list[Rows]:
    """Merges rows, in order, into as few frames as possible. At a low rate each event has its own frame, and each
    frame is a request: after an hour, a start would send tens of thousands of requests that delay each other until
    all time out. No digest is twice in a frame, since the ids of a registry request must differ.
    """
    merged: list[Rows] = []
    parts: list[Rows] = []
    seen: set[bytes] = set()
    filled = 0
    for rows in frames:
        digests, size = rows.digest_list(), sum(map(len, rows.lines))
        if parts and (
            len(seen) + len(digests) > REDONE_ROWS_MAX
            or filled + size > REDONE_BYTES_MAX
            or not seen.isdisjoint(digests)
        ):
            merged.append(concat(parts))
            parts, seen, filled = [], set(), 0
        parts.append(rows)
        seen.update(digests)
        filled += size
    if parts:
        merged.append(concat(parts))
    return merged

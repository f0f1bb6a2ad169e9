"""The driver with one of its protections removed: under each the simulator must find a violation.

This shows that the suite can detect faults. The table is in ``docs/idregistry.md``.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pytest

from photon.idregistry.raft import driver, entry_log, journal, rules, segment_file, snapshot
from photon.idregistry.raft.codec import Append, AppendAck, Chunk, ChunkAck, Vote
from photon.idregistry.raft.driver import Core
from photon.idregistry.raft.group import RaftGroup, StepResult
from photon.idregistry.raft.identity import Identity
from photon.idregistry.raft.journal import Journal
from photon.idregistry.raft.options import DiskFull, RaftOptions, RaftStopped
from photon.idregistry.raft.replication import Out
from photon.idregistry.raft.snapshot import SnapshotInfo, SnapshotStore
from photon.idregistry.raft.snapshot_install import Installer
from tests.simulation.raft import stories
from tests.simulation.world import faults
from tests.simulation.world.faults import Fault
from tests.simulation.world.raft import draw_options

Patch = Callable[[pytest.MonkeyPatch], None]

LOST = r"is lost|another replica|histories of|acknowledged as|applied a?n? ?entry|applied twice"
STOPPED = r"refuses to go on though its disk was not harmed"
ANY = f"{LOST}|{STOPPED}|restores entry"
STUCK = r"do not converge|nothing is acknowledged|never had an outcome"
NETWORK: Sequence[Fault] = (faults.weather, faults.partition, faults.pause)
POWER: Sequence[Fault] = (faults.crash, faults.crash_soon, faults.power_cut_all)


@dataclass(frozen=True)
class Ablation:
    """``seeds``: schedules within which the violation must show."""

    patch: Patch
    finds: str
    kinds: Sequence[Fault]
    seeds: int = 200
    replicas: int = 3
    lies_about: str | None = None
    options: Callable[[Random], RaftOptions] = draw_options


def _contested(random: Random) -> RaftOptions:
    """Followers stand almost at once, so that several stand in one term."""
    return replace(draw_options(random), election_max=0.41, leader_patience=0.5, in_flight=8)


def _nothing_in_memory(random: Random) -> RaftOptions:
    return replace(draw_options(random), log_bytes=1 << 20, log_memory=0)


def _short_logs(random: Random) -> RaftOptions:
    """A briefly absent replica needs a snapshot."""
    return replace(draw_options(random), log_bytes=300, log_margin=0)


def _nothing(_: pytest.MonkeyPatch) -> None:
    """The disk lies instead."""


# --- durability ---------------------------------------------------------------------------------------------------
def _messages_before_the_sync(monkeypatch: pytest.MonkeyPatch) -> None:
    """A step's messages and outcomes leave before its sync, which comes with the next step."""
    step = RaftGroup.step
    sync = Journal.sync

    def late(self: RaftGroup, messages: Any) -> StepResult:
        sync(self._journal)
        self._journal.sync = lambda: None  # type: ignore[method-assign]
        try:
            return step(self, messages)
        finally:
            del self._journal.sync  # type: ignore[method-assign]

    monkeypatch.setattr(RaftGroup, "step", late)


def _vote_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    term_record = journal.term_record
    monkeypatch.setattr(journal, "term_record", lambda term, vote: term_record(term, None))


def _term_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in versions of the library that did not store the term: only the term of the last entry remains."""
    monkeypatch.setattr(Journal, "getCurrentTerm", lambda self: 0)
    monkeypatch.setattr(Journal, "getVotedForNodeId", lambda self: None)


def _failed_sync_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    sync = Journal.sync

    def careless(self: Journal) -> None:
        try:
            sync(self)
        except OSError:
            self._synced = self._whole
            self._pending.clear()

    monkeypatch.setattr(Journal, "sync", careless)


def _start_appends_to_the_old_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Data that a killed process wrote without syncing is believed, and never rewritten."""
    init = Journal.__init__

    def trusting(self: Journal, directory: Any, disk: Any, memory: int) -> None:
        init(self, directory, disk, memory)
        if self._segment:
            path = self._path(self._segment)
            data = disk.read(path)
            whole, number = segment_file.HEADER_BYTES, 0
            while (parsed := segment_file.parse(data, whole, self._segment)) is not None:
                whole += segment_file.FRAME.size + len(parsed[2])
                number += 1
            if whole < len(data):
                disk.truncate(path, whole)
            self._file = disk.append(path)
            self._whole = self._synced = whole
            self._number, self._rewrite = number, False

    monkeypatch.setattr(Journal, "__init__", trusting)


def _half_written_frame_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    """The part of a frame left by a full disk is not cut off before the next frame."""
    append = Journal._append

    def messy(self: Journal, payload: bytes) -> None:
        if self._file is None:
            path = self._path(self._segment)
            self._file = self._disk.append(path)
            self._whole = self._disk.size(path)
        append(self, payload)

    monkeypatch.setattr(Journal, "_append", messy)


def _full_disk_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica whose disk is full continues as if it had written."""

    def careless(self: RaftGroup) -> bool:
        with suppress(DiskFull):
            self._journal.sync()
        return True

    monkeypatch.setattr(RaftGroup, "_sync", careless)


# --- damage -------------------------------------------------------------------------------------------------------
def _no_crc(module: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Blind:
        crc32 = staticmethod(lambda data, value=0: 0)

    assert module.zlib is zlib
    monkeypatch.setattr(module, "zlib", Blind)


def _no_proof(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last frame is not followed by one that proves it durable."""
    append = Journal._append
    monkeypatch.setattr(Journal, "_append", lambda self, payload: append(self, payload) if payload else None)


def _damage_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any bad frame is taken for a torn one."""
    frames = journal.frames

    def lenient(data: bytes) -> Iterator[tuple[int, bytes]]:
        with suppress(segment_file.Damaged):
            yield from frames(data)

    monkeypatch.setattr(journal, "frames", lenient)


def _rotten_snapshot_stops_who_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    step = Installer.step

    def strict(self: Installer) -> Out:
        answers = step(self)
        if any(isinstance(answer, ChunkAck) and answer.damaged for _, answer in answers):
            raise RaftStopped("the received snapshot is damaged")
        return answers

    monkeypatch.setattr(Installer, "step", strict)


def _rotten_snapshot_not_mended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RaftGroup, "_mend_snapshot", lambda self, now: None)


# --- snapshots ----------------------------------------------------------------------------------------------------
def _snapshot_written_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    init = SnapshotStore.__init__

    def in_place(self: SnapshotStore, directory: Any, disk: Any) -> None:
        init(self, directory, disk)
        self._writing_path = self._path

    def put(self: SnapshotStore, file: Any, path: Any, index: int, term: int) -> SnapshotInfo:
        if path != self._path:
            return original(self, file, path, index, term)
        self.info = SnapshotInfo(index, term, file.size)
        file.close()
        return self.info

    original = SnapshotStore._put
    monkeypatch.setattr(SnapshotStore, "__init__", in_place)
    monkeypatch.setattr(SnapshotStore, "_put", put)


def _name_not_synced(monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is cut before the snapshot's name is durable."""

    def put(self: SnapshotStore, file: Any, path: Any, index: int, term: int) -> SnapshotInfo:
        size = file.size
        file.close()
        self._disk.rename(path, self._path)
        self.info = SnapshotInfo(index, term, size)
        return self.info

    monkeypatch.setattr(SnapshotStore, "_put", put)

    def in_place(
        self: Journal, segment: int, frames: int, size: int
    ) -> None:  # its sync of the directory would cover for it
        sync_dir, self._disk.sync_dir = self._disk.sync_dir, lambda directory: None  # type: ignore[method-assign]
        try:
            original(self, segment, frames, size)
        finally:
            self._disk.sync_dir = sync_dir  # type: ignore[method-assign]

    original = Journal._put_in_place
    monkeypatch.setattr(Journal, "_put_in_place", in_place)


def _align_clears(monkeypatch: pytest.MonkeyPatch) -> None:
    """A log that does not begin exactly at the snapshot is discarded, as the library does."""

    def clear(self: Journal, index: int, term: int) -> None:
        if self.first == index and self.term_at(index) == term:
            return
        self.clear()
        self.add(group_no_op, index, term)

    group_no_op = journal.NO_OP
    monkeypatch.setattr(Journal, "align", clear)


def _pieces_of_any_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Snapshot pieces of an old leader are accepted, and its commit index counts."""

    def take(self: RaftGroup, peer: str, chunk: Chunk, now: float) -> None:
        last = self._journal.last
        self._core.appended(
            peer,
            max(chunk.term, self._core.term()),
            rules.Accepted(last, self._journal.term_at(last), (), last, min(chunk.index, last)),
        )
        original(self, peer, chunk, now)

    original = RaftGroup._receive_chunk
    monkeypatch.setattr(RaftGroup, "_receive_chunk", take)


# --- messages -----------------------------------------------------------------------------------------------------
def _no_normalisation(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library's own rule: everything after prev_index is cut, and committed up to the leader's index."""

    def naive(message: Append, log: rules.LogView) -> rules.Accepted | rules.Rejected:
        if not log.first <= message.prev_index <= log.last or log.term_at(message.prev_index) != message.prev_term:
            return rules.Rejected(log.commit + 1)
        end = message.prev_index + len(message.entries)
        return rules.Accepted(message.prev_index, message.prev_term, message.entries, end, message.commit)

    monkeypatch.setattr(rules, "receive_append", naive)


def _commit_not_capped(monkeypatch: pytest.MonkeyPatch) -> None:
    original = rules.receive_append

    def eager(message: Append, log: rules.LogView) -> rules.Accepted | rules.Rejected:
        verdict = original(message, log)
        if isinstance(verdict, rules.Rejected):
            return verdict
        return rules.Accepted(
            verdict.prev_index,
            verdict.prev_term,
            verdict.entries,
            verdict.matched,
            max(verdict.commit, message.commit),
        )

    monkeypatch.setattr(rules, "receive_append", eager)


def _acknowledges_all_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    """Like the library's answer to a snapshot: the log's end, though only a part was compared."""
    monkeypatch.setattr(driver, "ENTRIES_MAX", 1)
    original = rules.receive_append

    def proud(message: Append, log: rules.LogView) -> rules.Accepted | rules.Rejected:
        verdict = original(message, log)
        if isinstance(verdict, rules.Rejected) or verdict.entries:
            return verdict
        return rules.Accepted(verdict.prev_index, verdict.prev_term, (), log.last, verdict.commit)

    monkeypatch.setattr(rules, "receive_append", proud)


def _acks_without_term(monkeypatch: pytest.MonkeyPatch) -> None:
    receive = RaftGroup._receive

    def any_term(self: RaftGroup, peer: str, message: Any, now: float) -> None:
        if isinstance(message, AppendAck):
            message = AppendAck(self._core.term(), message.next_index, message.accepted)
        receive(self, peer, message, now)

    monkeypatch.setattr(RaftGroup, "_receive", any_term)


def _appends_of_any_term(monkeypatch: pytest.MonkeyPatch) -> None:
    def obeys(self: RaftGroup, peer: str, term: int) -> bool:
        return not self._core.leads() or term > self._core.term()

    receive = RaftGroup._receive_append

    def any_term(self: RaftGroup, peer: str, message: Append, now: float) -> None:
        term = max(message.term, self._core.term())
        receive(self, peer, Append(term, message.commit, message.prev_index, message.prev_term, message.entries), now)

    monkeypatch.setattr(RaftGroup, "_obeys", obeys)
    monkeypatch.setattr(RaftGroup, "_receive_append", any_term)


def _rejection_names_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library's answer: where its log ends, or what it was asked for; a diverged follower is never repaired."""
    original = rules.receive_append

    def stubborn(message: Append, log: rules.LogView) -> rules.Accepted | rules.Rejected:
        verdict = original(message, log)
        return rules.Rejected(log.last + 1) if isinstance(verdict, rules.Rejected) else verdict

    monkeypatch.setattr(rules, "receive_append", stubborn)


# --- votes and identity -------------------------------------------------------------------------------------------
def _doubled_votes_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules.Ballot, "count", lambda self, voter, term: True)


def _votes_of_any_term(monkeypatch: pytest.MonkeyPatch) -> None:
    receive = RaftGroup._receive

    def any_term(self: RaftGroup, peer: str, message: Any, now: float) -> None:
        if isinstance(message, Vote):
            message = Vote(self._core.term())
        receive(self, peer, message, now)

    monkeypatch.setattr(RaftGroup, "_receive", any_term)


def _any_disk_is_welcome(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Identity, "check", lambda self, hello: None)


# --- outcomes -----------------------------------------------------------------------------------------------------
def _no_deadlines(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in the library: an outcome comes at any time, and never after a snapshot or a lost leadership."""
    monkeypatch.setattr(RaftGroup, "_expire", lambda self, now: None)
    monkeypatch.setattr(RaftGroup, "_settle", lambda self: None)


def _outcome_when_appended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Acknowledged once the leader has it on its own disk."""
    append = Core.append

    def eager(self: Core, command: bytes, callback: Any) -> None:
        append(self, command, lambda result, reason: None)
        callback(self._journal.last, 0)

    monkeypatch.setattr(Core, "append", eager)


ABLATIONS: dict[str, Ablation] = {
    "journal synced": Ablation(_nothing, ANY, POWER, lies_about="journal-"),
    "snapshot synced": Ablation(_nothing, ANY, POWER, lies_about="snapshot."),
    "messages wait for the sync": Ablation(_messages_before_the_sync, ANY, POWER, 600),
    "vote kept": Ablation(_vote_not_kept, ANY, [stories.forgotten_vote], replicas=5, options=_contested),
    "term kept": Ablation(_term_not_kept, ANY, [stories.forgotten_vote], replicas=5, options=_contested),
    "failed sync ends the process": Ablation(_failed_sync_ignored, ANY, (faults.failing_sync, faults.power_cut_all)),
    "start writes a new segment": Ablation(
        _start_appends_to_the_old_segment, ANY, (faults.failing_sync, *POWER), 600
    ),
    "what a full disk left is cut": Ablation(_half_written_frame_stays, ANY, (faults.full_disk, *POWER)),
    "still while the disk is full": Ablation(_full_disk_ignored, ANY, (faults.full_disk, *POWER), 600),
    "CRC of the journal": Ablation(lambda m: _no_crc(segment_file, m), ANY, (faults.bit_rot, faults.crash), 600),
    "entries read again are checked": Ablation(
        lambda m: _no_crc(entry_log, m), ANY, (faults.bit_rot, faults.partition), 600, options=_nothing_in_memory
    ),
    "CRC of the snapshot": Ablation(lambda m: _no_crc(snapshot, m), ANY, (faults.bit_rot, faults.crash), 600),
    "last frame proven durable": Ablation(_no_proof, ANY, [stories.rotten_tail]),
    "damage is not a torn write": Ablation(_damage_is_cut, ANY, [stories.rotten_tail]),
    "received snapshot is checked, not believed": Ablation(
        _rotten_snapshot_stops_who_gets_it, STOPPED, [stories.rotten_snapshot], options=_short_logs
    ),
    "rotten snapshot is written anew": Ablation(
        _rotten_snapshot_not_mended, STUCK, [stories.rotten_snapshot], options=_short_logs
    ),
    "snapshot replaced at once": Ablation(_snapshot_written_in_place, ANY, POWER),
    "snapshot's name synced before the cut": Ablation(_name_not_synced, ANY, POWER),
    "log aligned, not cleared": Ablation(_align_clears, ANY, POWER, 600),
    "pieces commit nothing": Ablation(_pieces_of_any_leader, ANY, NETWORK, 1000),
    "appends normalised": Ablation(_no_normalisation, ANY, (*NETWORK, faults.crash)),
    "commit capped at what was compared": Ablation(_commit_not_capped, ANY, (*NETWORK, faults.crash), 1000),
    "only what was compared is acknowledged": Ablation(
        _acknowledges_all_it_has, f"{ANY}|{STUCK}", (*NETWORK, faults.crash), 1000, options=_contested
    ),
    "acknowledgements carry the term": Ablation(
        _acks_without_term, ANY, [stories.acknowledgement_of_an_older_term], replicas=5, options=_contested
    ),
    "appends of the current term only": Ablation(_appends_of_any_term, ANY, NETWORK, 600),
    "rejection names commit + 1": Ablation(_rejection_names_its_end, STUCK, NETWORK, 600),
    "each voter counts once": Ablation(_doubled_votes_count, ANY, NETWORK, 1000, replicas=5, options=_contested),
    "votes of the current term only": Ablation(
        _votes_of_any_term, ANY, [stories.vote_of_an_older_term], replicas=5, options=_contested
    ),
    "a wiped disk is refused": Ablation(_any_disk_is_welcome, ANY, (faults.wiped_disk, faults.partition), 1000),
    "proposals have deadlines": Ablation(_no_deadlines, STUCK, NETWORK),
    "acknowledged when a majority has it": Ablation(_outcome_when_appended, ANY, NETWORK),
}

"""Sends a leader's messages to its followers: entries with flow control, heartbeats, snapshots piece by piece.

In a stream of entries, each entry goes at once only to the fastest followers that make a majority with the leader.
The others get all new entries once per heartbeat. So with three replicas a stream costs little more than half the
messages, syncs and turns. If a follower becomes slow, the next entry goes to another one in its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from photon.idregistry.raft import rules
from photon.idregistry.raft.codec import AppendAck, Chunk, ChunkAck, Message
from photon.idregistry.raft.driver import Core
from photon.idregistry.raft.journal import Journal
from photon.idregistry.raft.options import (
    APPENDS_IN_FLIGHT,
    TRANSFER_BYTES,
    RaftOptions,
    RaftStopped,
)
from photon.idregistry.raft.snapshot import SnapshotStore

STREAM = 2  # in heartbeats: entries that follow others within this time belong to a stream

_NEVER = float("inf")

Out = list[tuple[str, Message]]


@dataclass(slots=True)
class _Transfer:
    index: int
    offset: int = 0
    sent_at: float = -_NEVER


@dataclass(slots=True)
class _Sending:
    appends: int = 0
    commit: int = 0
    sent_at: float = -_NEVER  # when entries were last sent to it
    streams: bool = False  # the last entries came within a heartbeat of others: so will the next ones
    waits_for: tuple[int, float] | None = None  # an entry it has not acknowledged, and when the entry was sent
    takes: float = 0.0  # recent seconds from an entry to its acknowledgement
    rewound_at: float = -_NEVER
    transfer: _Transfer | None = None

    def answers_in(self, now: float) -> float:
        """Estimates the seconds from an entry to its acknowledgement; an unacknowledged entry's wait counts."""
        return max(self.takes, now - self.waits_for[1] if self.waits_for else 0.0)


class Sender:
    """Sends one group's messages from one replica; idle while the replica does not lead.

    Call all methods inside ``library_time``.
    """

    def __init__(
        self, core: Core, journal: Journal, store: SnapshotStore, peers: Sequence[str], options: RaftOptions
    ) -> None:
        self._core = core
        self._journal = journal
        self._store = store
        self._peers = peers
        self._options = options
        self._sending: dict[str, _Sending] = {}
        self._term = 0
        self._heartbeat_at = -_NEVER

    @property
    def transferring(self) -> bool:
        """True while a follower is receiving the snapshot."""
        return self._core.leads() and any(each.transfer is not None for each in self._sending.values())

    def acknowledged(self, peer: str, ack: AppendAck, now: float) -> None:
        """Handles a follower's acknowledgement of entries in the present term."""
        core = self._core
        last = self._journal.last
        progress = rules.receive_ack(ack, core.progress(peer), term=core.term(), last=last)
        core.progressed(peer, progress)
        if progress is None:
            return
        sending = self._to(peer)
        sending.appends = max(0, sending.appends - 1) if ack.accepted else 0
        if sending.waits_for is not None and progress.matched >= sending.waits_for[0]:
            sending.takes += (now - sending.waits_for[1] - sending.takes) / 8
            sending.waits_for = None
        if not self._journal.first < progress.next_index <= last:
            return
        if ack.accepted or now - sending.rewound_at >= self._options.heartbeat:
            core.sends_due = True
            if not ack.accepted:  # duplicate or late rejections must not start a storm; heartbeats repair the rest
                sending.rewound_at = now

    def chunk_acknowledged(self, peer: str, ack: ChunkAck) -> None:
        """Handles a follower's acknowledgement of a snapshot piece in the present term."""
        self._core.progressed(peer, None)
        transfer = self._to(peer).transfer
        if transfer is None or transfer.index != ack.index:
            return
        if ack.offset > transfer.offset:
            transfer.sent_at = -_NEVER
            self._core.sends_due = True
        transfer.offset = ack.offset  # going back waits for transfer_retry: late answers must not start a storm

    def send(self, now: float, out: Out) -> None:
        """Adds the messages that are due to ``out``."""
        core = self._core
        due, core.sends_due = core.sends_due, False
        if not due or not core.leads():
            return
        heartbeat = now >= self._heartbeat_at
        if heartbeat:
            self._heartbeat_at = now + 0.5 * self._options.heartbeat
        connected = [peer for peer in self._peers if core.connected(peer)]
        others = sorted(connected, key=lambda peer: self._to(peer).answers_in(now))[(len(self._peers) + 1) // 2 :]
        for peer in self._peers:
            sending = self._to(peer)
            if peer not in connected:
                sending.transfer = None
            elif not (peer in others and sending.streams and now - sending.sent_at < self._options.heartbeat):
                self._send_to(peer, now, sending, heartbeat, out)

    def _to(self, peer: str) -> _Sending:
        if self._term != self._core.term():
            self._term = self._core.term()
            self._sending = {each: _Sending() for each in self._peers}
        return self._sending[peer]

    def _send_to(self, peer: str, now: float, sending: _Sending, heartbeat: bool, out: Out) -> None:
        core = self._core
        if heartbeat:
            sending.appends = 0  # messages not acknowledged by now may be lost
        sent = False
        while sending.appends < APPENDS_IN_FLIGHT and core.progress(peer).next_index <= self._journal.last:
            append = core.next_append(peer, with_entries=True)
            if append is None:
                self._send_snapshot(peer, now, sending, heartbeat, out)
                return
            out.append((peer, append))
            sending.appends += 1
            sent = True
        sending.transfer = None
        if sent:
            sending.streams, sending.sent_at = now - sending.sent_at < STREAM * self._options.heartbeat, now
            sending.waits_for = sending.waits_for or (self._journal.last, now)
        # In a stream followers hear of a commit with the next entries or heartbeat: else half of all messages, and of
        # their answers, would be about commits.
        if sent or heartbeat or (sending.commit != core.committed() and not sending.streams):
            sending.commit = core.committed()
            append = None if sent else core.next_append(peer, with_entries=False)
            if append is not None:
                out.append((peer, append))

    def _send_snapshot(self, peer: str, now: float, sending: _Sending, heartbeat: bool, out: Out) -> None:
        info = self._store.info
        if info is None:
            raise RaftStopped(f"there is no snapshot to send to {peer}, but the log begins at {self._journal.first}")
        transfer = sending.transfer
        if transfer is None or transfer.index != info.index:
            transfer = sending.transfer = _Transfer(info.index)
        if now - transfer.sent_at >= self._options.transfer_retry:
            data = self._store.read(transfer.offset)
            chunk = Chunk(self._core.term(), info.index, info.term, transfer.offset, info.size, data)
            assert len(data) <= TRANSFER_BYTES
            out.append((peer, chunk))
            transfer.sent_at = now
        elif heartbeat:
            out.append((peer, self._core.ping_of()))

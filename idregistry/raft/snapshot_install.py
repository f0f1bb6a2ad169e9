"""Installs the leader's snapshot: checks and reads a few chunks per step, then puts the whole in place at once.

Meanwhile, the group acts as a follower that lacks entries; other groups of the process are not delayed.
"""

from __future__ import annotations

from collections.abc import Iterator

from photon.idregistry.raft.api import PatientMachine, Restoring, StateMachine
from photon.idregistry.raft.codec import AppendAck, Chunk, ChunkAck
from photon.idregistry.raft.driver import Core
from photon.idregistry.raft.journal import Journal
from photon.idregistry.raft.options import DiskFull, RaftStopped
from photon.idregistry.raft.replication import Out
from photon.idregistry.raft.snapshot import Key, SnapshotStore

CHUNKS_A_STEP = 4  # two megabytes, or some 65,000 ids: about 20 ms


class Installer:
    """Installs snapshots of one group. Raises RaftStopped and OSError; after either the replica must stop."""

    def __init__(self, store: SnapshotStore, journal: Journal, machine: StateMachine, core: Core) -> None:
        self._store = store
        self._journal = journal
        self._machine = machine
        self._core = core
        self._key: Key | None = None
        self._chunks: Iterator[bytes] = iter(())
        self._restoring: Restoring | None = None

    @property
    def busy(self) -> bool:
        return self._key is not None

    def receive(self, peer: str, chunk: Chunk) -> Out:
        """Stores a piece from the leader; returns the answer to send now."""
        committed = self._core.committed()
        if chunk.index <= committed:  # unneeded: entries committed here equal the leader's
            return [(peer, AppendAck(chunk.term, committed + 1, True))]
        try:
            offset = self._store.receive(peer, chunk)
        except DiskFull:
            return []  # the leader repeats it, and learns the offset once there is room
        if offset < chunk.total:
            return [(peer, ChunkAck(chunk.term, chunk.index, offset, damaged=False))]
        self._begin()
        return []

    def _begin(self) -> None:
        """Starts to read the completely received snapshot, unless it is already being read."""
        key = self._store.incoming
        if key is None or key == self._key:
            return
        self._key = key
        self._chunks = self._store.incoming_chunks()
        self._restoring = self._machine.restoring() if isinstance(self._machine, PatientMachine) else None

    def step(self) -> Out:
        """Continues reading; returns the answer once the snapshot is in place or known to be damaged."""
        key = self._key
        if key is None:
            return []
        if key != self._store.incoming or key.index <= self._core.committed():
            self._forget()  # another snapshot is arriving, or the log has caught up by itself
            return []
        try:
            for _ in range(CHUNKS_A_STEP):
                chunk = next(self._chunks, None)
                if chunk is None:
                    return [(key.sender, self._finish(key))]
                if self._restoring is not None:
                    self._restoring.take(chunk)
        except RaftStopped:  # the leader's file, ours or the network was corrupt; the one in place was not touched
            self._forget()
            self._store.give_up_incoming()
            return [(key.sender, ChunkAck(key.term, key.index, 0, damaged=True))]
        return []

    def _finish(self, key: Key) -> AppendAck:
        restoring = self._restoring
        info = self._store.put_incoming()
        self._journal.align(info.index, info.term)
        self._core.jump(info.index)
        if restoring is not None:
            restoring.finish()
        else:
            self._machine.restore(self._store.chunks())
        self._forget()
        return AppendAck(key.term, info.index + 1, True)

    def _forget(self) -> None:
        self._key, self._chunks, self._restoring = None, iter(()), None

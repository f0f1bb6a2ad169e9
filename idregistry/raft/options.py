"""Settings and limits of the Raft driver. Times are seconds, sizes are bytes."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from photon.config.errors import PhotonError

COMMAND_BYTES_MAX = 1 << 20  # a larger proposal is refused: an append message must fit gRPC's default limit of 4 MiB
# Largest message between replicas: no more entries are added once they reach COMMAND_BYTES_MAX.
MESSAGE_BYTES_MAX = 2 * COMMAND_BYTES_MAX + (64 << 10)
FRAME_BYTES_MAX = 3 << 20  # messages in one frame on the wire (a single message always fits)
FRAME_MESSAGES_MAX = 4096
ENTRIES_MAX = 1024  # entries in one append message
APPLIED_AT_ONCE = 64  # entries applied per step: some 20 ms for small ones, 200 ms for full ones
APPLIED_FEW = 8  # entries that a follower applies as one in a stream, if they have fewer than APPLIED_BYTES
APPLIED_BYTES = 64 << 10
ENTRY_COST = 4 << 10  # replaying even a small entry costs as much as this many bytes of large ones
APPENDS_IN_FLIGHT = 8  # append messages with entries that may be on their way to one peer
# Bytes of a snapshot written and synced per step, so that a dump never blocks the group for long.
SNAPSHOT_SLICE_BYTES = 1 << 20
SNAPSHOT_CHUNK_BYTES_MAX = 1 << 20  # largest chunk that StateMachine.snapshot may yield
TRANSFER_BYTES = 512 << 10  # bytes of a snapshot in one message to a follower
QUEUE_BYTES_MAX = 32 << 20  # waiting for one peer; beyond it the oldest messages are dropped (Raft tolerates loss)
INBOX_BYTES_MAX = 64 << 20  # received and not yet handled; beyond it the newest messages are dropped
LOG_MEMORY_BYTES = 4 << 20  # bytes of the newest commands of a group that stay in memory
GROUPS_MAX = 1024  # per replica; beyond it no group is added
PROPOSALS_MAX = 4096  # waiting in one group; beyond it a proposal is answered NotLeader, since it was not proposed


@dataclass(frozen=True, slots=True)
class RaftOptions:
    """Tuning of a replica; the defaults suit replicas up to some 100 ms apart."""

    # A follower that hears no leader for a random time between these two stands for election.
    election_min: float = 0.4
    election_max: float = 0.8
    # A replica that has just started asks for votes after a random time between these two. Replicas that hear a
    # leader refuse; if all have just started, there is no leader to wait for.
    first_min: float = 0.05
    first_max: float = 0.25
    heartbeat: float = 0.12  # must be below a third of election_min
    leader_patience: float = 1.6  # a leader that hears no majority for this time steps down
    peer_silence: float = 2.5  # a peer silent for this time counts as disconnected: it gets only pings
    ping: float = 1.0  # a peer to which nothing was sent for this time gets an empty frame
    disk_retry: float = 0.5  # interval of retries after a write failed on a full disk
    transfer_retry: float = 1.0  # an unanswered snapshot message is sent again after this time
    in_flight: int = 4  # entries of one group that are proposed and not yet committed
    # The log is compacted when it exceeds both this and log_ratio times the last snapshot; each entry since then
    # counts as its size plus ENTRY_COST.
    log_bytes: int = 16 << 20
    # Two bytes of a snapshot are written for each byte of the log, and a start reads half a snapshot more.
    log_ratio: float = 0.5
    # The newest commands of a group are kept in memory; older ones are read when a follower needs them.
    log_memory: int = LOG_MEMORY_BYTES
    # Bytes of applied entries kept through a compaction, so that a follower slightly behind needs no snapshot.
    log_margin: int = 1 << 20
    # Timers of all groups are rounded up to multiples of it, so that many idle groups wake together.
    timer_grid: float = 0.02
    # A group without activity for this time stops its heartbeats and timers until something happens.
    rest_after: float = 1.0
    epoch: int = 1  # the membership's epoch: messages of another epoch are refused

    def __post_init__(self) -> None:
        if not 0 < 3 * self.heartbeat < self.election_min < self.election_max:
            raise ValueError(
                f"raft: 3 x heartbeat ({self.heartbeat}) < election_min ({self.election_min}) "
                f"< election_max ({self.election_max}) must hold"
            )
        if not 0 < self.first_min < self.first_max <= self.election_max:
            raise ValueError("raft: 0 < first_min < first_max <= election_max must hold")
        if not self.heartbeat < self.leader_patience:
            raise ValueError("raft: leader_patience must be longer than heartbeat")
        if self.in_flight < 1 or self.log_bytes < 1 or self.log_margin < 0 or self.timer_grid <= 0:
            raise ValueError("raft: in_flight, log_bytes and timer_grid must be positive, log_margin not negative")


class RaftStopped(PhotonError):
    """The replica must stop: damaged files, a broken invariant. The message says where, and what to do."""


class DiskFull(PhotonError):
    """A write failed because the disk is full; the replica waits for room and stays silent meanwhile."""


@contextmanager
def no_space(path: Path) -> Iterator[None]:
    """Raises DiskFull for a full disk, which is temporary, unlike errors after which files cannot be trusted."""
    try:
        yield
    except OSError as e:
        if e.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise DiskFull(f"{path}: {e.strerror}; free some space") from e

"""The Raft driver's contract: it replicates commands, and hosts any state machine over bytes.

Nothing here knows of the IdRegistry; other replicated services will use it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable


class StateMachine(Protocol):
    """Deterministic: the same commands in the same order give the same state and results on each replica.

    All three methods are called on the driver's thread, never concurrently.
    """

    def apply(self, index: int, command: bytes) -> Any:
        """Applies a committed command. The result goes to the proposer on the replica that proposed it."""

    def snapshot(self) -> Iterable[bytes]:
        """The whole state as chunks of at most 1 MiB.

        They are drawn at once, unless they are ``Frozen``: a large state should be: nothing is committed meanwhile.
        """

    def restore(self, chunks: Iterable[bytes]) -> None: ...


class Restoring(Protocol):
    """A state that is being read from a snapshot, beside the present one."""

    def take(self, chunk: bytes) -> None:
        """The next chunk; some milliseconds."""

    def finish(self) -> None:
        """All chunks were taken: replaces the state, at once."""


@runtime_checkable
class PatientMachine(Protocol):
    """A state machine that can restore chunk by chunk, so that a large state holds nobody up."""

    def restoring(self) -> Restoring: ...


@runtime_checkable
class RunMachine(Protocol):
    """A state machine that applies many commands together faster than one after the other."""

    def apply_run(self, first: int, commands: Sequence[bytes]) -> None:
        """Applies committed commands whose results nobody here waits for; ``first`` is the first one's index.

        The state is the same as after ``apply`` of each: other replicas may apply the same ones singly.
        """


class Frozen(Iterator[bytes]):
    """Chunks of the state as of the call that gave them, though they are drawn later, while commands are applied."""

    def __init__(self, chunks: Iterable[bytes], lock: AbstractContextManager[object]) -> None:
        """``lock`` is held while a chunk is drawn, so that any thread may draw."""
        self._chunks = iter(chunks)
        self._lock = lock

    def __next__(self) -> bytes:
        with self._lock:
            return next(self._chunks)


@dataclass(frozen=True, slots=True)
class Applied:
    """Committed, and applied on this replica."""

    result: Any


@dataclass(frozen=True, slots=True)
class NotLeader:
    """Not proposed: this replica does not lead. ``leader`` is a replica's name, or None when unknown."""

    leader: str | None


@dataclass(frozen=True, slots=True)
class Unknown:
    """It may or may not have been committed, and may still be: deadline passed or leadership lost."""


ProposalOutcome = Applied | NotLeader | Unknown


@dataclass(frozen=True, slots=True)
class GroupState:
    leader: str | None
    is_leader: bool
    term: int
    applied: int
    committed: int
    healthy: bool  # False once the group stopped on an error (fail-stop)
    writable: bool = True
    """False while the disk is full: the replica reads from memory and takes no part; it goes on by itself."""
    current: bool = True
    """Where it leads: it has applied an entry of its term, and so all that was acknowledged before. One that has just
    started and been elected may have applied nothing yet."""


class Group(Protocol):
    def propose(self, command: bytes, *, timeout: float, done: Callable[[ProposalOutcome], None]) -> None:
        """Thread-safe. ``done`` is called exactly once, on the driver's thread (or at once when not leader)."""

    def state(self) -> GroupState:
        """Thread-safe."""

    def transfer(self, to: str | None) -> None:
        """Asks the leader to let another replica lead (None: the one that is furthest). Best effort. Thread-safe."""

    def hears(self, peer: str) -> bool:
        """Whether another replica was heard of late. Thread-safe."""

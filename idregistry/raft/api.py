"""The Raft driver's contract: it replicates commands, and hosts any state machine over bytes.

Nothing here depends on the IdRegistry, so that other replicated services can use it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable


class StateMachine(Protocol):
    """A deterministic state machine: the same commands in the same order give the same state and results on each
    replica.

    All three methods are called on the driver's thread, never concurrently.
    """

    def apply(self, index: int, command: bytes) -> Any:
        """Applies a committed command. The result goes to the proposer, on the proposing replica."""

    def snapshot(self) -> Iterable[bytes]:
        """The whole state as chunks of at most 1 MiB.

        Unless they are ``Frozen``, all chunks are drawn at once, and nothing is committed meanwhile; use ``Frozen``
        for a large state.
        """

    def restore(self, chunks: Iterable[bytes]) -> None: ...


class Restoring(Protocol):
    """Reads a state from a snapshot while the present one stays in use."""

    def take(self, chunk: bytes) -> None:
        """Reads the next chunk, within a few milliseconds."""

    def finish(self) -> None:
        """Replaces the state at once, after the last chunk."""


@runtime_checkable
class PatientMachine(Protocol):
    """A state machine that restores chunk by chunk, so that a large state causes no long pause."""

    def restoring(self) -> Restoring: ...


@runtime_checkable
class RunMachine(Protocol):
    """A state machine that can apply many commands together, faster than one by one."""

    def apply_run(self, first: int, commands: Sequence[bytes]) -> None:
        """Applies committed commands whose results nobody here waits for. ``first``: index of the first command.

        The state is the same as after ``apply`` of each: other replicas may apply the same commands singly.
        """


class Frozen(Iterator[bytes]):
    """Chunks of the state at one moment. They may be drawn later, while more commands are applied."""

    def __init__(self, chunks: Iterable[bytes], lock: AbstractContextManager[object]) -> None:
        """``lock``: held while a chunk is drawn, so that any thread may draw it."""
        self._chunks = iter(chunks)
        self._lock = lock

    def __next__(self) -> bytes:
        with self._lock:
            return next(self._chunks)


@dataclass(frozen=True, slots=True)
class Applied:
    """The command was committed and applied on this replica."""

    result: Any


@dataclass(frozen=True, slots=True)
class NotLeader:
    """The command was not proposed: this replica does not lead. ``leader``: the leader's name, if known."""

    leader: str | None


@dataclass(frozen=True, slots=True)
class Unknown:
    """The command may have been committed, or may be later: the deadline passed or leadership was lost."""


ProposalOutcome = Applied | NotLeader | Unknown


@dataclass(frozen=True, slots=True)
class GroupState:
    leader: str | None
    is_leader: bool
    term: int
    applied: int
    committed: int
    healthy: bool  # false once the group stopped on an error (fail-stop)
    # False while the disk is full: the replica serves reads from memory and does not vote or append; it resumes by
    # itself.
    writable: bool = True
    # For a leader: it has applied an entry of its term, and so everything acknowledged before. A replica that has
    # just started and been elected may have applied nothing yet.
    current: bool = True


class Group(Protocol):
    def propose(self, command: bytes, *, timeout: float, done: Callable[[ProposalOutcome], None]) -> None:
        """Proposes a command. Calls ``done`` once, on the driver's thread; at once if not the leader. Thread-safe."""

    def state(self) -> GroupState:
        """Returns the group's present state. Thread-safe."""

    def transfer(self, to: str | None) -> None:
        """Asks the leader to let another replica lead (``None`` means the most up-to-date one).

        Best effort. Thread-safe.
        """

    def hears(self, peer: str) -> bool:
        """True if ``peer`` was heard from recently. Thread-safe."""

"""The persistent state of an interval's owner: the contract of stores, and one in memory.

A store belongs to one interval of keys. Acquiring it returns a *sequencer*, higher than all before; each commit
compares it in its own transaction, so that an owner that was replaced unknowingly writes nothing (MillWheel 6.2). A
commit is atomic.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from photon.computing.errors import Fenced, Retired
from photon.computing.intervals import Interval


class Row(NamedTuple):
    """The row of one computation and key. ``data``: see ``row``; ``None`` means removed. The times are those of its
    next timers; ``aside`` is the number of records and timers that wait until the computation is fixed."""

    computation: str
    key: str
    data: bytes | None
    event_ns: int | None = None
    wall_ns: int | None = None
    aside: int = 0


class Chunk(NamedTuple):
    """Productions of one commit for one target, in the order of their numbers; ``last`` is the highest."""

    sender: str
    target: str
    last: int
    data: bytes


class Due(NamedTuple):
    time_ns: int
    key: str


@dataclass(slots=True)
class Commit:
    rows: Sequence[Row] = ()
    added: Sequence[Chunk] = ()
    done: Sequence[tuple[str, str, int]] = ()  # (sender, target, upto): acknowledged chunks
    standing: bytes = b""  # positions, cursors, watermarks: the engine's state as a whole


class Store(Protocol):
    """Errors of the disk or network are raised as OSError or ComputingError; then all was written, or nothing."""

    interval: Interval

    def successors(self) -> tuple[str, ...]:
        """The intervals that replaced a retired one; otherwise empty."""
        ...

    def acquire(self, owner: str, *, revive: bool = False) -> int:
        """The sequencer of a new owner; earlier owners are fenced. ``owner``: for people. ``revive``: return a
        retired store to use. Raises Retired."""
        ...

    def standing(self) -> bytes:
        """Empty if nothing was committed yet."""
        ...

    def load(self, computation: str, keys: Sequence[str]) -> dict[str, Row]:
        """The existing rows among these keys."""
        ...

    def due(self, computation: str, wall: bool, until_ns: int, limit: int) -> list[Due]:
        """At most ``limit`` keys whose next timer is not after ``until_ns``, by time."""
        ...

    def chunks(self) -> Iterable[Chunk]:
        """Unacknowledged chunks, by sender and number."""
        ...

    def aside(self) -> Iterable[tuple[str, str, int]]:
        """(computation, key, number) for keys with records or timers set aside."""
        ...

    def scan(self) -> Iterator[Row]:
        """All rows, for a split or a merge."""
        ...

    def commit(self, sequencer: int, commit: Commit) -> None:
        """Durable when it returns. Raises Fenced, Retired; then nothing was written."""
        ...

    def retire(self, sequencer: int, successors: tuple[str, ...]) -> None:
        """Prevents any further acquisition or commit. Raises Fenced."""
        ...

    def close(self) -> None: ...


@dataclass
class MemoryStore:
    """For tests: lives as long as it is referenced, across any number of engines."""

    interval: Interval
    sequencer: int = 0
    retired: tuple[str, ...] = ()
    rows: dict[str, dict[str, Row]] = field(default_factory=dict)
    kept: bytes = b""
    _chunks: dict[tuple[str, str, int], Chunk] = field(default_factory=dict)

    def successors(self) -> tuple[str, ...]:
        return self.retired

    def acquire(self, owner: str, *, revive: bool = False) -> int:
        self.retired = () if revive else self.retired
        self._check(self.sequencer)
        self.sequencer += 1
        return self.sequencer

    def standing(self) -> bytes:
        return self.kept

    def load(self, computation: str, keys: Sequence[str]) -> dict[str, Row]:
        rows = self.rows.get(computation, {})
        return {key: rows[key] for key in keys if key in rows}

    def due(self, computation: str, wall: bool, until_ns: int, limit: int) -> list[Due]:
        rows = self.rows.get(computation, {}).values()
        times = ((row.wall_ns if wall else row.event_ns, row.key) for row in rows)
        return sorted(Due(at, key) for at, key in times if at is not None and at <= until_ns)[:limit]

    def chunks(self) -> Iterable[Chunk]:
        return [self._chunks[place] for place in sorted(self._chunks, key=lambda at: (at[0], at[2]))]

    def aside(self) -> Iterable[tuple[str, str, int]]:
        return [(row.computation, row.key, row.aside) for row in self.scan() if row.aside]

    def scan(self) -> Iterator[Row]:
        for rows in self.rows.values():
            yield from rows.values()

    def commit(self, sequencer: int, commit: Commit) -> None:
        self._check(sequencer)
        for row in commit.rows:
            rows = self.rows.setdefault(row.computation, {})
            if row.data is None:
                rows.pop(row.key, None)
            else:
                rows[row.key] = row
        for sender, target, upto in commit.done:
            for place in [at for at in self._chunks if at[:2] == (sender, target) and at[2] <= upto]:
                del self._chunks[place]
        self._chunks.update(((chunk.sender, chunk.target, chunk.last), chunk) for chunk in commit.added)
        self.kept = commit.standing

    def retire(self, sequencer: int, successors: tuple[str, ...]) -> None:
        self._check(sequencer)
        self.retired = successors

    def close(self) -> None:
        pass

    def _check(self, sequencer: int) -> None:
        if self.retired:
            raise Retired(self.interval.id, self.retired)
        if sequencer != self.sequencer:
            raise Fenced(fenced(self.interval.id))


def fenced(interval: str) -> str:
    return f"another process has taken over the interval {interval} of keys: this one has written nothing and ends"

"""Common parts of sinks that write to a server: records and the cursor after them go into one transaction.

Exactly-once depends on the server: the sink's only position is the one committed there. A sink that starts or
reconnects continues at the server's position, so the outcome of an unanswered commit does not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Protocol

import msgspec

from photon.config.back_off import BackOff
from photon.config.decoding import DECODE_ERRORS
from photon.config.errors import PhotonError, UsageError
from photon.library import Batch
from photon.sinks.rolling import Rolling, RollLimits

COMMIT_BYTES = 8 << 20  # bytes of JSON Lines in a transaction, plus the last batch
RETRY = BackOff(first=0.1, most=5.0)  # pause before a silent server is asked again


class Unreachable(PhotonError):
    """The server does not answer, or has aborted a transaction; uncommitted records will be written again."""


class TakenOver(PhotonError):
    """Another sink with the same name has committed meanwhile."""


class Committed(msgspec.Struct, frozen=True):
    """A sink's state at the server, committed in the same transaction as the records."""

    kinds: str  # joined by commas
    # The cursor after all valid records (``photon.outputs.Cursor``); None means the beginning
    cursor: str | None = None
    records: int = 0  # in total

    @classmethod
    def beginning(cls, kinds: Sequence[str]) -> Committed:
        return cls(",".join(kinds))

    def check(self, kinds: Sequence[str], where: str) -> None:
        """Raises UsageError if the sink began with other kinds of records."""
        if self.kinds != ",".join(kinds):
            raise UsageError(
                f"{where}: was begun with kinds {self.kinds.replace(',', ' and ')}; this run has "
                f"{' and '.join(kinds)}; give this sink another --name"
            )


def committed_of(data: bytes, where: str) -> Committed:
    """Decodes a sink's state at the server. Raises UsageError."""
    try:
        return msgspec.json.decode(data, type=Committed)
    except DECODE_ERRORS as bad:
        raise UsageError(f"{where}: has no cursor of a Photon sink ({bad}); give this sink another --name") from None


class Target(Protocol):
    """One connection to a server. All methods raise Unreachable, TakenOver, PhotonError, UsageError."""

    @property
    def committed(self) -> Committed:
        """The sink's state at the server."""
        ...

    def add(self, batch: Batch) -> int:
        """Adds a batch to the open transaction; returns the number of its records. Raises LineUnreadable."""
        ...

    def commit(self, after: Committed) -> None:
        """Commits the transaction together with the state ``after``."""
        ...

    def close(self) -> None:
        """Drops uncommitted records."""
        ...


@dataclass(slots=True)
class _Transaction:
    target: Target
    rolling: Rolling
    monotonic: Callable[[], float]
    records: int = 0
    cursor: bytes | None = None  # None means that nothing was added

    def add(self, batch: Batch) -> None:
        self.records += self.target.add(batch)
        self.cursor = batch.cursor
        self.rolling.add(len(batch.data), self.monotonic())
        self.tick()

    def tick(self) -> None:
        if self.rolling.due(self.monotonic()):
            self.commit()

    def commit(self) -> None:
        if self.cursor is None:
            return
        before = self.target.committed
        after = Committed(before.kinds, self.cursor.decode(), before.records + self.records)
        self.target.commit(after)
        self.records, self.cursor = 0, None
        self.rolling.rolled()


Wait = Callable[[float], bool]  # waits for this many seconds; True if asked to stop
# (cursor, function for waiting while no records arrive) -> the batches after the cursor
Batches = Callable[[bytes | None, Callable[[float], object]], Iterator[Batch]]


def pour_into(
    connect: Callable[[], Target],
    batches: Batches,
    limits: RollLimits,
    *,
    wait: Wait,
    monotonic: Callable[[], float],
    say: Callable[[str], object],
) -> int:
    """Writes all batches to the server, and retries during outages; returns the number of records committed. ``say``
    receives problems, and an empty text whenever everything is committed. Raises like the target; Unreachable only if
    the server never answered.
    """
    first: int | None = None
    known, pauses = 0, RETRY.pauses()
    while True:
        target: Target | None = None
        try:
            with closing(connect()) as target:
                known = target.committed.records
                if first is None:
                    first = known
                transaction = _Transaction(target, Rolling(limits), monotonic)

                def idle(seconds: float, transaction: _Transaction = transaction) -> None:
                    transaction.tick()
                    if transaction.cursor is None:
                        say("")
                    wait(seconds)

                cursor = target.committed.cursor
                for batch in batches(None if cursor is None else cursor.encode(), idle):
                    transaction.add(batch)
                    if transaction.cursor is None:
                        say("")
                transaction.commit()
                return target.committed.records - first
        except Unreachable as error:
            if first is None:
                raise
            if target is not None:
                pauses = RETRY.pauses() if target.committed.records > known else pauses
                known = target.committed.records
            say(f"{error}; retrying from the last commit")
            if wait(next(pauses)):
                return known - first

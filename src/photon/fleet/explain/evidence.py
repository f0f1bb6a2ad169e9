"""The evidence about an event from one process, or from one search of its files. Sent as JSON (explain.proto)."""

from __future__ import annotations

import msgspec

from photon.idregistry.core.scans import Traced

ON_SPARK = "waiting events of the join on Spark"  # ``Waiting.where``
FOUND_MAX = 64  # maximum records and rows in one answer; an id has one, unless something is wrong


class Record(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    kind: str  # joined, unmatched, filtered, rejected or late
    slot: str  # the writer: a slot, or dispatcher-NAME
    file: str  # path relative to the output, without .gz
    offset: int
    length: int
    durable: bool  # within the published length
    # True if the verifier has cleared it; `None` for a dispatcher's record, which is never cleared.
    cleared: bool | None = None
    event_id: bytes | None = None
    key: bytes | None = None
    event_time_ns: int | None = None
    source_file: str = ""
    source_offset: int = 0
    primary_file: str | None = None
    primary_offset: int | None = None
    # Number of primary events of its key if it is joined with all of them; this record has one of them.
    pairs: int | None = None
    reason: str | None = None
    at: str | None = None  # joined_at or decided_at
    token: str | None = None
    redo: bool = False  # found in the slot's redo log, and not written yet, because no joiner answers for the slot


class Waiting(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An event that waits for a verdict in a dispatcher, or in the join on Spark."""

    where: str  # memory, retry store, or ON_SPARK
    state: str  # a verb phrase, such as "waits for its next try"
    event_id: bytes
    key: bytes
    event_time_ns: int
    source_file: str
    source_offset: int
    first_read_ns: int
    attempts: int = 0
    next_try_ns: int | None = None  # `None` if the event does not wait for a time
    last: str = ""  # why the last try gave no verdict; empty if there was no try
    partition: str = ""
    row: int = 0  # row id in the retry store; 0 if not stored


class InLog(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    file: str
    offset: int
    read_to: int | None  # how far this log has been processed; `None` if the dispatcher does not know the log
    event_id: bytes | None = None
    key: bytes | None = None
    event_time_ns: int | None = None
    reason: str | None = None  # why the record cannot be read


class Searched(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A place that was searched. ``why`` is set if the search stopped early."""

    what: str
    files: int = 0
    bytes: int = 0
    why: str = ""


class Evidence(msgspec.Struct, kw_only=True, omit_defaults=True):
    records: list[Record] = []
    # Records that a joiner may write but has not written yet; ``durable``: already in its redo log.
    registering: list[Record] = []
    waiting: list[Waiting] = []
    in_logs: list[InLog] = []
    searched: list[Searched] = []
    traced: Traced | None = None  # the registry's answer, if it was asked
    registry_problem: str = ""  # why the registry did not answer

    def add(self, other: Evidence) -> None:
        """Adds the evidence of ``other``; keeps at most FOUND_MAX entries of each sort."""
        self.records = [*self.records, *other.records][:FOUND_MAX]
        self.registering = [*self.registering, *other.registering][:FOUND_MAX]
        self.waiting = [*self.waiting, *other.waiting][:FOUND_MAX]
        self.in_logs = [*self.in_logs, *other.in_logs][:FOUND_MAX]
        self.searched = list(dict.fromkeys([*self.searched, *other.searched]))
        self.traced = self.traced or other.traced
        self.registry_problem = self.registry_problem or other.registry_problem

    def named(self) -> list[Record | Waiting | InLog]:
        return [*self.records, *self.registering, *self.waiting, *self.in_logs]

    def time_ns(self) -> int | None:
        times = (one.event_time_ns for one in self.named())
        return next((each for each in times if each is not None), None)

    def event_id(self) -> bytes | None:
        """Returns the event's id as found, because the question may have given only a place."""
        ids = (one.event_id for one in self.named())
        return next((each for each in ids if each is not None), None)


def encode(evidence: Evidence) -> bytes:
    """Encodes the evidence as JSON, with bytes in base64."""
    return msgspec.json.encode(evidence)


def decode(data: bytes) -> Evidence:
    """Decodes evidence made by `encode`. Raises ValueError."""
    return msgspec.json.decode(data, type=Evidence)

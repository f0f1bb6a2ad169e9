"""Output lines of events one by one, whatever they are made as."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from photon.adapters.contract import Joined, LogFile, Payloads
from photon.adapters.envelope import Envelope
from photon.batch.events import Events, ForeignEvent
from photon.batch.records import PrimaryRecord, Records

CLICKS = LogFile("a/clicks.log")


def event_of(
    event_id: bytes = b"c1",
    key: bytes = b"q1",
    event_time_ns: int = 123,
    record: bytes = b'{"c":1}',
    file: LogFile = CLICKS,
    offset: int = 42,
) -> ForeignEvent:
    """What stands in a line of it."""
    return ForeignEvent(event_id, bytes(16), event_time_ns, key, record, file, offset, 0)


def joined_lines(
    envelope: Envelope,
    events: Sequence[ForeignEvent],
    primaries: Sequence[PrimaryRecord],
    payloads: Sequence[Joined],
    **more: Any,
) -> list[bytes]:
    """``Envelope.joined``."""
    made = Payloads.of(payloads)
    return envelope.joined(Events.of(events), Records.of(primaries), made.foreign, made.primary, **more)


def undone_lines(
    envelope: Envelope, events: Sequence[ForeignEvent], reasons: Sequence[str], **more: Any
) -> list[bytes]:
    """``Envelope.undone``."""
    return envelope.undone(Events.of(events), reasons, **more)

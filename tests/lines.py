"""Output lines of events one by one, whatever they are made as."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from photon.adapters.contract import Joined, Payloads
from photon.adapters.envelope import Envelope
from photon.batch.events import Events, ForeignEvent
from photon.batch.records import PrimaryRecord, Records


def events_of(events: Sequence[Any]) -> Events:
    """``events``: whatever has the fields that stand in a line."""
    return Events.of(
        [ForeignEvent(e.event_id, bytes(16), e.event_time_ns, e.key, e.record, e.file, e.offset, 0) for e in events]
    )


def joined_lines(
    envelope: Envelope, events: Sequence[Any], primaries: Sequence[Any], payloads: Sequence[Joined], **more: Any
) -> list[bytes]:
    """``Envelope.joined``."""
    records = Records.of([PrimaryRecord(each.record, each.file, each.offset) for each in primaries])
    made = Payloads.of(payloads)
    return envelope.joined(events_of(events), records, made.foreign, made.primary, **more)


def undone_lines(envelope: Envelope, events: Sequence[Any], reasons: Sequence[str], **more: Any) -> list[bytes]:
    """``Envelope.undone``."""
    return envelope.undone(events_of(events), reasons, **more)

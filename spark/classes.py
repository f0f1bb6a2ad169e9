"""The possible results of a nightly verification for a foreign event; needs no pyspark."""

from __future__ import annotations

import enum


class Class(enum.StrEnum):
    """An event's result. ``docs/verification.md`` says how to react to each."""

    CORRECT = "correct"
    LATE = "late"  # claimed late by a dispatcher, no other record exists: right, and counted separately
    PENDING = "pending"  # waits for its primary event, or its dispatcher has not read this far: not judged
    LOST_UNREGISTERED = "lost-unregistered"  # No record, and the registry does not know it.
    # No record; a stopped slot owns it: its redo will write it, or retiring the slot gives it back.
    LOST_OWNED = "lost-owned"
    LOST_RETIRED = "lost-retired"  # No record; a retired slot owns it, or it was reopened and not yet read again.
    # No record, though the registry lists it as written: an output file was deleted or damaged
    LOST_CLEARED = "lost-cleared"
    LOST_UNREADABLE = "lost-unreadable"  # a line that the adapter cannot read and that is in no rejected log
    DUPLICATED = "duplicated"  # Several records in one datacentre's output.
    DUPLICATED_ACROSS = "duplicated-across"  # Records in more than one datacentre's output.
    # A record whose source log is missing, or damaged before that place: so it cannot be compared.
    LOG_GONE = "log-gone"
    INVENTED = "invented"  # a record whose event is in no raw log, though its named log exists
    # Payload, key, time or place differ from a fresh join; the evidence names the fields
    WRONGLY_JOINED = "wrongly-joined"
    SHOULD_BE_UNMATCHED = "should-be-unmatched"  # Joined, though no primary log has its key.
    # Unmatched, though its primary event exists (it came after the end of patience, or was missed).
    PRIMARY_EXISTS = "primary-exists"
    # Written, and not below the boundary, but unknown to the registry: it could be written again.
    REGISTRY_MISSING = "registry-missing"
    # Written, but the registry's entry has another token, kind, time or state; the evidence names the fields.
    REGISTRY_DIFFERS = "registry-differs"
    TORN = "torn"  # a line below the published length that is not an output record


# The registry's entry has the slot that had to write it
LOST_REGISTERED = (Class.LOST_OWNED, Class.LOST_RETIRED, Class.LOST_CLEARED)

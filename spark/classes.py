"""What a nightly verification may find of a foreign event; needs no pyspark."""

from __future__ import annotations

import enum


class Class(enum.StrEnum):
    """One word each; ``docs/verification.md`` says what to do about them."""

    CORRECT = "correct"
    LATE = "late"
    """A dispatcher claimed it late, and no other record of it exists: right, and counted apart."""
    PENDING = "pending"
    """Waits for its primary event, or lies after the place that its dispatcher has read to: not judged."""
    LOST_UNREGISTERED = "lost-unregistered"
    """No record, and the registry does not know it."""
    LOST_OWNED = "lost-owned"
    """No record; a slot that is down owns it: its redo will write it, or retiring the slot gives it back."""
    LOST_RETIRED = "lost-retired"
    """No record; a retired slot owns it, or it was reopened and nobody has read it again."""
    LOST_CLEARED = "lost-cleared"
    """No record, though the registry has it as written: an output file was deleted or damaged."""
    LOST_UNREADABLE = "lost-unreadable"
    """A line that the adapter cannot read, and that stands in no rejected log."""
    DUPLICATED = "duplicated"
    """Several records in one datacentre's output."""
    DUPLICATED_ACROSS = "duplicated-across"
    """Records in more than one datacentre's output."""
    LOG_GONE = "log-gone"
    """A record whose source log is gone, or is damaged before that place: it cannot be compared."""
    INVENTED = "invented"
    """A record whose event stands in no raw log, though the log that it names is there."""
    WRONGLY_JOINED = "wrongly-joined"
    """Payload, key, time or place differ from a fresh join; the evidence names the fields."""
    SHOULD_BE_UNMATCHED = "should-be-unmatched"
    """Joined, though no primary log has its key."""
    PRIMARY_EXISTS = "primary-exists"
    """Unmatched, though its primary event is there (it came after the end of patience, or was missed)."""
    REGISTRY_MISSING = "registry-missing"
    """Written, and not below the boundary, but the registry does not know it: it could be written again."""
    REGISTRY_DIFFERS = "registry-differs"
    """Written, but the registry's entry is of another token, kind, time or state; the evidence names the fields."""
    TORN = "torn"
    """A line below the published length that is no output record."""


LOST_REGISTERED = (Class.LOST_OWNED, Class.LOST_RETIRED, Class.LOST_CLEARED)
"""The registry's entry says who was to write it."""

"""When a replica takes no further ids: the memory that they may take, with a gap between stopping and going on.

Pure: used bytes in, whether new ids are taken out. Clearing, look-ups and collection go on at the limit; it is they
that end it.
"""

from __future__ import annotations

RESUME_SHARE = 0.95
"""Inserts are taken again when the ids take less than this share of the limit."""


class MemoryLimit:
    """Of all shards of one replica."""

    def __init__(self, limit: int | None = None) -> None:
        """``limit``: bytes of rows and indexes; None: as much as there is."""
        if limit is not None and limit < 1:
            raise ValueError(f"memory limit {limit} is not positive")
        self.limit = limit
        self.used = 0
        """Bytes, when last looked."""
        self.reached = False

    def update(self, used: int) -> bool:
        """``used``: bytes that the ids take now. Whether ``reached`` changed."""
        self.used = used
        if self.limit is None:
            return False
        before = self.reached
        self.reached = used >= (self.limit * RESUME_SHARE if before else self.limit)
        return self.reached != before

    @property
    def reason(self) -> str:
        """For who is refused, and for the alarm; empty below the limit."""
        if not self.reached:
            return ""
        return (
            f"the registry's ids take {self.used:,} bytes, registry.memory_limit is {self.limit:,}: no further ids "
            f"are taken until some are collected; check that ids are cleared and that registry.retention is set"
        )

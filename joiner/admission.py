"""The throttle: bounds on what a joiner has in flight; above them new work is refused (paper, section 3.3.1)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bounds:
    """What one slot may hold at a time."""

    ids: int = 64 << 10
    """Ids looked up or registered, and not known yet."""
    record_bytes: int = 256 << 20
    """Bytes of would-be records in memory."""
    redo_bytes: int = 4 << 30
    """Bytes of the redo log on disk."""


class Throttle:
    """Counts the ids of calls that are still looking up; what is registered is counted by the core."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self.looking_up = 0

    def refusal(self, ids: int, *, open_ids: int, record_bytes: int, redo_bytes: int) -> str:
        """Why so many ids are refused now, or an empty text. An idle joiner refuses no batch for its size."""
        bounds = self._bounds
        held = self.looking_up + open_ids
        if held and held + ids > bounds.ids:
            return f"overloaded: {held} ids in flight, at most {bounds.ids}"
        if record_bytes >= bounds.record_bytes:
            return f"overloaded: {record_bytes} bytes of records in flight, at most {bounds.record_bytes}"
        if redo_bytes >= bounds.redo_bytes:
            return f"overloaded: the redo log holds {redo_bytes} bytes, at most {bounds.redo_bytes}"
        return ""

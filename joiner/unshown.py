"""Tracks event times of written records that are not yet published. Pure.

A write is synced, then the registry's witness is extended over it (and over the part in the output's copy), and then
the length is published: only then is a record shown.
"""

from __future__ import annotations

from collections import deque

from photon.config.clock import NEVER_NS
from photon.idregistry.witness import Witness

ANY_NS = -NEVER_NS  # as event time: older than any


class Unshown:
    def __init__(self) -> None:
        self.written: deque[tuple[int, int]] = deque()  # (number, oldest event time) of writes, appended in order
        self._shown: Witness = ()
        self._synced: deque[tuple[Witness, int]] = deque()  # the output's end after a sync, oldest event time

    @property
    def oldest_ns(self) -> int:
        """The oldest event time that is not shown; NEVER_NS if all is shown."""
        return min((time_ns for _, time_ns in (*self.written, *self._synced)), default=NEVER_NS)

    def found(self, end: Witness, shown: Witness) -> None:
        """Notes output that was found at a start: its end, and the part already shown."""
        self._synced.append((end, ANY_NS))
        self.shown(shown)

    def synced(self, upto: int, end: Witness) -> None:
        """Notes that writes up to number ``upto`` are durable, and that the durable output ends at ``end``."""
        oldest_ns = NEVER_NS
        while self.written and self.written[0][0] <= upto:
            oldest_ns = min(oldest_ns, self.written.popleft()[1])
        if oldest_ns != NEVER_NS:
            self._synced.append((end, oldest_ns))
            self.shown(self._shown)

    def shown(self, to: Witness) -> None:
        """Notes that all durable output before ``to`` is shown, even if its sync is reported later."""
        self._shown = to
        while self._synced and covers(to, self._synced[0][0]):
            self._synced.popleft()


def covers(to: Witness, end: Witness) -> bool:
    """True if everything before ``end`` is before ``to``."""
    ends = [(log.number, log.length) for log in to]
    return all(
        not log.length or (at < len(ends) and (log.number, log.length) <= ends[at]) for at, log in enumerate(end)
    )

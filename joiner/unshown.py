"""Event times of records that were written and that readers have not been shown yet. Pure.

A write is synced, then the registry's witness is extended over it (and over what the output's copy has), and then the
published length: only then a record is shown.
"""

from __future__ import annotations

from collections import deque

from photon.config.clock import NEVER_NS
from photon.idregistry.witness import Witness

ANY_NS = -NEVER_NS  # in place of an event time: older than any


class Unshown:
    def __init__(self) -> None:
        self.written: deque[tuple[int, int]] = deque()
        """(number, oldest event time) of writes, to be appended in order."""
        self._shown: Witness = ()
        self._synced: deque[tuple[Witness, int]] = deque()  # where the output ends with it, oldest event time

    @property
    def oldest_ns(self) -> int:
        """NEVER_NS: all is shown."""
        return min((time_ns for _, time_ns in (*self.written, *self._synced)), default=NEVER_NS)

    def found(self, end: Witness, shown: Witness) -> None:
        """A start found output that ends here, of which so much is shown."""
        self._synced.append((end, ANY_NS))
        self.shown(shown)

    def synced(self, upto: int, end: Witness) -> None:
        """The writes up to this one are durable, and the durable output ends here."""
        oldest_ns = NEVER_NS
        while self.written and self.written[0][0] <= upto:
            oldest_ns = min(oldest_ns, self.written.popleft()[1])
        if oldest_ns != NEVER_NS:
            self._synced.append((end, oldest_ns))
            self.shown(self._shown)

    def shown(self, to: Witness) -> None:
        """All that is durable before it, or will be: what is synced may have been shown before that is told here."""
        self._shown = to
        while self._synced and covers(to, self._synced[0][0]):
            self._synced.popleft()


def covers(to: Witness, end: Witness) -> bool:
    """Whether all that stands before ``end`` stands before ``to``."""
    ends = [(log.number, log.length) for log in to]
    return all(
        not log.length or (at < len(ends) and (log.number, log.length) <= ends[at]) for at, log in enumerate(end)
    )

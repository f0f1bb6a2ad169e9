"""Which logs have been there and have gone: whether a line's source may have been deleted since it was read. Pure.

A line names its source by file name and offset. When no log of that name holds its record, either the record is wrong
or its log was deleted by a retention, as all logs are in the end. Only who has watched the logs can tell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

VERSION = 1
NAMES_MAX = 65_536
"""Log names that are remembered, and logs of one name."""
UNWATCHED_NS = 600 * 10**9
"""A log that comes and goes within so long an absence of the verifier is not reckoned with."""


class LogMemory(msgspec.Struct, forbid_unknown_fields=True):
    """Of one side. ``logs.json`` holds one for each."""

    since_ns: int = 0
    """From here on it was watched."""
    looked_ns: int = 0
    """The last look."""
    present: dict[str, list[str]] = {}
    """Log name -> identities."""
    gone_ns: dict[str, int] = {}
    """Log name -> when a log of this name was missed last."""

    def looked(self, named: Mapping[str, Sequence[str]], now_ns: int) -> bool:
        """These are there now; whether what must be remembered has changed."""
        changed = False
        if not self.since_ns or now_ns - self.looked_ns > UNWATCHED_NS:
            self.since_ns, changed = now_ns, True
        for name, identities in self.present.items():
            if not set(identities) <= set(named.get(name, ())):
                self.gone_ns[name] = now_ns
        present = {name: sorted(each)[:NAMES_MAX] for name, each in sorted(named.items())[:NAMES_MAX]}
        changed = changed or present != self.present
        self.present, self.looked_ns = present, now_ns
        while len(self.gone_ns) > NAMES_MAX:
            oldest = min(self.gone_ns, key=lambda name: self.gone_ns[name])
            del self.gone_ns[oldest]
        return changed

    def may_be_gone(self, name: str, written_ns: int | None, before_ns: int | None) -> bool:
        """Whether the log that a line was made from may have been deleted.

        ``name``: of the log. ``written_ns``: when the line was made, if it says so; its record was read at most
        ``before_ns`` earlier (None: nobody knows how much).
        """
        if name not in self.present:
            return True
        gone = self.gone_ns.get(name)
        if written_ns is None:
            return gone is not None
        if written_ns < self.since_ns:
            return True
        return gone is not None and (before_ns is None or gone > written_ns - before_ns)

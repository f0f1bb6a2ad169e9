"""Whether a last line without its line end counts when reading ends (``--once``): its writer may be in its middle.

Half a line of CSV, TSV, logfmt, or what a pattern takes apart, reads as well as a whole one, with another id or
another key. So it counts only once nobody will go on writing it: its file is compressed or rolled, or has not been
written to for some time. Else it waits for the next run, which reads it whole; nothing about it is decided before.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from photon.config.clock import NS_PER_S


@dataclass(frozen=True, slots=True)
class RestRule:
    """For how long a file must not have been written to (0: no matter), and the wall clock (ns) that tells."""

    after_s: float
    now_ns: Callable[[], int]


class Writing(NamedTuple):
    """What is seen of a file that ends without a line end. Last writes are ns, by the clock of its file system."""

    packed: bool  # its name says that it is compressed
    written_ns: int
    live_ns: int | None = None
    """Of the file that stands under the log's own name by now, where this one was renamed by a rotation."""


def waits(rest: RestRule | None, seen: Writing) -> str:
    """Why its last line does not count yet; empty when it does. ``rest`` None: it is known that nobody writes."""
    rolled = seen.live_ns is not None and seen.live_ns > seen.written_ns
    if rest is None or not rest.after_s or seen.packed or rolled:
        return ""
    age_s = (rest.now_ns() - seen.written_ns) / NS_PER_S
    if age_s >= rest.after_s:
        return ""
    when = f"{age_s:.1f} s ago" if age_s >= 0 else f"{-age_s:.1f} s ahead of this machine's clock"
    return (
        f"has no line end, and the file was written to {when}: it may be half of a line, so it waits for the next "
        f"run; run this again when it has its end, or {rest.after_s:g} s after the last write (last_line_after)"
    )

"""Decides if a last line without a line end counts as complete when reading ends (``--once``).

Half a line of CSV, TSV, logfmt or a pattern may be readable, with a different id or key. So it
counts only if it will not be continued: its file is compressed or rolled, or has not been written to for some time.
Otherwise it waits for the next run, which reads the complete line; until then it is undecided.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from photon.config.clock import NS_PER_S


@dataclass(frozen=True, slots=True)
class RestRule:
    """Time for which a file must not have been written to (0: irrelevant), and the current wall clock (ns)."""

    after_s: float
    now_ns: Callable[[], int]


class Writing(NamedTuple):
    """A file that ends without a line end, as observed. Times of writes are in ns, by its file system's clock."""

    packed: bool  # its name says that it is compressed
    written_ns: int
    live_ns: int | None = None  # for a rotated file: last write of the file that now has the log's name


def waits(rest: RestRule | None, seen: Writing) -> str:
    """Returns why a log's last line does not count yet; empty if it does. ``rest``: ``None`` if nothing writes."""
    rolled = seen.live_ns is not None and seen.live_ns > seen.written_ns
    if rest is None or not rest.after_s or seen.packed or rolled:
        return ""
    age_s = (rest.now_ns() - seen.written_ns) / NS_PER_S
    if age_s >= rest.after_s:
        return ""
    when = f"{age_s:.1f} s ago" if age_s >= 0 else f"{-age_s:.1f} s ahead of this machine's clock"
    return (
        f"has no line end, and the file was written to {when}: it may be incomplete, so it waits for the next "
        f"run; run this again once the line is complete, or {rest.after_s:g} s after the last write (last_line_after)"
    )

"""When Python looks for garbage in cycles."""

from __future__ import annotations

import gc

# Batches make many short-lived tuples and no cycles: the default thresholds scan them in vain, for some 6 % of the
# time of a join. So collections are rare, and code that makes a cycle for each event has to break it: three hundred
# thousand events in cycles with their stretches of a log were 270 MB of garbage.
GC_THRESHOLDS = (100_000, 50, 100)


def collect_rarely() -> None:
    """Called first by every command: importing is a twentieth faster too."""
    gc.set_threshold(*GC_THRESHOLDS)

"""How each long-running command runs: event loop, garbage collector and threads' turns, chosen once."""

from __future__ import annotations

import gc
import sys
from collections.abc import Coroutine
from typing import Any, TypeVar

import uvloop

T = TypeVar("T")

GC_THRESHOLDS = (100_000, 50, 100)
"""Batches make many short-lived tuples and no cycles: the defaults look through them in vain, for some 6 % of the
time of a join. So it hardly ever comes, and what makes a cycle for each event has to undo it: three hundred thousand
events that name their stretch of a log, and it them, were 270 MB of garbage."""

SWITCH_S = 0.0005
"""How long a thread keeps the interpreter from another one that wants it: the default of 5 ms, at each step of an
event's way, is most of what an event takes. It costs a twentieth of the throughput."""


def run(main: Coroutine[Any, Any, T], *, prompt: bool = True) -> T:
    """Runs a command's coroutine to its end. ``prompt`` False: nobody waits for a single event (finished logs)."""
    if prompt:
        sys.setswitchinterval(SWITCH_S)
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    return uvloop.run(main)

"""How each long-running command runs: event loop and garbage collector, chosen once."""

from __future__ import annotations

import gc
from collections.abc import Coroutine
from typing import Any, TypeVar

import uvloop

T = TypeVar("T")

GC_THRESHOLDS = (100_000, 50, 100)
"""Batches make many short-lived tuples and no cycles: the defaults look through them in vain, for some 6 % of the
time of a join."""


def run(main: Coroutine[Any, Any, T]) -> T:
    """Runs a command's coroutine to its end."""
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    return uvloop.run(main)

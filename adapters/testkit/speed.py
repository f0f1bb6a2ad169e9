"""How fast an adapter is, in records a second of one core."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from photon.adapters.containment import Fault, Guard
from photon.adapters.contract import Adapter, BadRecord
from photon.adapters.testkit.answers import by_file, pairs
from photon.adapters.testkit.samples import Samples

RECORDS = 2000
"""Each method is timed over so many records at least; the samples are taken again and again."""
SLOWEST_PER_S = 1000.0
"""The bound, and generous: Photon's own formats read several hundred thousand a second."""

Clock = Callable[[], float]
"""Seconds; the default counts what this thread computes, so that a busy machine makes no difference."""


@dataclass(frozen=True, slots=True)
class Speed:
    """One method. ``per_s``: records a second of one core."""

    method: str
    per_s: float


def speeds(adapter: Adapter, samples: Samples, clock: Clock = time.thread_time) -> list[Speed]:
    """Of what a running join calls. Without samples of a side its methods are left out."""
    found: list[Speed] = []
    for group in by_file(samples.primary)[:1]:
        block, file = b"".join(each.record + b"\n" for each in group), group[0].file
        found.append(_timed(adapter, "primary_keys", len(group), partial(adapter.primary_keys, block, file), clock))
    for group in by_file(samples.foreign)[:1]:
        records, file = [each.record for each in group], group[0].file
        method = "header_columns" if adapter.defines("header_columns") else "foreign_headers"
        found.append(_timed(adapter, method, len(group), partial(getattr(adapter, method), records, file), clock))
    together = pairs(adapter, samples)
    if together:

        def join() -> None:
            for foreign, primary in together:
                with suppress(BadRecord):  # an answer too
                    adapter.join(foreign.record, foreign.file, primary.record, primary.file)

        found.append(_timed(adapter, "join", len(together), join, clock))
    return found


def speed_findings(measured: list[Speed], slowest_per_s: float = SLOWEST_PER_S) -> list[str]:
    """One line for each method below the bound."""
    return [
        f"{each.method}: {each.per_s:,.0f} records/s, fewer than {slowest_per_s:,.0f}"
        for each in measured
        if each.per_s < slowest_per_s
    ]


def _timed(adapter: Adapter, method: str, records: int, call: Callable[[], object], clock: Clock) -> Speed:
    done, began = 0, clock()
    guard = Guard(adapter)
    while done < RECORDS:
        if isinstance(guard.many(call), Fault):
            return Speed(method, 0.0)
        done += records
    return Speed(method, done / max(clock() - began, 1e-9))

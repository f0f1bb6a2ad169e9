"""A verifier's metrics and what the status page shows of its slots, read from the files beside them."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from photon.config.clock import Clock
from photon.config.disk import Disk
from photon.config.metrics.readings import Readings, Source
from photon.verifier.service import Pipeline
from photon.verifier.status import SlotStatus, status_of

ALARMS_SHOWN = 20
"""Of each slot, the newest."""


def reads(disk: Disk, pipeline: Pipeline, clock: Clock) -> Source:
    """Of all slots of a pipeline. Files are read in a thread."""

    async def read(into: Readings) -> None:
        found = await asyncio.to_thread(status_of, disk, pipeline)
        for slot in found.slots:
            _put(into, slot, clock.now_ns())

    return read


def _put(into: Readings, slot: SlotStatus, now_ns: int) -> None:
    since = slot.owned_since_ns
    into.put_all(
        "photon_verifier",
        {
            "published_bytes": slot.published,
            "cleared_bytes": slot.cleared,
            "checked_bytes": slot.checked,
            "unverifiable_lines": slot.unverifiable,
            "owned_ids": slot.owned,
            "owned_oldest_seconds": 0.0 if since is None else max(now_ns - since, 0) / 1e9,
            "redo_log_bytes": slot.state.redo_bytes,
            "slot_live": slot.state.holder is not None,
            "slot_problem": bool(slot.problem),
        },
        slot=slot.slot,
    )
    for finding, count in Counter(alarm.finding for alarm in slot.alarms).items():
        into.put("photon_verifier_alarms", count, slot=slot.slot, finding=finding)


async def details_of(disk: Disk, pipeline: Pipeline) -> dict[str, Any]:
    """Each slot's state in a word, and the alarms that stand."""
    found = await asyncio.to_thread(status_of, disk, pipeline)
    return {
        "slots": [
            {
                "slot": slot.slot,
                "state": slot.state.word,
                "problem": slot.problem,
                "alarms": [
                    {"at_s": alarm.at_ns / 1e9, "finding": alarm.finding, "what": alarm.what, "todo": alarm.todo}
                    for alarm in slot.alarms[-ALARMS_SHOWN:]
                ],
            }
            for slot in found.slots
        ]
    }

"""A joiner's metrics, read from its counters."""

from __future__ import annotations

from typing import Protocol

from photon.config.metrics.disks import free_space
from photon.config.metrics.readings import Readings, Source
from photon.joiner.engine import JoinerEngine


class HasSlot(Protocol):
    """Has a slot, sooner or later."""

    @property
    def opened(self) -> JoinerEngine | None:
        """The engine whose slot is open; None: it is not yet, or no more."""
        ...


def reads(join: str, joiner: HasSlot) -> Source:
    """Of one join."""

    def read(into: Readings) -> None:
        engine = joiner.opened
        into.put("photon_joiner_slot_open", engine is not None, join=join)
        if engine is not None:
            _put(into, join, engine)

    return read


def _put(into: Readings, join: str, engine: JoinerEngine) -> None:
    labels = {"join": join, "slot": engine.slot}
    stats = engine.stats()
    into.put_all(
        "photon_joiner",
        {
            "refused_batches_total": stats.refused_batches,
            "redone_rows_total": stats.redone,
            "open_ids": stats.open_ids,
            "open_bytes": stats.record_bytes,
            "redo_log_bytes": stats.redo_bytes,
            "redo_log_limit_bytes": engine.redo_limit,
        },
        **labels,
    )
    for outcome, count in stats.outcomes.items():
        into.put("photon_joiner_outcomes_total", count, **labels, outcome=outcome.name.lower())
    paths = engine.directories
    free_space({f"state of {engine.slot}": paths.state, f"output of {engine.slot}": paths.output})(into)

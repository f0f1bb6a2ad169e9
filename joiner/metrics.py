"""A joiner's metrics, read from its counters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

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


def details_of(joiners: Sequence[HasSlot]) -> dict[str, Any]:
    """How the copies of its slots are, in words."""
    open_ = [engine for each in joiners if (engine := each.opened) is not None]
    copies = [(engine.slot, engine.shell.copies) for engine in open_]
    return {"copies": [{"slot": slot, "trouble": its.trouble} for slot, its in copies if its is not None]}


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
    copies = engine.shell.copies
    if copies is not None:
        values = {"behind_bytes": copies.behind_bytes, "bypassed": copies.fallback, "trouble": bool(copies.trouble)}
        into.put_all("photon_joiner_copy", values, **labels)
    for outcome, count in stats.outcomes.items():
        into.put("photon_joiner_outcomes_total", count, **labels, outcome=outcome.name.lower())
    paths = engine.directories
    free_space({f"state of {engine.slot}": paths.state, f"output of {engine.slot}": paths.output})(into)

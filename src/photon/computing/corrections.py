"""Computes corrections of a join: how its records must change after a bug in the adapter.

The logs have been joined again with the fixed adapter, as a join with another name or into another output. This
topology compares both outputs event by event, and publishes a correction for each record that differs::

    {"what": "replaced", "old": {…}, "new": {…}}     also withdrawn (old alone) and added (new alone)

**Invariant.** Each record of either output enters one comparison, and equal ones cancel out. So the old records,
minus every ``old`` of a correction, plus every ``new``, are the new records, whenever the comparison is made: a late
record is merely reported as withdrawn first and added later.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from photon.computing.errors import TopologyError
from photon.computing.model import SECOND_NS, Computation, Context, Record, Timer
from photon.computing.topology import EXACT, Topology
from photon.computing.wire import ENDED_NS, NEVER_NS

OLD, NEW = "old", "new"
STREAM = "corrections"
# Members that depend on the writing of a record: a second join has others.
WRITING = {"joined_at", "token", "source", "primary_source", "registered_ns", "pair", "pairs"}


def corrections(
    old: str, new: str, out: str, *, since: str = "", until: str = "", old_join: str = "", new_join: str = ""
) -> Topology:
    """Makes the topology. ``old``, ``new``: outputs of ``photon join``, or the deployment file, with the names of
    both joins. ``out``: the directory for corrections. ``since``, ``until``: event times, such as "2026-11-20" (UTC);
    an event is compared if one of its records is in the range. Raises TopologyError.

    Events are compared once the exact watermark of both outputs has passed them. With ``--once`` all are compared, so
    both joins must be complete.
    """
    topology = Topology(STREAM)
    sides = (OLD, old, old_join), (NEW, new, new_join)
    inputs = {topology.joined(place, stream=side, join=join): _event for side, place, join in sides}
    topology.add(Compared(_time_ns(since, NEVER_NS), _time_ns(until, ENDED_NS)), inputs, watermark=EXACT)
    topology.publish(STREAM, out)
    return topology


class Compared(Computation):
    """Compares records, keyed by event id. The state has the event's records from either output that are not compared
    yet."""

    outputs = (STREAM,)

    def __init__(self, since_ns: int, until_ns: int) -> None:
        self._since_ns, self._until_ns = since_ns, until_ns

    def process_record(self, ctx: Context, record: Record) -> None:
        ctx.state.setdefault(record.stream, []).append(record.value)
        ctx.set_timer("compare", record.time_ns + 1)  # all records of its time have arrived

    def process_timer(self, ctx: Context, timer: Timer) -> None:
        old, new = ctx.state.pop(OLD, []), ctx.state.pop(NEW, [])
        if not any(self._since_ns <= each["event_time_ns"] < self._until_ns for each in (*old, *new)):
            return
        for each in list(old):
            if (same := next((other for other in new if _said(other) == _said(each)), None)) is not None:
                old.remove(each)
                new.remove(same)
        for n in range(max(len(old), len(new))):
            pair = {side: records[n] for side, records in ((OLD, old), (NEW, new)) if n < len(records)}
            what = "replaced" if len(pair) == 2 else "withdrawn" if OLD in pair else "added"
            time_ns = next(reversed(pair.values()))["event_time_ns"]
            ctx.produce(STREAM, {"what": what, **pair}, time_ns)


def _event(record: Record) -> str:
    value: dict[str, Any] = record.value
    return str(value["event_id"] if "event_id" in value else value["event_id_raw_base64"])


def _said(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if name not in WRITING}


def _time_ns(text: str, default_ns: int) -> int:
    if not text:
        return default_ns
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise TopologyError(f'corrections: {text!r} is not a time like "2026-11-20" or "2026-11-20T09:00"') from None
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()) * SECOND_NS

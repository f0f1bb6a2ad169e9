"""The overview of a datacentre (status.json), and the busiest parts of a deployment. Pure. docs/watching.md explains
every field."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from photon.fleet.counters import VERDICTS
from photon.fleet.look import Look
from photon.fleet.numbers import Change, Numbers, lag_rows, longest_first, merged_ledger, quantile, share_within
from photon.fleet.processes import READERS
from photon.status.rows import (
    alarms_of,
    copies_of,
    processes_of,
    registry_of,
    shards_of,
    slots_of,
    tables_of,
    upstream_of,
)

POINTS = 180  # number of fine points to keep, and of coarse ones
EVERY_S = 5.0
COARSE_S = 480.0
OLDEST_SHOWN = 20
WINDOW_S = 60.0  # rates, ratios and latencies cover the last minute
SNAPSHOTS_MAX = 64
WITHIN_S = (1.0, 10.0, 60.0)  # latency limits of the service level

_D, _J, _E, _V = "photon_dispatcher", "photon_joiner", "photon_eventstore", "photon_verifier"


@dataclass(frozen=True, slots=True)
class Point:
    """The values at one moment. `None` means unknown."""

    at_s: float
    read_per_s: float | None
    joined_per_s: float | None
    p50_s: float | None
    p90_s: float | None
    p99_s: float | None
    age_p50_s: float | None
    age_p99_s: float | None
    hit_ratio: float | None
    lag_s: float
    pending: float


# In a coarse point these fields have the maximum, the others the mean.
WORST = frozenset({"p99_s", "age_p99_s", "lag_s", "pending"})


class History:
    def __init__(self) -> None:
        self._fine: deque[Point] = deque(maxlen=POINTS)
        self._coarse: deque[Point] = deque(maxlen=POINTS)
        self._since: list[Point] = []  # fine points for the next coarse one

    def due(self, now_s: float) -> bool:
        return not self._fine or now_s - self._fine[-1].at_s >= EVERY_S or now_s < self._fine[-1].at_s

    def add(self, point: Point) -> None:
        self._fine.append(point)
        self._since.append(point)
        if (
            len(self._since) >= COARSE_S / EVERY_S
            or not 0 <= point.at_s - self._since[0].at_s < COARSE_S - EVERY_S / 2
        ):
            self._coarse.append(together(self._since))
            self._since = []

    def as_json(self) -> dict[str, list[dict[str, float | None]]]:
        """Returns ``history`` and ``day``, oldest point first. The last point of ``day`` covers the time since the
        one before."""
        coarse = [*self._coarse, together(self._since)] if self._since else list(self._coarse)
        return {"history": [_rounded(point) for point in self._fine], "day": [_rounded(point) for point in coarse]}


def together(points: Sequence[Point]) -> Point:
    """Merges several points into one at the time of the last."""
    values: dict[str, float | None] = {}
    for name in Point.__dataclass_fields__:
        known = [value for point in points if (value := getattr(point, name)) is not None]
        values[name] = None if not known else max(known) if name in WORST else sum(known) / len(known)
    values["at_s"] = points[-1].at_s
    return Point(**values)  # type: ignore[arg-type]  # lag and pending are always known


def _rounded(point: Point) -> dict[str, float | None]:
    """Rounds to four digits: enough for a chart, in half the bytes."""
    found = {name: None if value is None else float(f"{value:.4g}") for name, value in asdict(point).items()}
    return {**found, "at_s": round(point.at_s, 1)}


class View:
    def __init__(self, datacentre: str, version: str, others: Sequence[str] = ()) -> None:
        """``others``: names of the datacentres that join the same events."""
        self._datacentre = datacentre
        self._others = others
        self._version = version
        self._past: deque[tuple[float, Numbers]] = deque(maxlen=SNAPSHOTS_MAX)
        self._history = History()

    def update(self, look: Look) -> dict[str, Any]:
        """Adds a look, and returns the new document of status.json."""
        now, now_s = look.now, look.at_s
        while self._past and not now_s - WINDOW_S <= self._past[0][0] < now_s:
            self._past.popleft()
        began_s = self._past[0][0] if self._past else now_s
        rates = Change(now, self._past, now_s)
        self._past.append((now_s, now))
        flow, latency = _flow(now, rates), _latency(now, rates)
        if began_s < now_s and self._history.due(now_s):
            self._history.add(_point(now_s, flow, latency))
        details = [each.details for each in look.of(*READERS)]
        ledger = merged_ledger(details)
        return {
            "at_s": now_s,
            "datacentre": self._datacentre,
            "version": self._version,
            "adapters": sorted({each["adapter"] for each in details if each.get("adapter")}),
            "window_s": now_s - began_s,
            "alarms": alarms_of(look),
            "flow": flow,
            "upstream": upstream_of(now, rates),
            "others": _others(self._others, now, rates),
            "latency": latency,
            "ledger": {
                "total": ledger.get("total", {}),
                "hours": ledger.get("ledger", []),
                "unbalanced_hours": ledger.get("unbalanced_hours", 0),
            },
            "oldest": oldest_of(details),
            "lag": longest_first(lag_rows(look.heard)),
            "slots": slots_of(look, rates),
            "copies": copies_of(look),
            "registry": registry_of(look, rates),
            "computations": [each.details["computing"] for each in look.heard if "computing" in each.details],
            "tables": tables_of(look, rates),
            "processes": processes_of(look, rates),
            **self._history.as_json(),
        }


def oldest_of(details: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Merges all processes' lists of the longest-waiting events, oldest first."""
    return sorted((row for each in details for row in each.get("oldest", [])), key=lambda row: -row["age_s"])[
        :OLDEST_SHOWN
    ]


def _flow(now: Numbers, rates: Change) -> dict[str, Any]:
    published, cleared = now.sum(f"{_V}_published_bytes"), now.sum(f"{_V}_cleared_bytes")
    behind = now.by("kind", "photon_watermark_lag_seconds")
    return {
        "read_per_s": rates.sum(f"{_D}_read_total"),
        "verdicts_per_s": {verdict: rates.sum(f"{_D}_events_total", verdict=verdict) for verdict in VERDICTS},
        "wasted_per_s": rates.sum(f"{_D}_wasted_joins_total"),
        "foreign_logs": now.sum(f"{_D}_logs"),
        "foreign_lag_bytes": now.sum(f"{_D}_lag_bytes"),
        "foreign_lag_s": now.max(f"{_D}_lag_seconds"),
        "pending": now.sum(f"{_D}_pending_events"),
        "oldest_pending_s": now.max(f"{_D}_oldest_pending_seconds"),
        "retry_store_events": now.sum(f"{_D}_retry_store_events"),
        "retry_store_oldest_s": now.max(f"{_D}_retry_store_oldest_seconds"),
        "waiting_bound": now.max("photon_spark_waiting_bound_events"),
        "batches_in_flight": now.sum(f"{_D}_batches_in_flight"),
        "waiting_for_home": now.sum(f"{_D}_waiting_for_home_events"),
        "joiner_open_ids": now.sum(f"{_J}_open_ids"),
        "joiner_redo_bytes": now.sum(f"{_J}_redo_log_bytes"),
        "joiners_failing": now.max(f"{_D}_joiners_failing"),
        "primary_events_per_s": rates.sum(f"{_E}_events_total"),
        "primary_lag_bytes": now.sum(f"{_E}_lag_bytes"),
        "primary_lag_s": now.max(f"{_E}_lag_seconds"),
        "primary_logs": now.max(f"{_E}_logs"),
        "cache_bytes": now.sum(f"{_E}_cache_bytes"),
        "hit_ratio": rates.ratio(f"{_E}_cache_hits_total", f"{_E}_cache_misses_total"),
        "log_reads_per_s": rates.sum(f"{_E}_log_reads_total"),
        "registry_queued_ids": now.sum("photon_registry_queued_ids"),
        "published_bytes_per_s": rates.sum(f"{_V}_published_bytes"),
        "published_bytes": published,
        "uncleared_bytes": max(published - cleared, 0.0),
        "unchecked_bytes": max(published - now.sum(f"{_V}_checked_bytes"), 0.0),
        "watermark_lag_s": behind.get("percentile"),
        "exact_watermark_lag_s": behind.get("exact"),
        "watermark_waiting": now.sum("photon_watermark_waiting"),
        "late_records": now.sum("photon_watermark_late_records_total"),
    }


def _others(names: Sequence[str], now: Numbers, rates: Change) -> list[dict[str, Any]]:
    """Describes the other datacentres as seen from this one, whose dispatchers track the events left to them."""
    trusted = now.by("home", f"{_D}_home_trusted")
    elsewhere = rates.sum(f"{_D}_events_total", verdict="elsewhere")
    return [
        {
            "datacentre": name,
            "trusted": bool(trusted[name]) if name in trusted else None,
            "left_per_s": rates.sum(f"{_D}_left_to_home_total", home=name),
            "joined_per_s": elsewhere if len(names) == 1 else rates.sum(f"{_D}_home_in_time_total", home=name),
        }
        for name in names
    ]


def _latency(now: Numbers, rates: Change) -> dict[str, Any]:
    found = {}
    for key, name in (("join", f"{_D}_join_seconds"), ("event_age", f"{_D}_event_age_seconds")):
        recent, ever = rates.buckets(name), now.buckets(name)
        found[key] = {
            "count": recent.get(float("inf"), 0.0),
            **{f"p{round(q * 100)}_s": quantile(recent, q) for q in (0.5, 0.9, 0.99)},
            "within": {f"{bound:g}": share_within(ever, bound) for bound in WITHIN_S},
        }
    return found


def _point(now_s: float, flow: dict[str, Any], latency: dict[str, Any]) -> Point:
    return Point(
        at_s=now_s,
        read_per_s=flow["read_per_s"],
        joined_per_s=flow["verdicts_per_s"]["joined"],
        p50_s=latency["join"]["p50_s"],
        p90_s=latency["join"]["p90_s"],
        p99_s=latency["join"]["p99_s"],
        age_p50_s=latency["event_age"]["p50_s"],
        age_p99_s=latency["event_age"]["p99_s"],
        hit_ratio=flow["hit_ratio"],
        lag_s=flow["foreign_lag_s"],
        pending=flow["pending"],
    )


# View of ``busiest`` -> word of --sort -> field to sort by.
SORTS: Mapping[str, Mapping[str, str]] = {
    "processes": {"cpu": "cpu", "memory": "memory_bytes", "rate": "rate_per_s"},
    "slots": {"rate": "answers_per_s", "memory": "open_bytes"},
    "logs": {"rate": "bytes", "memory": "seconds"},
    "shards": {"rate": "ids_per_s", "memory": "bytes"},
}


def busiest(before: Look, look: Look) -> dict[str, Any]:
    """Returns processes, slots, logs and shards, with rates between the two looks. Shard 0 is the config group."""
    change = Change(look.now, [(before.at_s, before.now)], look.at_s)
    return {
        "at_s": look.at_s,
        "window_s": look.at_s - before.at_s,
        "processes": processes_of(look, change),
        "slots": slots_of(look, change),
        "logs": lag_rows(look.heard),
        "shards": shards_of(look, change),
    }


def ordered(rows: Sequence[dict[str, Any]], view: str, sort: str) -> list[dict[str, Any]]:
    """Sorts the rows, largest first, unknown values last. ``sort``: a word in SORTS, or ``name``."""
    if sort == "name":
        return sorted(rows, key=lambda row: tuple(map(str, row.values())))
    field = SORTS[view].get(sort, SORTS[view]["rate"])
    return sorted(rows, key=lambda row: (row[field] is None, -(row[field] or 0.0)))

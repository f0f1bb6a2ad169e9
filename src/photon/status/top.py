"""Activity of each process, slot, log and shard, derived from two moments of the processes' reports. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from photon.fleet.look import Look
from photon.fleet.numbers import Change, Numbers, lag_of
from photon.fleet.polling import Heard
from photon.fleet.processes import Process

SORTS: Mapping[str, Mapping[str, str]] = {
    "processes": {"cpu": "cpu", "memory": "memory_bytes", "rate": "rate_per_s"},
    "slots": {"rate": "answers_per_s", "memory": "open_bytes"},
    "logs": {"rate": "bytes", "memory": "seconds"},
    "shards": {"rate": "ids_per_s", "memory": "bytes"},
}
"""The meaning of each word of --sort in a view."""
_RATES = {
    "dispatcher": ("photon_dispatcher_read_total",),
    "spark": ("photon_dispatcher_read_total",),
    "joiner": ("photon_joiner_outcomes_total",),
    "eventstore": ("photon_eventstore_events_total", "photon_eventstore_cache_hits_total",
                   "photon_eventstore_cache_misses_total"),
    "cache": ("photon_cache_hits_total", "photon_cache_misses_total", "photon_cache_fed_events_total"),
    "relay": ("photon_relay_events_total",),
    "compute": ("photon_computing_records_total",),
    "observe": ("photon_tables_observed_total",),
    "registry": ("photon_registry_entry_ids_total",),
}  # fmt: skip
"""Metrics that count a process's work, summed: events, keys, ids or runs."""


class Top:
    def __init__(self) -> None:
        self._at_s = 0.0
        self._before: Numbers | None = None

    def update(self, look: Look) -> dict[str, Any]:
        """Rates are null the first time."""
        now, now_s = look.now, look.at_s
        unique = {each.process: each for each in look.heard}
        change = Change(now, [] if self._before is None else [(self._at_s, self._before)], now_s)
        said = {
            "window_s": 0.0 if self._before is None else now_s - self._at_s,
            "processes": [_process(each, change) for each in unique.values()],
            "slots": _slots(unique, change),
            "logs": _logs(unique.values()),
            "shards": _shards(unique, change),
        }
        self._at_s, self._before = now_s, now
        return said


def ordered(rows: Sequence[dict[str, Any]], view: str, sort: str) -> list[dict[str, Any]]:
    """The highest first, unknown values last. ``sort``: a word of SORTS, or name."""
    if sort == "name":
        return sorted(rows, key=lambda row: tuple(map(str, row.values())))
    field = SORTS[view].get(sort, SORTS[view]["rate"])
    return sorted(rows, key=lambda row: (row[field] is None, -(row[field] or 0.0)))


def _process(heard: Heard, change: Change) -> dict[str, Any]:
    who, now = heard.process, change.now
    started, clock = now.of(who, "process_start_time_seconds"), now.of(who, "photon_clock_seconds")
    return {
        **who.labels,
        "up": heard.up,
        "problem": heard.problem,
        "cpu": change.of(who, "process_cpu_seconds_total"),
        "memory_bytes": now.of(who, "process_resident_memory_bytes"),
        "rate_per_s": change.of(who, *_RATES.get(who.kind, ())),
        "open_files": now.of(who, "process_open_fds"),
        "uptime_s": None if started is None or clock is None else max(clock - started, 0.0),
    }


def _slots(unique: Iterable[Process], change: Change) -> list[dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = {}
    now = change.now
    for who in unique:
        prefix = f"photon_{who.kind}"
        for slot in now.labels(who, "slot") if who.kind in ("joiner", "verifier") else ():
            row = rows.setdefault(slot, {"datacentre": who.datacentre, "slot": slot, **dict.fromkeys(_SLOT)})
            if who.kind == "joiner":
                outcomes = f"{prefix}_outcomes_total"
                row["answers_per_s"] = change.of(who, outcomes, slot=slot)
                row["joined_per_s"] = change.of(who, outcomes, slot=slot, outcome="joined")
                for name in ("open_ids", "open_bytes", "redo_log_bytes"):
                    row[name] = now.of(who, f"{prefix}_{name}", slot=slot)
            else:
                published = now.of(who, f"{prefix}_published_bytes", slot=slot) or 0.0
                cleared = now.of(who, f"{prefix}_cleared_bytes", slot=slot) or 0.0
                row["published_per_s"] = change.of(who, f"{prefix}_published_bytes", slot=slot)
                row["uncleared_bytes"] = max(published - cleared, 0.0)
    return [rows[name] for name in sorted(rows)]


_SLOT = (
    "answers_per_s", "joined_per_s", "open_ids", "open_bytes", "redo_log_bytes", "published_per_s", "uncleared_bytes",
)  # fmt: skip


def _logs(heard: Iterable[Heard]) -> list[dict[str, Any]]:
    """Foreign logs that lag, as their dispatchers name them: those that wait longest."""
    return [{"datacentre": who.datacentre, "dispatcher": who.name, **row} for who, row in lag_of(heard)]


def _shards(unique: Iterable[Process], change: Change) -> list[dict[str, Any]]:
    """Shard 0 is the config group. Only a shard's leader counts entries and measures commits."""
    rows: dict[str, dict[str, Any]] = {}
    now = change.now
    for who in unique:
        for shard in now.labels(who, "shard") if who.kind == "registry" else ():
            row = rows.setdefault(shard, {"shard": int(shard), "leader": None, **dict.fromkeys(_SHARD)})
            row["ids"] = max(row["ids"] or 0.0, now.of(who, "photon_registry_ids", shard=shard) or 0.0)
            row["bytes"] = max(row["bytes"] or 0.0, now.of(who, "photon_registry_id_bytes", shard=shard) or 0.0)
            if now.of(who, "photon_registry_leader", shard=shard):
                row["leader"] = who.name
                row["ids_per_s"] = change.of(who, "photon_registry_entry_ids_total", shard=shard)
                row["entries_per_s"] = change.of(who, "photon_registry_entries_total", shard=shard)
                row["queued_ids"] = now.of(who, "photon_registry_queued_ids", shard=shard)
                row["commit_p50_s"] = now.of(who, "photon_registry_commit_p50_seconds", shard=shard)
                row["commit_p99_s"] = now.of(who, "photon_registry_commit_p99_seconds", shard=shard)
    return sorted(rows.values(), key=lambda row: int(row["shard"]))


_SHARD = ("ids", "bytes", "ids_per_s", "entries_per_s", "queued_ids", "commit_p50_s", "commit_p99_s")

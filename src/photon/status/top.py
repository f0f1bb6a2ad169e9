"""``photon top``: what each process, slot, log and shard does, made of two moments of what processes said. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from photon.status.exposition import Sample, samples
from photon.status.gathering import Heard
from photon.status.numbers import rate

VIEWS = ("processes", "slots", "logs", "shards")
SORTS: Mapping[str, Mapping[str, str]] = {
    "processes": {"cpu": "cpu", "memory": "memory_bytes", "rate": "rate_per_s"},
    "slots": {"rate": "answers_per_s", "memory": "open_bytes"},
    "logs": {"rate": "bytes", "memory": "seconds"},
    "shards": {"rate": "ids_per_s", "memory": "bytes"},
}
"""What each word of --sort means in a view."""
_RATES = {
    "dispatcher": ("photon_dispatcher_read_total",),
    "joiner": ("photon_joiner_outcomes_total",),
    "eventstore": ("photon_eventstore_events_total", "photon_eventstore_cache_hits_total",
                   "photon_eventstore_cache_misses_total"),
    "cache": ("photon_cache_hits_total", "photon_cache_misses_total", "photon_cache_fed_events_total"),
    "registry": ("photon_registry_entry_ids_total",),
}  # fmt: skip
"""What a process deals with, added up: events, keys or ids."""

Key = tuple[str, str, str]
_Values = dict[str, list[Sample]]


class Top:
    """Keeps the last moment."""

    def __init__(self) -> None:
        self._at_s = 0.0
        self._before: dict[Key, _Values] = {}

    def update(self, heard: Iterable[Heard], now_s: float) -> dict[str, Any]:
        """``now_s``: monotonic or wall clock, the same each time. Rates are null the first time."""
        unique = {(h.target.service, h.target.process, h.target.address): h for h in heard}
        now = {key: _values(each) for key, each in unique.items() if each.up}
        change = _Change(now, self._before, now_s - self._at_s if self._before else 0.0)
        said = {
            "window_s": change.seconds,
            "processes": [_process(key, each, change) for key, each in unique.items()],
            "slots": _slots(unique, change),
            "logs": _logs(unique.values()),
            "shards": _shards(unique, change),
        }
        self._at_s, self._before = now_s, now
        return said


def ordered(rows: Sequence[dict[str, Any]], view: str, sort: str) -> list[dict[str, Any]]:
    """The most first; those that are not known, last. ``sort``: a word of SORTS, or name."""
    if sort == "name":
        return sorted(rows, key=lambda row: tuple(map(str, row.values())))
    field = SORTS[view].get(sort, SORTS[view]["rate"])
    return sorted(rows, key=lambda row: (row[field] is None, -(row[field] or 0.0)))


class _Change:
    """Between two moments."""

    def __init__(self, now: Mapping[Key, _Values], before: Mapping[Key, _Values], seconds: float) -> None:
        self.now, self.before, self.seconds = now, before, seconds

    def value(self, key: Key, name: str, **labels: str) -> float | None:
        """What one process says now, added up over the labels that are not named; None: nothing."""
        return _sum(self.now.get(key, {}), name, labels)

    def rate(self, key: Key, *names: str, **labels: str) -> float | None:
        """A second; None: not known."""
        found = [self._rate(key, name, labels) for name in names]
        known = [each for each in found if each is not None]
        return sum(known) if known else None

    def _rate(self, key: Key, name: str, labels: Mapping[str, str]) -> float | None:
        now = _sum(self.now.get(key, {}), name, labels)
        if now is None or key not in self.before:
            return None
        return rate(now, _sum(self.before[key], name, labels) or 0.0, self.seconds)


def _values(heard: Heard) -> _Values:
    found: _Values = {}
    for sample in samples(heard.text):
        found.setdefault(sample.name, []).append(sample)
    return found


def _sum(values: _Values, name: str, labels: Mapping[str, str]) -> float | None:
    found = [each.value for each in values.get(name, ()) if labels.items() <= each.labels.items()]
    return sum(found) if found else None


def _process(key: Key, heard: Heard, change: _Change) -> dict[str, Any]:
    started, clock = (change.value(key, name) for name in ("process_start_time_seconds", "photon_clock_seconds"))
    return {
        **heard.target.labels,
        "up": heard.up,
        "problem": heard.problem,
        "cpu": change.rate(key, "process_cpu_seconds_total"),
        "memory_bytes": change.value(key, "process_resident_memory_bytes"),
        "rate_per_s": change.rate(key, *_RATES.get(heard.target.service, ())),
        "open_files": change.value(key, "process_open_fds"),
        "uptime_s": None if started is None or clock is None else max(clock - started, 0.0),
    }


def _slots(unique: Mapping[Key, Heard], change: _Change) -> list[dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = {}
    for key, heard in unique.items():
        prefix = f"photon_{heard.target.service}"
        for slot in _labels(change, key, "slot") if heard.target.service in ("joiner", "verifier") else ():
            row = rows.setdefault(slot, {"datacentre": heard.target.datacentre, "slot": slot, **dict.fromkeys(_SLOT)})
            if heard.target.service == "joiner":
                outcomes = f"{prefix}_outcomes_total"
                row["answers_per_s"] = change.rate(key, outcomes, slot=slot)
                row["joined_per_s"] = change.rate(key, outcomes, slot=slot, outcome="joined")
                for name in ("open_ids", "open_bytes", "redo_log_bytes"):
                    row[name] = change.value(key, f"{prefix}_{name}", slot=slot)
            else:
                published = change.value(key, f"{prefix}_published_bytes", slot=slot) or 0.0
                cleared = change.value(key, f"{prefix}_cleared_bytes", slot=slot) or 0.0
                row["published_per_s"] = change.rate(key, f"{prefix}_published_bytes", slot=slot)
                row["uncleared_bytes"] = max(published - cleared, 0.0)
    return [rows[name] for name in sorted(rows)]


_SLOT = (
    "answers_per_s", "joined_per_s", "open_ids", "open_bytes", "redo_log_bytes", "published_per_s", "uncleared_bytes",
)  # fmt: skip


def _labels(change: _Change, key: Key, label: str) -> list[str]:
    values = change.now.get(key, {})
    return sorted({each.labels[label] for some in values.values() for each in some if label in each.labels})


def _logs(heard: Iterable[Heard]) -> list[dict[str, Any]]:
    """Foreign logs that are behind, as their dispatchers name them: those that wait longest."""
    return [
        {"datacentre": each.target.datacentre, "dispatcher": each.target.process, "log": row["log"],
         "bytes": row["bytes"], "seconds": row["seconds"]}
        for each in heard
        if each.target.service == "dispatcher"
        for row in each.details.get("lag", ())
    ]  # fmt: skip


def _shards(unique: Mapping[Key, Heard], change: _Change) -> list[dict[str, Any]]:
    """Shard 0 is the config group. Only its leader counts entries and measures commits."""
    rows: dict[str, dict[str, Any]] = {}
    for key, heard in unique.items():
        if heard.target.service != "registry":
            continue
        for shard in _labels(change, key, "shard"):
            row = rows.setdefault(shard, {"shard": int(shard), "leader": None, **dict.fromkeys(_SHARD)})
            row["ids"] = max(row["ids"] or 0.0, change.value(key, "photon_registry_ids", shard=shard) or 0.0)
            size = change.value(key, "photon_registry_id_bytes", shard=shard) or 0.0
            row["bytes"] = max(row["bytes"] or 0.0, size)
            if change.value(key, "photon_registry_leader", shard=shard):
                row["leader"] = heard.target.process
                row["ids_per_s"] = change.rate(key, "photon_registry_entry_ids_total", shard=shard)
                row["entries_per_s"] = change.rate(key, "photon_registry_entries_total", shard=shard)
                row["queued_ids"] = change.value(key, "photon_registry_queued_ids", shard=shard)
                row["commit_p50_s"] = change.value(key, "photon_registry_commit_p50_seconds", shard=shard)
                row["commit_p99_s"] = change.value(key, "photon_registry_commit_p99_seconds", shard=shard)
    return sorted(rows.values(), key=lambda row: int(row["shard"]))


_SHARD = ("ids", "bytes", "ids_per_s", "entries_per_s", "queued_ids", "commit_p50_s", "commit_p99_s")

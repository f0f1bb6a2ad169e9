"""Rows about a deployment: processes, the registry's shards, the joiners' slots, copies, tables and all alarms. Pure.

Rates come from a ``Change`` between an earlier look and this one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from photon.config.words import joiners_failing, many, missing_keys
from photon.fleet.look import Look
from photon.fleet.numbers import Change, Numbers
from photon.fleet.polling import Heard
from photon.fleet.processes import Process

ALARMS_MAX = 100
UPSTREAM_ALARM_S = 60.0
DIRTY_ALARM_S = 120.0  # a change that waits longer than this for its observers raises an alarm
HOLDS_ALL, CATCHING_UP = "holds all", "catching up"  # descriptions of a copy's state
# Metrics whose sum counts a process's work: events, keys, ids or runs.
_RATES: Mapping[str, Sequence[str]] = {
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
# Field of a slot -> the verifier's metric.
_VERIFIED = {
    "published_bytes": "published_bytes", "cleared_bytes": "cleared_bytes", "checked_bytes": "checked_bytes",
    "owned_ids": "owned_ids", "owned_oldest_s": "owned_oldest_seconds", "redo_bytes": "redo_log_bytes",
}  # fmt: skip
_SLOT = (
    "state", "problem", *_VERIFIED, "uncleared_bytes", "published_per_s", "alarms", "joined", "answers_per_s",
    "joined_per_s", "open_ids", "open_bytes", "redo_log_bytes",
)  # fmt: skip


def processes_of(look: Look, change: Change) -> list[dict[str, Any]]:
    now, rows = change.now, []
    for each in look.heard:
        who = each.process
        started, clock_s = now.of(who, "process_start_time_seconds"), now.of(who, "photon_clock_seconds")
        rows.append(
            {
                **who.labels,
                "address": who.address,
                "up": each.up,
                "problem": each.problem,
                "cpu": change.of(who, "process_cpu_seconds_total"),
                "memory_bytes": now.of(who, "process_resident_memory_bytes"),
                "rate_per_s": change.of(who, *_RATES.get(who.kind, ())),
                "open_files": now.of(who, "process_open_fds"),
                "uptime_s": None if started is None else max((clock_s or look.at_s) - started, 0.0),
            }
        )
    return rows


def _newest(look: Look) -> Mapping[str, Any]:
    """Returns the details reported by the replica with the newest config."""
    return max((each.details for each in look.of("registry")), key=lambda one: one.get("config", -1), default={})


def shards_of(look: Look, change: Change) -> list[dict[str, Any]]:
    """Returns the shards, and the config group, 0, as known to the replica with the newest config. Counts and
    measurements come from the leaders."""
    now, rows = change.now, dict[str, dict[str, Any]]()
    newest = _newest(look)
    known = {str(shard["shard"]): shard for shard in newest.get("shards", [])}
    leaders = {each.labels["shard"]: who for who, each in now.each("photon_registry_leader") if each.value}
    sizes, ids = now.by("shard", "photon_registry_id_bytes"), now.by("shard", "photon_registry_ids")
    for shard in sorted({*known, *leaders, *ids}, key=int):
        leader, labels = leaders.get(shard), {"shard": shard}
        rates = [
            None if leader is None else change.of(leader, f"photon_registry_{name}_total", **labels)
            for name in ("entry_ids", "entries")
        ]
        queued, p50, p99 = (
            None if leader is None else now.of(leader, f"photon_registry_{name}", **labels)
            for name in ("queued_ids", "commit_p50_seconds", "commit_p99_seconds")
        )
        rows[shard] = {
            **known.get(shard, {"shard": int(shard), "leader": ""}),
            **({} if leader is None else {"leader": leader.name}),
            "ids": ids.get(shard, 0.0),
            "bytes": sizes.get(shard, 0.0),
            "ids_per_s": rates[0],
            "entries_per_s": rates[1],
            "queued_ids": queued,
            "commit_p50_s": p50,
            "commit_p99_s": p99,
        }
    return list(rows.values())


def registry_of(look: Look, change: Change) -> dict[str, Any]:
    replicas = look.of("registry")
    newest = _newest(look)
    return {
        "replicas": len(replicas),
        "replicas_up": sum(each.up for each in replicas),
        "config": newest.get("config"),
        "change": newest.get("change"),
        "shards": [row for row in shards_of(look, change) if row["shard"]],
    }


def slots_of(look: Look, change: Change) -> list[dict[str, Any]]:
    """Returns each slot as reported by its verifier and its joiner. Values of one that does not answer are `None`."""
    now, rows = change.now, dict[str, dict[str, Any]]()

    def row(who: Process, slot: str) -> dict[str, Any]:
        return rows.setdefault(slot, {"datacentre": who.datacentre, "slot": slot, **dict.fromkeys(_SLOT)})

    for each in look.of("verifier"):
        for said in each.details.get("slots", []):
            figures = {key: now.max(f"photon_verifier_{name}", slot=said["slot"]) for key, name in _VERIFIED.items()}
            uncleared = max(figures["published_bytes"] - figures["cleared_bytes"], 0.0)
            row(each.process, said["slot"]).update(
                **figures, state=said["state"], problem=said["problem"], alarms=len(said["alarms"]),
                uncleared_bytes=uncleared,
                published_per_s=change.of(each.process, "photon_verifier_published_bytes", slot=said["slot"]),
            )  # fmt: skip
    for each in look.of("joiner"):
        outcomes = "photon_joiner_outcomes_total"
        for slot in now.labels(each.process, "slot"):
            own = {"slot": slot}
            row(each.process, slot).update(
                joined=now.of(each.process, outcomes, outcome="joined", **own),
                answers_per_s=change.of(each.process, outcomes, **own),
                joined_per_s=change.of(each.process, outcomes, outcome="joined", **own),
                open_ids=now.of(each.process, "photon_joiner_open_ids", **own),
                open_bytes=now.of(each.process, "photon_joiner_open_bytes", **own),
                redo_log_bytes=now.of(each.process, "photon_joiner_redo_log_bytes", **own),
            )
    return [rows[name] for name in sorted(rows)]


def copies_of(look: Look) -> list[dict[str, Any]]:
    """Returns the copies of slots' output as reported by joiners. Omits slots that have no copy."""
    now = look.now
    why = {one["slot"]: one["trouble"] for each in look.heard for one in each.details.get("copies", [])}
    bypassed = now.by("slot", "photon_joiner_copy_bypassed")
    found = []
    for slot, behind in sorted(now.by("slot", "photon_joiner_copy_behind_bytes").items()):
        shown_alone = bool(bypassed.get(slot))
        state = HOLDS_ALL if not behind else CATCHING_UP
        if why.get(slot):
            state = f"cannot be updated: {why[slot]}"
        if shown_alone:
            state = f"shown without a copy; {state}"
        found.append(
            {
                "slot": slot,
                "state": state,
                "behind_bytes": behind,
                "bypassed": shown_alone,
                "trouble": why.get(slot, ""),
            }
        )
    return found


def tables_of(look: Look, rates: Change) -> dict[str, Any] | None:
    """Returns the state of observers and the timestamp oracle; `None` if the deployment has neither."""
    now, observing = look.now, look.of("observe")
    leading = now.each("photon_oracle_leader")
    if not (observing or leading):
        return None
    t = "photon_tables"
    return {
        "observers": sorted({name for each in observing for name in each.details.get("observers", ())}),
        "processes": len(observing),
        "up": sum(each.up for each in observing),
        "stores_silent": sum(not sample.value for _, sample in now.each(f"{t}_store_up")),
        "runs_per_s": rates.sum(f"{t}_observed_total"),
        "conflicts_per_s": rates.sum(f"{t}_conflicts_total"),
        "failed_per_s": rates.sum(f"{t}_observers_failed_total"),
        "dirty_cells": now.max(f"{t}_dirty_cells"),
        "oldest_dirty_s": now.max(f"{t}_oldest_dirty_seconds"),
        "safe_point_age_s": now.max(f"{t}_safe_point_age_seconds"),
        "oracle": {
            "replicas": len(leading),
            "leader": next((who.name for who, sample in leading if sample.value), None),
            "timestamps_per_s": rates.sum("photon_oracle_timestamps_total"),
        }
        if leading
        else None,
    }


def _table_alarms(look: Look) -> Iterator[dict[str, str]]:
    now = look.now
    leading = now.each("photon_oracle_leader")
    if leading and not any(sample.value for _, sample in leading):
        what = "no replica leads the timestamp oracle, so transactions wait"
        yield _alarm("oracle", what, "see photon status oracle; a majority of the registry's replicas must answer")
    for each in look.of("observe"):
        if each.details.get("problem"):
            what = f"the store does not answer: {each.details['problem']}"
            yield _alarm(each.process.title, what, "see photon doctor, and check the store; it continues by itself")
    oldest_s = now.max("photon_tables_oldest_dirty_seconds")
    if oldest_s > DIRTY_ALARM_S:
        cells = many(int(now.max("photon_tables_dirty_cells")), "cell")
        what = f"{cells} wait for observers, the oldest for {oldest_s:.0f} s"
        yield _alarm(
            "observers",
            what,
            "look for exceptions in their logs and at photon table scan --locks; or start more observers",
        )


def upstream_of(now: Numbers, rates: Change) -> list[dict[str, Any]]:
    """Returns the rate and lag of each relay that copies another join's output into logs."""
    return [
        {
            **sample.labels,
            "events_per_s": rates.sum("photon_relay_events_total", **sample.labels),
            "lag_bytes": now.max("photon_relay_lag_bytes", **sample.labels),
            "lag_s": sample.value,
        }
        for _, sample in now.each("photon_relay_lag_seconds")
    ]


def _upstream_alarms(now: Numbers) -> Iterator[dict[str, str]]:
    for who, sample in now.each("photon_relay_lag_seconds"):
        if sample.value > UPSTREAM_ALARM_S:
            what = f"the output of {sample.labels['upstream']} was last copied completely {sample.value:.0f} s ago"
            yield _alarm(who.title, what, "see the relay's log")


def _copy_alarms(copies: Sequence[dict[str, Any]]) -> Iterator[dict[str, str]]:
    for copy in copies:
        if copy["bypassed"] or copy["trouble"]:
            yield _alarm(
                f"copy of {copy['slot']}",
                copy["state"],
                "start its keeper (photon serve copies), or fix the reported problem",
            )


def alarms_of(look: Look) -> list[dict[str, str]]:
    """Returns everything that needs an operator: processes that do not answer, problems of verifier and registry,
    unbalanced ledgers."""
    now = look.now
    found = [alarm for each in look.heard for alarm in _told(each)]
    found += [*_copy_alarms(copies_of(look)), *_upstream_alarms(now), *_table_alarms(look)]
    failing = now.max("photon_dispatcher_joiners_failing")
    if failing:
        found.append(_alarm("dispatcher", joiners_failing(int(failing)), "see their logs"))
    if logs := int(now.max("photon_eventstore_missing_logs")):
        waits = missing_keys(int(now.max("photon_eventstore_missing_keys")), logs, "primary log")
        found.append(_alarm("event store", f"{waits} that cannot be read", "see photon status eventstore"))
    return found[:ALARMS_MAX]


def _told(each: Heard) -> Iterator[dict[str, str]]:
    where, details = each.process.title, each.details
    if not each.up:
        yield _alarm(where, f"does not answer: {each.problem}", "see photon status processes and the process's log")
    if each.process.kind == "sink" and details.get("problem"):
        yield _alarm(where, f"waits: {details['problem']}", "fix the reported problem; the sink continues by itself")
    for alarm in details.get("alarms", []):
        yield _alarm(f"{where}, shard {alarm['shard']}", alarm["what"], "see docs/operations/")
    for slot in details.get("slots", []):
        if slot["problem"]:
            yield _alarm(f"slot {slot['slot']}", slot["problem"], "see photon status verifier")
        for alarm in slot["alarms"]:
            yield _alarm(f"slot {slot['slot']}", f"{alarm['finding']}: {alarm['what']}", alarm["todo"])
    if details.get("unbalanced_hours"):
        hours = many(details["unbalanced_hours"], "hour")
        yield _alarm(where, f"the ledger of {hours} does not balance", "see photon status ledger")
    for alarm in details.get("computing", {}).get("alarms", []):
        yield _alarm(where, alarm["what"], alarm["todo"])
    for line in details.get("unread", []):
        yield _alarm(where, line, "see docs/dispatcher.md")


def _alarm(where: str, what: str, todo: str) -> dict[str, str]:
    return {"where": where, "what": what, "todo": todo}

"""The registry's shards, the joiners' slots, tables and all alarms, derived from the processes' reports. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from photon.config.words import joiners_failing, many, missing_keys
from photon.fleet.numbers import Change, Numbers
from photon.fleet.polling import Heard

ALARMS_MAX = 100
UPSTREAM_ALARM_S = 60.0
DIRTY_ALARM_S = 120.0
"""Longest time that a change may wait for its observers."""
HOLDS_ALL, CATCHING_UP = "holds all", "catching up"
"""States of a copy, in words."""


def registry_of(heard: Sequence[Heard], now: Numbers) -> dict[str, Any]:
    """Shards as the replica with the newest config knows them, with sizes and commit times from their leaders."""
    replicas = [each for each in heard if each.process.kind == "registry"]
    newest = max((each.details for each in replicas), key=lambda one: one.get("config", -1), default={})
    leading = {sample.labels["shard"]: who.name for who, sample in now.each("photon_registry_leader") if sample.value}
    sizes, ids = now.by("shard", "photon_registry_id_bytes"), now.by("shard", "photon_registry_ids")
    p50, p99 = (now.by("shard", f"photon_registry_commit_{rank}_seconds") for rank in ("p50", "p99"))
    shards = []
    for shard in newest.get("shards", []):
        number = str(shard["shard"])
        shards.append(
            {
                **shard,
                "leader": leading.get(number, shard["leader"]),
                "ids": ids.get(number, 0.0),
                "bytes": sizes.get(number, 0.0),
                "commit_p50_s": p50.get(number),
                "commit_p99_s": p99.get(number),
            }
        )
    return {
        "replicas": len(replicas),
        "replicas_up": sum(each.up for each in replicas),
        "config": newest.get("config"),
        "change": newest.get("change"),
        "shards": shards,
    }


def slots_of(heard: Sequence[Heard], now: Numbers) -> list[dict[str, Any]]:
    """The slots as the verifier sees them, with each joiner's count."""
    joined = {}
    for _, sample in now.each("photon_joiner_outcomes_total", outcome="joined"):
        joined[sample.labels["slot"]] = sample.value
    found = []
    for verifier in (each for each in heard if each.process.kind == "verifier"):
        for slot in verifier.details.get("slots", []):
            numbers = {
                key: now.max(f"photon_verifier_{name}", slot=slot["slot"])
                for key, name in (
                    ("published_bytes", "published_bytes"),
                    ("cleared_bytes", "cleared_bytes"),
                    ("checked_bytes", "checked_bytes"),
                    ("owned_ids", "owned_ids"),
                    ("owned_oldest_s", "owned_oldest_seconds"),
                    ("redo_bytes", "redo_log_bytes"),
                )
            }
            row = {"slot": slot["slot"], "state": slot["state"], "problem": slot["problem"], **numbers}
            found.append({**row, "joined": joined.get(slot["slot"]), "alarms": len(slot["alarms"])})
    return found


def copies_of(heard: Sequence[Heard], now: Numbers) -> list[dict[str, Any]]:
    """The copies of the slots' output as their joiners see them; leaves out slots without one."""
    why = {one["slot"]: one["trouble"] for each in heard for one in each.details.get("copies", [])}
    bypassed = now.by("slot", "photon_joiner_copy_bypassed")
    found = []
    for slot, behind in sorted(now.by("slot", "photon_joiner_copy_behind_bytes").items()):
        shown_alone = bool(bypassed.get(slot))
        state = HOLDS_ALL if not behind else CATCHING_UP
        if why.get(slot):
            state = f"nothing can be shipped: {why[slot]}"
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


def tables_of(heard: Sequence[Heard], now: Numbers, rates: Change) -> dict[str, Any] | None:
    """Observers and the timestamp oracle. `None` if the deployment has neither."""
    observing = [each for each in heard if each.process.kind == "observe"]
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


def _table_alarms(heard: Sequence[Heard], now: Numbers) -> Iterator[dict[str, str]]:
    leading = now.each("photon_oracle_leader")
    if leading and not any(sample.value for _, sample in leading):
        what = "no replica leads the oracle of timestamps: transactions wait"
        yield _alarm("oracle", what, "see photon status oracle; a majority of the registry's replicas must answer")
    for each in heard:
        if each.process.kind == "observe" and each.details.get("problem"):
            what = f"its store does not answer: {each.details['problem']}"
            yield _alarm(each.process.title, what, "see photon doctor and the store; it goes on by itself")
    oldest_s = now.max("photon_tables_oldest_dirty_seconds")
    if oldest_s > DIRTY_ALARM_S:
        cells = many(int(now.max("photon_tables_dirty_cells")), "cell")
        what = f"{cells} wait for observers, and the oldest has for {oldest_s:.0f} s"
        yield _alarm("observers", what, "see their log: does one raise? photon table scan --locks; or start more")


def upstream_of(now: Numbers, rates: Change) -> list[dict[str, Any]]:
    """Each output that a join reads from other joins, as its relay copies it."""
    return [
        {
            **sample.labels,
            "events_per_s": rates.max("photon_relay_events_total", **sample.labels),
            "lag_bytes": now.max("photon_relay_lag_bytes", **sample.labels),
            "lag_s": sample.value,
        }
        for _, sample in now.each("photon_relay_lag_seconds")
    ]


def _upstream_alarms(now: Numbers) -> Iterator[dict[str, str]]:
    for who, sample in now.each("photon_relay_lag_seconds"):
        if sample.value > UPSTREAM_ALARM_S:
            what = f"the output of {sample.labels['upstream']} was copied to its end {sample.value:.0f} s ago"
            yield _alarm(who.title, what, "see the relay's log")


def _copy_alarms(copies: Sequence[dict[str, Any]]) -> Iterator[dict[str, str]]:
    for copy in copies:
        if copy["bypassed"] or copy["trouble"]:
            yield _alarm(
                f"copy of {copy['slot']}",
                copy["state"],
                "start its keeper, photon serve copies, or fix what it reports",
            )


def alarms_of(heard: Sequence[Heard], now: Numbers) -> list[dict[str, str]]:
    """Everything that needs an operator: silent processes, problems of verifier and registry, unbalanced ledgers."""
    found = [alarm for each in heard for alarm in _told(each)]
    found += [*_copy_alarms(copies_of(heard, now)), *_upstream_alarms(now), *_table_alarms(heard, now)]
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
        yield _alarm(where, f"waits: {details['problem']}", "see to what it says; it goes on by itself")
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

"""What /status.json may say: canned states of one deployment."""

from __future__ import annotations

import math
from typing import Any

AT_S = 1_800_000_000.0
HOUR_S = 3600
# A name with everything in it that is not text where text is not taken for text.
HOSTILE = '<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>"\'&lt;\u202e\x00'
VERDICTS = ("joined", "filtered", "unmatched", "late", "rejected", "elsewhere", "duplicate")


def process(service: str, name: str, *, up: bool = True, datacentre: str = "east", n: int = 0) -> dict[str, Any]:
    known = {"memory_bytes": (90 + 7 * n) << 20, "open_files": 40 + n, "uptime_s": 86_000.0 + n} if up else {}
    return {
        "datacentre": datacentre, "service": service, "process": name, "address": f"10.1.0.{n + 1}:7000", "up": up,
        "problem": "" if up else "nobody listens there", "memory_bytes": None, "open_files": None, "uptime_s": None,
        **known,
    }  # fmt: skip


def empty() -> dict[str, Any]:
    """A deployment that has read nothing: what the first gathering says."""
    names = [("dispatcher", "east"), ("joiner", "east-1"), ("joiner", "east-2"), ("eventstore", "east")]
    names += [("verifier", "east"), *(("registry", f"r{n}") for n in range(1, 6))]
    quantiles: dict[str, Any] = {"count": 0.0, "p50_s": None, "p90_s": None, "p99_s": None}
    within = {"within": {"1": None, "10": None, "60": None}}
    flow: dict[str, Any] = dict.fromkeys(
        (
            "read_per_s",
            "wasted_per_s",
            "primary_events_per_s",
            "hit_ratio",
            "log_reads_per_s",
            "published_bytes_per_s",
        )
    )
    zeros = (
        "foreign_logs", "foreign_lag_bytes", "foreign_lag_s", "pending", "oldest_pending_s",
        "retry_store_events", "retry_store_oldest_s", "waiting_bound", "batches_in_flight", "waiting_for_home",
        "joiner_open_ids", "joiner_redo_bytes", "joiners_failing", "primary_lag_bytes", "primary_lag_s",
        "primary_logs", "cache_bytes", "registry_queued_ids", "published_bytes", "uncleared_bytes",
        "unchecked_bytes",
    )  # fmt: skip
    flow |= dict.fromkeys(zeros, 0.0)
    flow["verdicts_per_s"] = dict.fromkeys(VERDICTS)
    return {
        "at_s": AT_S, "age_s": 0.4, "datacentre": "east", "version": "1.0.0", "window_s": 0.0, "alarms": [],
        "flow": flow, "others": [{"datacentre": "west", "trusted": None, "left_per_s": None, "joined_per_s": None}],
        "latency": {"join": quantiles | within, "event_age": quantiles | within},
        "ledger": {"total": {}, "hours": [], "unbalanced_hours": 0}, "oldest": [], "lag": [], "slots": [],
        "copies": [],
        "registry": {"replicas": 5, "replicas_up": 5, "config": 1, "change": None, "shards": [
            {"shard": n, "leader": f"r{n % 5 + 1}", "ids": 0, "bytes": 0, "boundary_s": None, "until_s": None,
             "prepared": 1, "config": 1, "commit_p50_s": None, "commit_p99_s": None} for n in range(1, 5)]},
        "tables": None, "processes": [process(*name, n=n) for n, name in enumerate(names)], "history": [], "day": [],
    }  # fmt: skip


def busy() -> dict[str, Any]:
    """A day's work, and all is well."""
    said = empty()
    said["window_s"] = 60.0
    said["flow"] |= {
        "read_per_s": 8412.0, "wasted_per_s": 1.2, "primary_events_per_s": 91_320.0, "hit_ratio": 0.991,
        "log_reads_per_s": 74.0, "published_bytes_per_s": 7.1e6, "foreign_logs": 24.0, "foreign_lag_bytes": 1.9e6,
        "foreign_lag_s": 0.4, "pending": 312.0, "oldest_pending_s": 734.0, "retry_store_events": 120.0,
        "retry_store_oldest_s": 734.0, "batches_in_flight": 7.0, "waiting_for_home": 145.0, "joiner_open_ids": 910.0,
        "joiner_redo_bytes": 8.1e6, "primary_lag_bytes": 3.3e6, "primary_lag_s": 0.2, "primary_logs": 96.0,
        "cache_bytes": 1.7e9, "registry_queued_ids": 1_204.0, "published_bytes": 6.1e11, "uncleared_bytes": 4.2e6,
        "unchecked_bytes": 9.9e6,
    }  # fmt: skip
    said["flow"]["verdicts_per_s"] = dict(zip(VERDICTS, (4102.0, 201.0, 31.0, 0.0, 0.2, 4051.0, 0.0), strict=True))
    said["others"] = [{"datacentre": "west", "trusted": True, "left_per_s": 4100.0, "joined_per_s": 4051.0}]
    said["latency"] = {
        "join": {"count": 246_000.0, "p50_s": 0.081, "p90_s": 0.19, "p99_s": 0.92,
                 "within": {"1": 0.9913, "10": 0.99991, "60": 0.999998}},
        "event_age": {"count": 246_000.0, "p50_s": 2.4, "p90_s": 4.4, "p99_s": 8.7,
                      "within": {"1": 0.02, "10": 0.994, "60": 0.99999}},
    }  # fmt: skip
    said["ledger"] = ledger(30)
    said["oldest"] = [pending(n) for n in range(20)]
    said["lag"] = [
        {"log": f"clicks/2027-01-15/host-{n:03}.log", "bytes": 4e5 / n, "seconds": 0.4 / n} for n in (1, 2, 3)
    ]
    said["slots"] = [slot(f"east-{n}") for n in (1, 2)]
    said["copies"] = [
        {"slot": "east-1", "state": "holds all", "behind_bytes": 0.0},
        {"slot": "east-2", "state": "catching up", "behind_bytes": 81_920.0},
    ]
    for n, shard in enumerate(said["registry"]["shards"]):
        shard |= {"ids": 310_000_000 + 7_000_000 * n, "bytes": 310_000_000 * 40, "boundary_s": AT_S - 259_200,
                  "commit_p50_s": 0.052 + n / 1000, "commit_p99_s": 0.11}  # fmt: skip
    said["history"] = [point(AT_S - 5 * (179 - n), n) for n in range(180)]
    said["day"] = [point(AT_S - 480 * (179 - n), n) for n in range(180)]
    return said


def ledger(hours: int) -> dict[str, Any]:
    rows = []
    for n in range(hours):
        read = int(15e6 + 14e6 * math.cos((n - 4) / 24 * 2 * math.pi))
        row = {"hour_s": AT_S // HOUR_S * HOUR_S - HOUR_S * n, "read": read, "joined": int(read * 0.55),
               "filtered": int(read * 0.1), "unmatched": int(read * 0.05), "late": 0, "rejected": int(read * 0.01),
               "elsewhere": int(read * 0.28), "duplicate": 0, "pending": 312 if n == 0 else 0, "reread": 0,
               "wasted": 9}  # fmt: skip
        row["elsewhere"] += read - sum(row[kind] for kind in (*VERDICTS, "pending"))
        rows.append(row)
    total = {kind: sum(row[kind] for row in rows) for kind in rows[0] if kind != "hour_s"}
    return {"total": total, "hours": rows, "unbalanced_hours": 0}


def pending(n: int) -> dict[str, Any]:
    return {
        "event_id": f"10.12.0.{n}:4711:17999{n:05}000123", "log": f"clicks/2027-01-15/host-{n:03}.log",
        "offset": 1_048_576 * n, "age_s": 734.0 - 36 * n, "tries": 12 - n // 2, "next_try_s": 21.0 - n,
        "reason": "its primary event has not been found yet",
    }  # fmt: skip


def slot(name: str) -> dict[str, Any]:
    return {
        "slot": name, "state": "live", "problem": "", "published_bytes": 3.0e11, "cleared_bytes": 2.99999e11,
        "checked_bytes": 2.99998e11, "owned_ids": 512.0, "owned_oldest_s": 3.2, "redo_bytes": 4e6, "joined": 9.1e7,
        "alarms": 0,
    }  # fmt: skip


def point(at_s: float, n: int) -> dict[str, Any]:
    wave = math.sin(n / 17)
    return {
        "at_s": at_s, "read_per_s": 8000 + 900 * wave, "joined_per_s": 4000 + 500 * wave, "p50_s": 0.08 + 0.01 * wave,
        "p90_s": 0.2 + 0.05 * wave, "p99_s": 0.9 + 0.4 * wave, "age_p50_s": 2.4 + 0.1 * wave, "age_p99_s": 8 + wave,
        "hit_ratio": 0.99 + 0.005 * wave, "lag_s": 0.4 + 0.3 * wave, "pending": 300 + 90 * wave,
    }  # fmt: skip


def first_seconds() -> dict[str, Any]:
    """Rates are known by now, there is no history."""
    said = empty()
    said["window_s"] = 0.5
    said["flow"] |= {"read_per_s": 12.0, "foreign_logs": 1.0, "primary_events_per_s": 120.0, "primary_logs": 1.0}
    said["flow"]["verdicts_per_s"] = dict.fromkeys(VERDICTS, 0.0) | {"joined": 9.0}
    return said


def catching_up() -> dict[str, Any]:
    """Days of logs are to be read; shares of everything are large."""
    said = busy()
    said["flow"] |= {"foreign_lag_bytes": 3.3e12, "foreign_lag_s": 259_200.0, "pending": 2_400_000.0,
                     "oldest_pending_s": 270_000.0, "read_per_s": 61_000.0, "hit_ratio": 0.21}  # fmt: skip
    said["lag"] = [{"log": f"clicks/{n}.log.gz", "bytes": 3.3e11, "seconds": 259_200.0 - n} for n in range(10)]
    return said


def other_away() -> dict[str, Any]:
    said = busy()
    said["others"][0] |= {"trusted": False, "joined_per_s": 0.0}
    for replica in ("r4", "r5"):
        _silence(said, "registry", replica)
    said["registry"]["replicas_up"] = 3
    return said


def alarms() -> dict[str, Any]:
    said = busy()
    _silence(said, "joiner", "east-2")
    said["alarms"] += [
        {"where": "slot east-2", "what": "owned-too-long: 512 ids are registered but not written for 21 min",
         "todo": "start a joiner in this slot; if its disk is permanently gone, retire the slot"},
        {"where": "dispatcher east", "what": "the ledger of 1 hour does not balance",
         "todo": "see photon status ledger"},
    ]  # fmt: skip
    said["slots"][1] |= {"state": "down", "alarms": 1, "owned_oldest_s": 1260.0}
    said["copies"][1] |= {"state": "its keeper does not answer: published without a copy", "behind_bytes": 4e8}
    said["registry"]["shards"][2]["leader"] = ""
    said["tables"] = tables(["cluster", "count"], None)
    return said


def tables(observers: list[str], leader: str | None) -> dict[str, Any]:
    return {
        "observers": observers, "processes": 3, "up": 2, "stores_silent": 1, "runs_per_s": 91.0,
        "conflicts_per_s": 1.5, "failed_per_s": 0.0, "dirty_cells": 4_021.0, "oldest_dirty_s": 300.0,
        "safe_point_age_s": 5_000.0, "oracle": {"replicas": 5, "leader": leader, "timestamps_per_s": 190.0},
    }  # fmt: skip


def _silence(said: dict[str, Any], service: str, name: str) -> None:
    for n, each in enumerate(said["processes"]):
        if (each["service"], each["process"]) == (service, name):
            said["processes"][n] = process(service, name, up=False, n=n)
    said["alarms"].append({"where": f"{service} {name}", "what": "does not answer: nobody listens there",
                           "todo": "see photon status processes and the process's log"})  # fmt: skip


def resharding() -> dict[str, Any]:
    """From 4 to 16 shards; 3 of the 4 are prepared."""
    said = busy()
    said["registry"]["change"] = {
        "config": 2, "stage": "preparing", "starts_s": AT_S + 600, "added": list(range(5, 17)), "leaving": [],
        "settled": False, "reason": "",
    }  # fmt: skip
    for n, shard in enumerate(said["registry"]["shards"]):
        shard |= {"prepared": 1 if n == 3 else 2, "until_s": AT_S + 600}
    return said


def many_logs() -> dict[str, Any]:
    """5,000 logs, 64 shards, 200 processes, 100 alarms."""
    said = busy()
    said["flow"]["foreign_logs"] = 5000.0
    said["lag"] = [
        {"log": f"clicks/{'very-' * 20}long/host-{n:04}.log", "bytes": 1e9, "seconds": 90.0} for n in range(10)
    ]
    shard = said["registry"]["shards"][0]
    said["registry"]["shards"] = [{**shard, "shard": n} for n in range(1, 65)]
    said["processes"] += [process("joiner", f"east-auto-{n}", n=n) for n in range(200)]
    said["alarms"] = [
        {"where": f"joiner {n}", "what": "does not answer", "todo": "see photon status processes"} for n in range(100)
    ]
    return said


def hostile() -> dict[str, Any]:
    """Every name that comes from outside is markup, and very long."""
    said = busy()
    name = HOSTILE + "x" * 300
    said["alarms"] = [{"where": name, "what": name, "todo": name}]
    said["lag"] = [{"log": name, "bytes": 1.0, "seconds": 1.0}]
    said["oldest"] = [{**pending(1), "event_id": name, "log": name, "reason": name}]
    said["slots"] = [{**slot(name), "state": name}, {**slot("b"), "problem": name}]
    said["copies"] = [{"slot": name, "state": name, "behind_bytes": 1.0}]
    said["others"][0]["datacentre"] = name
    said["processes"][0] |= {"service": name, "process": name, "address": name, "datacentre": name}
    said["registry"]["shards"][0]["leader"] = name
    said["registry"]["change"] = {"config": 2, "stage": name, "starts_s": 1e300, "added": [name], "leaving": [name],
                                  "settled": False, "reason": name}  # fmt: skip
    said["tables"] = tables([name], name)
    said["version"] = said["datacentre"] = name
    return said

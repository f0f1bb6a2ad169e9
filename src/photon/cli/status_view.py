"""``photon status`` in words and columns. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from photon.config.words import NONE, delay, many, rate, share, size

SHARDS_SHOWN = 12
ALARMS_SHOWN = 20


def text(datacentres: Sequence[dict[str, Any]], now_s: float) -> str:
    """All datacentres, one below the other; the registry, which they share, once."""
    parts = [_datacentre(each, now_s) for each in datacentres]
    if datacentres:
        parts.append(_registry(datacentres[0]["registry"]))
        parts += [_computation(each) for each in datacentres[0].get("computations", ())]
        parts += _tables(datacentres[0].get("tables"))
        alarms = list({(a["where"], a["what"]): a for each in datacentres for a in each["alarms"]}.values())
        parts.append(_alarms(alarms))
    return "\n\n".join(parts)


def _datacentre(said: dict[str, Any], now_s: float) -> str:
    flow, latency, ledger = said["flow"], said["latency"]["join"], said["ledger"]["total"]
    verdicts = flow["verdicts_per_s"]
    up = sum(process["up"] for process in said["processes"])
    rows = [
        ("read", f"{rate(flow['read_per_s'])} events, {size(flow['foreign_lag_bytes'])} and "
                 f"{delay(flow['foreign_lag_s'])} behind in {many(int(flow['foreign_logs']), 'log')}"),
        ("primary", f"{rate(flow['primary_events_per_s'])} events, {size(flow['primary_lag_bytes'])} and "
                    f"{delay(flow['primary_lag_s'])} behind, cache hits {share(flow['hit_ratio'])}"),
        *(
            ("upstream", f"{each['upstream']} ({each['side']}): {rate(each['events_per_s'])} pairs, "
                         f"{size(each['lag_bytes'])} and {delay(each['lag_s'])} behind")
            for each in said.get("upstream", ())
        ),
        ("joined", f"{rate(verdicts['joined'])}, elsewhere {rate(verdicts['elsewhere'])}, unmatched "
                   f"{rate(verdicts['unmatched'])}, wasted {rate(flow['wasted_per_s'])}"),
        ("latency", f"p50 {delay(latency['p50_s'])}, p90 {delay(latency['p90_s'])}, p99 "
                    f"{delay(latency['p99_s'])} from line to join"),
        ("queues", f"{many(int(flow['pending']), 'event')} pending (oldest {delay(flow['oldest_pending_s'])}), "
                   f"{_stored(flow)}, {flow['waiting_for_home']:,.0f} left to "
                   f"their home, {flow['joiner_open_ids']:,.0f} being registered"),
        ("output", f"{size(flow['published_bytes'])} published, {size(flow['uncleared_bytes'])} not cleared, "
                   f"{size(flow['unchecked_bytes'])} not checked"),
        ("watermark", f"{_ago(flow['watermark_lag_s'])}, exact {_ago(flow['exact_watermark_lag_s'])}, "
                      f"{many(int(flow['watermark_waiting']), 'event waits', 'events wait')}, "
                      f"{many(int(flow['late_records']), 'record was late', 'records were late')}"),
        *_copies(said.get("copies", [])),
        *(("adapter", each) for each in said.get("adapters", ())),
        ("ledger", ", ".join(f"{name} {count:,}" for name, count in ledger.items()) or NONE),
    ]  # fmt: skip
    age = max(now_s - said["at_s"], 0.0)
    head = f"{said['datacentre']}: {up} of {len(said['processes'])} processes answer"
    head += f" (seen {age:.0f} s ago)" if age > 10 else ""
    return "\n".join([head, *(f"  {name:<9} {line}" for name, line in rows)])


def _stored(flow: dict[str, Any]) -> str:
    """A join on Spark has a bound, and no retry store."""
    if bound := flow["waiting_bound"]:
        return f"{flow['retry_store_events']:,.0f} wait on Spark, where {bound:,.0f} may in the end"
    return f"{flow['retry_store_events']:,.0f} in the retry store"


def _ago(seconds: float | None) -> str:
    return "unknown" if seconds is None else f"{delay(seconds)} ago"


def _copies(copies: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    if not copies:
        return []
    whole = sum(copy["state"] == "holds all" for copy in copies)
    alone = sum(copy["bypassed"] for copy in copies)
    behind = size(sum(copy["behind_bytes"] for copy in copies))
    text = f"{whole} of {len(copies)} slots have all of their output copied, {behind} behind"
    return [("copies", f"{text}, {alone} shown without a copy" if alone else text)]


def _registry(registry: dict[str, Any]) -> str:
    shards = registry["shards"]
    lines = [
        f"registry: {registry['replicas_up']} of {registry['replicas']} replicas answer, {many(len(shards), 'shard')}"
        f"{_change(registry['change'])}"
    ]
    for shard in shards[:SHARDS_SHOWN]:
        leader = shard["leader"] or "no leader"
        lines.append(
            f"  shard {shard['shard']:<4} {leader:<12} {shard['ids']:>14,.0f} ids {size(shard['bytes']):>10}"
            f"  commit p50 {delay(shard['commit_p50_s'])}"
        )
    if len(shards) > SHARDS_SHOWN:
        lines.append(f"  and {len(shards) - SHARDS_SHOWN} more: -o json, or the status page")
    return "\n".join(lines)


def _computation(said: dict[str, Any]) -> str:
    done = (
        f"{rate(said['records_per_s'])}, {said['late']:,} late, {said['aside']:,} put aside, {said['published']:,} "
        f"published; {many(said['processes'], 'process', 'processes')} for {many(said['intervals'], 'interval')}"
    )
    lines = [f"compute {said['compute']}: {done if said['running'] else said['problem'] or 'it has not begun'}"]
    lines += [
        f"  stage {each['stage']:<4} {each['computation']:<12} watermark {each['watermark'] or NONE} "
        f"({_ago(each['lag_s'])}), {many(each['waiting'], 'event waits', 'events wait')}"
        for each in said["stages"]
    ]
    return "\n".join(lines)


def _tables(tables: dict[str, Any] | None) -> list[str]:
    if tables is None:
        return []
    oracle = tables["oracle"]
    lines = [
        f"tables: {tables['up']} of {tables['processes']} processes of observers answer, "
        f"{rate(tables['runs_per_s'])} runs, {tables['dirty_cells']:,.0f} cells wait "
        f"(oldest {delay(tables['oldest_dirty_s'])})"
    ]
    if tables["observers"]:
        lines.append(f"  observers {', '.join(tables['observers'])}")
    if oracle is not None:
        lines.append(f"  oracle    {oracle['leader'] or 'no leader'}, {rate(oracle['timestamps_per_s'])} timestamps")
    return ["\n".join(lines)]


def _change(change: dict[str, Any] | None) -> str:
    if change is None or (change["stage"] != "preparing" and change["settled"]):
        return ""
    return f", resharding to config {change['config']}: {change['stage']}"


def _alarms(alarms: Sequence[dict[str, str]]) -> str:
    if not alarms:
        return "alarms: none"
    lines = [f"alarms: {len(alarms)}"]
    lines += [f"  {each['where']}: {each['what']} ({each['todo']})" for each in alarms[:ALARMS_SHOWN]]
    return "\n".join(lines)

"""The overview as shown on a terminal and on the status page: parts and their columns. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from photon.config.words import NONE, delay, duration, many, number, rate, share, size
from photon.fleet.counters import VERDICTS
from photon.fleet.parts import Column, Part, bad_if, moment

SHARDS_SHOWN = 12
ALARMS_SHOWN = 20
Row = dict[str, Any]


def overview(datacentres: Sequence[Row], now_s: float) -> Iterator[str | Part]:
    """Yields all datacentres, one below another, then once the registry, which they share, and the parts outside any
    datacentre."""
    for each in datacentres:
        up, age_s = sum(process["up"] for process in each["processes"]), now_s - each["at_s"]
        seen = f" (seen {age_s:.0f} s ago)" if age_s > 10 else ""
        yield f"{each['datacentre']}: {up} of {len(each['processes'])} processes answer{seen}"
        yield from flow(each).lines()
        yield ""
    if not datacentres:
        return
    first, registry = datacentres[0], datacentres[0]["registry"]
    change, count = registry["change"], len(registry["shards"])
    moving = change is not None and (change["stage"] == "preparing" or not change["settled"])
    resharding = f", resharding to config {change['config']}: {change['stage']}" if moving else ""
    yield (
        f"registry: {registry['replicas_up']} of {registry['replicas']} replicas answer, {many(count, 'shard')}"
        f"{resharding}"
    )
    yield shards(registry["shards"][:SHARDS_SHOWN])
    if count > SHARDS_SHOWN:
        yield f"and {count - SHARDS_SHOWN} more; see -o json, or the status page"
    yield ""
    if first.get("computations"):
        yield from (computations(first["computations"]), "")
    if first.get("tables"):
        yield from ("tables", *tables(first).lines(), "")
    alarms = list({(a["where"], a["what"]): a for each in datacentres for a in each["alarms"]}.values())
    yield f"alarms: {len(alarms) or 'none'}"
    if alarms:
        yield Part("alarms", alarms[:ALARMS_SHOWN], ALARMS)


def on_page(said: Row) -> list[Row]:
    """Returns the parts of the status page; each has the name of its page element."""
    latency, ledger = said["latency"], said["ledger"]
    times = [
        {"what": f"time from {what} to join", **latency[name], **latency[name]["within"]}
        for what, name in (("line", "join"), ("event", "event_age"))
    ]
    hours = [{"hour_s": None, **ledger["total"], "all": True}, *ledger["hours"]] if ledger["hours"] else []
    slots, copies = said["slots"], said.get("copies", [])
    processes = sorted(said["processes"], key=lambda row: bool(row["up"]))
    parts = [
        flow(said), Part("oldest", said["oldest"], OLDEST, "every event that was read has its verdict"),
        Part("lag", said["lag"], LAG, "every log is read to its end"), Part("latency", times, LATENCY),
        Part("ledger", hours, LEDGER, "nothing has been read yet", lambda row: "sum" if row.get("all") else ""),
        shards(said["registry"]["shards"]), tables(said),
        Part("slots", slots, SLOTS, "no verifier answers", bad_if(lambda row: row["problem"] or row["alarms"])),
        Part("copies", copies, COPIES, style=bad_if(lambda row: row.get("bypassed") or row.get("trouble"))),
        computations(said.get("computations", [])),
        Part("processes", processes, PROCESSES, style=bad_if(lambda row: not row["up"])),
    ]  # fmt: skip
    return [part.on_page() for part in parts]


def _ago(seconds: float | None) -> str:
    return "unknown" if seconds is None else f"{delay(seconds)} ago"


def _minute(seconds: float | None) -> str:
    return NONE if seconds is None else moment(int(seconds * 1e9))[:16].replace("T", " ")


def _share(part: float | None) -> str:
    return f"{part:.4%}" if part is not None and 0.999 < part < 1 else share(part)


# -- parts with one row: a line per column ---------------------------------------------------------------------------
def flow(said: Row) -> Part:
    return Part("facts", [said], FLOW)


def _stored(flow: Row) -> str:
    """Describes waiting events: on Spark, their number and its limit; otherwise, those in the retry store."""
    if bound := flow["waiting_bound"]:
        return f"{flow['retry_store_events']:,.0f} wait on Spark, of at most {bound:,.0f}"
    oldest = f" (oldest {duration(flow['retry_store_oldest_s'])})" if flow["retry_store_events"] else ""
    return f"{flow['retry_store_events']:,.0f} in the retry store{oldest}"


def _read(said: Row) -> str:
    flow = said["flow"]
    behind = f"{size(flow['foreign_lag_bytes'])} and {delay(flow['foreign_lag_s'])} behind"
    return f"{rate(flow['read_per_s'])} events, {behind} in {many(int(flow['foreign_logs']), 'log')}"


def _primary(said: Row) -> str:
    flow = said["flow"]
    behind = f"{size(flow['primary_lag_bytes'])} and {delay(flow['primary_lag_s'])} behind"
    return f"{rate(flow['primary_events_per_s'])} events, {behind}, cache hits {share(flow['hit_ratio'])}"


def _upstream(said: Row) -> str:
    return "; ".join(
        f"{each['upstream']} ({each['side']}): {rate(each['events_per_s'])} pairs, "
        f"{size(each['lag_bytes'])} and {delay(each['lag_s'])} behind"
        for each in said.get("upstream", ())
    )


def _joined(said: Row) -> str:
    verdicts = said["flow"]["verdicts_per_s"]
    others = ", ".join(f"{name} {rate(verdicts[name])}" for name in ("elsewhere", "unmatched", "filtered", "late"))
    return f"{rate(verdicts['joined'])}, {others}, wasted {rate(said['flow']['wasted_per_s'])}"


def _latency(said: Row) -> str:
    join = said["latency"]["join"]
    return ", ".join(f"p{q} {delay(join[f'p{q}_s'])}" for q in (50, 90, 99)) + " from line to join"


def _queues(said: Row) -> str:
    flow = said["flow"]
    return (
        f"{many(int(flow['pending']), 'event')} pending (oldest {duration(flow['oldest_pending_s'])}), "
        f"{_stored(flow)}, {flow['waiting_for_home']:,.0f} left to their home datacentre, "
        f"{flow['joiner_open_ids']:,.0f} being registered"
    )


def _output(said: Row) -> str:
    flow = said["flow"]
    return ", ".join(f"{size(flow[f'{what}_bytes'])} {words}" for what, words in _OUTPUT)


_OUTPUT = (("published", "published"), ("uncleared", "not cleared"), ("unchecked", "not checked"))


def _watermark(said: Row) -> str:
    flow = said["flow"]
    waiting = many(int(flow.get("watermark_waiting", 0)), "event waits", "events wait")
    late = many(int(flow.get("late_records", 0)), "record was late", "records were late")
    exact = _ago(flow.get("exact_watermark_lag_s"))
    return f"{_ago(flow.get('watermark_lag_s'))}, exact {exact}, {waiting}, {late}"


def _copies(said: Row) -> str:
    copies = said.get("copies", [])
    whole, behind = sum(not copy["behind_bytes"] for copy in copies), sum(copy["behind_bytes"] for copy in copies)
    text = f"{whole} of {len(copies)} slots have their whole output copied, {size(behind)} behind"
    alone = sum(copy.get("bypassed", False) for copy in copies)
    return "" if not copies else f"{text}, {alone} shown without a copy" if alone else text


FLOW = (
    Column("rates", lambda s: f"of the last {delay(s['window_s'])}" if s["window_s"] else "known in a moment"),
    Column("read", _read), Column("primary", _primary), Column("upstream", _upstream, str), Column("joined", _joined),
    Column("latency", _latency), Column("queues", _queues), Column("output", _output),
    Column("watermark", _watermark), Column("copies", _copies, str),
    Column("adapter", lambda s: "; ".join(s.get("adapters", ())), str),
    Column("ledger", lambda s: ", ".join(f"{name} {count:,}" for name, count in s["ledger"]["total"].items())),
)  # fmt: skip


def tables(said: Row) -> Part:
    return Part("tables", [said["tables"]] if said["tables"] else [], TABLES)


def _observers(tables: Row) -> str:
    if not tables["processes"]:
        return "none in the deployment file"
    silent = ", but a store does not answer" if tables["stores_silent"] else ""
    up = f"{tables['up']} of {many(tables['processes'], 'process', 'processes')}"
    return f"{up} answer{silent}: {', '.join(tables['observers']) or NONE}"


def _runs(tables: Row) -> str:
    conflicts, failed = rate(tables["conflicts_per_s"]), rate(tables["failed_per_s"])
    return f"{rate(tables['runs_per_s'])}, {conflicts} conflicts, {failed} failed"


def _cells(tables: Row) -> str:
    oldest = f", the oldest for {duration(tables['oldest_dirty_s'])}" if tables["dirty_cells"] else ""
    return many(int(tables["dirty_cells"]), "cell waits", "cells wait") + oldest


def _oracle(tables: Row) -> str:
    oracle = tables["oracle"]
    led = "" if oracle is None else f"led by {oracle['leader']}" if oracle["leader"] else "without a leader"
    return "" if oracle is None else f"{led}, {rate(oracle['timestamps_per_s'])} timestamps"


TABLES = (
    Column("observers", _observers), Column("runs", _runs), Column("changes", _cells), Column("oracle", _oracle, str),
)  # fmt: skip


# -- tables ----------------------------------------------------------------------------------------------------------
ALARMS = (Column("where"), Column("what"), Column("what to do", "todo"))
OLDEST = (
    Column("event", "event_id"), Column(">read", "age_s", _ago), Column(">tries"),
    Column(">next try", "next_try_s", lambda s: NONE if s is None else f"in {delay(s)}" if s > 0 else "now"),
    Column("why it waits", "reason"), Column("log", lambda row: f"{row['log']} @ {row['offset']}"),
)  # fmt: skip
LAG = (Column("log"), Column(">not read", "bytes", size), Column(">for", "seconds", duration))
LATENCY = (
    Column("", "what"), *(Column(f">p{q}", f"p{q}_s", delay) for q in (50, 90, 99)),
    *(Column(f">within {s} s", s, _share) for s in ("1", "10", "60")),
)  # fmt: skip
LEDGER = (
    Column("hour", lambda row: "all hours" if row.get("all") else row["hour_s"],
           lambda at: at if isinstance(at, str) else "no readable time" if at is None else _minute(at)),
    *(Column(f">{name}", name, number) for name in ("read", *VERDICTS, "pending")),
)  # fmt: skip
SHARDS = (
    Column(">shard"), Column("leader", "leader", lambda name: name or "no leader"), Column(">ids", "ids", number),
    Column(">size", "bytes", size), Column(">boundary (UTC)", "boundary_s", _minute),
    Column(">until (UTC)", "until_s", _minute), Column(">commit p50", "commit_p50_s", delay),
    Column(">p99", "commit_p99_s", delay),
)  # fmt: skip
SLOTS = (
    Column("slot"), Column("state", lambda row: row["problem"] or row["state"]), Column(">joined", "joined", number),
    Column(">published", "published_bytes", size), Column(">to clear", lambda row: _left(row, "cleared_bytes"), size),
    Column(">to check", lambda row: _left(row, "checked_bytes"), size), Column(">owned ids", "owned_ids", number),
    Column(">oldest", "owned_oldest_s", duration), Column(">redo log", "redo_bytes", size),
    Column(">alarms", "alarms", number),
)  # fmt: skip
COPIES = (Column("slot"), Column("copy", "state"), Column(">behind", "behind_bytes", size))
PROCESSES = (
    Column("process", lambda row: f"{row['service']} {row['process']}"), Column("datacentre"),
    Column("state", lambda row: "up" if row["up"] else "▲ silent"), Column(">memory", "memory_bytes", size),
    Column(">files", "open_files", number), Column(">since", "uptime_s", duration), Column("address"),
)  # fmt: skip


def _left(row: Row, done: str) -> float | None:
    return None if row["published_bytes"] is None else row["published_bytes"] - row[done]


def shards(rows: Sequence[Row]) -> Part:
    return Part("shards", rows, SHARDS, "no replica answers", bad_if(lambda row: not row["leader"]))


def computations(found: Sequence[Row]) -> Part:
    """Returns a row for each stage. Values of a whole computation are in the row of its first stage."""
    rows = [
        {"alarms": each["alarms"], **(each if at == 0 else {}), **stage}
        for each in found
        for at, stage in enumerate(each["stages"] or [{}])
    ]
    return Part("computations", rows, COMPUTATIONS, style=bad_if(lambda row: row["alarms"]))


def _of_all(value: str, words: Any) -> Any:
    """Returns a function that formats a value of the whole computation; empty in rows after the first stage."""
    return lambda row: words(row[value]) if "compute" in row else ""


def _state(row: Row) -> str:
    if "compute" not in row:
        return ""
    alarm = row["alarms"][0]["what"] if row["alarms"] else ""
    return row["problem"] or alarm or ("computes" if row["running"] else "begins")


COMPUTATIONS = (
    Column("computation", "compute", lambda name: name or ""),
    Column("stage", lambda row: f"{row['stage']} {row['computation']}" if "stage" in row else None),
    Column("watermark (UTC)", "watermark"), Column(">behind", "lag_s", delay),
    Column(">events wait", "waiting", number), Column(">records", _of_all("records_per_s", rate), str),
    *(Column(f">{name}", _of_all(field, number), str)
      for name, field in (("late", "late"), ("put aside", "aside"), ("published", "published"))),
    Column(">processes", lambda row: _processes(row), str), Column("state", _state, str),
)  # fmt: skip


def _processes(row: Row) -> str:
    return f"{row['processes']} for {many(row['intervals'], 'interval')}" if "compute" in row else ""

"""Common computations, each a topology over logs of JSON lines with a time ``at`` (ISO 8601)::

from photon.computing.examples.recipes import word_count

topology = word_count("logs", "streams")
"""

from __future__ import annotations

from typing import Any

from photon.computing import HOUR_NS, MINUTE_NS, Computation, Context, Record, Timer, Topology
from photon.computing.windows import Each, Windows, collect, count, session, sum_of, top, tumbling

AT = {"field": "at", "format": "iso8601"}


def word_count(logs: str, out: str, within_ns: int | None = None) -> Topology:
    """Counts each word per minute. A line: ``{"at":…,"text":"to be or not"}``."""
    topology = Topology("words")
    lines = topology.log(logs, format="jsonl", key="text", time=AT, within_ns=within_ns)
    topology.add(Each("words", lambda line: line.value["text"].split()), {lines: "text"})
    topology.add(Windows("counts", tumbling(MINUTE_NS), {"n": count()}), {"words": lambda word: word.value})
    topology.publish("counts", f"{out}/counts")
    return topology


def top_words(logs: str, out: str, within_ns: int | None = None) -> Topology:
    """Finds the three most frequent words per minute."""
    topology = word_count(logs, out, within_ns)
    best = top(3, lambda counted: [counted.value["n"], counted.value["key"]])
    topology.add(Windows("top", tumbling(MINUTE_NS), {"words": best}), {"counts": lambda _: "all"})
    topology.publish("top", f"{out}/top")
    return topology


def visits(logs: str, out: str, within_ns: int | None = None) -> Topology:
    """Finds each user's visits, which end half an hour after the last click. A line:
    ``{"at":…,"user":"ann","page":"/"}``."""
    topology = Topology("visits")
    clicks = topology.log(logs, format="jsonl", key="user", time=AT, within_ns=within_ns)
    kept = {"clicks": count(), "pages": collect(lambda click: click.value["page"])}
    topology.add(Windows("visits", session(30 * MINUTE_NS), kept), {clicks: "user"})
    topology.publish("visits", f"{out}/visits")
    return topology


class Pairs(Computation):
    """Joins each click with its query, in any order of arrival, keyed by the field they share. A click whose query
    has not arrived within an hour goes to ``alone``."""

    outputs = ("pairs", "alone")

    def process_record(self, ctx: Context, record: Record) -> None:
        if record.stream == "queries":
            ctx.state["query"] = record.value
        else:
            ctx.state.setdefault("clicks", []).append(record.value)
        if "query" in ctx.state:
            for click in ctx.state.pop("clicks", ()):
                ctx.produce("pairs", {"query": ctx.state["query"], "click": click})
        ctx.state["until"] = max(record.time_ns + HOUR_NS, ctx.state.get("until", 0))
        ctx.set_timer("end", ctx.state["until"])

    def process_timer(self, ctx: Context, timer: Timer) -> None:
        if timer.time_ns == ctx.state.get("until"):
            for click in ctx.state.pop("clicks", ()):
                ctx.produce("alone", click)
            ctx.state.clear()


def pairs(queries: str, clicks: str, out: str, within_ns: int | None = None) -> Topology:
    """Joins two logs. Lines: ``{"at":…,"q":"q1","terms":"rain"}``, ``{"at":…,"q":"q1","click":"c1"}``.

    Its state holds the records of one hour. For several datacentres, for logs that arrive days late, and for billing,
    use ``photon join``.
    """
    topology, same = Topology("pairs"), dict[str, Any](format="jsonl", key="q", time=AT, within_ns=within_ns)
    one, other = topology.log(queries, stream="queries", **same), topology.log(clicks, stream="clicks", **same)
    topology.add(Pairs(), {one: "q", other: "q"})
    for stream in Pairs.outputs:
        topology.publish(stream, f"{out}/{stream}")
    return topology


def bill(logs: str, out: str, within_ns: int | None = None) -> Topology:
    """Sums each advertiser's cents per hour, and publishes corrections for a day. A line:
    ``{"at":…,"advertiser":"acme","cents":5}``.

    The valid record of an hour is the one in ``bill`` or, if corrected, the last one in ``bill.corrections``.
    """
    topology = Topology("bill")
    clicks = topology.log(logs, format="jsonl", key="advertiser", time=AT, within_ns=within_ns)
    cents = {"cents": sum_of(lambda click: click.value["cents"]), "clicks": count()}
    topology.add(
        Windows("bill", tumbling(HOUR_NS), cents, lateness_ns=24 * HOUR_NS), {clicks: "advertiser"}, (), "exact"
    )
    for stream in ("bill", "bill.corrections", "bill.late"):
        topology.publish(stream, f"{out}/{stream}")
    return topology

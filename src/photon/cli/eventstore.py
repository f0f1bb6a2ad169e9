"""Commands for the event store and its cache nodes: its HBase table, its progress in primary logs, and lost logs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, TypeVar

import click

from photon.cli.audited import audited
from photon.cli.errors import ATTENTION, DONE, FAILED
from photon.cli.heads import Deployed, ask, deployed, must_be_said, sure
from photon.cli.looking import through
from photon.cli.tables import say
from photon.config.clock import NEVER_NS
from photon.config.errors import UsageError
from photon.config.words import duration, many, missing_keys, share, size
from photon.fleet.parts import Column, Part, moment

if TYPE_CHECKING:
    from photon.eventstore.api import Forgotten
    from photon.eventstore.client import EventStoreClient
    from photon.fleet.numbers import Numbers
    from photon.fleet.polling import Heard

T = TypeVar("T")
SHOWN = 20  # maximum number of logs shown; those furthest behind come first


@click.command()
@deployed(datacentre="Datacentre of the table; may be left out if there is only one.")
def init(at: Deployed) -> int:
    """Create the HBase table of an event store's file map.

    An existing table is not changed; if it differs from the configuration, the difference is reported and the exit

    \b
    Example:
      photon eventstore init --config photon.toml --datacentre east
    Exit codes: 0 the table exists; 1 failed; 3 it exists, but differs.
    """
    from photon.fleet import hbase

    made = hbase.init(at.settings, at.datacentre)
    lives = "permanently" if made.ttl_s is None else f"{made.ttl_s} s"
    done = "created" if made.made else "exists already"
    at.show(asdict(made), f"table {made.table}: {done}; {made.regions} regions, rows kept {lives}")
    for note in () if at.json else made.notes:
        say(note)
    return ATTENTION if made.notes else DONE


def _ask(at: Deployed, what: Callable[[EventStoreClient], Awaitable[T]]) -> T:
    from photon.config.roles import Role, identity
    from photon.config.tls import towards
    from photon.eventstore.client import EventStoreClient

    name, pipeline = at.pipeline
    to = towards(at.tls, identity(Role.DATACENTRE, name))
    return through(lambda: EventStoreClient(pipeline.eventstore, pipeline.join, to=to), what)


# -- photon status eventstore ----------------------------------------------------------------------------------------
def show(at: Deployed) -> int:
    """``photon status eventstore``. Exit code 3: keys wait for logs that cannot be read."""
    details, now_ns = _ask(at, lambda operator: operator.details()), time.time_ns()
    document, ranked = asdict(details), sorted(details.sources, key=lambda e: (e.bytes_read - e.bytes_known, e.path))
    facts = Part("", [document["progress"] | {"now_ns": now_ns}], PROGRESS)
    sources = [asdict(each) | {"now_ns": now_ns} for each in ranked[:SHOWN]]
    lost = document["unavailable"]
    more = f"and {len(ranked) - SHOWN:,} more; -o json shows all"
    shown: list[str | Part] = [*facts.lines(), "", Part("", sources, SOURCES, "")]
    shown += [more] if len(ranked) > SHOWN else []
    shown += ["", Part("", lost, LOST)] if lost else []
    at.show(document, *shown)
    return ATTENTION if details.progress.missing_logs else DONE


def _age(row: dict[str, Any]) -> str:
    from photon.eventstore.api import ALL_BUT_ENDS_NS

    read_past_ns = row["read_past_ns"]
    if read_past_ns == ALL_BUT_ENDS_NS:
        return "complete, except for unfinished last lines"
    if read_past_ns == NEVER_NS:
        return "complete; the logs will not grow"
    return f"{duration(max(row['now_ns'] - read_past_ns, 0) / 1e9)} ago" if read_past_ns > 0 else "not yet"


def _left(row: dict[str, Any]) -> float:
    return float(max(row["bytes_known"] - row["bytes_read"], 0))


def _hits(row: dict[str, Any]) -> str:
    asked = row["cache_hits"] + row["cache_misses"]
    return f"{row['cache_hits'] / asked:.1%} of {asked:,} keys found" if asked else "no key was looked up yet"


def _reads(row: dict[str, Any]) -> str:
    each = f", {size(row['log_bytes'] / row['log_reads'])} each" if row["log_reads"] else ""
    return f"{many(row['log_reads'], 'place')} read{each}"


def _ambiguous(row: dict[str, Any]) -> str:
    return many(row["ambiguous"], "key") + (f": {row['ambiguous_example']}" if row["ambiguous"] else "")


def _logs(row: dict[str, Any]) -> str:
    return f"{row['files']:,} with {many(row['events'], 'event')}, {size(_left(row))} not read yet"


PROGRESS = (
    Column("read past", _age),
    Column("logs", _logs),
    Column("cache", _hits), Column("old logs", _reads),
    Column("missing", lambda row: missing_keys(row["missing_keys"], row["missing_logs"])
           if row["missing_logs"] else "nothing"),
    Column("ambiguous", _ambiguous),
)  # fmt: skip
SOURCES = (
    Column("log", "path"), Column(">read to", "offset"), Column(">on disk", "bytes_known", size),
    Column(">not read", _left, size), Column(">read past", _age),
)  # fmt: skip
LOST = (
    Column("log", "path"), Column("identity", lambda row: row["identity"][:8]), Column(">keys asked", "keys"),
    Column("since", lambda row: row["since_ns"] or None, moment),
    Column("why", lambda row: "given up; its keys count as absent" if row["forgotten"] else row["why"]),
)  # fmt: skip


# -- forget ----------------------------------------------------------------------------------------------------------
@click.command()
@click.argument("logs", nargs=-1, metavar="LOG...")
@click.option("--all", "every", is_flag=True, help="Give up all logs that are still needed and whose files are gone.")
@sure
@deployed(datacentre="Datacentre of the event store; may be left out if there is only one.")
@audited
def forget(at: Deployed, logs: tuple[str, ...], every: bool, dry_run: bool, yes: bool) -> int:
    """Give up primary logs whose files are permanently gone. Events no longer wait for them.

    LOG is a path as photon status eventstore shows it, or the first eight digits of an identity. Keys in
    such a log then count as absent: their events become unmatched when their patience ends. A log whose file
    exists cannot be given up. If a file with the log's content comes back, its records are found again.

    \b
    Examples:
      photon eventstore forget queries.log.7 --dry-run --config photon.toml --datacentre east
      photon eventstore forget --all --yes --config photon.toml --datacentre east
    Exit codes: 0 done, or with --dry-run: possible; 1 some of the logs cannot be given up; 2 wrong usage.
    """
    if bool(logs) == every:
        raise UsageError("name the logs, or use --all; photon status eventstore shows them")
    must_be_said("giving up logs", dry_run=dry_run, yes=yes)

    def forgotten(apply: bool) -> Forgotten:
        return _ask(at, lambda operator: operator.forget(logs, apply=apply))

    apply = not dry_run
    if apply and not yes:
        named = ", ".join(log.path for log in forgotten(False).logs)
        ask(f"Keys that are only in {named or 'them'} will count as absent. Give up these logs?", yes=yes)
    said = forgotten(apply)

    done, found = "given up" if apply else "would be given up; nothing was changed", asdict(said)
    at.show(found | {"applied": apply}, Part("", found["logs"], LOST, ""), f"{many(len(said.logs), 'log')} {done}")
    for problem in said.refused:
        say(f"not given up: {problem}")
    return FAILED if said.refused else DONE


# -- photon status cache ---------------------------------------------------------------------------------------------
METRICS = {
    "bytes": "bytes", "bytes_max": "limit_bytes", "segments": "segments", "entries": "entries",
    "evictions": "evictions_total", "hits": "hits_total", "misses": "misses_total", "fed_bytes": "fed_bytes_total",
    "fed_events": "fed_events_total",
}  # fmt: skip
COLUMNS = (
    Column("node"), Column("address"),
    Column(">held", lambda row: size(row["bytes"]) if row["answers"] else "does not answer"),
    Column(">of", "bytes_max", size), Column(">entries"), Column(">evictions"),
    Column(">asked", lambda row: _asked(row)),
    Column(">found", lambda row: row["hits"] / _asked(row) if _asked(row) else None, share),
    Column(">taken in", "fed_bytes", size),
)  # fmt: skip


def caches(at: Deployed) -> int:
    """``photon status caches``. Exit code 3: not all nodes answer; look-ups for the others read the logs."""
    from photon.fleet.look import look_at

    look = asyncio.run(look_at(at.settings, at.pipeline[0], ["cache"], at.tls))
    rows = [_row(each, look.now) for each in look.heard]
    at.part(Part("nodes", rows, COLUMNS))
    return DONE if all(row["answers"] for row in rows) else ATTENTION


def _row(heard: Heard, now: Numbers) -> dict[str, Any]:
    who = heard.process
    row: dict[str, Any] = {"node": who.name, "address": who.address, "answers": heard.up}
    if not heard.up:
        return row | {"error": heard.problem}
    return row | {field: int(now.of(who, f"photon_cache_{metric}") or 0) for field, metric in METRICS.items()}


def _asked(row: dict[str, Any]) -> int | None:
    """Returns how many look-ups the node answered; `None` if the node does not answer."""
    return row["hits"] + row["misses"] if row["answers"] else None

"""The event store and its cache nodes: its table in HBase, progress in primary logs, and lost logs."""

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
from photon.cli.tables import Column, Part, moment, print_table, say
from photon.config.clock import NEVER_NS
from photon.config.errors import UsageError
from photon.config.words import duration, many, missing_keys, share, size

if TYPE_CHECKING:
    from photon.eventstore.api import Details, Forgotten, SourceProgress, UnavailableLog
    from photon.eventstore.client import EventStoreClient
    from photon.fleet.polling import Heard

T = TypeVar("T")
SHOWN = 20
"""Number of sources in the table; the furthest behind come first."""


@click.command()
@deployed(datacentre="Whose table; may be left out if there is one datacentre.")
def init(at: Deployed) -> int:
    """Create the table of a file map in HBase.

    An existing table is left as it is; if it differs from the configuration, that is reported and the exit
    code is 3. Needs [datacentre.NAME.hbase] in the deployment file.

    \b
    Example:
      photon eventstore init --config photon.toml --datacentre east
    Exit codes: 0 it exists, 1 failed, 3 it exists, but differs.
    """
    from photon.fleet import hbase

    made = hbase.init(at.settings, at.datacentre)
    lives = "permanently" if made.ttl_s is None else f"{made.ttl_s} s"
    done = "made" if made.made else "there already"
    at.show(asdict(made), f"table {made.table}: {done}; {made.regions} regions, rows live {lives}")
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
    """Exit code 3: keys wait for logs that cannot be read."""
    details = _ask(at, lambda operator: operator.details())
    at.show(asdict(details), lambda: _show(details, time.time_ns()))
    return ATTENTION if details.progress.missing_logs else DONE


def _show(details: Details, now_ns: int) -> None:
    progress = details.progress
    asked = progress.cache_hits + progress.cache_misses
    ratio = f"{progress.cache_hits / asked:.1%} of {asked:,} keys that are there" if asked else "no key was found yet"
    per_read = f", {size(progress.log_bytes / progress.log_reads)} each" if progress.log_reads else ""
    lag = progress.bytes_known - progress.bytes_read
    missing = missing_keys(progress.missing_keys, progress.missing_logs) if progress.missing_logs else "nothing"
    example = f": {progress.ambiguous_example}" if progress.ambiguous else ""
    print_table(
        [("", False), ("", False)],
        [
            ["read past", _age(progress.read_past_ns, now_ns)],
            ["logs", f"{progress.files:,} with {progress.events:,} events, {size(max(lag, 0))} not read yet"],
            ["cache", ratio],
            ["old logs", f"{progress.log_reads:,} places looked at{per_read}"],
            ["missing", missing],
            ["ambiguous", f"{progress.ambiguous:,} keys{example}"],
        ],
    )
    if details.sources:
        click.echo()
        ranked = sorted(details.sources, key=lambda each: (each.bytes_read - each.bytes_known, each.path))
        columns = "log, >read to, >on disk, >not read, >read past"
        print_table(columns, [_source(each, now_ns) for each in ranked[:SHOWN]])
        if len(ranked) > SHOWN:
            click.echo(f"and {len(ranked) - SHOWN:,} more; all with -o json")
    if details.unavailable:
        click.echo()
        _show_unavailable(details.unavailable)


def _source(each: SourceProgress, now_ns: int) -> list[str]:
    left = size(max(each.bytes_known - each.bytes_read, 0))
    return [each.path, f"{each.offset:,}", size(each.bytes_known), left, _age(each.read_past_ns, now_ns)]


def _age(read_past_ns: int, now_ns: int) -> str:
    from photon.eventstore.api import ALL_BUT_ENDS_NS

    if read_past_ns == ALL_BUT_ENDS_NS:
        return "all but last lines without end"
    if read_past_ns == NEVER_NS:
        return "all there will ever be"
    return f"{duration(max(now_ns - read_past_ns, 0) / 1e9)} ago" if read_past_ns > 0 else "not yet"


def _show_unavailable(logs: tuple[UnavailableLog, ...]) -> None:
    gone = "given up, its keys count as absent"
    rows = [
        [e.path, e.identity[:8], f"{e.keys:,}", moment(e.since_ns or None), gone if e.forgotten else e.why]
        for e in logs
    ]
    print_table("log, identity, >keys asked, since, why", rows)


# -- forget ----------------------------------------------------------------------------------------------------------
@click.command()
@click.argument("logs", nargs=-1, metavar="LOG...")
@click.option("--all", "every", is_flag=True, help="Every log that look-ups needed and whose file is gone.")
@sure
@deployed(datacentre="Whose event store; may be left out if there is one.")
@audited
def forget(at: Deployed, logs: tuple[str, ...], every: bool, dry_run: bool, yes: bool) -> int:
    """Give up primary logs whose files are gone for good, so that events stop waiting for them.

    LOG is a path as photon status eventstore shows it, or the first eight digits of an identity. Keys in
    such a log then count as absent: their events become unmatched when their patience ends. A log whose file
    exists cannot be given up. If a file with the log's content comes back, its records are found again.

    \b
    Examples:
      photon eventstore forget queries.log.7 --dry-run --config photon.toml --datacentre east
      photon eventstore forget --all --yes --config photon.toml --datacentre east
    Exit codes: 0 done, or it can be done; 1 some of the logs cannot be given up, 2 wrong usage.
    """
    if bool(logs) == every:
        raise UsageError("name the logs, or say --all; photon status eventstore shows them")
    must_be_said("giving up logs", dry_run=dry_run, yes=yes)

    def forgotten(apply: bool) -> Forgotten:
        return _ask(at, lambda operator: operator.forget(logs, apply=apply))

    apply = not dry_run
    if apply and not yes:
        named = ", ".join(log.path for log in forgotten(False).logs)
        ask(f"Keys that stand in {named or 'them'} count as absent from then on. Give them up?", yes=yes)
    said = forgotten(apply)

    def people() -> None:
        if said.logs:
            _show_unavailable(said.logs)
        done = "given up" if apply else "would be given up; nothing was changed"
        click.echo(f"{many(len(said.logs), 'log')} {done}")

    at.show({**asdict(said), "applied": apply}, people)
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
    """Exit code 3: not all nodes answer; look-ups then read the logs."""
    from photon.fleet.polling import gathered
    from photon.fleet.processes import asked_of

    name, _ = at.pipeline
    nodes = [each for each in asked_of(at.settings, name) if each.kind == "cache"]
    rows = [_row(each) for each in asyncio.run(gathered(at.tls, nodes))]
    at.part(Part("nodes", rows, COLUMNS))
    return DONE if all(row["answers"] for row in rows) else ATTENTION


def _row(heard: Heard) -> dict[str, Any]:
    from photon.fleet.numbers import Numbers

    row: dict[str, Any] = {"node": heard.process.name, "address": heard.process.address, "answers": heard.up}
    if not heard.up:
        return row | {"error": heard.problem}
    now = Numbers([heard])
    return row | {field: int(now.sum(f"photon_cache_{metric}")) for field, metric in METRICS.items()}


def _asked(row: dict[str, Any]) -> int | None:
    """Look-ups that the node answered; `None` if it does not answer."""
    return row["hits"] + row["misses"] if row["answers"] else None

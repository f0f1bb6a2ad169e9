"""``photon eventstore status | forget``: how far primary logs were read, and those whose records cannot be had."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from photon.cli import deployment_file, steering
from photon.cli.audited import audited
from photon.cli.errors import ATTENTION, DONE, FAILED
from photon.cli.registry.common import formatted, moment, print_json, print_table

if TYPE_CHECKING:
    from photon.eventstore.api import Details, Forgotten, Progress, SourceProgress, UnavailableLog
    from photon.eventstore.client import EventStoreClient

T = TypeVar("T")
SHOWN = 20
"""Sources in the table, those furthest behind first."""


def _asked(command: Callable[..., Any]) -> Callable[..., Any]:
    options = [
        deployment_file.config(),
        click.option("--datacentre", metavar="NAME", help="Whose event store; may be left out if there is one."),
        click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key."),
    ]
    for option in reversed(options):
        command = option(command)
    return formatted(command)


def _ask(
    config: Path,
    datacentre: str | None,
    overrides: tuple[str, ...],
    what: Callable[[EventStoreClient], Awaitable[T]],
) -> T:
    import os

    from photon.config.loader import load
    from photon.config.roles import Role, identity
    from photon.config.tls import OPERATOR, towards
    from photon.embedded.services import pipeline_named, tls_of
    from photon.eventstore.client import EventStoreClient

    settings = load(config, environment=os.environ, flags=overrides)
    name, pipeline = pipeline_named(settings, datacentre)
    to = towards(tls_of(settings, config.parent, OPERATOR), identity(Role.EVENTSTORE, name))

    async def told() -> T:
        operator = EventStoreClient(pipeline.eventstore, pipeline.join, to=to)
        try:
            return await what(operator)
        finally:
            await operator.close()

    return asyncio.run(told())


@click.command("status")
@_asked
def status(config: Path, datacentre: str | None, overrides: tuple[str, ...], output_format: str) -> int:
    """Show how far each primary log has been read, and the logs whose records cannot be looked up.

    \b
    Example:
      photon eventstore status --config photon.toml --datacentre east
    Exit codes: 0 well, 3 keys wait for logs that cannot be read, 1 the event store does not answer.
    """
    details = _ask(config, datacentre, overrides, lambda operator: operator.details())
    if output_format == "json":
        print_json(asdict(details))
    else:
        _show(details, time.time_ns())
    return ATTENTION if details.progress.missing_logs else DONE


def _show(details: Details, now_ns: int) -> None:
    from photon.config.words import size

    progress = details.progress
    asked = progress.cache_hits + progress.cache_misses
    ratio = f"{progress.cache_hits / asked:.1%} of {asked:,} keys" if asked else "nothing was asked yet"
    per_read = f", {size(progress.log_bytes / progress.log_reads)} each" if progress.log_reads else ""
    lag = progress.bytes_known - progress.bytes_read
    print_table(
        [("", False), ("", False)],
        [
            ["read past", _age(progress.read_past_ns, now_ns)],
            ["logs", f"{progress.files:,} with {progress.events:,} events, {size(max(lag, 0))} not read yet"],
            ["cache", ratio],
            ["old logs", f"{progress.log_reads:,} places looked at{per_read}"],
            ["missing", _missing(progress)],
            [
                "ambiguous",
                f"{progress.ambiguous:,} keys{': ' if progress.ambiguous else ''}{progress.ambiguous_example}",
            ],
        ],
    )
    if details.sources:
        click.echo()
        ranked = sorted(details.sources, key=lambda each: (each.bytes_read - each.bytes_known, each.path))
        columns = [("log", False), ("read to", True), ("on disk", True), ("not read", True), ("read past", True)]
        print_table(columns, [_source(each, now_ns) for each in ranked[:SHOWN]])
        if len(ranked) > SHOWN:
            click.echo(f"and {len(ranked) - SHOWN:,} more; all with -o json")
    if details.unavailable:
        click.echo()
        _show_unavailable(details.unavailable)


def _missing(progress: Progress) -> str:
    from photon.config.words import missing_keys

    return missing_keys(progress.missing_keys, progress.missing_logs) if progress.missing_logs else "nothing"


def _source(each: SourceProgress, now_ns: int) -> list[str]:
    from photon.config.words import size

    left = size(max(each.bytes_known - each.bytes_read, 0))
    return [each.path, f"{each.offset:,}", size(each.bytes_known), left, _age(each.read_past_ns, now_ns)]


def _age(read_past_ns: int, now_ns: int) -> str:
    from photon.config.clock import NEVER_NS
    from photon.config.words import duration
    from photon.eventstore.api import ALL_BUT_ENDS_NS

    if read_past_ns == ALL_BUT_ENDS_NS:
        return "all but last lines without end"
    if read_past_ns == NEVER_NS:
        return "all there will ever be"
    return f"{duration(max(now_ns - read_past_ns, 0) / 1e9)} ago" if read_past_ns > 0 else "not yet"


def _show_unavailable(logs: tuple[UnavailableLog, ...]) -> None:
    columns = [("log", False), ("identity", False), ("keys asked", True), ("since", False), ("why", False)]
    print_table(
        columns,
        [
            [
                each.path,
                each.identity[:8],
                f"{each.keys:,}",
                moment(each.since_ns or None),
                "given up, its keys count as absent" if each.forgotten else each.why,
            ]
            for each in logs
        ],
    )


@click.command("forget")
@click.argument("logs", nargs=-1, metavar="LOG...")
@click.option("--all", "every", is_flag=True, help="Every log that look-ups met and whose file is gone.")
@steering.sure
@_asked
@audited
def forget(
    logs: tuple[str, ...],
    every: bool,
    dry_run: bool,
    yes: bool,
    config: Path,
    datacentre: str | None,
    overrides: tuple[str, ...],
    output_format: str,
) -> int:
    """Give up primary logs whose files are gone for good, so that events stop waiting for them.

    LOG is a path as photon eventstore status shows it, or the first eight digits of an identity. Keys that stand in
    such a log count as absent from then on: their events become unmatched when their patience ends. A log whose file
    is there cannot be given up. Once a file with the log's content is there again, its records are found again.

    \b
    Examples:
      photon eventstore forget queries.log.7 --dry-run --config photon.toml --datacentre east
      photon eventstore forget --all --yes --config photon.toml --datacentre east
    Exit codes: 0 done, or nothing stands against it; 1 some of the logs cannot be given up, 2 wrong usage.
    """
    from photon.config.errors import UsageError
    from photon.config.words import many

    if bool(logs) == every:
        raise UsageError("name the logs, or say --all; photon eventstore status shows them")
    steering.must_be_said("giving up logs", dry_run=dry_run, yes=yes)

    def forgotten(apply: bool) -> Forgotten:
        return _ask(config, datacentre, overrides, lambda operator: operator.forget(logs, apply=apply))

    apply = not dry_run
    if apply and not yes:
        named = ", ".join(log.path for log in forgotten(False).logs)
        steering.ask(f"Keys that stand in {named or 'them'} count as absent from then on. Give them up?", yes=yes)
    said = forgotten(apply)
    if output_format == "json":
        print_json({**asdict(said), "applied": apply})
    else:
        if said.logs:
            _show_unavailable(said.logs)
        done = "given up" if apply else "would be given up; nothing was changed"
        click.echo(f"{many(len(said.logs), 'log')} {done}")
    for problem in said.refused:
        click.echo(f"photon: not given up: {problem}", err=True)
    return FAILED if said.refused else DONE

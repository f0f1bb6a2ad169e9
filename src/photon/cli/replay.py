"""``photon dispatcher replay``: dispatch the events of a time range again."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click
import orjson

from photon.cli import deployment_file, steering
from photon.cli.audited import audited
from photon.cli.errors import ATTENTION, DONE
from photon.cli.registry.common import print_table, words
from photon.cli.skip import time_of
from photon.cli.units import given_ns

if TYPE_CHECKING:
    from photon.dispatcher.replay.requests import Preview, Progress
    from photon.embedded.replay import Pipeline

LOOK_S = 0.5


@click.command("replay")
@deployment_file.config()
@click.option("--datacentre", metavar="NAME", help="Whose dispatcher; may be left out if there is one.")
@click.option("--from", "since", metavar="TIME",
              help="The first event time: 2026-11-21T09:00, epoch seconds, or 2h (ago).")  # fmt: skip
@click.option("--to", "until", metavar="now|TIME", help="The event time to stop before.")
@click.option("--file", "pattern", metavar="GLOB", default="",
              help="Only logs whose path below the foreign logs matches.")  # fmt: skip
@steering.dry_run
@click.option("--wait", is_flag=True, help="Until it is done, showing how far it is.")
@click.option("--status", "show", is_flag=True,
              help="In place of a time range: the replays asked for, and how far they are.")  # fmt: skip
@click.option("--cancel", "cancelled", type=int, metavar="NUMBER", help="In place of a time range: end this replay.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key.")
@click.option("-o", "output_format", type=click.Choice(["table", "json"]), default="table", show_default=True)
@audited
def replay(
    config: Path,
    datacentre: str | None,
    since: str | None,
    until: str | None,
    pattern: str,
    dry_run: bool,
    wait: bool,
    show: bool,
    cancelled: int | None,
    overrides: tuple[str, ...],
    output_format: str,
) -> int:
    """Dispatch the events of a time range again.

    Safe at any time: what the registry has a verdict for is left alone, what it has none for gets one. The ledger
    counts these events as reread. The request is kept in the dispatcher's state: a running dispatcher takes it up
    within a second, a stopped one when it starts, and a killed one goes on where it was.

    \b
    Examples:
      photon dispatcher replay --config photon.toml --from 2026-11-20T08:00 --to 2026-11-20T09:00 --dry-run
      photon dispatcher replay --config photon.toml --datacentre east --from 3h --to 1h --file 'web7/**' --wait
      photon dispatcher replay --config photon.toml --datacentre east --status
    Exit codes: 0 done or asked for, 3 with --wait: a log could not be read again, or somebody cancelled it.
    """
    from photon.config.errors import UsageError
    from photon.config.loader import load
    from photon.embedded import replay as control

    times = since is not None or until is not None
    if show + (cancelled is not None) + times != 1 or (times and (since is None or until is None)):
        raise UsageError("name a time range with --from and --to, or --status, or --cancel NUMBER")
    pipeline = control.pipeline_of(load(config, environment=os.environ, flags=overrides), config.parent, datacentre)
    if cancelled is not None:
        return _cancel(pipeline, cancelled, output_format, dry_run=dry_run)
    if show:
        _show_progress(pipeline.datacentre, control.progress(pipeline), output_format)
        return DONE
    now_ns = time.time_ns()
    from_ns, to_ns = given_ns("--from", since or "", now_ns), given_ns("--to", until or "", now_ns)
    if from_ns >= to_ns:
        raise UsageError(f"--from {since} is not before --to {until}")
    logs = control.preview(pipeline, from_ns, to_ns, pattern)
    number = None if dry_run else control.ask(pipeline, from_ns, to_ns, pattern, now_ns)
    _show_request(pipeline.datacentre, number, from_ns, to_ns, logs, output_format)
    return _wait(pipeline, number) if wait and number is not None else DONE


def _cancel(pipeline: Pipeline, number: int, output_format: str, *, dry_run: bool) -> int:
    from photon.config.errors import UsageError
    from photon.dispatcher.replay.requests import Step
    from photon.embedded import replay as control

    if dry_run:
        open_ones = [each.request for each in control.progress(pipeline) if each.request.step < Step.DONE]
        there = number in [request.number for request in open_ones]
    else:
        there = control.cancel(pipeline, number, time.time_ns())
    if not there:
        raise UsageError(f"--cancel {number}: no replay of this number waits or runs; --status shows them")
    if output_format == "json":
        click.echo(orjson.dumps({"cancelled": number, "dry_run": dry_run}).decode())
    else:
        click.echo(f"replay {number} would be cancelled; nothing was changed" if dry_run else "cancelled")
    return DONE


def _wait(pipeline: Pipeline, number: int) -> int:
    """Until a request is done; says how far it is on standard error."""
    from photon.dispatcher.replay.requests import Step
    from photon.embedded import replay as control

    told = ""
    while True:
        (each,) = [each for each in control.progress(pipeline) if each.request.number == number]
        row = _row(each)
        text = f"replay {number}: {row['state']}, {row['done']:,} of {row['bytes']:,} bytes, {row['events']:,} events"
        if text != told:
            click.echo(text, err=True)
            told = text
        if each.request.step >= Step.DONE:
            unread = [part.path for part in each.parts if part.step is Step.UNREAD]
            for path in unread:
                click.echo(f"photon: {path}: no file holds this log any more, or it cannot be read", err=True)
            return ATTENTION if unread or each.request.step is Step.CANCELLED else DONE
        time.sleep(LOOK_S)


def _row(each: Progress) -> dict[str, object]:
    request, parts = each.request, each.parts
    return {
        "number": request.number,
        "state": request.step.name.lower(),
        "from": time_of(request.from_ns),
        "to": time_of(request.to_ns),
        "file": request.pattern,
        "logs": len(parts),
        "unread": sum(part.step.name == "UNREAD" for part in parts),
        "bytes": sum(part.stop - part.begin for part in parts),
        "done": sum(min(part.at, part.stop) - part.begin for part in parts),
        "events": sum(part.events for part in parts),
        "known": sum(part.known for part in parts),
    }


def _show_progress(datacentre: str, found: list[Progress], output_format: str) -> None:
    rows = [_row(each) for each in found]
    if output_format == "json":
        click.echo(orjson.dumps({"datacentre": datacentre, "replays": rows}).decode())
        return
    if not rows:
        click.echo(f"no replay was asked of datacentre {datacentre}")
        return
    _table(rows)


def _show_request(
    datacentre: str, number: int | None, from_ns: int, to_ns: int, logs: list[Preview], output_format: str
) -> None:
    if output_format == "json":
        answer = {
            "datacentre": datacentre,
            "number": number,
            "from": time_of(from_ns),
            "to": time_of(to_ns),
            "logs": [{"file": log.path, "bytes": log.bytes, "there": log.there} for log in logs],
            "bytes": sum(log.bytes for log in logs),
        }
        click.echo(orjson.dumps(answer).decode())
        return
    if logs:
        _table([{"file": log.path, "bytes": log.bytes, "": "" if log.there else "is gone"} for log in logs])
    total = f"{sum(log.bytes for log in logs):,} bytes of {len(logs)} logs"
    if number is None:
        click.echo(f"{total} would be read again; nothing was asked for")
    else:
        click.echo(
            f"replay {number}: {total} are read again when the dispatcher of {datacentre} runs; --status shows it"
        )


def _table(rows: list[dict[str, object]]) -> None:
    columns = [(name, isinstance(value, int)) for name, value in rows[0].items()]
    print_table(columns, [[words(value, "") for value in row.values()] for row in rows])

"""Commands for the dispatcher: show its lag, skip events (``skip``), or dispatch them again (``replay``)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import click

from photon.cli.audited import audited
from photon.cli.errors import ATTENTION, DONE, FAILED
from photon.cli.heads import Deployed, ask, deployed, dry_run, must_be_said, sure
from photon.cli.tables import say
from photon.cli.units import NOW, given_ns
from photon.config.errors import PhotonError, UsageError
from photon.config.words import duration, joiners_failing, many
from photon.fleet.parts import Column, Part, time_of

if TYPE_CHECKING:
    from photon.dispatcher.replay.requests import Progress
    from photon.dispatcher.skipping import Skip
    from photon.fleet.polling import Heard
    from photon.operations.replays import Replays
    from photon.operations.skip import SkipAnswer

ASK_S = 5.0
LOOK_S = 0.5


# -- photon status lag -----------------------------------------------------------------------------------------------
BEHIND = (Column("log"), Column(">bytes behind", "bytes"), Column(">seconds behind", "seconds", "{:.1f}".format))


class Silent(PhotonError):
    """Raised if no dispatcher answers."""


def lag(at: Deployed) -> int:
    """``photon status lag``: shows total lag, the logs furthest behind, the retry store's size and age, and failing
    joiners. An unfinished last line is not lag. Seconds count from the time when the oldest unread byte was written,
    according to file times. Exit code 3: a dispatcher does not answer."""
    heard = _heard(at)
    up, silent = [each for each in heard if each.up], [each for each in heard if not each.up]
    sums = lag_of_all(up) | {"silent": [each.process.address for each in silent]}
    at.show(sums, *_lag_lines(sums), Part("worst", sums["worst"], BEHIND, ""))
    return ATTENTION if silent else DONE


def _lag_lines(sums: dict[str, Any]) -> Iterator[str]:
    yield (
        f"{sums['behind']:,} of {sums['logs']:,} logs are not read to the end: {sums['bytes']:,} bytes, "
        f"the oldest is from {duration(sums['seconds'])} ago"
    )
    if sums["waiting"]:
        waiting = many(sums["waiting"], "event waits", "events wait")
        since = duration(sums["waiting_seconds"])
        yield f"{waiting} in the retry store ({sums['waiting_bytes']:,} bytes), the oldest for {since}"
    if sums["joiners_failing"]:
        yield joiners_failing(sums["joiners_failing"])


def lag_of_all(up: Sequence[Heard]) -> dict[str, Any]:
    """Adds up the dispatchers' reports. Pure."""
    from photon.fleet.numbers import Numbers, lag_rows, longest_first

    now, prefix = Numbers(up), "photon_dispatcher"
    return {
        "logs": int(now.sum(f"{prefix}_logs")),
        "behind": int(now.sum(f"{prefix}_logs_behind")),
        "bytes": int(now.sum(f"{prefix}_lag_bytes")),
        "seconds": round(now.max(f"{prefix}_lag_seconds"), 3),
        "waiting": int(now.sum(f"{prefix}_retry_store_events")),
        "waiting_bytes": int(now.sum(f"{prefix}_retry_store_bytes")),
        "waiting_seconds": round(now.max(f"{prefix}_retry_store_oldest_seconds"), 3),
        "joiners_failing": int(now.max(f"{prefix}_joiners_failing")),
        "dispatchers": [each.process.address for each in up],
        "silent": [],
        "worst": [{**row, "seconds": round(row["seconds"], 3)} for row in longest_first(lag_rows(up))],
    }


def _heard(at: Deployed) -> Sequence[Heard]:
    from photon.fleet.look import look_at
    from photon.fleet.processes import READERS

    name, _ = at.pipeline
    heard = asyncio.run(look_at(at.settings, name, READERS, at.tls, ASK_S)).heard
    if not heard:
        raise UsageError(
            f"{at.config}: the dispatcher of datacentre {name} has no address; set dispatcher = host:port"
        )
    if not any(each.up for each in heard):
        silent = ", ".join(each.process.address or "" for each in heard)
        raise Silent(f"{silent}: no dispatcher answered within {ASK_S:g} s; is it running?")
    return heard


# -- skip ------------------------------------------------------------------------------------------------------------
@click.command()
@deployed(datacentre="Datacentre of the dispatcher.", needed=True)
@click.option("--to", "to", metavar="now|TIME", required=True,
              help="now, or event time to continue from: 2026-11-21T09:00, epoch seconds, or 2h (ago).")  # fmt: skip
@sure
@click.option(
    "--reader",
    "readers",
    multiple=True,
    metavar="NAME",
    help="Assume that this other datacentre reads the logs, even if its dispatcher does not answer.",
)
@audited
def skip(at: Deployed, to: str, dry_run: bool, yes: bool, readers: tuple[str, ...]) -> int:
    """Skip unread events that another datacentre reads. The dispatcher, or join on Spark, must be stopped.

    Use it for a dispatcher that lost its state or is too far behind. Skipped events get their verdict from the other
    datacentre and are not counted in this one's ledger. If records are not in event-time order, fewer are skipped.
    Compressed files are read from the beginning to find the place.

    \b
    Examples:
      photon dispatcher skip --config photon.toml --datacentre east --to 2h --dry-run
      photon dispatcher skip --config photon.toml --datacentre east --to 2h --yes
    Exit codes: 0 done; 1 refused, because the dispatcher runs or no other datacentre reads the logs; 2 wrong usage.
    """
    from photon.operations.skip import skip as planned

    settings, datacentre = at.settings, at.datacentre or ""
    to_ns = None if to == NOW else given_ns("--to", to, time.time_ns())
    must_be_said(f"skipped by datacentre {datacentre}", dry_run=dry_run, yes=yes)
    answer = planned(settings, at.base, datacentre, to_ns, vouched=readers, apply=yes and not dry_run)
    if not (dry_run or yes or answer.refusal):
        ask(f"{_total(answer)} will be skipped and never read by datacentre {datacentre}. Skip them?", yes=yes)
        answer = planned(settings, at.base, datacentre, to_ns, vouched=readers, apply=True)
    document = _skips_json(answer)
    at.show(document, Part("logs", document["logs"], SKIPS, ""), _skipped(answer))
    for problem in answer.skips.problems:
        say(f"not skipped: {problem}")
    if answer.refusal:
        say(f"refused: {answer.refusal}")
    return FAILED if answer.refusal else DONE


SKIPS = (
    Column("file"), *map(Column, (">size", ">from", ">to", ">bytes")), Column(">records (about)", "records"),
    Column("oldest"), Column("newest"),
)  # fmt: skip


def _skip_row(skip: Skip) -> dict[str, object]:
    log = skip.log
    return {
        "file": log.position.path,
        "size": log.disk_bytes,
        "from": log.begin,
        "to": skip.to,
        "bytes": skip.skipped,
        "records": skip.records,
        "oldest": time_of(skip.oldest_ns),
        "newest": time_of(skip.newest_ns),
    }


def _skips_json(answer: SkipAnswer) -> dict[str, Any]:
    return {
        "datacentre": answer.datacentre,
        "applied": answer.applied,
        "readers": dict(answer.readers),
        "logs": [_skip_row(skip) for skip in answer.skips.skips],
        "bytes": sum(skip.skipped for skip in answer.skips.moved),
        "records": sum(skip.records for skip in answer.skips.moved),
        "problems": answer.skips.problems,
        "refused": answer.refusal or None,
    }


def _skipped(answer: SkipAnswer) -> str:
    total = _total(answer)
    if answer.applied:
        return f"{total} were skipped by datacentre {answer.datacentre}"
    reading = [name for name, reads in answer.readers.items() if reads]
    who = f"{', '.join(reading)} continues reading" if reading else f"no answer from {', '.join(answer.readers)}"
    return f"{total} would be skipped ({who}); nothing was changed"


def _total(answer: SkipAnswer) -> str:
    moved = answer.skips.moved
    return f"{sum(each.skipped for each in moved):,} bytes of {many(len(moved), 'log')}"


# -- replay ----------------------------------------------------------------------------------------------------------
@click.command()
@deployed(datacentre="Datacentre of the dispatcher; may be left out if there is only one.")
@click.option("--from", "since", metavar="TIME",
              help="First event time: 2026-11-21T09:00, epoch seconds, or 2h (ago).")  # fmt: skip
@click.option("--to", "until", metavar="now|TIME", help="Event time to stop before.")
@click.option("--file", "pattern", metavar="GLOB", default="",
              help="Only logs whose path, relative to the foreign logs' directory, matches.")  # fmt: skip
@dry_run
@click.option("--wait", is_flag=True, help="Wait until the replay is done, showing progress.")
@click.option("--status", "show", is_flag=True,
              help="Instead of a range: show all replays and their progress.")  # fmt: skip
@click.option("--cancel", "cancelled", type=int, metavar="NUMBER", help="Instead of a range: cancel this replay.")
@audited
def replay(
    at: Deployed, since: str | None, until: str | None, pattern: str, dry_run: bool, wait: bool, show: bool,
    cancelled: int | None,
) -> int:  # fmt: skip
    """Dispatch the events of a time range again.

    Safe at any time: events that have a verdict keep it, others get one. The ledger counts all of them as reread. The
    request is kept in the state of the dispatcher, or of the join on Spark. If that is running, it starts within
    seconds, otherwise at its next start; if it is killed, it continues after the restart.

    \b
    Examples:
      photon dispatcher replay --config photon.toml --from 2026-11-20T08:00 --to 2026-11-20T09:00 --dry-run
      photon dispatcher replay --config photon.toml --datacentre east --from 3h --to 1h --file 'web7/**' --wait
      photon dispatcher replay --config photon.toml --datacentre east --status
    Exit codes: 0 done or requested; 3 with --wait: a log could not be read again, or the replay was cancelled.
    """
    from photon.operations.replays import replays_of

    times = since is not None or until is not None
    if show + (cancelled is not None) + times != 1 or (times and (since is None or until is None)):
        raise UsageError("give a time range with --from and --to, or --status, or --cancel NUMBER")
    datacentre, _ = at.pipeline
    replays = replays_of(at.settings, at.base, datacentre)
    if cancelled is not None:
        return _cancel(at, replays, cancelled, dry_run=dry_run)
    if show:
        rows = [_replay_row(each) for each in replays.progress()]
        none = f"no replay has been requested in datacentre {datacentre}"
        at.part(Part("replays", rows, REPLAYS, none), datacentre=datacentre)
        return DONE
    now_ns = time.time_ns()
    from_ns, to_ns = given_ns("--from", since or "", now_ns), given_ns("--to", until or "", now_ns)
    if from_ns >= to_ns:
        raise UsageError(f"--from {since} is not before --to {until}")
    logs = replays.preview(from_ns, to_ns, pattern)
    number = None if dry_run else replays.ask(from_ns, to_ns, pattern)
    rows = [{"file": log.path, "bytes": log.bytes, "there": log.there} for log in logs]
    total = f"{sum(log.bytes for log in logs):,} bytes of {many(len(logs), 'log')}"
    said = f"{total} would be read again; no replay was requested"
    if number is not None:
        said = f"replay {number}: {total} will be read again when {replays.who} runs; --status shows the progress"
    answer = {
        "datacentre": datacentre,
        "number": number,
        "from": time_of(from_ns),
        "to": time_of(to_ns),
        "logs": rows,
        "bytes": sum(log.bytes for log in logs),
    }
    at.show(answer, Part("logs", rows, AGAIN, ""), said)
    return _wait(replays, number) if wait and number is not None else DONE


def _cancel(at: Deployed, replays: Replays, number: int, *, dry_run: bool) -> int:
    from photon.dispatcher.replay.requests import Step

    if dry_run:
        open_ones = [each.request for each in replays.progress() if each.request.step < Step.DONE]
        there = number in [request.number for request in open_ones]
    else:
        there = replays.cancel(number)
    if not there:
        raise UsageError(f"--cancel {number}: no waiting or running replay has this number; --status shows them")
    people = f"replay {number} would be cancelled; nothing was changed" if dry_run else "cancelled"
    at.show({"cancelled": number, "dry_run": dry_run}, people)
    return DONE


def _wait(replays: Replays, number: int) -> int:
    """Waits until a replay is done. Prints progress on standard error."""
    from photon.dispatcher.replay.requests import Step

    told = ""
    while True:
        (each,) = [each for each in replays.progress() if each.request.number == number]
        row = _replay_row(each)
        events = many(each.events, "event")
        text = f"replay {number}: {row['state']}, {row['done']:,} of {row['bytes']:,} bytes, {events}"
        if text != told:
            click.echo(text, err=True)
            told = text
        if each.request.step >= Step.DONE:
            unread = [part.path for part in each.parts if part.step is Step.UNREAD]
            for path in unread:
                say(f"{path}: the log's file is gone or cannot be read")
            return ATTENTION if unread or each.request.step is Step.CANCELLED else DONE
        time.sleep(LOOK_S)


def _replay_row(each: Progress) -> dict[str, object]:
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
        "events": each.events,
        "known": each.known,
    }


REPLAYS = (
    Column(">number"), *map(Column, ("state", "from", "to", "file")),
    *map(Column, (">logs", ">unread", ">bytes", ">done", ">events", ">known")),
)  # fmt: skip
AGAIN = (Column("file"), Column(">bytes"), Column("", lambda row: "" if row["there"] else "is gone", str))

"""``photon join``: joins two log directories with all of Photon on one machine."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from photon.cli import tables
from photon.cli.errors import ATTENTION, DONE, FAILED
from photon.cli.heads import PATH, PLACE, Printed, formatted
from photon.config.errors import UsageError
from photon.config.words import many
from photon.fleet.parts import Column, Part

if TYPE_CHECKING:
    from photon.cli.view import ProgressView
    from photon.local_join.options import JoinOptions
    from photon.local_join.status import JoinResult

NAMED = 3  # maximum number of unread logs to list


@click.command()
@click.option("--primary", type=PLACE, required=True,
              help="The primary logs: a directory, a file, a glob, a URL, or - for standard input.")  # fmt: skip
@click.option("--foreign", type=PLACE, required=True, help="The foreign logs, in any of the same forms.")
@click.option("--kafka-client", type=PATH, metavar="FILE",
              help="For kafka://…: file of client properties, named as in librdkafka.")  # fmt: skip
@click.option("--accept-lost-offsets", is_flag=True,
              help="For kafka://…: continue although Kafka removed messages before they were read.")  # fmt: skip
@click.option("--output", type=PATH, required=True, help="Directory of the output.")
@click.option("--key", multiple=True, metavar="FIELD",
              help="Join records with equal values of this field; repeat it for several fields.")  # fmt: skip
@click.option("--primary-key", multiple=True, metavar="FIELD", help="Use this field of primary records as the key.")
@click.option("--foreign-key", multiple=True, metavar="FIELD", help="Use this field of foreign records as the key.")
@click.option("--id", metavar="FIELD", help="Use this field as the unique id of foreign events.")
@click.option("--time", metavar="FIELD", help="Use this field as the time of foreign events; its unit is detected.")
@click.option("--unit", metavar="UNIT", help="Read --time in this unit (s, ms, us, ns) or format (iso8601, …).")
@click.option("--format", "forms", multiple=True, metavar="FORMAT",
              help="Read the logs in this format, or primary=FORMAT and foreign=FORMAT.")  # fmt: skip
@click.option("--config", type=PATH, help="Read the logs as this file describes (default: infer it from the logs).")
@click.option("--join", metavar="NAME", help="Name of the join; required if the file has several.")
@click.option("--once", is_flag=True, help="Stop when everything in the logs has a verdict.")
@click.option(
    "--keep-pending", is_flag=True, help="With --once: leave events without a primary event pending for the next run."
)
@click.option("--max-rejected", type=click.IntRange(min=0), default=0, show_default=True,
              help="Exit with code 3 if more records than this are rejected.")  # fmt: skip
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key of the configuration.")
@formatted
@click.option("--quiet", is_flag=True, help="Show no progress.")
@click.option("--stages", type=PATH, help="Write a profile of the stages to this file.")
@click.option("--stop-with-parent", is_flag=True, help="Stop when standard input ends.")
def join(
    once: bool, keep_pending: bool, max_rejected: int, quiet: bool, out: Printed,
    stop_with_parent: bool, key: tuple[str, ...], primary_key: tuple[str, ...], foreign_key: tuple[str, ...],
    id: str | None, time: str | None, unit: str | None, forms: tuple[str, ...], **named: Any,
) -> int:  # fmt: skip
    """Join the events of two logs exactly once.

    Without --once, follows the logs until Ctrl-C. Run it again with the same output to continue.

    \b
    Examples:
      photon join --primary queries/ --foreign clicks/ --output out/ --once
      photon join --primary P --foreign F --output O --config config/examples/zeek.toml
      photon join --primary s3://logs/queries --foreign s3://logs/clicks --output out/
      photon join --primary orders.csv --foreign 'logs/**/clicks-*.gz' --output out/ --once
      photon join --primary P --foreign F --output O --once --primary-key id --foreign-key order_id
    Exit codes: 0 the ledger balances; 3 more than --max-rejected records were rejected, a log was not read to its
    end, or a guess about the logs was ambiguous; 1 failed; 2 wrong usage.
    """
    if keep_pending and not once:
        raise UsageError("--keep-pending requires --once; without --once, events wait anyway")
    if stop_with_parent and Path("-") in (named["primary"], named["foreign"]):
        raise UsageError("--stop-with-parent: cannot be used when standard input is a log")
    told = {"--key": key, "--primary-key": primary_key, "--foreign-key": foreign_key, "--id": id, "--time": time,
            "--unit": unit, "--format": forms}  # fmt: skip
    options_told = [name for name, value in told.items() if value]
    if named["config"] is not None and options_told:
        raise UsageError(f"--config and {', '.join(options_told)} both describe the join; use one or the other")
    ended = _in_a_child(named)
    if ended is not None:
        return ended
    import logging

    from photon.cli.view import ProgressView
    from photon.config import log
    from photon.fleet.counters import COUNTERS
    from photon.local_join.options import JoinOptions
    from photon.local_join.words import words_of
    from photon.supervision.watched import end

    log.configure(json=False, level=logging.WARNING)
    words = words_of(
        key=key, primary_key=primary_key, foreign_key=foreign_key, id=id, time=time, unit=unit, format=forms
    )
    options = JoinOptions(once=once, keep_pending=keep_pending, words=words, **named)
    view = ProgressView(quiet=quiet or out.json)
    result = _run(options, view, with_parent=stop_with_parent)

    def people() -> None:
        ledger = result.ledger
        rows = [{"counter": name, "lines": ledger[name], "meaning": words} for name, words in COUNTERS.items()]
        columns = (Column("counter"), Column(">lines"), Column("meaning"))
        tables.show(Part("", [row for row in rows if row["lines"]], columns))
        click.echo(f"{many(result.ledger['joined'], 'record')}: photon read {options.output}")

    out.show({**result.ledger} | ({"conflicting": result.conflicting} if result.conflicting else {}), people)
    code, said = _verdict(result, options, max_rejected)
    if said:
        tables.say(said)
    return end(code, tables.say)


def _in_a_child(named: Mapping[str, Any]) -> int | None:
    """Joins in a child process if the adapter is user code, and returns its exit code. Returns `None` if this process
    is to do the work."""
    if named["config"] is None and not named["overrides"]:
        return None
    from photon.adapters.crumbs import DIRECTORY
    from photon.local_join.site import Site
    from photon.supervision.watched import in_a_child, is_user_code

    if not is_user_code(named["config"], named["overrides"]):
        return None
    return in_a_child(Site(named["output"]).state / DIRECTORY, tables.say)


def _run(options: JoinOptions, view: ProgressView, *, with_parent: bool) -> JoinResult:
    from photon.config import runtime
    from photon.config.runtime import sampled
    from photon.config.stopping import stop_event
    from photon.local_join.join import run
    from photon.local_join.store import may_be_apart
    from photon.supervision.zygote import zygote

    try:
        # The event store's process is forked before this one has threads, to avoid importing everything again.
        with zygote(None) if may_be_apart(options) else contextlib.nullcontext() as copies:

            async def main() -> JoinResult:
                stop = stop_event(with_parent=with_parent)
                return await run(options, stop=stop, show=view.show, say=tables.say, zygote=copies)

            # An adapter may print; standard output is for the ledger alone.
            with sampled(options.stages), contextlib.redirect_stdout(sys.stderr):
                return runtime.run(main(), prompt=not options.once)
    finally:
        view.close()


def _verdict(result: JoinResult, options: JoinOptions, max_rejected: int) -> tuple[int, str]:
    """Returns the exit code, and the text to print after the ledger."""
    from photon.fleet.ledger import balances

    ledger = result.ledger
    if not balances(ledger):
        return FAILED, "the ledger does not balance; this is a bug in Photon: keep the output directory and report it"
    if result.unowned:
        return FAILED, f"{result.unowned} output records are not owned in the registry; keep the output and report it"
    if result.stopped and options.once:
        return FAILED, "interrupted before every event had a verdict; run this again to continue"
    if result.unread:
        counted = many(len(result.unread), "foreign log was", "foreign logs were")
        return ATTENTION, f"{counted} not read to the end: {_named(result.unread)}; fix the cause and run this again"
    if result.alike:
        counted = many(len(result.alike), "foreign log")
        what = "cannot be distinguished from another log, or from the file's former content: lines without ids "
        what += "count once up to the first difference, and as new lines after it"
        return ATTENTION, f"{counted} {what}: {_named(result.alike)}; give --id if the lines have an id"
    if result.conflicting:
        lost = many(result.conflicting, "line was", "lines were")
        return ATTENTION, (
            f"{lost} dropped as duplicates although their contents differ (see conflicting above): the "
            "detected event id does not identify events; use a new --output with --id or a configuration without "
            "an id"
        )
    if result.rejected > max_rejected:
        counted = many(result.rejected, "record")
        more = f"more than --max-rejected {max_rejected}"
        return ATTENTION, f"{counted} rejected in this run, see {options.output / 'rejected'} ({more})"
    if result.missing:
        counted = many(result.missing, "primary log has", "primary logs have")
        return ATTENTION, f"{counted} unreadable records, listed above; fix them and run this again"
    if result.ambiguous:
        counted = many(result.ambiguous, "key has", "keys have")
        doubt = f"{counted} several different primary events, so the detected key may be wrong"
        return ATTENTION, f"{doubt}; give the right one with --key, and a new --output"
    if result.unended and not options.keep_pending:
        counted = many(len(result.unended), "foreign log ends", "foreign logs end")
        return ATTENTION, f"{counted} with an unfinished line, listed above; run this again when the line is complete"
    if ledger["pending"] and options.once and not options.keep_pending:
        return ATTENTION, f"{ledger['pending']} events have no verdict yet, for the reasons above; run this again"
    return DONE, ""


def _named(logs: Sequence[str]) -> str:
    return ", ".join(logs[:NAMED]) + (", …" if len(logs) > NAMED else "")

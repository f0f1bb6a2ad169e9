"""``photon spark recover``: gives lost events that a verification found back to the dispatchers."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from photon.cli.audited import audited
from photon.cli.errors import ATTENTION, DONE
from photon.cli.heads import PLACE, Deployed, ask, deployed, must_be_said, sure
from photon.cli.looking import Progress
from photon.config.words import many
from photon.fleet.parts import Column, Part, time_of

if TYPE_CHECKING:
    from photon.operations.spark_recover import Recovery
    from photon.spark.recover.journal import RepairProgress, Replayed

TELL_S = 1.0
REFUSED_SHOWN = 10

WORDS = {
    "reopen": "are given back to the dispatchers",
    "reopen-below": "below the boundary, lost according to the outputs alone: are given back",
    "reopen-retired": "of a retired slot: are given back to the dispatchers",
    "replay": "were never registered: their dispatcher reads them again",
    "reopened": "given back: the dispatchers read them again",
    "changed": "have changed since the report: left as they are",
    "listed": "given back before, but no dispatcher has found them yet: restore their logs",
    "slot-down": "their slot may still write them: start its joiner, or retire the slot (photon slot retire)",
    "not-cleared": "not verified by the continuous verifier yet: try after the next report",
    "not-asked": "unmatched lines are already in the output: use --also-unmatched for a second verdict",
    "in-doubt": "requested before, but the answer was lost: see the next verification",
    "no-input": "no raw log has them, so nothing can be dispatched",
    "backfilled": "registered by a backfill whose output was not verified: look there",
    "other-records": "have other records too: see the report's duplicates first",
    "earlier": "given back by an earlier repair: nothing more to do",
    "not-looked-at": "refused: the output of their slots could not be searched, see below",
    "written": "not given back: their records are in output files, see below",
    "mark": "damaged places in the output, to be marked so that readers skip them: their events are listed above",
    "marked": "damaged places in the output, marked so that readers skip them: their events are listed above",
    "elsewhere": "damaged places in a slot's output, or a copy, on another machine: run the same command there",
    "unmarked": "damaged places in the output that are not marked, see below",
    "unknown": "the registry does not answer",
}


@click.command("recover")
@click.option("--report", type=PLACE, required=True, help="Directory, or URL, of a verification's report.")
@sure
@click.option("--also-unmatched", is_flag=True,
              help="For unmatched events whose primary event exists, also write a joined line.")  # fmt: skip
@click.option("--rate", type=click.FloatRange(1.0), default=5000.0, show_default=True,
              help="Maximum number of ids per second.")  # fmt: skip
@click.option("--gone", multiple=True, metavar="SLOT",
              help="Confirm that the missing files of this slot are permanently gone.")  # fmt: skip
@deployed()
@audited
def recover(
    at: Deployed,
    report: Path,
    dry_run: bool,
    yes: bool,
    also_unmatched: bool,
    rate: float,
    gone: tuple[str, ...],
) -> int:
    """Give the lost events of a report back to the dispatchers.

    \b
    The registry gives an id up only if its entry is still the exported one; each dispatcher that has the event's log
    then reads it again, and it is joined once. May be killed and run again at any moment. First, all files of all
    outputs are searched for the lost records. Events of slots whose output could not be searched (in a datacentre
    that FILE does not name, or on a disk that is not mounted) are refused. Readers that read a line before its file
    was lost will read the event a second time: with --yes you assert that these records no longer exist anywhere.
    Examples:
      photon spark recover --report reports/2026-11-20 --config photon.toml --dry-run
      photon spark recover --report reports/2026-11-20 --config photon.toml --yes
    Exit codes: 0 done; 1 the registry did not answer (run it again); 2 wrong usage, or a report of another
    deployment; 3 done, but some findings need a decision.
    """
    from photon.operations.spark_recover import Wish
    from photon.operations.spark_recover import recover as do

    must_be_said("giving ids back", dry_run=dry_run, yes=yes)
    settings = at.settings

    def recovered(apply: bool) -> Recovery:
        wish = Wish(report, apply, also_unmatched, rate, gone, str(at.config))
        progress = Progress(after_s=TELL_S, every_s=TELL_S)

        def tell(repair: RepairProgress) -> None:
            found = [of for classes in repair.counts.values() for of in classes.values()]
            back = sum(of.get("reopened", 0) for of in found)
            progress.tell(f"{many(sum(sum(of.values()) for of in found), 'finding')}, {back:,} given back")

        try:
            return do(settings, at.base, wish, tell)
        finally:
            progress.end()

    if not (dry_run or yes):
        _confirm(recovered(False), at.config)
    done = recovered(not dry_run)
    document = _as_json(done)
    at.show(document, *_shown(done, document, at.config))
    return ATTENTION if done.attention or done.unasked else DONE


def _confirm(planned: Recovery, config: Path) -> None:
    for line in _refusals(planned, config):
        click.echo(line, err=True)
    ways = [of for classes in planned.progress.counts.values() for of in classes.values()]
    back = sum(count for of in ways for what, count in of.items() if what.startswith("reopen") or what == "replay")
    ask(f"{many(back, 'event', 'events')} will be read again. Are you sure that their records are lost?", yes=False)


def _as_json(done: Recovery) -> dict[str, Any]:
    from msgspec import to_builtins as builtins

    return {
        "report": str(done.report.directory),
        "verdict": done.report.name,
        "applied": done.applied,
        "classes": {kind: dict(of) for classes in done.progress.counts.values() for kind, of in classes.items()},
        "slots": dict(done.progress.waiting_slots),
        "not_looked_at": [builtins(each) for each in chain(*done.progress.unseen.values())],
        "written": [builtins(each) for each in chain(*done.progress.written.values())],
        "replays": [_replay(each) for each in done.progress.replays],
        "attention": done.attention,
        "not_marked": done.refused,
    }


def _replay(each: Replayed) -> dict[str, Any]:
    return {
        "datacentre": each.datacentre,
        "from": time_of(each.from_ns),
        "to": time_of(each.to_ns),
        "file": each.pattern,
        "events": each.events,
        "number": each.number,
    }


def _shown(done: Recovery, document: dict[str, Any], config: Path) -> Iterator[str | Part]:
    rows = [
        {"finding": kind, "events": count, "done": WORDS.get(what, what)}
        for kind, of in document["classes"].items()
        for what, count in sorted(of.items())
    ]
    columns = (Column("finding"), Column(">events"), Column("done" if done.applied else "to be done", "done"))
    yield Part("", rows, columns, "the report has nothing to repair")
    for slot, count in sorted(done.progress.waiting_slots.items()):
        yield f"slot {slot} is down and owns {count:,} of these events: start its joiner, or retire the slot"
    yield from _refusals(done, config)
    for replay in document["replays"]:
        asked = f"replay {replay['number']} of" if replay["number"] else "run on the dispatcher's machine:"
        file = f" --file '{replay['file']}'" if replay["file"] else ""
        yield (
            f"{asked} photon dispatcher replay --config {config} --datacentre {replay['datacentre']} "
            f"--from {replay['from']} --to {replay['to']}{file}"
        )
    yield from done.refused[:REFUSED_SHOWN]
    if (more := len(done.refused) - REFUSED_SHOWN) > 0:
        yield f"and {more:,} more places that are not marked"
    if not done.applied:
        yield "nothing was done"


def _refusals(done: Recovery, config: Path) -> Iterator[str]:
    """Yields a line for each group of slots that was not checked, and for each file that has events reported as
    lost."""
    from photon.config.words import many
    from photon.spark.recover.unseen import line_of

    for refused in chain(*done.progress.unseen.values()):
        yield line_of(refused, str(config))
    for held in chain(*done.progress.written.values()):
        yield (
            f"{held.file}: holds {many(held.events, 'event')} that the report calls lost, {held.event} at byte "
            f"{held.offset:,}: not given back; move it to where readers find it, or elsewhere, and run this again"
        )

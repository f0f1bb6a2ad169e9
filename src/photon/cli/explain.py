"""``photon explain``: tells the story of one event."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from photon.cli.errors import ATTENTION, DONE
from photon.cli.heads import Deployed, deployed
from photon.cli.looking import Progress
from photon.config.errors import UsageError
from photon.config.words import many
from photon.fleet.parts import Column, Part

if TYPE_CHECKING:
    from photon.fleet.explain.question import Question
    from photon.fleet.explain.story import Story

SHOW_AFTER_S = 2.0  # seconds after which a search shows its progress
SHOW_EVERY_S = 0.5

Searched = Callable[[str, int], None]


@click.command()
@click.argument("event_id")
@click.argument("output", type=click.Path(path_type=Path), required=False)
@deployed(required=False, unless=["output"], help="Instead of OUTPUT: the deployment file.")
@click.option("--base64", "raw", is_flag=True, help="EVENT_ID is the event_id_raw_base64 of a record.")
@click.option("--timeout", type=click.FloatRange(min=1.0), default=30.0, show_default=True, metavar="SECONDS",
              help="Time limit of the whole search; large outputs may need a longer one.")  # fmt: skip
def explain(at: Deployed, event_id: str, output: Path | None, raw: bool, timeout: float) -> int:
    """Tell the story of one event over all datacentres: read, tried, matched or why not, registered, written.

    EVENT_ID is the event's id as in its record, or LOG:OFFSET, the position of its line. OUTPUT is an output of
    photon join, which may be running. With --config, all processes of the deployment are asked.

    \b
    Examples:
      photon explain 10.0.0.7:4711:1760000000000000 --config photon.toml
      photon explain click-000123 out/
      photon explain clicks-3.log:73400320 --config photon.toml -o json
    Exit codes: 0 everything was searched (even if the event is unknown); 1 failed; 2 not a valid id; 3 a process or
    file could not be searched; the story names it.
    """
    from photon.fleet.explain.question import question_of

    question = question_of(event_id, raw=raw)
    if (output is None) == (at.given is None):
        raise UsageError("give an output of photon join, or the deployment file with --config")
    progress = Progress(passing=True, after_s=SHOW_AFTER_S, every_s=SHOW_EVERY_S)

    def searched(what: str, total: int) -> None:
        progress.tell(f"searched {total >> 20:,} MiB, now {what}")

    try:
        if output is None:
            story = _of_deployment(at, question, timeout, searched)
        else:
            story = _of_join(output, question, timeout, searched)
    finally:
        progress.end()
    document = story.as_json()
    at.show(document, *shown(document))
    return DONE if story.complete else ATTENTION


def _of_deployment(at: Deployed, question: Question, seconds: float, progress: Searched) -> Story:
    from photon.fleet.explain.inquiry import Asking
    from photon.fleet.explain.inquiry import explain as ask

    asking = Asking(at.with_registry, at.base, at.tls, seconds, progress, operator=True)
    return asyncio.run(ask(asking, question))


def _of_join(output: Path, question: Question, seconds: float, progress: Searched) -> Story:
    from photon.config.disk import RealDisk
    from photon.dispatcher.partitions import there
    from photon.fleet.explain.question import Budget
    from photon.fleet.explain.service import look
    from photon.fleet.explain.story import Heard, tell
    from photon.fleet.ledger import ledger_file
    from photon.outputs import OutputPlace

    place = OutputPlace.of_join(output)
    if not there(ledger_file(place.state)) and not place.states(RealDisk()):
        raise UsageError(f"{output}: photon join has not written here yet")
    evidence = look(place, question, Budget(seconds, time.monotonic, progress))
    return tell(question, [Heard(output.name or str(output), evidence)], None, "")


def _where(file: str | None, offset: int | None) -> str:
    return file or "" if offset is None else f"{file}:{offset}"


STEPS = (
    Column("step"), Column("when", "at"), *map(Column, ("datacentre", "who", "what")),
    Column("where", lambda row: _where(row["file"], row["offset"]), str),
)  # fmt: skip


def shown(story: Mapping[str, Any]) -> Iterator[str | Part]:
    """Yields the lines and tables that show a story. ``story``: as made by ``Story.as_json``."""
    if story["upstream"]:
        yield f"join     {story['join']}"
    yield f"event    {story['event_id']}"
    yield from (f"{name:<8} {story[field]}" for name, field in (("time", "event_time"), ("key", "key"))
                if story[field] is not None)  # fmt: skip
    yield f"verdict  {story['verdict']}: {story['summary']}"
    yield from (f"WRONG    {each}" for each in story["contradictions"])
    if story["steps"]:
        yield from ("", Part("steps", story["steps"], STEPS))
    if not story["steps"] or not story["complete"]:
        yield ""
        for one in story["searched"]:
            files = f", {many(one['files'], 'file')}, {many(one['bytes'], 'byte')}" if one["files"] else ""
            yield f"searched {one['datacentre']}: {one['what']}{files}"
    yield from (f"missing  {gap['where']}: {gap['why']}" for gap in story["missing"])
    for above in story["upstream"]:
        yield f"\nmade of an event of the join {above['join']}:"
        yield from shown(above)

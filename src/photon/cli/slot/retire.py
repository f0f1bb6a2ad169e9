"""``photon slot retire``: a joiner's disk is gone for ever."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from photon.cli import steering
from photon.cli.audited import audited
from photon.cli.errors import ATTENTION, DONE
from photon.cli.registry.common import deployment, formatted, loaded, moment, print_json, print_table

if TYPE_CHECKING:
    from photon.operations.slots.id_list import Listed
    from photon.operations.slots.operating import Asked, Checked, Here
    from photon.operations.slots.retiring import Report
    from photon.operations.slots.sealing import Copy

SHOWN_MAX = 20
"""Ids of a dry run that the table shows; ``-o json`` and ``--ids`` have all."""


@click.command()
@click.argument("name")
@deployment
@click.option("--copy", type=click.Path(path_type=Path), metavar="DIR",
              help="A surviving copy of the slot's output (with joined/ ...): it stays written.")  # fmt: skip
@click.option("--ids", type=click.Path(path_type=Path), metavar="FILE",
              help="Where the list of ids goes; else beside the slot's state, or the working directory.")  # fmt: skip
@steering.sure
@click.option("--wait", default="5min", show_default=True, metavar="DURATION",
              help="How long each step waits for the registry.")  # fmt: skip
@formatted
@audited
def retire(
    name: str,
    config: Path,
    overrides: tuple[str, ...],
    dry_run: bool,
    copy: Path | None,
    ids: Path | None,
    yes: bool,
    wait: str,
    output_format: str,
) -> int:
    """Retire slot NAME, whose disk is gone for ever: fence it, and give up the ids that it owned.

    \b
    Refused while its joiner lives or its directory can be read on this machine: starting a joiner there loses
    nothing, and this may. Every dispatcher that still reads the logs takes the ids up again. The list of ids is
    written first: exactly these may be read twice by who read the slot's output above what was cleared. Killed
    anywhere, the command goes on when it is repeated. A retired name is never used again.
    Examples:
      photon slot retire east-1 --config photon.toml --dry-run
      photon slot retire east-1 --config photon.toml --yes
      photon slot retire east-1 --config photon.toml --copy /mnt/saved/output --yes
    Exit codes: 0 done, 1 failed or refused, 2 wrong usage, 3 done, but the copy lacks bytes that readers may have
    read, or no dispatcher answers that would take the ids up.
    """
    from photon.config.errors import UsageError
    from photon.config.units import seconds
    from photon.operations.slots import operating

    try:
        wait_s = seconds(wait)
    except ValueError as error:
        raise UsageError(f"--wait {wait}: {error}") from None
    here = operating.Here(loaded(config, overrides), config.parent)
    asked = operating.Asked(name, copy, ids, wait_s)
    checked = asyncio.run(operating.check(here, asked))
    if not checked.slot.retired:  # one that was begun is ended without a further word
        steering.must_be_said(f"retiring slot {name}, whose disk is gone for ever,", dry_run=dry_run, yes=yes)
    if dry_run:
        return _dry_run(here, checked, asked, output_format)
    _confirm(here, checked, asked, yes)
    report = asyncio.run(operating.carry_out(here, checked, asked, _Progress().tell))
    readers = asyncio.run(operating.dispatchers(here, checked.slot))
    if output_format == "json":
        print_json(_as_json(report, dry_run=False) | {"dispatchers": readers})
    else:
        _show(report, readers)
    lacking = report.copy is not None and report.copy.lacking
    return ATTENTION if lacking or (report.reopened and not any(readers.values())) else DONE


def _confirm(here: Here, checked: Checked, asked: Asked, yes: bool) -> None:
    from photon.operations.slots import operating

    path = operating.ids_path(here, checked, asked)
    click.echo(f"ids that are given up are listed in {path}", err=True)
    steering.ask(
        f"Is the disk of slot {asked.slot} of datacentre {checked.slot.datacentre} gone for ever? If it comes back, "
        "nothing of it can be used",
        yes=yes or checked.slot.retired,
    )


class _Progress:
    """A line on standard error for each step; on a terminal figures stand in place."""

    def __init__(self) -> None:
        self._live = sys.stderr.isatty()
        self._step = ""

    def tell(self, line: str) -> None:
        step = line.partition(":")[0]
        if self._live:
            click.echo(f"{'' if step == self._step or not self._step else chr(10)}\r\x1b[K{line}", nl=False, err=True)
        elif step != self._step:
            click.echo(line, err=True)
        self._step = step


# -- a dry run -------------------------------------------------------------------------------------------------------
def _dry_run(here: Here, checked: Checked, asked: Asked, output_format: str) -> int:
    from photon.operations.slots import operating

    report, entries = asyncio.run(operating.preview(here, checked, asked))
    if asked.ids is not None:
        operating.write_list(asked.ids, asked.slot, entries)
        report.ids_path = asked.ids
    if output_format == "json":
        print_json(_as_json(report, dry_run=True) | {"list": [_id_json(each) for each in entries]})
        return DONE
    _show_counts(report)
    columns = [("digest", False), ("event time", False), ("kind", False), ("token", False), ("event id", False)]
    if entries:
        print_table(columns, [_id_cells(each) for each in entries[:SHOWN_MAX]])
    if len(entries) > SHOWN_MAX:
        click.echo(f"... and {len(entries) - SHOWN_MAX:,} more: --ids FILE or -o json has all")
    already = "is retired already; " if checked.slot.retired else ""
    beside = "; those in the copy would be cleared instead" if report.copy is not None else ""
    click.echo(f"{already}{report.ids:,} ids would be given up{beside}; nothing was changed")
    return DONE


def _id_json(each: Listed) -> dict[str, Any]:
    found: dict[str, Any] = {"digest": each.digest, "event_time_ns": each.event_time_ns, "kind": each.kind}
    found["token"] = each.token
    if each.event_id_raw_base64 is not None:
        return found | {"event_id_raw_base64": each.event_id_raw_base64}
    return found | {"event_id": each.event_id}


def _id_cells(each: Listed) -> list[str]:
    event_id = each.event_id or each.event_id_raw_base64 or "-"
    return [each.digest, moment(each.event_time_ns), each.kind, each.token, event_id]


# -- what was done ---------------------------------------------------------------------------------------------------
def _show_counts(report: Report) -> None:
    owned = [each for each in report.counts if each.ids]
    if owned:
        columns = [("shard", True), ("owned ids", True), ("oldest event", False)]
        print_table(columns, [[str(e.shard), f"{e.ids:,}", moment(e.oldest_ns)] for e in owned])
    if report.copy is not None:
        _show_copy(report.copy)


def _show_copy(copy: Copy) -> None:
    click.echo(
        f"the copy {copy.root}: {len(copy.files)} files, {sum(copy.lengths.values()):,} bytes of whole records"
    )
    for name, missing in copy.lacking.items():
        click.echo(f"  {name}: lacks {missing:,} bytes that readers may have read")


def _show(report: Report, readers: dict[str, bool]) -> None:
    if sys.stderr.isatty():
        click.echo("", err=True)
    _show_counts(report)
    click.echo(f"slot {report.slot} is retired: {len(report.shards)} shards are fenced")
    if report.copy is not None:
        click.echo(f"{report.copy.cleared:,} ids of the copy are cleared; readers go on in it")
    if not report.reopened:
        click.echo("no id had to be given up, or all had been: done")
    else:
        other = f", {report.cleared_meanwhile:,} were cleared meanwhile" if report.cleared_meanwhile else ""
        click.echo(f"{report.reopened:,} ids were given up{other}; dispatchers take them up within seconds")
    click.echo(f"{report.listed:,} ids are listed in {report.ids_path}")
    for name, answers in readers.items():
        says = "reads the logs" if answers else "does not answer: it takes them up when it is back"
        click.echo(f"  dispatcher of {name}: {says}")


def _as_json(report: Report, *, dry_run: bool) -> dict[str, Any]:
    copy = report.copy
    return {
        "slot": report.slot,
        "dry_run": dry_run,
        "shards": [{"shard": e.shard, "ids": e.ids, "oldest_ns": e.oldest_ns} for e in report.counts],
        "ids": report.ids,
        "given_up": report.reopened,
        "cleared_meanwhile": report.cleared_meanwhile,
        "listed": report.listed,
        "ids_file": None if report.ids_path is None else str(report.ids_path),
        "copy": None
        if copy is None
        else {
            "directory": str(copy.root),
            "files": len(copy.files),
            "bytes": sum(copy.lengths.values()),
            "lacking": copy.lacking,
            "cleared": copy.cleared,
        },
    }

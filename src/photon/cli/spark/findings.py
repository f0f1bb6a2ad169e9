"""``photon spark problems`` and ``photon spark acknowledge``: list and accept the findings of a report, without
Spark."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from photon.cli.errors import DONE
from photon.cli.heads import PATH, PLACE, Printed, dry_run, formatted
from photon.cli.tables import print_json, show
from photon.config.errors import UsageError
from photon.fleet.parts import Column, Part, moment, time_of
from photon.spark.classes import Class

if TYPE_CHECKING:
    from photon.spark.verify.acknowledged import Acknowledged

SHOWN = 50
EVIDENCE_CHARS = 160
CLASSES = click.Choice([str(kind) for kind in Class])


@click.command("problems")
@click.argument("report", type=PLACE)
@click.option("--class", "classes", type=CLASSES, multiple=True, metavar="CLASS", help="Only findings of this class.")
@click.option("--file", metavar="FILE", default="", help="Only findings in this raw log or output file.")
@click.option("--event", metavar="ID", help="Only findings about this event.")
@click.option("--limit", type=click.IntRange(min=0), metavar="N",
              help=f"Number of rows; 0: all (default: {SHOWN} in a table, all with -o json).")  # fmt: skip
@formatted
def problems(
    report: Path, classes: tuple[str, ...], file: str, event: str | None, limit: int | None, out: Printed
) -> int:
    """List the findings of REPORT. REPORT is a directory or URL of photon spark verify.

    \b
    With -o json, prints one JSON object per line. Needs neither Spark nor the deployment.
    Examples:
      photon spark problems reports/2026-11-20
      photon spark problems reports/2026-11-20 --class lost-cleared --file joined/east-1-000003.jsonl
      photon spark problems s3://reports/2026-11-20 --event click-17 -o json
    """
    from photon.spark.problems import ProblemFilter, opened, rows

    wanted = ProblemFilter(classes, file, None if event is None else event.encode())
    most = (0 if out.json else SHOWN) if limit is None else limit
    shown: list[dict[str, Any]] = []
    count = 0
    with opened(report) as found:
        for row in rows(found, wanted):
            count += 1
            if most and count > most:
                continue
            if out.json:
                print_json(_as_json(row))
            else:
                shown.append(row)
    if out.json:
        return DONE
    show(Part("findings", shown, FINDINGS, f"{report}: no findings match"))
    if count > len(shown):
        show(f"{count - len(shown):,} more: --limit 0 shows all")
    return DONE


def _event(row: dict[str, Any]) -> str:
    from photon.spark.problems import event_text

    return event_text(row["event_id"])


def _place(file: str, offset: str) -> Callable[[dict[str, Any]], str]:
    def text(row: dict[str, Any]) -> str:
        from photon.spark.problems import place_text

        return place_text(row[file], row[offset])

    return text


def _evidence(row: dict[str, Any]) -> str:
    evidence = str(row["evidence"])
    return evidence if len(evidence) <= EVIDENCE_CHARS else evidence[: EVIDENCE_CHARS - 1] + "…"


FINDINGS = (
    Column("finding", lambda row: f"{row['class']} (acknowledged)" if row["acknowledged"] else row["class"]),
    Column("event", _event), Column("time", "event_time_ns", moment), Column("datacentre"),
    Column("raw log", _place("log", "offset")), Column("output", _place("output_file", "output_offset")),
    Column("evidence", _evidence),
)  # fmt: skip
ACKNOWLEDGED = (Column("finding", "kind"), *map(Column, ("event", "output", "who", "at", "why")))


def _as_json(row: dict[str, Any]) -> dict[str, Any]:
    """Converts a row for JSON: bytes become text, or base64 under another name if they are not UTF-8."""
    import base64

    import orjson

    found: dict[str, Any] = {}
    for name, value in row.items():
        if isinstance(value, bytes) and name != "digest":
            try:
                found[name] = value.decode()
            except UnicodeDecodeError:
                found[f"{name}_raw_base64"] = base64.b64encode(value).decode()
        else:
            found[name] = value
    digest, time_ns = row["digest"], row["event_time_ns"]
    told = {"digest": None if digest is None else digest.hex(), "event_time": time_of(time_ns)}
    return found | told | {"evidence": orjson.loads(row["evidence"])}


@click.command("acknowledge")
@click.argument("report", type=PLACE)
@click.option("--event", metavar="ID", help="The event whose finding is accepted.")
@click.option("--class", "kind", type=CLASSES, metavar="CLASS", help="The class of the finding.")
@click.option("--all-of", type=CLASSES, metavar="CLASS", help="Accept all findings of this class in REPORT.")
@click.option("--who", metavar="NAME", help="Name of the person who accepts it.")
@click.option("--why", metavar="TEXT", help="Reason for accepting it.")
@click.option("--list", "listed", is_flag=True, help="List the accepted findings.")
@click.option("--work", type=PATH, metavar="DIR",
              help="The --work of photon spark verify (default: next to REPORT); required with a URL.")  # fmt: skip
@dry_run
@formatted
def acknowledge(
    report: Path,
    event: str | None,
    kind: str | None,
    all_of: str | None,
    who: str | None,
    why: str | None,
    listed: bool,
    work: Path | None,
    dry_run: bool,
    out: Printed,
) -> int:
    """Accept findings of REPORT. Later verifications report only new findings.

    \b
    An acknowledged finding stays in the report, is counted separately, and does not cause exit code 3. If its class,
    place or evidence changes, it is a new finding.
    Examples:
      photon spark acknowledge reports/2026-11-20 --event click-17 --class duplicated --who ana --why "billed once"
      photon spark acknowledge reports/2026-11-20 --all-of torn --dry-run
      photon spark acknowledge reports/2026-11-20 --list
    Exit codes: 0 done; 2 wrong usage, or REPORT has no such finding.
    """
    from photon.config.disk import RealDisk
    from photon.objects.paths import ObjectPath
    from photon.spark.problems import ProblemFilter, opened, rows
    from photon.spark.verify.acknowledged import add_acknowledged, finding_key, kept_below, read_acknowledged

    if work is None and isinstance(report, ObjectPath):
        raise UsageError(
            f"{report}: give --work: the deployment file's directory, or the --work of photon spark verify"
        )
    if listed + (all_of is not None) + (event is not None) != 1 or (event is None) != (kind is None):
        raise UsageError("give --event ID --class CLASS, or --all-of CLASS, or --list")
    if not (listed or dry_run) and not (who and why):
        raise UsageError("give both --who and --why; they are kept with the acknowledgement")
    wanted = ProblemFilter([all_of or kind or ""], event=None if event is None else event.encode())
    disk = RealDisk()
    with opened(report) as found:
        kept = kept_below(report.parent if work is None else work, found.join)
        known = read_acknowledged(disk, kept)
        if listed:
            out.part(_acknowledged(known))
            return DONE
        before = {each.finding for each in known}
        there = {finding_key(row): row for row in rows(found, wanted)}
    if not there:
        raise UsageError(f"{report}: has no finding {all_of or kind}{'' if event is None else f' of event {event}'}")
    new = [_new(key, row, who, why) for key, row in there.items() if key not in before]
    if new and not dry_run:
        add_acknowledged(disk, kept, new)
    before_now = len(there) - len(new)

    done = "would be acknowledged" if dry_run else "acknowledged"
    line = f"{len(new):,} {done}, {before_now:,} already were"
    out.part(_acknowledged(new), line, before=before_now, dry_run=dry_run)
    return DONE


def _new(key: str, row: dict[str, Any], who: str | None, why: str | None) -> Acknowledged:
    from photon.spark.problems import event_text, place_text
    from photon.spark.verify.acknowledged import Acknowledged

    at = time_of(time.time_ns()) or ""
    output = place_text(row["output_file"], row["output_offset"])
    return Acknowledged(key, row["class"], event_text(row["event_id"]), output, who or "-", why or "-", at)


def _acknowledged(known: list[Acknowledged]) -> Part:
    import msgspec

    return Part("acknowledged", msgspec.to_builtins(known), ACKNOWLEDGED)

"""``photon adapter``: tests how log files are read, lists formats and adapters, and creates adapter packages."""

from __future__ import annotations

import os
import re
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import orjson

from photon.adapters.formats.json_values import parse_line
from photon.cli.errors import ATTENTION, DONE, FAILED
from photon.cli.heads import PATH, Printed, formatted
from photon.config.words import many

if TYPE_CHECKING:
    from photon.adapters.testkit import Report
    from photon.adapters.testkit.trial import Trial, Tried

FIELD_CHARS_MAX = 60
FIELDS_WIDTH = 116
LINES_MAX = 10
VALUES = re.compile(r"'[^']*'|(?<![:\w])[0-9]+")  # parts of a rejection reason that differ between lines


@click.command()
@click.argument("config", type=PATH)
@click.option("--primary", type=PATH, help="A primary log file, plain or compressed.")
@click.option("--foreign", type=PATH, help="A foreign log file, plain or compressed.")
@click.option("--join", "join", metavar="NAME", help="Name of the join; required if the file has several.")
@click.option(
    "-n", "--records", type=click.IntRange(1, 10_000), default=20, show_default=True, help="Records to read."
)
@click.option("--checks/--no-checks", default=True,
              help="Also check that the adapter keeps its contract: determinism, bad lines, speed …")  # fmt: skip
@formatted
def test(
    config: Path, primary: Path | None, foreign: Path | None, join: str | None, records: int, checks: bool,
    out: Printed,
) -> int:  # fmt: skip
    """Show how log files are read, and check the adapter. Shows why records are rejected, and whether the adapter
    meets its contract.

    Nothing is joined or written.

    \b
    Example:
      photon adapter test photon.toml --primary queries/a.log --foreign clicks/a.log.gz -o json
    Exit codes: 0 every record was read; 3 some were rejected; 1 no record of a file could be read, or the adapter
    breaks the contract.
    """
    from photon.adapters.join_adapters import adapter_of, join_named
    from photon.adapters.testkit.trial import ambiguous, as_json, examined, matches, report_json, try_file, unpaired
    from photon.config.loader import load
    from photon.eventstore.shared_keys import DOES

    if primary is None and foreign is None:
        raise click.UsageError("give a file with --primary, --foreign, or both")
    settings = load(config, environment=os.environ)
    loaded = adapter_of(settings, join_named(settings, join), config.parent)
    named = {"primary": primary, "foreign": foreign}
    trials = {side: try_file(loaded, side, path, records) for side, path in named.items() if path is not None}
    found = matches(trials["primary"], trials["foreign"]) if len(trials) == 2 else None
    apart = unpaired(loaded, trials["primary"], trials["foreign"]) if len(trials) == 2 else []
    report = examined(loaded, trials) if checks else None
    shared = ambiguous(trials["primary"]) if "primary" in trials else []
    said: dict[str, Any] = {side: as_json(trial) for side, trial in trials.items()}
    places = [{"key": _shown(one.key), "offsets": [one.offset, two.offset]} for one, two in shared]

    def people() -> None:
        for side, trial in trials.items():
            _print(side, trial)
        if found is not None:
            total = len(trials["foreign"].read)
            click.echo(f"{found} of {total} foreign records name one of these primary records")
            if total and not found:
                click.echo(f"  the first {records} of each file may cover different hours: try more with -n")
        if apart:
            one_of, why = apart[0]
            click.echo(f"  {len(apart)} of them do not pair with it: line {one_of.line}: {why}")
        if shared:
            one, two = shared[0]
            where = (
                f"{trials['primary'].path}, offsets {one.offset} and {two.offset} (lines {one.line} and {two.line})"
            )
            have = many(len(shared), "key has", "keys have")
            click.echo(f"{have} several different primary records: {_shown(one.key)!r} is in {where}")
            click.echo(f"  {DOES[loaded.primary_duplicates]} (primary.duplicates)")
        _print_report(report)

    out.show({**said, "matched": found, "unpaired": len(apart), "ambiguous": places, **report_json(report)}, people)
    if report is not None and not report.kept:
        return FAILED
    if any(not trial.read for trial in trials.values()):
        return FAILED
    return ATTENTION if any(trial.rejected or trial.fault for trial in trials.values()) else DONE


@click.command()
@formatted
def show(out: Printed) -> int:
    """List formats, and adapters of installed packages. Formats need no code.

    \b
    Example:
      photon adapter show -o json
    Exit codes: 0 done; 3 an installed adapter cannot be used.
    """
    from photon.adapters.entry_points import installed
    from photon.adapters.side import FORMATS

    found = installed()
    rows = [
        {
            "name": each.name,
            "class": each.target,
            "package": each.package,
            "version": each.version,
            "summary": each.summary,
            "fault": each.fault or None,
        }
        for each in found
    ]
    people = ["formats (format = …): " + ", ".join(FORMATS)]
    for each in found:
        says = each.fault or each.summary
        says = f": {says}" if says else ""
        people.append(f"adapter {each.name}: {each.target}, {each.package} {each.version}{says}")
    if not found:
        people.append("no installed package has an adapter (an entry point in the group photon.adapters)")
    out.show({"formats": FORMATS, "adapters": rows}, "\n".join(people))
    return ATTENTION if any(each.fault for each in found) else DONE


@click.command()
@click.argument("name")
@click.option("--directory", type=PATH, default=Path(), show_default=True, help="Where to create the package.")
@formatted
def init(out: Printed, name: str, directory: Path) -> int:
    """Create a package with a working adapter as a starting point. It has an entry point, sample logs, tests and a
    README.

    NAME is a Python identifier. It is also the name of the package's folder, which must not exist yet.

    \b
    Example:
      photon adapter init acme_billing
    """
    from photon.adapters.scaffold import make_package

    folder = make_package(name, directory)
    made = sorted(str(each.relative_to(folder)) for each in folder.rglob("*") if each.is_file())
    people = f"{folder}: {', '.join(made)}\nnext: cd {folder} && pip install -e '.[dev]' && pytest"
    out.show({"name": name, "directory": str(folder), "files": made}, people)
    return DONE


def _print_report(report: Report | None) -> None:
    if report is None:
        return
    kept = [name for name, found in report.findings.items() if not found]
    if kept:
        click.echo(f"checks kept: {', '.join(kept)}")
    for name, found in report.findings.items():
        for each in found:
            click.echo(f"check {name}: {each}")
    if report.speeds:
        click.echo("speed: " + ", ".join(f"{each.method} {each.per_s:,.0f} records/s" for each in report.speeds))


def _print(side: str, trial: Trial) -> None:
    from photon.adapters.times import rfc3339_us

    skipped = f", {trial.skipped} skipped" if trial.skipped else ""
    click.echo(
        f"{side} {trial.path}: {many(len(trial.read), 'record')} read, {len(trial.rejected)} rejected{skipped}"
    )
    rows = [("line", "key", *(("id", "time") if side == "foreign" else ()))]
    for each in trial.read:
        own = "(log and offset)" if each.event_id is None else _shown(each.event_id)
        header = (own, rfc3339_us(each.time_ns or 0)) if side == "foreign" else ()
        rows.append((str(each.line), _shown(each.key), *header))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    if trial.read:
        click.echo(lines[0])
    for line, each in zip(lines[1:], trial.read, strict=True):
        click.echo(line)
        text = _fields(each.payload)
        click.echo(textwrap.fill(text, FIELDS_WIDTH, initial_indent="    ", subsequent_indent="    "))
    alike: dict[str, list[Tried]] = {}
    for bad in trial.rejected:
        alike.setdefault(VALUES.sub("#", bad.reason), []).append(bad)
    for same in alike.values():
        _print_rejected(same)
    if trial.fault:
        click.echo(f"{trial.path}: {trial.fault}")


def _print_rejected(same: list[Tried]) -> None:
    """Prints the first of the records rejected for the same reason, and where in its line the pattern stops
    matching."""
    first, others = same[0], [str(each.line) for each in same[1:]]
    left = f" and {len(others) - LINES_MAX} more" if len(others) > LINES_MAX else ""
    are = "so is line" if len(others) == 1 else "so are lines"
    so = f" ({are} {', '.join(others[:LINES_MAX])}{left})" if others else ""
    click.echo(f"line {first.line} is rejected: {first.reason}{so}")
    at = first.stop.at if first.stop else 0
    before, after = _shown(first.record[:at]), _shown(first.record[at:])
    cut = max(0, len(before) - FIELDS_WIDTH // 2)
    before = "…" * bool(cut) + before[cut:]
    click.echo("    " + _cut(before + after))
    if first.stop:
        wanted = f"^ here the pattern expects {first.stop.wanted}"
        click.echo("    " + (" " * len(before) + _cut(wanted)))


def _cut(text: str) -> str:
    text = text.replace("\n", "⏎").replace("\t", " ")
    return text if len(text) <= FIELDS_WIDTH else text[: FIELDS_WIDTH - 1] + "…"


def _shown(data: bytes) -> str:
    return data.decode("utf-8", "backslashreplace")


def _fields(payload: bytes | None) -> str:
    if payload is None:
        return "not UTF-8: base64 of the record"
    value = parse_line(payload)
    if not isinstance(value, dict):
        return _shown(payload)[:FIELD_CHARS_MAX]
    return " ".join(f"{name}={_short(each)}" for name, each in value.items())


def _short(value: object) -> str:
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    text = " ".join(text.split())
    return text if len(text) <= FIELD_CHARS_MAX else text[: FIELD_CHARS_MAX - 1] + "…"

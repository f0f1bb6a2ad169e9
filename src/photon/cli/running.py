"""``photon restart``, ``hold``, ``release``, ``reload``: what ``photon up`` runs, one process or kind at a time."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import orjson

from photon.cli import deployment_file, steering
from photon.cli.audited import audited
from photon.cli.errors import DONE
from photon.cli.processes import place, run_option, tell, wait_for
from photon.cli.registry.common import formatted

if TYPE_CHECKING:
    pass

WORDS = click.argument("words", nargs=-1, metavar="FILE [NAME]...")
"""FILE may be left out where PHOTON_CONFIG names it."""
DATACENTRE = click.option("--datacentre", metavar="NAME", help="Only those that are lost with this datacentre.")
TIMEOUT = click.option("--timeout", type=click.FloatRange(min=1.0), default=180.0, show_default=True,
                       help="Seconds until a process must be up, or have ended.")  # fmt: skip


@click.command()
@WORDS
@DATACENTRE
@click.option("--at-once", is_flag=True, help="All of them together: where others do their work meanwhile.")
@run_option
@TIMEOUT
@steering.dry_run
@formatted
@audited
def restart(
    words: tuple[str, ...],
    datacentre: str | None,
    at_once: bool,
    run: Path | None,
    timeout: float,
    dry_run: bool,
    output_format: str,
) -> int:
    """Restart processes that photon up keeps running, one after the other.

    NAME is one of photon ps ("joiner east-1" or joiner-east-1), or a kind (joiner); a kind that there is none of is
    passed over if others are there. Each one ends in order, and is up again before the next one ends; what it reads
    at its start (release, settings, certificates) it reads anew.

    \b
    Examples:
      photon restart photon.toml "registry r1"
      photon restart photon.toml joiner dispatcher --datacentre east
      photon restart photon.toml --datacentre east --at-once
    Exit codes: 0 all are up again, 1 one is not (those after it were left alone), 2 wrong usage.
    """
    file, names = deployment_file.file_and_names(words, "restart")
    directory = place(file, run)
    chosen = _chosen(directory, "restart", names, datacentre)
    if dry_run:
        return _would(directory, "restarted", chosen, output_format)
    seconds: dict[str, float] = {}
    for some in [chosen] if at_once else [[name] for name in chosen]:
        began = time.monotonic()
        before = {state.name: state.pid for state in tell(directory, "ps", some)}
        tell(directory, "restart", some)
        for name in some:
            wait_for(directory, name, timeout, lambda state: state.state == "up" and state.pid != before[state.name])  # noqa: B023
            seconds[name] = round(time.monotonic() - began, 3)
            if output_format == "table":
                click.echo(f"{name}: up again after {seconds[name]:.1f} s")
    if output_format == "json":
        rows = [{"name": name, "up_after_s": seconds[name]} for name in chosen]
        click.echo(orjson.dumps({"run": str(directory), "restarted": rows}).decode())
    return DONE


@click.command()
@WORDS
@DATACENTRE
@run_option
@TIMEOUT
@steering.dry_run
@formatted
@audited
def hold(
    words: tuple[str, ...],
    datacentre: str | None,
    run: Path | None,
    timeout: float,
    dry_run: bool,
    output_format: str,
) -> int:
    """End processes that photon up keeps running; they stay down until photon release.

    NAME is one of photon ps ("joiner east-1" or joiner-east-1), or a kind (joiner).

    \b
    Example:
      photon hold photon.toml joiner verifier
    Exit codes: 0 they have ended, 1 one has not, 2 wrong usage.
    """
    file, names = deployment_file.file_and_names(words, "hold")
    directory = place(file, run)
    chosen = _chosen(directory, "hold", names, datacentre)
    if dry_run:
        return _would(directory, "held", chosen, output_format)
    tell(directory, "hold", chosen)
    for name in chosen:
        wait_for(directory, name, timeout, lambda state: state.state == "held")
    return _done(directory, "held", chosen, output_format)


@click.command()
@WORDS
@DATACENTRE
@run_option
@TIMEOUT
@steering.dry_run
@formatted
@audited
def release(
    words: tuple[str, ...],
    datacentre: str | None,
    run: Path | None,
    timeout: float,
    dry_run: bool,
    output_format: str,
) -> int:
    """Start held processes again, all at once, and wait until they are up.

    NAME is one of photon ps ("joiner east-1" or joiner-east-1), or a kind (joiner).

    \b
    Example:
      photon release photon.toml joiner verifier
    Exit codes: 0 all are up, 1 one is not, 2 wrong usage.
    """
    file, names = deployment_file.file_and_names(words, "release")
    directory = place(file, run)
    chosen = _chosen(directory, "release", names, datacentre)
    if dry_run:
        return _would(directory, "released", chosen, output_format)
    tell(directory, "release", chosen)
    for name in chosen:
        wait_for(directory, name, timeout, lambda state: state.state == "up")
    return _done(directory, "up", chosen, output_format)


@click.command()
@deployment_file.file
@run_option
@TIMEOUT
@click.option("--no-wait", is_flag=True, help="Do not wait until new processes are up: where they need others first.")
@steering.dry_run
@formatted
@audited
def reload(file: Path, run: Path | None, timeout: float, no_wait: bool, dry_run: bool, output_format: str) -> int:
    """Let the running photon up take up its changed deployment file and the operator's certificate.

    Processes that the file has gained are started and waited for, those that it has lost end. The others go on as
    they are; those named as changed take up their settings when they are restarted. A file that has a mistake
    changes nothing.

    \b
    Example:
      photon reload photon.toml
    Exit codes: 0 done, 1 refused, or a new process is not up, 2 wrong usage.
    """
    from photon.supervision.control import Changes, Request, ask

    directory = place(file, run)
    changes = ask(directory, Request(do="reload", dry_run=dry_run), timeout).changes or Changes()
    for name in () if no_wait or dry_run else changes.started:
        wait_for(directory, name, timeout, lambda state: state.state == "up")
    if output_format == "json":
        rows = {"started": changes.started, "ended": changes.ended, "changed": changes.changed}
        click.echo(orjson.dumps({"run": str(directory), "dry_run": dry_run, **rows}).decode())
        return DONE
    click.echo(f"started: {', '.join(changes.started) or 'none'}")
    click.echo(f"ended: {', '.join(changes.ended) or 'none'}")
    click.echo(f"changed, when they are restarted: {', '.join(changes.changed) or 'none'}")
    if dry_run:
        click.echo("this is what would be done; nothing was changed")
    return DONE


def _would(directory: Path, what: str, names: Sequence[str], output_format: str) -> int:
    if output_format == "json":
        click.echo(orjson.dumps({"run": str(directory), "dry_run": True, what: names}).decode())
    else:
        click.echo(f"would be {what}: {', '.join(names)}; nothing was changed")
    return DONE


def _done(directory: Path, what: str, names: Sequence[str], output_format: str) -> int:
    if output_format == "json":
        click.echo(orjson.dumps({"run": str(directory), what: names}).decode())
    else:
        click.echo(f"{what}: {', '.join(names)}")
    return DONE


def _chosen(directory: Path, verb: str, names: Sequence[str], datacentre: str | None) -> list[str]:
    """The processes that are meant, in the order of their start. Kinds that a deployment has none of are passed
    over, so that one list fits all. Raises UsageError."""
    from photon.config.errors import UsageError
    from photon.fleet.processes import KINDS

    states = tell(directory, "ps")
    if not names and datacentre is None:
        raise UsageError(f"{verb}: of what? name processes, a kind, or --datacentre; photon ps shows them")
    known = [state.name for state in states if datacentre in (None, state.datacentre)]
    if not known:
        raise UsageError(f"--datacentre {datacentre}: no process is lost with it")
    chosen: list[str] = []
    for name in names or known:
        found = [each for each in known if name in (each, each.replace(" ", "-"), each.partition(" ")[0])]
        if not found and name not in KINDS:
            raise UsageError(f"{name}: no such process; there are: {', '.join(known)}")
        chosen += found
    if not chosen:
        raise UsageError(f"{', '.join(names)}: no such process; there are: {', '.join(known)}")
    return [name for name in known if name in chosen]

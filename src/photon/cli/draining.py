"""``photon joiner drain``, ``photon dispatcher pause`` and ``resume``: parts of a photon up taken out, in order."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click
import orjson

from photon.cli import deployment_file, steering
from photon.cli.audited import audited
from photon.cli.errors import ATTENTION, DONE
from photon.cli.processes import place, run_option, tell, wait_for
from photon.cli.registry.common import formatted

if TYPE_CHECKING:
    from photon.supervision.states import ServiceState

DATACENTRE = click.option("--datacentre", metavar="NAME", help="Whose dispatcher; may be left out if there is one.")
TIMEOUT = click.option("--timeout", type=click.FloatRange(min=1.0), default=180.0, show_default=True,
                       help="Seconds until it must be done.")  # fmt: skip


@click.command()
@click.argument("name")
@deployment_file.config()
@run_option
@click.option("--last", is_flag=True, help="Though it is the last one up: its datacentre's events wait meanwhile.")
@TIMEOUT
@steering.dry_run
@formatted
@audited
def drain(
    name: str, config: Path, run: Path | None, last: bool, timeout: float, dry_run: bool, output_format: str
) -> int:
    """Take joiner NAME out of service: it gets no new events, what it holds is decided and written, then it is held.

    Its datacentre's other joiners get the events from then on. Refused where none of them is up. It stays down until
    photon release, or until photon up is started anew. In containers: docker-compose stop.

    \b
    Examples:
      photon joiner drain east-1 --config photon.toml --dry-run
      photon joiner drain east-1 --config photon.toml
    Exit codes: 0 drained and held, 1 refused, or it does not end, 2 wrong usage, 3 held, but something was still
    undecided (the registry did not answer): its next start redoes it.
    """
    from photon.supervision.draining import PATIENCE_S, check_drain, joiner_named

    directory = place(config, run)
    states = tell(directory, "ps")
    joiner = joiner_named(states, name)
    check_drain(states, joiner, last=last)
    if dry_run:
        line = f"{joiner.name} would be drained and held"
        return _say(output_format, {"joiner": joiner.name, "dry_run": True}, line)
    running = joiner.pid is not None
    tell(directory, "hold", [joiner.name], PATIENCE_S)
    held = _until(directory, joiner.name, "held", timeout)
    drained = not running or held.exit_code == 0
    words = "drained and held" if drained else "held; something was still undecided, and its next start redoes it"
    _say(output_format, {"joiner": joiner.name, "dry_run": False, "drained": drained}, f"{joiner.name}: {words}")
    return DONE if drained else ATTENTION


@click.command()
@deployment_file.config()
@DATACENTRE
@run_option
@TIMEOUT
@steering.dry_run
@formatted
@audited
def pause(
    config: Path, datacentre: str | None, run: Path | None, timeout: float, dry_run: bool, output_format: str
) -> int:
    """Let a datacentre's dispatcher read nothing until photon dispatcher resume: all its workers end and are held.

    What it has read and has no verdict for is in its state, and waits. Another datacentre that reads the same logs
    joins on, without a head start for this one. It stays paused until it is resumed, or until photon up is started
    anew. In containers: docker-compose stop.

    \b
    Examples:
      photon dispatcher pause --config photon.toml --datacentre east --dry-run
      photon dispatcher pause --config photon.toml --datacentre east
    Exit codes: 0 it is paused, 1 it does not end, 2 wrong usage.
    """
    from photon.supervision.draining import dispatchers_of, readers_left

    directory = place(config, run)
    states = tell(directory, "ps")
    chosen = dispatchers_of(states, datacentre)
    names, others = [state.name for state in chosen], readers_left(states, chosen)
    if not others:
        click.echo("photon: nobody else reads here: a log that is deleted meanwhile is never read", err=True)
    said = {"dispatchers": names, "reading_on": others, "dry_run": dry_run}
    if dry_run:
        return _say(output_format, said, f"would be paused: {', '.join(names)}")
    tell(directory, "hold", names)
    for name in names:
        _until(directory, name, "held", timeout)
    return _say(output_format, said, f"paused: {', '.join(names)}")


@click.command()
@deployment_file.config()
@DATACENTRE
@run_option
@TIMEOUT
@steering.dry_run
@formatted
@audited
def resume(
    config: Path, datacentre: str | None, run: Path | None, timeout: float, dry_run: bool, output_format: str
) -> int:
    """Let a paused dispatcher read on where it was, and wait until it is up.

    \b
    Example:
      photon dispatcher resume --config photon.toml --datacentre east
    Exit codes: 0 it reads, 1 it is not up, 2 wrong usage.
    """
    from photon.supervision.draining import dispatchers_of

    directory = place(config, run)
    names = [state.name for state in dispatchers_of(tell(directory, "ps"), datacentre)]
    said = {"dispatchers": names, "dry_run": dry_run}
    if dry_run:
        return _say(output_format, said, f"would be resumed: {', '.join(names)}")
    tell(directory, "release", names)
    for name in names:
        _until(directory, name, "up", timeout)
    return _say(output_format, said, f"resumed: {', '.join(names)}")


def _say(output_format: str, found: dict[str, object], line: str) -> int:
    nothing = "; nothing was changed" if found["dry_run"] else ""
    click.echo(orjson.dumps(found).decode() if output_format == "json" else line + nothing)
    return DONE


def _until(directory: Path, name: str, wanted: str, timeout: float) -> ServiceState:
    return wait_for(directory, name, timeout, lambda state: state.state == wanted, telling=True)

"""``photon restart``, ``hold``, ``release``, ``reload``: what ``photon up`` runs, one process or kind at a time."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import orjson

from photon.cli.errors import DONE
from photon.cli.processes import place, run_option

if TYPE_CHECKING:
    from photon.embedded.states import ServiceState

POLL_S = 0.1
FILE = click.argument("file", type=click.Path(path_type=Path))
NAMES = click.argument("names", nargs=-1, metavar="[NAME]...")
DATACENTRE = click.option("--datacentre", metavar="NAME", help="Only those that are lost with this datacentre.")
TIMEOUT = click.option("--timeout", type=click.FloatRange(min=1.0), default=180.0, show_default=True,
                       help="Seconds until a process must be up, or have ended.")  # fmt: skip


@click.command()
@FILE
@NAMES
@DATACENTRE
@click.option("--at-once", is_flag=True, help="All of them together: where others do their work meanwhile.")
@run_option
@TIMEOUT
def restart(
    file: Path, names: tuple[str, ...], datacentre: str | None, at_once: bool, run: Path | None, timeout: float
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
    directory = place(file, run)
    chosen = _chosen(directory, "restart", names, datacentre)
    for some in [chosen] if at_once else [[name] for name in chosen]:
        began = time.monotonic()
        before = {state.name: state.pid for state in _tell(directory, "ps", some)}
        _tell(directory, "restart", some)
        for name in some:
            _wait(directory, name, timeout, lambda state: state.state == "up" and state.pid != before[state.name])  # noqa: B023
            click.echo(f"{name}: up again after {time.monotonic() - began:.1f} s")
    return DONE


@click.command()
@FILE
@NAMES
@DATACENTRE
@run_option
@TIMEOUT
def hold(file: Path, names: tuple[str, ...], datacentre: str | None, run: Path | None, timeout: float) -> int:
    """End processes that photon up keeps running; they stay down until photon release.

    NAME is one of photon ps ("joiner east-1" or joiner-east-1), or a kind (joiner).

    \b
    Example:
      photon hold photon.toml joiner verifier
    Exit codes: 0 they have ended, 1 one has not, 2 wrong usage.
    """
    directory = place(file, run)
    chosen = _chosen(directory, "hold", names, datacentre)
    _tell(directory, "hold", chosen)
    for name in chosen:
        _wait(directory, name, timeout, lambda state: state.state == "held")
    click.echo(f"held: {', '.join(chosen)}")
    return DONE


@click.command()
@FILE
@NAMES
@DATACENTRE
@run_option
@TIMEOUT
def release(file: Path, names: tuple[str, ...], datacentre: str | None, run: Path | None, timeout: float) -> int:
    """Start held processes again, all at once, and wait until they are up.

    NAME is one of photon ps ("joiner east-1" or joiner-east-1), or a kind (joiner).

    \b
    Example:
      photon release photon.toml joiner verifier
    Exit codes: 0 all are up, 1 one is not, 2 wrong usage.
    """
    directory = place(file, run)
    chosen = _chosen(directory, "release", names, datacentre)
    _tell(directory, "release", chosen)
    for name in chosen:
        _wait(directory, name, timeout, lambda state: state.state == "up")
    click.echo(f"up: {', '.join(chosen)}")
    return DONE


@click.command()
@FILE
@run_option
@TIMEOUT
@click.option("--no-wait", is_flag=True, help="Do not wait until new processes are up: where they need others first.")
@click.option("-o", "output_format", type=click.Choice(["table", "json"]), default="table", show_default=True)
def reload(file: Path, run: Path | None, timeout: float, no_wait: bool, output_format: str) -> int:
    """Let the running photon up take up its changed deployment file and the operator's certificate.

    Processes that the file has gained are started and waited for, those that it has lost end. The others go on as
    they are; those named as changed take up their settings when they are restarted. A file that has a mistake
    changes nothing.

    \b
    Example:
      photon reload photon.toml
    Exit codes: 0 done, 1 refused, or a new process is not up, 2 wrong usage.
    """
    from photon.embedded.control import Changes, Request, ask

    directory = place(file, run)
    changes = ask(directory, Request(do="reload"), timeout).changes or Changes()
    for name in () if no_wait else changes.started:
        _wait(directory, name, timeout, lambda state: state.state == "up")
    if output_format == "json":
        rows = {"started": changes.started, "ended": changes.ended, "changed": changes.changed}
        click.echo(orjson.dumps({"run": str(directory), **rows}).decode())
        return DONE
    click.echo(f"started: {', '.join(changes.started) or 'none'}")
    click.echo(f"ended: {', '.join(changes.ended) or 'none'}")
    click.echo(f"changed, when they are restarted: {', '.join(changes.changed) or 'none'}")
    return DONE


def _chosen(directory: Path, verb: str, names: Sequence[str], datacentre: str | None) -> list[str]:
    """The processes that are meant, in the order of their start. Kinds that a deployment has none of are passed
    over, so that one list fits all. Raises UsageError."""
    from photon.config.errors import UsageError
    from photon.embedded.deployment import HEALTH

    states = _tell(directory, "ps", [])
    if not names and datacentre is None:
        raise UsageError(f"{verb}: of what? name processes, a kind, or --datacentre; photon ps shows them")
    known = [state.name for state in states if datacentre in (None, state.datacentre)]
    if not known:
        raise UsageError(f"--datacentre {datacentre}: no process is lost with it")
    chosen: list[str] = []
    for name in names or known:
        found = [each for each in known if name in (each, each.replace(" ", "-"), each.partition(" ")[0])]
        if not found and name not in HEALTH:
            raise UsageError(f"{name}: no such process; there are: {', '.join(known)}")
        chosen += found
    if not chosen:
        raise UsageError(f"{', '.join(names)}: no such process; there are: {', '.join(known)}")
    return [name for name in known if name in chosen]


def _tell(directory: Path, do: str, names: Sequence[str]) -> list[ServiceState]:
    from photon.embedded.control import Request
    from photon.embedded.detached import ask_patiently

    return ask_patiently(directory, Request(do=do, names=tuple(names))).services  # type: ignore[arg-type]


def _wait(directory: Path, name: str, timeout: float, is_so: Callable[[ServiceState], bool]) -> None:
    """Raises PhotonError."""
    from photon.config.errors import PhotonError

    deadline = time.monotonic() + timeout
    while not is_so(state := _tell(directory, "ps", [name])[0]):
        if time.monotonic() > deadline:
            said = state.words + (f": {state.detail}" if state.detail else "")
            raise PhotonError(f"{name}: after {timeout:g} s it is {said}; photon ps shows all")
        time.sleep(POLL_S)

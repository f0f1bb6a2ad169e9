"""What the commands about the processes of ``photon up`` have in common: where a run is, how it is told what to do,
how its processes are waited for, and how they look in a table."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
import orjson
from rich.table import Table
from rich.text import Text

from photon.cli import tables

if TYPE_CHECKING:
    from photon.supervision.states import ServiceState

POLL_S = 0.1
TELL_S = 2.0
STYLES = {"up": "green", "failing": "bold red", "silent": "red", "not serving": "red"}

run_option = click.option(
    "--run",
    "run",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Run directory: logs, lock, control socket; .photon-run beside FILE if not named.",
)


def place(file: Path, run: Path | None) -> Path:
    """The run directory that FILE and --run mean. Raises UsageError."""
    from photon.config.errors import UsageError
    from photon.supervision.run_directory import run_directory

    if run is None and not file.is_file():
        raise UsageError(f"{file}: no such file; name the deployment file that photon up was started with")
    return run_directory(file, run)


def tell(directory: Path, do: str, names: Sequence[str] = (), patience_s: float | None = None) -> list[ServiceState]:
    """Tells the ``photon up`` of a run directory. Raises PhotonError."""
    from photon.supervision.control import Request
    from photon.supervision.detached import ask_patiently

    request = Request(do=do, names=tuple(names), patience_s=patience_s)  # type: ignore[arg-type]
    return ask_patiently(directory, request).services


def wait_for(
    directory: Path, name: str, timeout: float, is_so: Callable[[ServiceState], bool], *, telling: bool = False
) -> ServiceState:
    """Of one process. ``telling``: says now and then on standard error what it waits for. Raises PhotonError."""
    from photon.config.errors import PhotonError

    began = told = time.monotonic()
    while not is_so(state := tell(directory, "ps", [name])[0]):
        now = time.monotonic()
        said = state.words + (f": {state.detail}" if state.detail else "")
        if now - began > timeout:
            raise PhotonError(f"{name}: after {timeout:g} s it is {said}; photon ps shows all")
        if telling and now - told > TELL_S:
            told = now
            click.echo(f"{name}: {now - began:.0f} s, it is {said}", err=True)
        time.sleep(POLL_S)
    return state


def show(states: Sequence[ServiceState], run: Path, output_format: str) -> None:
    """Prints all processes on standard output."""
    if output_format == "json":
        rows: list[dict[str, Any]] = [msgspec.to_builtins(state) for state in states]
        click.echo(orjson.dumps({"run": str(run), "processes": rows}).decode())
        return
    from photon.config.words import duration

    table = Table(box=None, pad_edge=False)
    for column, right in (("process", ""), ("datacentre", ""), ("pid", "r"), ("state", ""), ("uptime", "r"),
                          ("restarts", "r"), ("address", "")):  # fmt: skip
        table.add_column(column, justify="right" if right else "left", no_wrap=column != "state")
    for state in states:
        said = state.words + (f": {state.detail}" if state.detail else "")
        table.add_row(
            state.name,
            state.datacentre or "-",
            "-" if state.pid is None else str(state.pid),
            Text(said, style=STYLES.get(state.state, "yellow")),
            duration(state.uptime_s),
            str(state.restarts),
            state.address or "-",
        )
    tables.show(table)

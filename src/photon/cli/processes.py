"""What ``photon up``, ``ps`` and ``down`` have in common: where a run is, and how its processes look in a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import msgspec
import orjson
from rich.table import Table
from rich.text import Text

from photon.cli import tables

if TYPE_CHECKING:
    from photon.embedded.states import ServiceState

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
    from photon.embedded.run_directory import run_directory

    if run is None and not file.is_file():
        raise UsageError(f"{file}: no such file; name the deployment file that photon up was started with")
    return run_directory(file, run)


def show(states: Sequence[ServiceState], run: Path, output_format: str) -> None:
    """Prints all processes on standard output."""
    if output_format == "json":
        rows: list[dict[str, Any]] = [msgspec.to_builtins(state) for state in states]
        click.echo(orjson.dumps({"run": str(run), "processes": rows}).decode())
        return
    from photon.embedded.states import uptime

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
            uptime(state),
            str(state.restarts),
            state.address or "-",
        )
    tables.show(table)

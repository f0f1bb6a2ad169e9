"""``photon ps``."""

from __future__ import annotations

from pathlib import Path

import click

from photon.cli.errors import ATTENTION, DONE
from photon.cli.processes import place, run_option, show


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@run_option
@click.option("-o", "output_format", type=click.Choice(["table", "json"]), default="table", show_default=True)
def ps(file: Path, run: Path | None, output_format: str) -> int:
    """Show the processes that photon up keeps running for a deployment file.

    \b
    States: up (healthy) · starting · restarting in n s · failing: the last line of its log (it is tried
    again) · not serving and silent (it was up) · held and paused (by an operator) · ended (photon up stops)
    Example:
      photon ps photon.toml -o json
    Exit codes: 0 all are up, 3 some are not, 1 nothing runs.
    """
    from photon.embedded.control import Request
    from photon.embedded.detached import ask_patiently

    directory = place(file, run)
    states = ask_patiently(directory, Request(do="ps")).services
    show(states, directory, output_format)
    return DONE if all(state.state == "up" for state in states) else ATTENTION

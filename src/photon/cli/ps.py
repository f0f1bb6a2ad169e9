"""``photon ps``."""

from __future__ import annotations

import time
from pathlib import Path

import click

from photon.cli import deployment_file
from photon.cli.errors import ATTENTION, DONE
from photon.cli.processes import place, run_option, show

POLL_S = 0.2


@click.command()
@deployment_file.file
@run_option
@click.option("--wait", is_flag=True, help="Until all are up.")
@click.option(
    "--timeout", type=click.FloatRange(min=0.0), default=180.0, show_default=True, help="Of --wait, seconds."
)
@click.option("-o", "output_format", type=click.Choice(["table", "json"]), default="table", show_default=True)
def ps(file: Path, run: Path | None, wait: bool, timeout: float, output_format: str) -> int:
    """Show the processes that photon up keeps running for a deployment file.

    \b
    States: up (healthy) · starting · restarting in n s · failing: the last line of its log (it is tried
    again) · not serving and silent (it was up) · held and paused (by an operator) · ended (photon up stops)
    Examples:
      photon ps photon.toml -o json
      photon ps photon.toml --wait
    Exit codes: 0 all are up, 3 some are not (--wait: not in time), 1 nothing runs.
    """
    from photon.supervision.control import Request
    from photon.supervision.detached import ask_patiently

    directory = place(file, run)
    deadline = time.monotonic() + (timeout if wait else 0.0)
    while True:
        states = ask_patiently(directory, Request(do="ps")).services
        all_up = all(state.state == "up" for state in states)
        if all_up or time.monotonic() >= deadline:
            break
        time.sleep(POLL_S)
    show(states, directory, output_format)
    return DONE if all_up else ATTENTION

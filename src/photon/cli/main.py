"""Entry point of the ``photon`` command: NOUN VERB. Commands are imported when they are called, for a quick start."""

from __future__ import annotations

import importlib
import os

import click

from photon import __version__
from photon.cli.errors import OneLineErrors

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # what matters to a person comes as an error of ours, in one line
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "false")  # children execute another program at once

_NOUNS = {
    "join": "photon.cli.join",
    "demo": "photon.cli.demo",
    "chaos": "photon.cli.chaos",
    "up": "photon.cli.up",
    "ps": "photon.cli.ps",
    "down": "photon.cli.down",
    "restart": "photon.cli.running",
    "hold": "photon.cli.running",
    "release": "photon.cli.running",
    "reload": "photon.cli.running",
    "status": "photon.cli.status",
    "top": "photon.cli.top",
    "audit": "photon.cli.audit",
    "explain": "photon.cli.explain",
    "doctor": "photon.cli.doctor",
    "ledger": "photon.cli.ledger",
    "read": "photon.cli.read",
    "sink": "photon.cli.sink",
    "config": "photon.cli.config",
    "adapter": "photon.cli.adapter",
    "certs": "photon.cli.certs",
    "registry": "photon.cli.registry",
    "eventstore": "photon.cli.serve",
    "cache": "photon.cli.serve",
    "joiner": "photon.cli.serve",
    "pipeline": "photon.cli.serve",
    "copies": "photon.cli.copies",
    "dispatcher": "photon.cli.serve",
    "verifier": "photon.cli.verifier",
    "spark": "photon.cli.spark",
    "slot": "photon.cli.slot",
    "wan": "photon.cli.wan",
    "health": "photon.cli.health",
    "feed": "photon.cli.feed",
    "completion": "photon.cli.completion",
}


class _Lazy(OneLineErrors):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*_NOUNS, "version"]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name in _NOUNS:
            command = getattr(importlib.import_module(_NOUNS[name]), name)
            assert isinstance(command, click.Command)
            return command
        return super().get_command(ctx, name)


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.version_option(__version__, "--version", prog_name="photon", message="%(prog)s %(version)s")
def main(debug: bool) -> None:
    """Join two endless logs exactly once over all datacentres.

    \b
    Examples:
      photon join --primary queries/ --foreign clicks/ --output joined/ --once
      photon demo
      photon ledger joined/
    """


@main.command()
@click.option("-o", "--output-format", type=click.Choice(["table", "json"]), default="table", show_default=True)
def version(output_format: str) -> None:
    """Print the version.

    \b
    Example:
      photon version -o json
    """
    click.echo(f'{{"version":"{__version__}"}}' if output_format == "json" else f"photon {__version__}")

"""``photon spark``: verification, recovery and backfill on Spark. Commands are imported when they are called."""

from __future__ import annotations

import importlib

import click

_COMMANDS = {
    "verify": "photon.cli.spark.verify:verify",
    "recover": "photon.cli.spark.recover:recover",
    "backfill": "photon.cli.spark.backfill:backfill",
}
"""Name -> module:command."""


class _Lazy(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in _COMMANDS:
            return None
        module, _, attribute = _COMMANDS[name].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command


@click.group(cls=_Lazy)
def spark() -> None:
    """Verification, recovery and backfill on Spark: what outgrows one machine.

    \b
    Example:
      photon spark verify --deployment photon.toml --from 2026-11-20 --to 2026-11-21 --report reports/
    """

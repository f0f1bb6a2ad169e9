"""``photon spark``: verification, recovery and backfill on Spark. Commands are imported when they are called."""

from __future__ import annotations

import click

from photon.cli.lazy import LazyGroup

_COMMANDS = {
    "verify": "photon.cli.spark.verify:verify",
    "recover": "photon.cli.spark.recover:recover",
    "backfill": "photon.cli.spark.backfill:backfill",
}
"""Name -> module:command."""


@click.group(cls=LazyGroup, lazily=_COMMANDS)
def spark() -> None:
    """Verification, recovery and backfill on Spark: what outgrows one machine.

    \b
    Example:
      photon spark verify --config photon.toml --from 2026-11-20 --to 2026-11-21 --report reports/
    """

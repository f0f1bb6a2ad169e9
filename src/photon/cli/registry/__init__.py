"""``photon registry``: run, watch and repair the IdRegistry. Commands are imported when they are called."""

from __future__ import annotations

import click

from photon.cli.lazy import LazyGroup

_COMMANDS = {
    "serve": "photon.cli.serve:registry_serve",
    "status": "photon.cli.registry.status:status",
    "members": "photon.cli.registry.status:members",
    "transfer-leader": "photon.cli.registry.transfer:transfer_leader",
    "replace": "photon.cli.registry.replace:replace",
    "backup": "photon.cli.registry.backup:backup",
    "export": "photon.cli.registry.backup:export",
    "restore": "photon.cli.registry.restore:restore",
    "register-again": "photon.cli.registry.register:register_again",
    "verify": "photon.cli.registry.verify:verify",
    "doctor": "photon.cli.registry.doctor:doctor",
    "reshard": "photon.cli.registry.reshard:reshard",
}
"""Name -> module:command."""


@click.group(cls=LazyGroup, lazily=_COMMANDS)
def registry() -> None:
    """The IdRegistry: the replicated set of event ids that have a verdict.

    \b
    Example:
      photon registry serve --config photon.toml --replica r1
    """

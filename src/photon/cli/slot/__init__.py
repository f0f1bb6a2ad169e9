"""``photon slot``: the slots of a deployment's joiners. Commands are imported when they are called."""

from __future__ import annotations

import click

from photon.cli.lazy import LazyGroup

_COMMANDS = {
    "list": "photon.cli.slot.show:list_slots",
    "show": "photon.cli.slot.show:show",
    "retire": "photon.cli.slot.retire:retire",
}
"""Name -> module:command."""


@click.group(cls=LazyGroup, lazily=_COMMANDS)
def slot() -> None:
    """The slots of joiners: what they own and have written; retire one whose disk is gone.

    \b
    Example:
      photon slot list --config photon.toml
    """

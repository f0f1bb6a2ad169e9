"""``photon slot``: the slots of a deployment's joiners. Commands are imported when they are called."""

from __future__ import annotations

import importlib

import click

_COMMANDS = {
    "list": "photon.cli.slot.show:list_slots",
    "show": "photon.cli.slot.show:show",
    "retire": "photon.cli.slot.retire:retire",
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
def slot() -> None:
    """The slots of joiners: what they own and have written; retire one whose disk is gone.

    \b
    Example:
      photon slot list --config photon.toml
    """

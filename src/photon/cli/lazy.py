"""A command group whose commands are imported when they are called, for a quick start."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import Any

import click

Path = tuple[str, ...]
"""The words that call a command, ``photon`` first."""


class LazyGroup(click.Group):
    """``lazily``: name -> module:command, in the order in which help lists them."""

    def __init__(self, *args: Any, lazily: Mapping[str, str], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._lazily = lazily

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self._lazily)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in self._lazily:
            return None
        module, _, attribute = self._lazily[name].partition(":")
        command = getattr(importlib.import_module(module), attribute)
        assert isinstance(command, click.Command)
        return command


def walk(
    command: click.Command, path: tuple[str, ...] = ("photon",)
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """(``("photon", "registry", "status")``, its command), groups and hidden ones included, in the order of help."""
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None, (*path, name)
            yield from walk(inner, (*path, name))

"""Tables for people: as wide as the terminal; in files and pipes unwrapped and without spaces at the lines' ends."""

from __future__ import annotations

import sys

import click
from rich.console import Console, RenderableType

PIPE_WIDTH = 240
"""Columns for a table that goes into a file or a pipe: there is no terminal to wrap it for."""


def show(table: RenderableType) -> None:
    """Prints it to standard output."""
    if sys.stdout.isatty():
        Console().print(table)
        return
    console = Console(width=PIPE_WIDTH)
    with console.capture() as captured:
        console.print(table)
    for line in captured.get().splitlines():
        click.echo(line.rstrip())

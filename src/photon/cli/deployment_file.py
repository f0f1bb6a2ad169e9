"""How every command is told its deployment file: ``--config FILE``, or FILE; else what PHOTON_CONFIG names.

Where something else may be named in its place (an output, an address), PHOTON_CONFIG counts only if it is not named.
``photon join`` and ``photon chaos run`` do not look at it: without ``--config`` they make a deployment of their own.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])
VARIABLE = "PHOTON_CONFIG"
PATH = click.Path(path_type=Path)


def config(
    *, required: bool = True, unless: Sequence[str] = (), help: str = "The deployment file."
) -> Callable[[Command], Command]:
    """Adds ``--config`` (``config``: Path; None only where it is not ``required``).

    ``unless``: parameters that stand in its place. They are looked at before, as what was given comes first.
    """
    if required:
        return click.option(
            "--config", type=PATH, metavar="FILE", envvar=VARIABLE, show_envvar=True, required=True, help=help
        )

    def named(context: click.Context, parameter: click.Parameter, value: Path | None) -> Path | None:
        if value is not None or any(context.params.get(name) for name in unless):
            return value
        return _default()

    return click.option(
        "--config", type=PATH, metavar="FILE", callback=named, help=f"{help.removesuffix('.')}; else {VARIABLE}."
    )


file = click.argument("file", type=PATH, envvar=VARIABLE)
"""FILE, of commands on the deployment as a whole."""


def file_and_names(words: Sequence[str], what: str) -> tuple[Path, tuple[str, ...]]:
    """Of ``FILE [NAME]...``, where FILE may be left out if PHOTON_CONFIG names it. Raises UsageError."""
    from photon.config.errors import UsageError

    default = _default()
    if words and (default is None or Path(words[0]).is_file()):
        return Path(words[0]), tuple(words[1:])
    if default is None:
        raise UsageError(f"{what}: name the deployment file that photon up was started with, or set {VARIABLE}")
    return default, tuple(words)


def _default() -> Path | None:
    named = os.environ.get(VARIABLE)
    return Path(named) if named else None

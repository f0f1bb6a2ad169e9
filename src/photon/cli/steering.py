"""What all commands that change a running deployment have in common: ``--dry-run``, ``--yes`` and the question.

A command that can be taken back is done when it is called; ``dry_run`` is its only option of these. One that cannot
(``sure``) asks at a terminal, is done at once with ``--yes``, and is refused where nobody can be asked.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


def dry_run(command: Command) -> Command:
    """Adds ``--dry-run`` (``dry_run``): shows what would be done and changes nothing. Exit code 0, or 1 with the
    reason where it would be refused."""
    return click.option("--dry-run", is_flag=True, help="Only show what would be done; nothing is changed.")(command)


def sure(command: Command) -> Command:
    """Adds ``--dry-run`` and ``--yes`` (``dry_run``, ``yes``), for what cannot be taken back."""
    asked = click.option("--yes", is_flag=True, help="Do it without asking; where nobody can be asked it is needed.")
    return dry_run(asked(command))


def can_be_asked() -> bool:
    """Whether a person sits there."""
    return sys.stdin.isatty()


def must_be_said(what: str, *, dry_run: bool, yes: bool) -> None:
    """The first step of a command that cannot be taken back, before anything is looked at.

    ``what``: what is done, as a sentence begins: ``retiring slot east-1``. Raises UsageError where nobody can be
    asked and neither option was given.
    """
    from photon.config.errors import UsageError

    if not (dry_run or yes or can_be_asked()):
        raise UsageError(f"{what} cannot be taken back: --yes does it, --dry-run shows what would be done")


def ask(question: str, *, yes: bool) -> None:
    """Right before it is done; on standard error. Raises click.Abort at a no."""
    if not yes:
        click.confirm(question, abort=True, err=True)

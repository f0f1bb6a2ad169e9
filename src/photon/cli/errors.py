"""Reports failures of commands: one line on stderr, and an exit code with a meaning.

0 done · 1 failed · 2 wrong usage or configuration · 3 finished, but something needs attention · 4 not judged
(``photon spark verify``).
"""

from __future__ import annotations

import os
import sys
from difflib import get_close_matches
from typing import Any

import click

from photon.cli.audited import ARGUMENTS
from photon.config.errors import PhotonError

DONE, FAILED, USAGE, ATTENTION = 0, 1, 2, 3
# Option names of other tools -> ours, where click's spelling suggestions do not help.
OURS = {
    "-n": "--dry-run", "--noop": "--dry-run", "--simulate": "--dry-run", "--check": "--dry-run",
    "-y": "--yes", "--force": "--yes", "--confirm": "--yes", "--json": "-o json", "--format": "-o", "--output": "-o",
    "-c": "--config", "-f": "--config", "--file": "--config",
}  # fmt: skip


def fail(message: str, code: int, example: str = "") -> None:
    """Prints one line, and the example if there is one, then exits."""
    click.echo(f"photon: {' '.join(message.split())}", err=True)
    if example:
        click.echo(f"\n{example.strip()}\n", err=True)
    raise SystemExit(code)


class OneLineErrors(click.Group):
    """A group whose commands report errors in one line; with ``--debug`` they show the traceback."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        """Records the words of the command line for the audit."""
        words = tuple(args)  # parsing empties the list
        context = super().make_context(info_name, args, parent, **extra)
        if parent is None:
            context.meta[ARGUMENTS] = words
        return context

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Suggests the likely command for an unknown name, as click does for options."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            if not (alike := get_close_matches(args[0], self.list_commands(ctx))):
                raise
            named = " or ".join(f"'{each}'" for each in alike)
            ctx.fail(f"{error.message.removesuffix('.')}. Did you mean {named}?")

    def main(self, *args: Any, **kwargs: Any) -> Any:
        kwargs["standalone_mode"] = False
        debug = "--debug" in sys.argv or bool(os.environ.get("PHOTON_DEBUG"))
        try:
            code = super().main(*args, **kwargs)
        except click.exceptions.NoArgsIsHelpError as usage:
            click.echo(usage.ctx.get_help() if usage.ctx else "", err=True)
            raise SystemExit(USAGE) from None
        except click.UsageError as error:
            fail(_told(error), USAGE)
        except click.Abort:
            fail("interrupted", FAILED)
        except PhotonError as error:
            if debug:
                raise
            fail(str(error), error.exit_code, error.example)
        except KeyboardInterrupt:
            fail("interrupted", FAILED)
        except OSError as error:
            if debug:
                raise
            fail(_os_error(error), FAILED)
        except Exception as error:
            if debug:
                raise
            if said := _of_executors(error):
                fail(said, FAILED)
            fail(f"{type(error).__name__}: {error} (a bug in Photon: --debug shows where)", FAILED)
        raise SystemExit(code if isinstance(code, int) else DONE)


def _told(error: click.UsageError) -> str:
    """Returns the error's line. Suggests the likely word even where click does not."""
    more, context = "", error.ctx
    if isinstance(error, click.BadParameter) and error.param and isinstance(error.param.type, click.Choice):
        alike = get_close_matches(error.message.partition("'")[2].partition("'")[0], error.param.type.choices)
        more = "".join(f". Did you mean '{each}'?" for each in alike[:1])
    elif isinstance(error, click.NoSuchOption) and context:
        ours, command = OURS.get(error.option_name, ""), context.command
        if any(ours.split(" ")[0] in each.opts for each in command.params):
            error, more = click.NoSuchOption(error.option_name, ctx=context), f". Did you mean '{ours}'?"
        elif isinstance(command, click.Group) and not error.possibilities:
            more = f" for '{context.command_path}' itself; write it after the command that it belongs to"
    said = error.format_message().removesuffix(".")
    for clicks, ours in ((" a valid integer", " an integer"), (" a valid float", " a number")):  # or a range
        said = said.removesuffix(" range").replace(clicks, ours)
    hint = f" (try '{context.command_path} --help')" if context else ""
    return f"{said}{more}{hint}"


def _of_executors(error: Exception) -> str | None:
    """Returns the error line of a Spark executor if it caused this error; otherwise `None`."""
    if type(error).__module__.partition(".")[0] not in ("pyspark", "py4j"):
        return None
    from photon.spark.worker_python import failure

    return failure(error)


def _os_error(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    return f"{where}{error.strerror or error}"

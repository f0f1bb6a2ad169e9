"""The heads of commands: options that many of them share, and the objects that replace these options.

Every command gets its deployment file by ``--config FILE`` or FILE, else from PHOTON_CONFIG. If something else can be
named instead (an output, an address), PHOTON_CONFIG counts only if it is not named. ``photon join`` and ``photon
chaos run`` ignore it: without ``--config`` they make their own deployment.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from click.core import ParameterSource

from photon.cli.tables import Shown, print_json, show
from photon.config.errors import UsageError

if TYPE_CHECKING:
    from photon.config.settings import Pipeline, Settings
    from photon.config.tls import Tls
    from photon.fleet.parts import Part
    from photon.idregistry.operate.operator_client import OperatorClient

Command = TypeVar("Command", bound=Callable[..., Any])
Head = Callable[[Callable[..., Any]], Callable[..., Any]]
VARIABLE = "PHOTON_CONFIG"
PATH = click.Path(path_type=Path)


class Place(click.ParamType):  # type: ignore[type-arg]  # generic in newer ones only
    """A path, or a URL of an object store or of a topic."""

    name = "path or URL"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        from photon.config.topic_address import is_topic
        from photon.objects.paths import placed

        return Path(value) if is_topic(str(value)) else placed(Path(), value)


PLACE = Place()


class Printed:
    def __init__(self, output_format: str) -> None:
        self.json = output_format == "json"

    def show(self, document: Any, *people: Shown) -> None:
        """Prints the document with ``-o json``; otherwise shows ``people``."""
        if self.json:
            print_json(document)
        else:
            show(*people)

    def part(self, part: Part, *lines: Shown, **more: Any) -> None:
        """Prints the part's rows, and ``more``, with ``-o json``; otherwise its table, and ``lines`` below. A part
        without a name is a plain list of rows."""
        self.show({part.name: part.rows, **more} if part.name else part.rows, part, *lines)


class Deployed(Printed):
    def __init__(
        self, given: Path | None, overrides: tuple[str, ...], datacentre: str | None, output_format: str
    ) -> None:
        super().__init__(output_format)
        self.given = given  # ``given``: `None` if no file was named; commands that need none check this
        self.overrides = overrides
        self.datacentre = datacentre

    @property
    def config(self) -> Path:
        """The deployment file. Raises UsageError."""
        if self.given is None:
            raise UsageError("name the deployment file with --config")
        return self.given

    @property
    def base(self) -> Path:
        """The directory that paths in the file are relative to."""
        return self.given.parent if self.given else Path()

    @cached_property
    def settings(self) -> Settings:
        """The settings of the file. Raises ConfigError."""
        return self.load()

    def load(self) -> Settings:
        """Rereads the settings from the file. Raises ConfigError."""
        from photon.config.loader import load

        return load(self.given, environment=os.environ, flags=self.overrides)

    @property
    def with_registry(self) -> Settings:
        """The settings. Raises UsageError if they name no replicas."""
        if not self.settings.registry.replicas:
            raise UsageError(f"{self.config}: names no [registry.replicas.NAME]: there is no registry to speak to")
        return self.settings

    @property
    def pipeline(self) -> tuple[str, Pipeline]:
        """The datacentre that --datacentre names, or the only one. Raises UsageError."""
        from photon.fleet.access import pipeline_named

        return pipeline_named(self.settings, self.datacentre)

    @property
    def tls(self) -> Tls | None:
        """The operator's certificate. `None` means plain text. Raises UsageError."""
        from photon.config.tls import OPERATOR
        from photon.fleet.access import tls_of

        return tls_of(self.settings, self.base, OPERATOR)

    @contextmanager
    def registry(self) -> Iterator[OperatorClient]:
        """Yields a client of all replicas, as an operator. Raises UsageError."""
        from photon.idregistry.operate.operator_client import OperatorClient

        addresses = {name: replica.address for name, replica in self.with_registry.registry.replicas.items()}
        with OperatorClient(addresses, self.tls) as client:
            yield client


_format = click.option(
    "-o", "output_format", type=click.Choice(["table", "json"]), default="table", show_default=True
)


def formatted(command: Callable[..., Any]) -> Callable[..., Any]:
    """Declares ``-o``. The command gets ``out``, a Printed."""

    @functools.wraps(command)
    def headed(output_format: str, **given: Any) -> Any:
        return command(out=Printed(output_format), **given)

    return _format(headed)


def config(*, required: bool = True, unless: Sequence[str] = (), help: str = "The deployment file.") -> Head:
    """Declares ``--config`` (``config``: a Path; `None` only if not ``required``).

    ``unless``: parameters that replace it. They are processed first, because given options come first.
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


overrides = click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key of the file.")
FILE = click.argument("file", type=PATH, envvar=VARIABLE)  # FILE, of commands on the deployment as a whole
run_option = click.option(
    "--run", type=PATH, metavar="DIR",
    help="Run directory: logs, lock, control socket; default: .photon-run next to the deployment file.",
)  # fmt: skip


def deployed(
    *,
    datacentre: str = "",
    needed: bool = False,
    file: bool = False,
    sets: bool = True,
    required: bool = True,
    unless: Sequence[str] = (),
    help: str = "The deployment file.",
) -> Head:
    """Declares ``--config`` (with ``file``: FILE), ``--set``, ``-o``, and ``--datacentre`` if ``datacentre``
    describes its use: the command gets one Deployed, ``at``, instead."""
    named = FILE if file else config(required=required, unless=unless, help=help)
    options = [named, *([overrides] if sets and not file else [])]
    if datacentre:
        options.append(click.option("--datacentre", metavar="NAME", required=needed, help=datacentre))
    options.append(_format)

    def add(command: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(command)
        def headed(
            output_format: str,
            config: Path | None = None,
            file: Path | None = None,
            overrides: tuple[str, ...] = (),
            datacentre: str | None = None,
            **given: Any,
        ) -> Any:
            return command(at=Deployed(config or file, overrides, datacentre, output_format), **given)

        return added(headed, options)

    return add


def added(command: Callable[..., Any], options: Sequence[Callable[[Any], Any]]) -> Callable[..., Any]:
    for option in reversed(options):
        command = option(command)
    return command


def _pairs(context: click.Context, parameter: click.Parameter, settings: tuple[str, ...]) -> dict[str, str]:
    found = {}
    for each in settings:
        key, equals, value = each.partition("=")
        if not equals or not key.startswith("spark."):
            raise UsageError(f"--spark {each}: must have the form spark.…=VALUE")
        found[key] = value
    return found


def on_spark(command: Callable[..., Any]) -> Callable[..., Any]:
    """Declares ``--master`` and ``--spark`` (``spark``: a dict)."""
    default = "default: that of spark-submit, else local[*]"
    master = click.option("--master", metavar="URL", help=f"Spark's master; {default}.")
    spark = click.option("--spark", multiple=True, metavar="KEY=VALUE", callback=_pairs, help="A Spark setting.")
    return added(command, [master, spark])


def words_of(context: click.Context) -> list[str]:
    """Returns the command's words, like ``["joiner", "drain"]``, regardless of the program's name."""
    names: list[str] = []
    while context.parent is not None:
        names.insert(0, context.info_name or "")
        context = context.parent
    return names


def taken(what: str, takes: str, always: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """The part of ``given`` that is on the command line, for a command with options that exclude each other.

    ``takes``: names of parameters that go with ``what``; ``always``: with everything. Raises UsageError.
    """
    context = click.get_current_context()
    found = {}
    for parameter in context.command.params:
        name = parameter.name or ""
        if context.get_parameter_source(name) in (ParameterSource.DEFAULT, None) or name in always.split():
            continue
        if name not in takes.split():
            word = parameter.opts[0] if isinstance(parameter, click.Option) else given[name]
            raise click.UsageError(f"{word} does not go with {what}")
        if name in given:
            found[name] = given[name]
    return found


def file_and_names(words: Sequence[str], what: str) -> tuple[Path, tuple[str, ...]]:
    """Splits ``FILE [NAME]...``, where FILE may be left out if PHOTON_CONFIG names it. Raises UsageError."""
    default = _default()
    if words and (default is None or Path(words[0]).is_file()):
        return Path(words[0]), tuple(words[1:])
    if default is None:
        raise UsageError(f"{what}: name the deployment file that photon up was started with, or set {VARIABLE}")
    return default, tuple(words)


def _default() -> Path | None:
    named = os.environ.get(VARIABLE)
    return Path(named) if named else None


# -- what changes a running deployment -------------------------------------------------------------------------------
# A command that can be undone runs at once: ``dry_run`` is its only option of these. One that cannot
# (``sure``) asks at a terminal, runs at once with ``--yes``, and is refused if nobody can be asked.


def dry_run(command: Command) -> Command:
    """Adds ``--dry-run`` (``dry_run``): shows what would be done and changes nothing. Exit code 0, or 1 with the
    reason if it would be refused."""
    return click.option("--dry-run", is_flag=True, help="Only show what would be done.")(command)


def sure(command: Command) -> Command:
    """Adds ``--dry-run`` and ``--yes`` (``dry_run``, ``yes``), for a command that cannot be undone."""
    asked = click.option("--yes", is_flag=True, help="Do it without asking; required without a terminal.")
    return dry_run(asked(command))


def can_be_asked() -> bool:
    return sys.stdin.isatty()


def must_be_said(what: str, *, dry_run: bool, yes: bool) -> None:
    """The first step of a command that cannot be undone, before anything is read.

    ``what``: the action as the beginning of a sentence: ``retiring slot east-1``. Raises UsageError if nobody can be
    asked and neither option was given.
    """
    if not (dry_run or yes or can_be_asked()):
        raise UsageError(f"{what} cannot be undone: confirm with --yes, or preview it with --dry-run")


def ask(question: str, *, yes: bool) -> None:
    """Asks on standard error, right before the action. Raises click.Abort if the answer is no."""
    if not yes:
        click.confirm(question, abort=True, err=True)

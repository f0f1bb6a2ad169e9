"""Options that many commands share, and the objects that commands receive in their place.

Every command gets its deployment file from ``--config FILE`` or FILE, otherwise from PHOTON_CONFIG. Where a command
accepts something else instead (an output, an address), PHOTON_CONFIG is used only if that is not given. ``photon
join`` and ``photon chaos run`` ignore it: without ``--config`` they make their own deployment.
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


class Place(click.ParamType):  # type: ignore[type-arg]  # generic only in newer versions
    """Parameter type: a path, or the URL of an object store or topic."""

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
        """With ``-o json``, prints ``document``; otherwise shows the lines and tables in ``people``."""
        if self.json:
            print_json(document)
        else:
            show(*people)

    def part(self, part: Part, *lines: Shown, **more: Any) -> None:
        """With ``-o json``, prints the part's rows and ``more``; otherwise its table with ``lines`` below. The rows
        of a part without a name are printed as a plain list."""
        self.show({part.name: part.rows, **more} if part.name else part.rows, part, *lines)


class Deployed(Printed):
    def __init__(
        self, given: Path | None, overrides: tuple[str, ...], datacentre: str | None, output_format: str
    ) -> None:
        super().__init__(output_format)
        self.given = given  # `None` if no file was given; commands that work without one check this
        self.overrides = overrides
        self.datacentre = datacentre

    @property
    def config(self) -> Path:
        """The deployment file's path. Raises UsageError if none was given."""
        if self.given is None:
            raise UsageError("give the deployment file with --config")
        return self.given

    @property
    def base(self) -> Path:
        """The directory that paths in the deployment file are relative to."""
        return self.given.parent if self.given else Path()

    @cached_property
    def settings(self) -> Settings:
        """The settings, as first read. Raises ConfigError."""
        return self.load()

    def load(self) -> Settings:
        """Reads the file again and returns its settings. Raises ConfigError."""
        from photon.config.loader import load

        return load(self.given, environment=os.environ, flags=self.overrides)

    @property
    def with_registry(self) -> Settings:
        """The settings. Raises UsageError if they name no registry replicas."""
        if not self.settings.registry.replicas:
            raise UsageError(f"{self.config}: has no [registry.replicas.NAME], so there is no registry to call")
        return self.settings

    @property
    def pipeline(self) -> tuple[str, Pipeline]:
        """The name and settings of the datacentre given by --datacentre, or of the only one. Raises UsageError."""
        from photon.fleet.access import pipeline_named

        return pipeline_named(self.settings, self.datacentre)

    @property
    def tls(self) -> Tls | None:
        """The operator's certificate; `None` means plain text. Raises UsageError."""
        from photon.config.tls import OPERATOR
        from photon.fleet.access import tls_of

        return tls_of(self.settings, self.base, OPERATOR)

    @contextmanager
    def registry(self) -> Iterator[OperatorClient]:
        """Yields a client of all replicas with the operator's certificate. Raises UsageError."""
        from photon.idregistry.operate.operator_client import OperatorClient

        addresses = {name: replica.address for name, replica in self.with_registry.registry.replicas.items()}
        with OperatorClient(addresses, self.tls) as client:
            yield client


_format = click.option(
    "-o", "output_format", type=click.Choice(["table", "json"]), default="table", show_default=True
)


def formatted(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds ``-o``. The command gets ``out``, a Printed."""

    @functools.wraps(command)
    def headed(output_format: str, **given: Any) -> Any:
        return command(out=Printed(output_format), **given)

    return _format(headed)


def config(*, required: bool = True, unless: Sequence[str] = (), help: str = "The deployment file.") -> Head:
    """Adds ``--config`` (``config``: a Path; `None` only if not ``required``).

    ``unless``: parameters that can be given instead. click processes given options first, so they are known by
    then.
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
FILE = click.argument("file", type=PATH, envvar=VARIABLE)  # FILE, for commands that act on the whole deployment
run_option = click.option(
    "--run", type=PATH, metavar="DIR",
    help="Directory for logs, lock and control socket (default: .photon-run next to the deployment file).",
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
    """Adds ``--config`` (or FILE, with ``file``), ``--set``, ``-o``, and ``--datacentre`` if ``datacentre`` gives its
    help text. The command gets one Deployed, ``at``, in their place."""
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
            raise UsageError(f"--spark {each}: must have the form spark.NAME=VALUE")
        found[key] = value
    return found


def on_spark(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds ``--master`` and ``--spark`` (``spark``: a dict)."""
    default = "default: as set by spark-submit, otherwise local[*]"
    master = click.option("--master", metavar="URL", help=f"Spark's master; {default}.")
    spark = click.option("--spark", multiple=True, metavar="KEY=VALUE", callback=_pairs, help="A Spark setting.")
    return added(command, [master, spark])


def words_of(context: click.Context) -> list[str]:
    """Returns the command's words without the program's name, such as ``["joiner", "drain"]``."""
    names: list[str] = []
    while context.parent is not None:
        names.insert(0, context.info_name or "")
        context = context.parent
    return names


def taken(what: str, takes: str, always: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values in ``given`` that were set on the command line, for a command whose options exclude each
    other.

    ``takes``: parameters allowed with ``what``; ``always``: allowed with everything. Raises UsageError for others.
    """
    context = click.get_current_context()
    found = {}
    for parameter in context.command.params:
        name = parameter.name or ""
        if context.get_parameter_source(name) in (ParameterSource.DEFAULT, None) or name in always.split():
            continue
        if name not in takes.split():
            word = parameter.opts[0] if isinstance(parameter, click.Option) else given[name]
            raise click.UsageError(f"{word} cannot be used with {what}")
        if name in given:
            found[name] = given[name]
    return found


def file_and_names(words: Sequence[str], what: str) -> tuple[Path, tuple[str, ...]]:
    """Splits ``[FILE] [NAME]...``. Without FILE, uses PHOTON_CONFIG. Raises UsageError."""
    default = _default()
    if words and (default is None or Path(words[0]).is_file()):
        return Path(words[0]), tuple(words[1:])
    if default is None:
        raise UsageError(f"{what}: give the deployment file that photon up was started with, or set {VARIABLE}")
    return default, tuple(words)


def _default() -> Path | None:
    named = os.environ.get(VARIABLE)
    return Path(named) if named else None


# -- commands that change a running deployment -----------------------------------------------------------------------
# A command that can be undone runs at once and has ``dry_run`` only. One that cannot
# (``sure``) asks at a terminal; without a terminal it requires ``--yes``, which skips the question.


def dry_run(command: Command) -> Command:
    """Adds ``--dry-run`` (``dry_run``): shows what would be done and changes nothing. Exit code 0; 1 with the reason
    if the action would be refused."""
    return click.option("--dry-run", is_flag=True, help="Show what would be done; change nothing.")(command)


def sure(command: Command) -> Command:
    """Adds ``--dry-run`` and ``--yes`` (``dry_run``, ``yes``), for a command that cannot be undone."""
    asked = click.option("--yes", is_flag=True, help="Do it without asking; required without a terminal.")
    return dry_run(asked(command))


def can_be_asked() -> bool:
    return sys.stdin.isatty()


def must_be_said(what: str, *, dry_run: bool, yes: bool) -> None:
    """Checks that an action that cannot be undone may run; call it before reading anything.

    ``what``: the action, as the beginning of a sentence: ``retiring slot east-1``. Raises UsageError if there is no
    terminal to ask at and neither option was given.
    """
    if not (dry_run or yes or can_be_asked()):
        raise UsageError(f"{what} cannot be undone: confirm with --yes, or preview it with --dry-run")


def ask(question: str, *, yes: bool) -> None:
    """Asks for confirmation on standard error; call it right before the action. Raises click.Abort if the answer is
    no."""
    if not yes:
        click.confirm(question, abort=True, err=True)

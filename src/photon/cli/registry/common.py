"""What the commands of operators have in common: the deployment that they speak to, and how they print."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from photon.cli import deployment_file

if TYPE_CHECKING:
    from photon.config.settings import Settings
    from photon.idregistry.operate.operator_client import OperatorClient


def deployment(command: Callable[..., Any]) -> Callable[..., Any]:
    """``--config`` and ``--set``."""
    options = [
        deployment_file.config(help="The deployment file: replicas and [tls]."),
        click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def formatted(command: Callable[..., Any]) -> Callable[..., Any]:
    """``-o``."""
    return click.option(
        "-o", "output_format", type=click.Choice(["table", "json"]), default="table", show_default=True
    )(command)


def loaded(config: Path, overrides: tuple[str, ...]) -> Settings:
    """The deployment's settings. Raises UsageError when it names no replicas."""
    from photon.config.errors import UsageError
    from photon.config.loader import load

    settings = load(config, environment=os.environ, flags=overrides)
    if not settings.registry.replicas:
        raise UsageError(f"{config}: names no [registry.replicas.NAME]: there is no registry to speak to")
    return settings


@contextmanager
def connected(settings: Settings, base: Path) -> Iterator[OperatorClient]:
    """All replicas of a deployment; over TLS with the certificate of ``operator``."""
    from photon.config.tls import OPERATOR
    from photon.fleet.access import tls_of
    from photon.idregistry.operate.operator_client import OperatorClient

    addresses = {name: replica.address for name, replica in settings.registry.replicas.items()}
    with OperatorClient(addresses, tls_of(settings, base, OPERATOR)) as client:
        yield client


def print_json(value: Any) -> None:
    """One line."""
    import orjson

    click.echo(orjson.dumps(value).decode())


def print_table(columns: list[tuple[str, bool]], rows: list[list[str]]) -> None:
    """``columns``: (name, whether it stands right)."""
    from rich.table import Table
    from rich.text import Text

    from photon.cli import tables

    table = Table(box=None, pad_edge=False)
    for name, right in columns:
        table.add_column(name, justify="right" if right else "left")
    for row in rows:
        table.add_row(*(Text(each) for each in row))
    tables.show(table)


def words(value: object, none: str = "-") -> str:
    """A cell."""
    return f"{value:,}" if isinstance(value, int) else str(value or none)


def moment(time_ns: int | None) -> str:
    """A boundary for people."""
    if time_ns is None:
        return "-"
    from datetime import UTC, datetime

    try:
        return datetime.fromtimestamp(time_ns / 1e9, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (OverflowError, ValueError, OSError):
        return str(time_ns)

"""``photon registry reshard``: how many shards new events go to, changed while everything runs."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from photon.cli import deployment_file, steering
from photon.cli.audited import audited
from photon.cli.errors import ATTENTION, DONE, FAILED
from photon.cli.units import DURATION

if TYPE_CHECKING:
    from photon.config.settings import Settings
    from photon.idregistry.client.grpc_client import RegistryClient
    from photon.idregistry.core.resharding import Resharding

T = TypeVar("T")
TRY_SECONDS = 10.0


DURATION = DURATION


def _common(command: Callable[..., Any]) -> Callable[..., Any]:
    options = [
        deployment_file.config(),
        click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key."),
        click.option("-o", "output_format", type=click.Choice(["table", "json"]), default="table", show_default=True),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def _timeout(default: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    return click.option(
        "--timeout", type=DURATION, default=default, show_default=True, help="How long an answer is waited for."
    )


_shards = click.option(
    "--shards", "count", type=click.IntRange(min=1), required=True, help="How many shards new events go to."
)
_lead = click.option(
    "--lead", type=DURATION, help="Time for the shards to prepare before the change takes effect (10s)."
)


@click.group()
def reshard() -> None:
    """Change how many shards new events go to, from an event time on, while everything runs.

    Ids of earlier events stay where they are until they are collected. docs/resharding.md explains it.

    \b
    Example:
      photon registry reshard plan --config photon.toml --shards 3
      photon registry reshard apply --config photon.toml --shards 3
    """


@reshard.command("plan")
@_common
@_shards
@_lead
@_timeout("10s")
def plan(
    config: Path, overrides: tuple[str, ...], output_format: str, count: int, lead: float | None, timeout: float
) -> int:
    """Show what apply would do now, when it would take effect and why not sooner. Changes nothing.

    \b
    Example:
      photon registry reshard plan --config photon.toml --shards 3 -o json
    Exit codes: 0 it can be applied, 1 it cannot (the reason is printed), or nobody answers.
    """
    from photon.idregistry.core.resharding import Action, Ask
    from photon.idregistry.operate.resharding import asked

    ask = Ask(Action.PLAN, count, lead_s=lead)
    _print(_at(config, overrides, lambda registry, _: asked(registry, ask, timeout=timeout)), output_format)
    return DONE


@reshard.command("apply")
@_common
@_shards
@_lead
@steering.dry_run
@click.option("--no-wait", is_flag=True, help="Return once the change has begun; status shows its end.")
@click.option("--tries", type=click.IntRange(1, 20), default=3, show_default=True,
              help="How often, if a shard holds a later event than the start.")  # fmt: skip
@click.option("--limit", type=DURATION, help="Longest wait for its end (a minute after it takes effect).")
@audited
def apply(
    config: Path,
    overrides: tuple[str, ...],
    output_format: str,
    count: int,
    lead: float | None,
    dry_run: bool,
    no_wait: bool,
    tries: int,
    limit: float | None,
) -> int:
    """Change the number of shards and wait until every shard knows and new ones serve.

    Progress is told on standard error. Interrupting the command ends the waiting, not the change.

    \b
    Example:
      photon registry reshard apply --config photon.toml --shards 3
    Exit codes: 0 the change is settled (with --no-wait: begun), 1 refused, aborted or nobody answers, 3 it was begun
    and has not settled in time.
    """
    from photon.config.clock import SystemClock
    from photon.idregistry.core.resharding import Action, Ask
    from photon.idregistry.operate import resharding as applying

    async def run(registry: RegistryClient, _: Settings) -> Resharding:
        if dry_run or no_wait:
            ask = Ask(Action.APPLY, count, dry_run, lead)
            return await applying.asked(registry, ask, timeout=TRY_SECONDS)
        return await applying.apply(
            registry,
            count,
            lead_s=lead,
            tries=tries,
            timeout=TRY_SECONDS,
            limit=limit,
            clock=SystemClock(),
            tell=_Progress().tell,
        )

    found = _at(config, overrides, run)
    _print(found, output_format)
    return DONE if dry_run or no_wait else _how_it_ended(found)


@reshard.command("status")
@_common
@click.option("--replica", metavar="NAME", help="What this one knows (the leader of the config group).")
@_timeout("10s")
def status(config: Path, overrides: tuple[str, ...], output_format: str, replica: str | None, timeout: float) -> int:
    """Show the shards, which event times they hold, and the change under way or the last one.

    \b
    Example:
      photon registry reshard status --config photon.toml
    Exit codes: 0 no change is under way, 3 one is, or is not known to every shard yet, 1 nobody answers.
    """
    from photon.idregistry.core.resharding import Action, Ask, Stage
    from photon.idregistry.operate.resharding import asked

    async def run(registry: RegistryClient, settings: Settings) -> Resharding:
        _known(settings, replica)
        return await asked(registry, Ask(Action.STATUS), replica=replica or "", timeout=timeout)

    found = _at(config, overrides, run)
    _print(found, output_format)
    change = found.change
    over = change is None or change.stage is Stage.ABORTED or change.settled
    return DONE if over else ATTENTION


@reshard.command("abort")
@_common
@click.option("--change", "number", type=click.IntRange(min=1), help="Only if it is this one that is under way.")
@steering.dry_run
@_timeout("10s")
@audited
def abort(
    config: Path, overrides: tuple[str, ...], output_format: str, number: int | None, dry_run: bool, timeout: float
) -> int:
    """End the change that is under way, unless it is activated already. Every event stays where it went.

    \b
    Example:
      photon registry reshard abort --config photon.toml
    Exit codes: 0 it is aborted (with --dry-run: would be), 1 there is none, it is activated, or nobody answers.
    """
    from photon.idregistry.core.resharding import Action, Ask, Stage
    from photon.idregistry.operate.resharding import asked

    ask = Ask(Action.ABORT, dry_run=dry_run, config=number or 0)
    found = _at(config, overrides, lambda registry, _: asked(registry, ask, timeout=timeout))
    _print(found, output_format)
    if dry_run or (found.change is not None and found.change.stage is Stage.ABORTED):
        return DONE
    click.echo("photon: the change is not aborted: see its stage above", err=True)
    return FAILED


@reshard.command("verify")
@_common
@_timeout("60s")
def verify(config: Path, overrides: tuple[str, ...], output_format: str, timeout: float) -> int:
    """Have every replica check that each id is in the shard that its event time says, and that shards agree.

    \b
    Example:
      photon registry reshard verify --config photon.toml
    Exit codes: 0 all is well, 1 there are problems (printed) or nobody answered, 3 a replica did not answer.
    """
    import orjson

    from photon.cli.registry import reshard_view as view
    from photon.idregistry.core.outcomes import Refusal
    from photon.idregistry.operate.resharding import verified

    found = _at(
        config,
        overrides,
        lambda registry, settings: verified(registry, list(settings.registry.replicas), timeout=timeout),
    )
    if output_format == "json":
        click.echo(orjson.dumps(view.verify_as_json(found)).decode())
    else:
        view.show_verified(found)
    for line in view.troubles(found):
        click.echo(f"photon: {line}", err=True)
    silent = [name for name, each in found.items() if isinstance(each, Refusal)]
    if len(silent) == len(found) or any(not isinstance(each, Refusal) and each.problems for each in found.values()):
        return FAILED
    return ATTENTION if silent else DONE


# -- inside ----------------------------------------------------------------------------------------------------------


def _at(config: Path, overrides: tuple[str, ...], what: Callable[[RegistryClient, Settings], Awaitable[T]]) -> T:
    """Connects to the registry of a deployment file as its operator, and does one thing."""
    from photon.config.errors import UsageError
    from photon.config.loader import load
    from photon.config.tls import OPERATOR
    from photon.fleet.access import tls_of
    from photon.idregistry.client.grpc_client import RegistryClient

    settings = load(config, environment=os.environ, flags=overrides)
    if not settings.registry.replicas:
        raise UsageError(f"{config}: has no [registry.replicas]; there is no registry to ask")
    tls = tls_of(settings, config.parent, OPERATOR)

    async def run() -> T:
        addresses = {name: replica.address for name, replica in settings.registry.replicas.items()}
        registry = RegistryClient(addresses, tls=tls)
        try:
            return await what(registry, settings)
        finally:
            await registry.close()

    return asyncio.run(run())


def _known(settings: Settings, replica: str | None) -> None:
    from photon.config.errors import UsageError

    if replica is not None and replica not in settings.registry.replicas:
        raise UsageError(f"--replica {replica}: there are {', '.join(sorted(settings.registry.replicas))}")


def _print(found: Resharding, output_format: str) -> None:
    import orjson

    from photon.cli.registry import reshard_view as view

    if output_format == "json":
        click.echo(orjson.dumps(view.as_json(found)).decode())
    else:
        view.show(found)


def _how_it_ended(found: Resharding) -> int:
    from photon.idregistry.core.resharding import Stage

    change = found.change
    if change is None or change.stage is Stage.ABORTED:
        click.echo(f"photon: {'there is no change' if change is None else 'the change was aborted'}", err=True)
        return FAILED
    if change.settled:
        return DONE
    click.echo("photon: the change goes on, not waited for any longer: photon registry reshard status", err=True)
    return ATTENTION


class _Progress:
    """A line on standard error whenever something is new."""

    def __init__(self) -> None:
        self._last = ""

    def tell(self, found: Resharding) -> None:
        """Looks for news."""
        from photon.cli.registry import reshard_view as view

        line = view.sentence(found)
        key = line.partition("(")[0] + line.partition(")")[2]  # without the time that is left
        if found.change is not None and key != self._last:
            self._last = key
            click.echo(line, err=True)

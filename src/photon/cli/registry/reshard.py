"""``photon registry reshard``: changes the number of shards for new events while everything runs. Also shows the
shards."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import click

from photon.cli.audited import audited
from photon.cli.errors import ATTENTION, DONE, FAILED
from photon.cli.heads import Deployed, deployed, dry_run
from photon.cli.looking import Progress, through
from photon.cli.tables import say
from photon.cli.units import DURATION
from photon.config.clock import SystemClock
from photon.config.errors import UsageError
from photon.fleet.parts import Part

if TYPE_CHECKING:
    from photon.idregistry.client.grpc_client import RegistryClient
    from photon.idregistry.core.resharding import Ask, Resharding

T = TypeVar("T")
TRY_SECONDS = 10.0


@click.command()
@click.option("--shards", "count", type=click.IntRange(min=1), metavar="N", help="Number of shards for new events.")
@click.option("--abort", is_flag=True, help="Instead of --shards: cancel the current change, unless it is "
                                            "activated.")  # fmt: skip
@click.option("--change", type=click.IntRange(min=1), metavar="NUMBER",
              help="With --abort: cancel only the change with this number.")  # fmt: skip
@click.option("--lead", type=DURATION, help="Time for the shards to prepare before the change starts (default: 10s).")
@dry_run
@click.option(
    "--no-wait", is_flag=True, help="Return when the change has started; photon status shards shows its progress."
)
@click.option("--tries", type=click.IntRange(1, 20), default=3, show_default=True,
              help="Number of attempts if a shard already has events after the start time.")  # fmt: skip
@click.option("--limit", type=DURATION,
              help="Longest wait for the change to settle (default: a minute after it takes effect).")  # fmt: skip
@deployed()
@audited
def reshard(
    at: Deployed, count: int | None, abort: bool, change: int | None, lead: float | None, dry_run: bool,
    no_wait: bool, tries: int, limit: float | None,
) -> int:  # fmt: skip
    """Change the number of shards for new events. Nothing stops; the command waits until the change is settled.

    Ids of earlier events stay where they are until they are garbage-collected (docs/resharding.md). --dry-run shows
    when the change would take effect, and why not sooner. Progress goes to standard error. Interrupting the command
    ends the wait, not the change; photon status shards shows the change.

    \b
    Examples:
      photon registry reshard --config photon.toml --shards 3 --dry-run
      photon registry reshard --config photon.toml --shards 3
      photon registry reshard --config photon.toml --abort
    Exit codes: 0 the change has settled (with --no-wait: started) or was aborted; 1 refused, aborted or no replica
    answers; with --abort: there is no change, or it is activated; 2 wrong usage; 3 it started, but did not settle in
    time.
    """
    from photon.idregistry.core.resharding import Action, Ask, Stage

    if abort == (count is not None) or (change is not None and not abort):
        raise UsageError("give either --shards N or --abort; --change requires --abort")
    if count is not None:
        found = _asked(at, _applied(count, lead, tries, limit, dry_run=dry_run, at_once=dry_run or no_wait))
        return DONE if dry_run or no_wait else _how_it_ended(found)
    found = _asked(at, _answered(Ask(Action.ABORT, dry_run=dry_run, config=change or 0), TRY_SECONDS))
    if dry_run or (found.change is not None and found.change.stage is Stage.ABORTED):
        return DONE
    say("the change was not aborted: see its stage above")
    return FAILED


def _applied(
    count: int, lead: float | None, tries: int, limit: float | None, *, dry_run: bool, at_once: bool
) -> Callable[[RegistryClient], Awaitable[Resharding]]:
    from photon.cli.registry.reshard_view import sentence
    from photon.idregistry.core.resharding import Action, Ask
    from photon.idregistry.operate import resharding as applying

    if at_once:
        return _answered(Ask(Action.APPLY, count, dry_run, lead), TRY_SECONDS)
    progress = Progress()

    def tell(found: Resharding) -> None:
        line = sentence(found)
        if found.change is not None:
            progress.tell(line, line.partition("(")[0] + line.partition(")")[2])  # without the remaining time

    async def applied(registry: RegistryClient) -> Resharding:
        try:
            return await applying.apply(
                registry, count, lead_s=lead, tries=tries, timeout=TRY_SECONDS, limit=limit, clock=SystemClock(),
                tell=tell,
            )  # fmt: skip
        finally:
            progress.end()

    return applied


def shards(at: Deployed, replica: str | None = None, timeout: float = TRY_SECONDS) -> int:
    """``photon status shards``: shows the event times in each shard, and the current or last change. Exit code 3: a
    change is in progress, or not every shard knows it yet."""
    from photon.idregistry.core.resharding import Action, Ask, Stage

    known = at.with_registry.registry.replicas
    if replica is not None and replica not in known:
        raise UsageError(f"--replica {replica}: there are {', '.join(sorted(known))}")
    change = _asked(at, _answered(Ask(Action.STATUS), timeout, replica or "")).change
    return DONE if change is None or change.stage is Stage.ABORTED or change.settled else ATTENTION


def verify_shards(at: Deployed, timeout: float) -> int:
    """``photon registry verify --shards``. Exit code 3: a replica did not answer."""
    from photon.cli.registry import reshard_view as view
    from photon.idregistry.core.outcomes import Refusal
    from photon.idregistry.operate.resharding import verified

    names = list(at.with_registry.registry.replicas)
    found = _of_registry(at, lambda registry: verified(registry, names, timeout=timeout))
    said = view.verify_as_json(found)
    rows = [{"replica": name, **each} for name, each in said["replicas"].items()]
    at.show(said, Part("", rows, view.VERIFIED))
    for line in view.troubles(found):
        say(line)
    silent = [name for name, each in found.items() if isinstance(each, Refusal)]
    if len(silent) == len(found) or any(not isinstance(each, Refusal) and each.problems for each in found.values()):
        return FAILED
    return ATTENTION if silent else DONE


# -- helpers ---------------------------------------------------------------------------------------------------------
def _of_registry(at: Deployed, what: Callable[[RegistryClient], Awaitable[T]]) -> T:
    """Connects to the registry with the operator's certificate, and makes one request."""
    from photon.fleet.access import registry_client

    settings, tls = at.with_registry, at.tls
    return through(lambda: registry_client(settings, tls), what)


def _answered(ask: Ask, timeout: float, replica: str = "") -> Callable[[RegistryClient], Awaitable[Resharding]]:
    from photon.idregistry.operate.resharding import asked

    return lambda registry: asked(registry, ask, replica=replica, timeout=timeout)


def _asked(at: Deployed, what: Callable[[RegistryClient], Awaitable[Resharding]]) -> Resharding:
    from photon.cli.registry import reshard_view as view

    found = _of_registry(at, what)
    at.show(view.as_json(found), *view.shown(found))
    return found


def _how_it_ended(found: Resharding) -> int:
    from photon.idregistry.core.resharding import Stage

    change = found.change
    if change is None or change.stage is Stage.ABORTED:
        say("there is no change" if change is None else "the change was aborted")
        return FAILED
    if change.settled:
        return DONE
    say("stopped waiting; the change continues: see photon status shards")
    return ATTENTION

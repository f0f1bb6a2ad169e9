"""``photon registry | eventstore | cache | joiner | dispatcher | pipeline serve``: one service process each.

The command group ``photon registry`` is in ``photon.cli.registry``.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from photon.cli import deployment_file, draining
from photon.cli.cache_status import status as cache_status
from photon.cli.errors import ATTENTION, DONE
from photon.cli.eventstore_init import init as eventstore_init
from photon.cli.lag import lag
from photon.cli.primary_logs import forget, status
from photon.cli.replay import replay
from photon.cli.skip import skip

if TYPE_CHECKING:
    import asyncio

    from photon.config.settings import Settings
    from photon.config.settings_reload import SettingsReload


T = TypeVar("T")
LOG_FORMAT = "photon.log_format"


def _noted(context: click.Context, parameter: click.Parameter, value: str) -> None:
    """For ``_load``."""
    context.meta[LOG_FORMAT] = value


def _common(command: Callable[..., Any]) -> Callable[..., Any]:
    options = [
        deployment_file.config(required=False, unless=["primary"]),
        click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key."),
        click.option("--stop-with-parent", is_flag=True, help="End when standard input ends."),
        click.option(
            "--log-format", type=click.Choice(["json", "text"]), default="json", show_default=True,
            expose_value=False, callback=_noted, help="Of its log on standard error: for machines, or for people.",
        ),
    ]  # fmt: skip
    for option in reversed(options):
        command = option(command)
    return command


def _datacentre(command: Callable[..., Any]) -> Callable[..., Any]:
    return click.option("--datacentre", metavar="NAME", help="Whose pipeline; may be left out if there is one.")(
        command
    )


def _reached(command: Callable[..., Any]) -> Callable[..., Any]:
    options = [
        click.option("--listen", metavar="HOST:PORT", help="Where to listen, if not at --address."),
        click.option(
            "--address",
            metavar="HOST:PORT",
            help="Where it is reached, if the file does not say so; auto:PORT for this machine's host name.",
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def _load(config: Path | None, overrides: tuple[str, ...]) -> tuple[Settings, Path]:
    """Settings, and the directory that their paths are relative to."""
    from photon.config import log
    from photon.config.loader import load

    log.configure(json=click.get_current_context().meta.get(LOG_FORMAT) != "text")
    return load(config, environment=os.environ, flags=overrides), config.parent if config else Path()


def _again(config: Path | None, overrides: tuple[str, ...]) -> SettingsReload | None:
    from photon.assembly.eventstore import reporter
    from photon.config.settings_reload import SettingsReload

    if config is None:
        return None
    return SettingsReload(config, lambda: _load(config, overrides)[0], reporter("configuration"))


def _run(main: Callable[[asyncio.Event], Awaitable[T]], *, with_parent: bool, prompt: bool = True) -> T:
    from photon.config import runtime
    from photon.config.stopping import stop_event

    async def stoppable() -> T:
        return await main(stop_event(with_parent=with_parent))

    return runtime.run(stoppable(), prompt=prompt)


@click.command("serve")
@_common
@click.option("--replica", required=True, metavar="NAME", help="Which of [registry.replicas] this process is.")
@click.option(
    "--id-rule", "id_rules", multiple=True, metavar="JOIN=HEX",
    help="Hash of the rule that derives a join's ids; default: those of the configuration's joins.",
)  # fmt: skip
def registry_serve(
    config: Path | None, overrides: tuple[str, ...], stop_with_parent: bool, replica: str, id_rules: tuple[str, ...]
) -> None:
    """Run one registry replica until SIGTERM.

    \b
    Example:
      photon registry serve --config photon.toml --replica r1
    """
    from photon.assembly.registry import serve_replica

    settings, base = _load(config, overrides)
    _run(lambda stop: serve_replica(settings, base, replica, id_rules, stop), with_parent=stop_with_parent)


@click.group()
def eventstore() -> None:
    """The EventStore: key to primary event.

    \b
    Examples:
      photon eventstore init --config photon.toml --datacentre east
      photon eventstore serve --config photon.toml --datacentre east
      photon eventstore status --config photon.toml --datacentre east
      photon eventstore forget queries.log.7 --config photon.toml --datacentre east
    """


@eventstore.command("serve")
@_common
@_datacentre
@click.option("--join", "join_name", metavar="NAME", help="Without --datacentre: which join of the configuration.")
@click.option("--primary", type=click.Path(path_type=Path), help="Without --datacentre: the primary logs.")
@click.option("--state", type=click.Path(path_type=Path), help="Without --datacentre: where the file map lies.")
@click.option("--address", help="Without --datacentre: host:port or unix:/path.")
@click.option("--once", is_flag=True, help="What is there now is all there will ever be.")
@click.option("--may-be-empty", is_flag=True, help="With --once: no primary record at all is no error.")
@click.option("--stages", type=click.Path(path_type=Path), help="Write the samples of each stage to this file.")
def eventstore_serve(
    config: Path | None,
    overrides: tuple[str, ...],
    stop_with_parent: bool,
    datacentre: str | None,
    join_name: str | None,
    primary: Path | None,
    state: Path | None,
    address: str | None,
    once: bool,
    may_be_empty: bool,
    stages: Path | None,
) -> None:
    """Run a pipeline's event store until SIGTERM: reads the primary logs and answers look-ups.

    \b
    Example:
      photon eventstore serve --config photon.toml --datacentre east
    """
    from photon.assembly.eventstore import StorePlace, serve_store, store_place
    from photon.config.errors import UsageError
    from photon.config.runtime import sampled

    again = _again(config, overrides)
    settings, base = _load(config, overrides)
    if primary is not None and state is not None and address is not None:
        place = StorePlace(join_name, primary, state, address, once, may_be_empty)
    elif primary is None and state is None and address is None:
        place = store_place(settings, base, datacentre)
    else:
        raise UsageError("--primary, --state and --address go together, in place of --datacentre")
    with sampled(stages):
        _run(
            lambda stop: serve_store(settings, base, place, stop, again),
            with_parent=stop_with_parent,
            prompt=not once,
        )


@click.group()
def cache() -> None:
    """Cache nodes: recent primary records in processes of their own.

    \b
    Examples:
      photon cache serve --config photon.toml --datacentre east --node east-c1
      photon cache status --config photon.toml --datacentre east
    """


@cache.command("serve")
@_common
@_datacentre
@click.option("--node", metavar="NAME", help="Which of the pipeline's cache nodes; may be left out if there is one.")
def cache_serve(
    config: Path | None, overrides: tuple[str, ...], stop_with_parent: bool, datacentre: str | None, node: str | None
) -> None:
    """Run one cache node until SIGTERM. It keeps nothing on disk: the event store feeds it.

    \b
    Example:
      photon cache serve --config photon.toml --datacentre east --node east-c1
    """
    from photon.assembly.eventstore import serve_cache

    settings, base = _load(config, overrides)
    _run(lambda stop: serve_cache(settings, base, datacentre, node, stop), with_parent=stop_with_parent)


eventstore.add_command(eventstore_init)
eventstore.add_command(status)
eventstore.add_command(forget)


cache.add_command(cache_status)


@click.group()
def joiner() -> None:
    """The joiner: looks up, registers and writes.

    \b
    Example:
      photon joiner serve --config photon.toml --datacentre east --slot east-1
    """


@joiner.command("serve")
@_common
@_datacentre
@click.option(
    "--slot",
    metavar="NAME|auto",
    help="Which of the pipeline's joiners; may be left out if there is one. auto: a free slot that the file does not "
    "name (docs/dispatcher.md, Scaling).",
)
@_reached
@click.option(
    "--accept-damaged-log",
    is_flag=True,
    help="Start although a part of the slot's redo log cannot be read: it is set aside, and what it owned without "
    "having written it is given up and joined again (docs/verification.md).",
)
def joiner_serve(
    config: Path | None,
    overrides: tuple[str, ...],
    stop_with_parent: bool,
    datacentre: str | None,
    slot: str | None,
    accept_damaged_log: bool,
    listen: str | None,
    address: str | None,
) -> int:
    """Run one joiner in its slot until SIGTERM.

    \b
    Examples:
      photon joiner serve --config photon.toml --datacentre east --slot east-1
      photon joiner serve --config photon.toml --datacentre east --slot auto --address auto:7101
      photon joiner serve --config photon.toml --datacentre east --slot east-1 --accept-damaged-log
    Exit codes: 0 at SIGTERM, 3 at SIGTERM, and not all could be decided within seconds: the next start redoes it.
    """
    from photon.assembly.joiner import serve_joiner

    settings, base = _load(config, overrides)
    drained = _run(
        lambda stop: serve_joiner(
            settings,
            base,
            datacentre,
            slot,
            stop,
            accept_damaged_log=accept_damaged_log,
            listen=listen,
            address=address,
        ),
        with_parent=stop_with_parent,
    )
    return DONE if drained else ATTENTION


joiner.add_command(draining.drain)


@click.group()
def pipeline() -> None:
    """The services of one datacentre in one process: event store, joiners, verifier, dispatcher.

    \b
    Example:
      photon pipeline serve --config photon.toml --datacentre east
    """


@pipeline.command("serve")
@_common
@_datacentre
def pipeline_serve(
    config: Path | None, overrides: tuple[str, ...], stop_with_parent: bool, datacentre: str | None
) -> int:
    """Run a datacentre's event store, joiners, verifier and dispatcher in one process until SIGTERM.

    Each listens at its own address, as if it ran by itself; among themselves they need no socket. Less memory and
    less work for each event, on one core: with many events, start each by itself. Its cache nodes, its keeper of
    copies and its status page stay processes of their own.

    \b
    Example:
      photon pipeline serve --config photon.toml --datacentre east
    Exit codes: 0 at SIGTERM, 3 at SIGTERM, and not all could be decided within seconds: the next start redoes it.
    """
    from photon.assembly.pipeline import serve_pipeline

    settings, base = _load(config, overrides)
    again = _again(config, overrides)
    drained = _run(lambda stop: serve_pipeline(settings, base, datacentre, stop, again), with_parent=stop_with_parent)
    return DONE if drained else ATTENTION


@click.group()
def dispatcher() -> None:
    """The dispatcher: reads foreign logs and sees to it that each event gets its verdict.

    \b
    Examples:
      photon dispatcher serve --config photon.toml --datacentre east
      photon dispatcher skip --config photon.toml --datacentre east --to now
    """


@dispatcher.command("serve")
@_common
@_datacentre
@click.option(
    "--worker",
    metavar="NAME|auto",
    help="Which of the pipeline's dispatchers, where it has several. auto: one more, under a free name.",
)
@_reached
@click.option(
    "--read-from",
    metavar="beginning|end|TIME",
    default="beginning",
    show_default=True,
    help="Where to begin in logs that are there when no state is: 2h ago, an ISO time, epoch seconds.",
)
@click.option(
    "--ignore-checkpoints",
    is_flag=True,
    help="Forget how far logs were read and begin where --read-from says; what has a verdict keeps it.",
)
def dispatcher_serve(
    config: Path | None,
    overrides: tuple[str, ...],
    stop_with_parent: bool,
    datacentre: str | None,
    worker: str | None,
    read_from: str,
    ignore_checkpoints: bool,
    listen: str | None,
    address: str | None,
) -> None:
    """Run a pipeline's dispatcher until SIGTERM, or one of several workers that share its state on this machine.

    \b
    Examples:
      photon dispatcher serve --config photon.toml --datacentre east
      photon dispatcher serve --config photon.toml --datacentre east --worker w1
      photon dispatcher serve --config photon.toml --datacentre east --worker auto --address auto:7201
      photon dispatcher serve --config photon.toml --datacentre east --read-from 2h
    """
    from photon.assembly.dispatcher import serve_dispatcher

    settings, base = _load(config, overrides)
    _run(
        lambda stop: serve_dispatcher(
            settings,
            base,
            datacentre,
            worker,
            stop,
            read_from=read_from,
            ignore_checkpoints=ignore_checkpoints,
            listen=listen,
            address=address,
        ),
        with_parent=stop_with_parent,
    )


dispatcher.add_command(skip)
dispatcher.add_command(lag)
dispatcher.add_command(replay)
dispatcher.add_command(draining.pause)
dispatcher.add_command(draining.resume)

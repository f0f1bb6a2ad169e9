"""``photon serve KIND``: runs one process of a deployment."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from photon.cli.errors import ATTENTION, DONE
from photon.cli.heads import PATH, PLACE, Deployed, config, overrides, taken
from photon.fleet.processes import DATACENTRE, KINDS, coroutine_of

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")


def run(main: Callable[[asyncio.Event], Awaitable[T]], *, with_parent: bool, prompt: bool = True) -> T:
    """Serves until SIGTERM, or with ``with_parent`` until standard input ends."""
    from photon.config import runtime
    from photon.config.stopping import stop_event

    async def stoppable() -> T:
        return await main(stop_event(with_parent=with_parent))

    return runtime.run(stoppable(), prompt=prompt)


COMMON = "kind config overrides stop_with_parent log_format"


@click.command()
@click.argument("kind", type=click.Choice([name for name, kind in KINDS.items() if kind.serve]))
@click.argument("name", required=False)
@config(required=False, unless=["primary"])
@overrides
@click.option("--datacentre", metavar="NAME", help="Name of the datacentre; may be left out if there is only one.")
@click.option("--stop-with-parent", is_flag=True, help="Stop when standard input ends.")
@click.option("--log-format", type=click.Choice(["json", "text"]), default="json", show_default=True,
              help="Format of the log on standard error.")  # fmt: skip
@click.option("--listen", metavar="HOST:PORT",
              help="Listen here (default: --address, otherwise the address in the file).")  # fmt: skip
@click.option("--address", metavar="HOST:PORT",
              help="Joiner, dispatcher: public address, if it is not in the file; "
              "auto:PORT uses this machine's host name.")  # fmt: skip
@click.option(
    "--accept-damaged-log",
    is_flag=True,
    help="Joiner: start although a part of the slot's redo log is unreadable: set it aside, give up "
    "its unwritten registrations, and join their events again (docs/verification.md).",
)
@click.option(
    "--accept-lost-offsets",
    is_flag=True,
    help="Relay: continue after messages that a topic lost before they were read (docs/kafka.md).",
)
@click.option("--read-from", metavar="beginning|end|TIME", default="beginning", show_default=True,
              help="Dispatcher without state: where to start in existing logs; TIME: 2h (ago), ISO, "
              "epoch seconds.")  # fmt: skip
@click.option("--join", "join_name", metavar="NAME", help="Event store without --datacentre: name of the join.")
@click.option("--primary", type=PLACE, help="Event store without --datacentre: directory of the primary logs.")
@click.option("--state", type=PATH, help="Event store without --datacentre: directory of the file map.")
@click.option("--once", is_flag=True, help="Event store: assume that the logs will not grow.")
@click.option("--may-be-empty", is_flag=True, help="With --once: succeed even if there are no primary records.")
@click.option("--stages", type=PATH, help="Event store: write samples of each stage to this file.")
def serve(
    kind: str, name: str | None, config: Path | None, overrides: tuple[str, ...], datacentre: str | None,
    stop_with_parent: bool, log_format: str, **options: Any,
) -> int:  # fmt: skip
    """Run one process of a deployment until SIGTERM. KIND is its kind; NAME chooses one of several.

    \b
    Kinds:
      registry NAME      runs a replica of the registry
      datacentre [NAME]  runs all kinds below, except those `apart` in the file, in one process: less memory and less
                         work per event, on one core
      eventstore         reads primary logs and answers look-ups
      cache [NAME]       keeps recent primary records in memory; the event store feeds it
      joiner [NAME]      looks up, registers and writes, in the slot NAME; auto: in a free slot that the file does not
                         name (docs/dispatcher.md, Scaling)
      dispatcher [KofN]  reads foreign logs; KofN (2of4): reads one share of N
      verifier           verifies all slots of a datacentre that are on this machine
      relay              copies other joins' published records, as logs of a join that builds on them
                         (docs/chains.md), and topics of Kafka as logs (docs/kafka.md)
      observe NAME-N     runs the Nth observer process of [observe.NAME] (docs/tables.md)
      copies             keeps copies of other datacentres' output (docs/output.md)
      spark              joins a datacentre's logs on Spark, in place of dispatcher and joiners (docs/spark.md)
      compute [NAME]     runs computations over published records, and serves their status (docs/computations.md)
      sink [NAME]        writes published records where [sink.NAME] says (docs/objects.md)
      status             serves a page, /status.json, /metrics for Prometheus, and /healthz
    Examples:
      photon serve registry r1 --config photon.toml
      photon serve datacentre east --config photon.toml
      photon serve eventstore --config photon.toml --datacentre east
      photon serve joiner east-1 --config photon.toml --datacentre east
      photon serve joiner auto --config photon.toml --datacentre east --address auto:7101
      photon serve dispatcher --config photon.toml --datacentre east --read-from 2h
      photon serve observe dedup-1 --config photon.toml
      photon serve status --config photon.toml --datacentre east --listen 127.0.0.1:8080
    Exit codes: 0 stopped by SIGTERM; 3 the same, but a joiner could not decide all events in time: its next start
    completes them.
    """
    from photon.assembly.room import Room, reporter
    from photon.assembly.telemetry import exporting, labels_of
    from photon.config import log
    from photon.config.runtime import sampled
    from photon.config.settings_reload import SettingsReload
    from photon.config.structured import get_logger
    from photon.supervision.watched import end

    given = taken(f"serve {kind}", KINDS[kind].takes, COMMON, {"name": name, **options})
    log.configure(json=log_format != "text")
    if kind == DATACENTRE:
        datacentre = given.pop("name", None)
    at = Deployed(config, overrides, datacentre, "table")
    # Created before the settings are read, so that no change is missed.
    again = None if config is None else SettingsReload(config, at.load, reporter("configuration"))
    settings, member, stages = at.settings, given.pop("name", None), given.pop("stages", None)
    listen = given.pop("listen", None)
    served = coroutine_of(kind)
    own = labels_of(settings, kind, datacentre, member)

    async def serving(stop: asyncio.Event) -> object:
        async with exporting(settings, own):
            return await served(Room(settings, at.base, stop, datacentre, member, again, listen), **given)

    with sampled(stages):
        drained = run(
            serving,
            with_parent=stop_with_parent,
            prompt=not given.get("once"),
        )
    return end(ATTENTION if drained is False else DONE, get_logger(__name__).warning)

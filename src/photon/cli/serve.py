"""``photon serve KIND``: one process of a deployment."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import click

from photon.cli.errors import ATTENTION, DONE
from photon.cli.heads import PATH, Deployed, config, overrides, taken

if TYPE_CHECKING:
    import asyncio

    from photon.config.settings_reload import SettingsReload

T = TypeVar("T")


class Served(Deployed):
    """The deployment of a process that serves, and which of its kind it is."""

    name: str | None = None

    def again(self) -> SettingsReload | None:
        """What reads the file when it has changed; made before the settings are read. None without a file."""
        from photon.assembly.eventstore import reporter
        from photon.config.settings_reload import SettingsReload

        if self.given is None:
            return None
        return SettingsReload(self.given, self.load, reporter("configuration"))


def run(main: Callable[[asyncio.Event], Awaitable[T]], *, with_parent: bool, prompt: bool = True) -> T:
    """Until SIGTERM; ``with_parent``: or until standard input ends."""
    from photon.config import runtime
    from photon.config.stopping import stop_event

    async def stoppable() -> T:
        return await main(stop_event(with_parent=with_parent))

    return runtime.run(stoppable(), prompt=prompt)


Run = Callable[..., Any]


def _registry(at: Served, run: Run, id_rules: tuple[str, ...] = ()) -> object:
    from photon.assembly.registry import serve_replica

    if at.name is None:
        raise click.UsageError("name the replica: photon serve registry NAME")
    name = at.name
    return run(lambda stop: serve_replica(at.settings, at.base, name, id_rules, stop))


def _eventstore(
    at: Served,
    run: Run,
    join_name: str | None = None,
    primary: Path | None = None,
    state: Path | None = None,
    address: str | None = None,
    once: bool = False,
    may_be_empty: bool = False,
    stages: Path | None = None,
) -> object:
    from photon.assembly.eventstore import StorePlace, serve_store, store_place
    from photon.config.errors import UsageError
    from photon.config.runtime import sampled

    again = at.again()
    if primary is not None and state is not None and address is not None:
        place = StorePlace(join_name, primary, state, address, once, may_be_empty)
    elif primary is None and state is None and address is None:
        place = store_place(at.settings, at.base, at.datacentre)
    else:
        raise UsageError("--primary, --state and --address go together, in place of --datacentre")
    with sampled(stages):
        return run(lambda stop: serve_store(at.settings, at.base, place, stop, again), prompt=not once)


def _cache(at: Served, run: Run) -> object:
    from photon.assembly.eventstore import serve_cache

    return run(lambda stop: serve_cache(at.settings, at.base, at.datacentre, at.name, stop))


def _joiner(at: Served, run: Run, **options: Any) -> object:
    from photon.assembly.joiner import serve_joiner

    return run(lambda stop: serve_joiner(at.settings, at.base, at.datacentre, at.name, stop, **options))


def _dispatcher(at: Served, run: Run, **options: Any) -> object:
    from photon.assembly.dispatcher import serve_dispatcher

    return run(lambda stop: serve_dispatcher(at.settings, at.base, at.datacentre, at.name, stop, **options))


def _verifier(at: Served, run: Run) -> object:
    from photon.assembly.verifier import serve_verifier

    return run(lambda stop: serve_verifier(at.settings, at.base, at.datacentre, stop))


def _copies(at: Served, run: Run) -> object:
    from photon.assembly.copies import serve_copies

    return run(lambda stop: serve_copies(at.settings, at.base, at.datacentre, stop))


def _pipeline(at: Served, run: Run) -> object:
    from photon.assembly.pipeline import serve_pipeline

    again = at.again()
    return run(lambda stop: serve_pipeline(at.settings, at.base, at.datacentre, stop, again))


def _status(at: Served, run: Run, listen: str | None = None) -> object:
    from photon.status.process import serve_status

    return run(lambda stop: serve_status(at.settings, at.base, at.datacentre, listen, stop))


class Kind(NamedTuple):
    """A kind of process: how it is served, and the options beside the common ones that it takes."""

    serve: Callable[..., object]
    """False: told to end, and not all could be decided."""
    takes: str = "datacentre"


KINDS: Mapping[str, Kind] = {
    "registry": Kind(_registry, "name id_rules"),
    "eventstore": Kind(_eventstore, "datacentre join_name primary state address once may_be_empty stages"),
    "cache": Kind(_cache, "datacentre name"),
    "joiner": Kind(_joiner, "datacentre name listen address accept_damaged_log"),
    "dispatcher": Kind(_dispatcher, "datacentre name listen address read_from ignore_checkpoints"),
    "verifier": Kind(_verifier),
    "copies": Kind(_copies),
    "pipeline": Kind(_pipeline),
    "status": Kind(_status, "datacentre listen"),
}
"""As ``photon.fleet.processes`` names them."""
COMMON = "kind config overrides stop_with_parent log_format"


@click.command()
@click.argument("kind", type=click.Choice(list(KINDS)))
@click.argument("name", required=False)
@config(required=False, unless=["primary"])
@overrides
@click.option("--datacentre", metavar="NAME", help="Whose; may be left out if there is one.")
@click.option("--stop-with-parent", is_flag=True, help="End when standard input ends.")
@click.option("--log-format", type=click.Choice(["json", "text"]), default="json", show_default=True,
              help="Of its log on standard error: for machines, or for people.")  # fmt: skip
@click.option("--listen", metavar="HOST:PORT",
              help="Where to listen; else at --address (joiner, dispatcher), or where the file says.")  # fmt: skip
@click.option("--address", metavar="HOST:PORT", help="Joiner, dispatcher: where it is reached, if the file does not "
                                                     "say so; auto:PORT for this machine's host name.")  # fmt: skip
@click.option("--accept-damaged-log", is_flag=True,
              help="Joiner: start although a part of the slot's redo log cannot be read: it is set aside, and what "
              "it owned without having written it is given up and joined again (docs/verification.md).")  # fmt: skip
@click.option("--read-from", metavar="beginning|end|TIME", default="beginning", show_default=True,
              help="Dispatcher: where to begin in logs that are there when no state is: 2h ago, an ISO time, epoch "
              "seconds.")  # fmt: skip
@click.option("--ignore-checkpoints", is_flag=True,
              help="Dispatcher: forget how far logs were read and begin where --read-from says; what has a verdict "
              "keeps it.")  # fmt: skip
@click.option("--id-rule", "id_rules", multiple=True, metavar="JOIN=HEX",
              help="Registry: hash of the rule that derives a join's ids; else of the file's joins.")  # fmt: skip
@click.option("--join", "join_name", metavar="NAME", help="Event store without --datacentre: which join of the file.")
@click.option("--primary", type=PATH, help="Event store without --datacentre: the primary logs.")
@click.option("--state", type=PATH, help="Event store without --datacentre: where the file map lies.")
@click.option("--once", is_flag=True, help="Event store: what is there now is all there will ever be.")
@click.option("--may-be-empty", is_flag=True, help="With --once: no primary record at all is no error.")
@click.option("--stages", type=PATH, help="Event store: write the samples of each stage to this file.")
def serve(
    kind: str,
    name: str | None,
    config: Path | None,
    overrides: tuple[str, ...],
    datacentre: str | None,
    stop_with_parent: bool,
    log_format: str,
    **options: Any,
) -> int:
    """Run one process of a deployment until SIGTERM: KIND, and which of them, NAME, where the file has several.

    \b
    Kinds:
      registry NAME      a replica of the registry
      eventstore         reads primary logs and answers look-ups
      cache [NAME]       keeps recent primary records in memory; the event store feeds it
      joiner [NAME]      looks up, registers and writes, in the slot NAME; auto: a free slot that the file does not
                         name (docs/dispatcher.md, Scaling)
      dispatcher [NAME]  reads foreign logs; NAME is a worker, where several share the state on this machine;
                         auto: one more, under a free name
      verifier           verifies all slots of a datacentre, on the machine that they are on
      copies             keeps copies of other datacentres' output (docs/output.md)
      pipeline           event store, joiners, verifier and dispatcher of a datacentre in one process: less memory and
                         work for each event, on one core. Each listens at its own address, as if it ran by itself
      status             a page, /status.json, /metrics for Prometheus, /healthz
    Examples:
      photon serve registry r1 --config photon.toml
      photon serve eventstore --config photon.toml --datacentre east
      photon serve joiner east-1 --config photon.toml --datacentre east
      photon serve joiner auto --config photon.toml --datacentre east --address auto:7101
      photon serve dispatcher --config photon.toml --datacentre east --read-from 2h
      photon serve pipeline --config photon.toml --datacentre east
      photon serve status --config photon.toml --datacentre east --listen 127.0.0.1:8080
    Exit codes: 0 at SIGTERM; 3 at SIGTERM, and a joiner could not decide all within seconds: its next start redoes
    that.
    """
    from photon.config import log

    served = KINDS[kind]
    given = taken(f"serve {kind}", served.takes, COMMON, {"name": name, **options})
    log.configure(json=log_format != "text")
    at = Served(config, overrides, datacentre, "table")
    at.name = given.pop("name", None)

    def run_it(main: Callable[[asyncio.Event], Awaitable[T]], *, prompt: bool = True) -> T:
        at.settings  # noqa: B018 - a mistake in the file is told before anything is begun
        return run(main, with_parent=stop_with_parent, prompt=prompt)

    return ATTENTION if served.serve(at, run_it, **given) is False else DONE

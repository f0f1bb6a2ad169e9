"""``photon status [PART]``: shows the current state of a deployment, or of a part of it."""

from __future__ import annotations

import importlib
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from photon.cli.errors import ATTENTION, DONE, FAILED
from photon.cli.heads import Deployed, deployed, run_option, taken
from photon.cli.looking import again, asking
from photon.cli.tables import print_json, show
from photon.cli.units import DURATION
from photon.config.errors import PhotonError, UsageError

if TYPE_CHECKING:
    import asyncio

FETCH_S = 5.0
FREE_PORT = "127.0.0.1:0"
PAGE_BYTES_MAX = 64 << 20

Look = Callable[[], list[dict[str, Any]]]


class Shows(NamedTuple):
    """A part of ``photon status``: its description, and the function that shows it."""

    shows: str
    function: str  # module:function in photon.cli; called with a Deployed and the options given by the user
    takes: str  # names of parameters other than --config and -o


OVERVIEW = "overview"
PARTS: Mapping[str, Shows] = {
    OVERVIEW: Shows(
        "each datacentre's rates, lag, queues, ledger, registry and alarms", "status:overview",
        "overrides datacentre urls watch web listen every",
    ),
    "processes": Shows("processes that photon up keeps running here", "running:show_processes", "run wait timeout"),
    "registry": Shows("the registry's groups: leaders, lag, ids, alarms", "registry.status:groups", "overrides wait "
    "timeout"),
    "members": Shows("registry members, in the file and on each replica", "registry.status:members", "overrides"),
    "shards": Shows("event times of each shard, and the current change", "registry.reshard:shards",
                   "overrides replica timeout"),
    "ledger": Shows("verdicts of all events read, by hour; NAME: an output", "ledger:ledger",
                   "datacentre name watch every"),
    "lag": Shows("how far dispatchers lag behind their logs", "dispatcher:lag", "overrides datacentre"),
    "eventstore": Shows("progress in primary logs, and missing logs", "eventstore:show",
                       "overrides datacentre"),
    "cache": Shows("records in cache nodes, and their hits", "eventstore:caches", "overrides datacentre"),
    "verifier": Shows("the continuous verifier's progress and alarms", "verifier:show", "overrides datacentre"),
    "compute": Shows("computations; NAME: their FILE, or their state directory", "compute:status", "name"),
    "slots": Shows("the joiners' slots; NAME: one slot, with the ids it owns", "slot:slots", "overrides name"),
    "oracle": Shows("the replica that hands out the tables' timestamps", "table:oracle", "overrides"),
    "wan": Shows("delays and cuts between regions", "wan:directions", "control"),
    "certificates": Shows("certificates; NAME: a file or directory", "certs:certificates", "overrides name"),
    "top": Shows("the busiest parts; NAME: processes, slots, logs or shards", "top:top",
                "overrides datacentre name sort limit watch every"),
    "audit": Shows("commands that changed the deployment, and who ran them", "audited:show_audit", "limit"),
}  # fmt: skip
_LIST = "\n    ".join(f"  {name:<13} {part.shows}" for name, part in PARTS.items())


@click.command(
    help=f"""Show what a deployment, or a PART of it, is doing.

    Asks the processes in the file, with the operator's certificate; some parts read files on this machine.

    \b
    Parts:
    {_LIST}

    \b
    Registry groups: 0 is the config group, the others are shards; lag is in entries, committed but not applied
    there. Process states: up (healthy) · starting · restarting in n s · failing: the last line of its log (it is
    restarted) · not serving and silent (it was up) · held and paused (by an operator) · ended (photon up stops)
    Top: cpu is in cores. A process's rate is per second: events read (dispatchers of one state show their common
    count), events answered (joiners), events indexed and keys looked up (event stores, cache nodes), ids registered
    (the registry's leaders). Logs are those that are behind.
    Examples:
      photon status --config photon.toml
      photon status --config photon.toml --datacentre east --watch
      photon status --config photon.toml --datacentre east --web
      photon status --url http://127.0.0.1:8080 -o json
      photon status processes --config photon.toml --wait
      photon status registry --config photon.toml --wait -o json
      photon status slots east-1 --config photon.toml
      photon status ledger out/
      photon status top shards --config photon.toml --sort memory --watch
      photon status certificates certs/
    Exit codes: 0 all is well, 3 something needs attention (an alarm, a silent process, --wait timed out, an
    unfinished change, a ledger that does not balance, a certificate that expires within 30 days), 1 nothing answers,
    2 wrong usage.
    """
)
@click.argument("part", type=click.Choice(list(PARTS)), default=OVERVIEW, metavar="[PART]")
@click.argument("name", required=False)
@click.option("--url", "urls", multiple=True, metavar="URL",
              help="Overview: address of a status page, in place of --config; may be repeated.")  # fmt: skip
@click.option("--control", metavar="HOST:PORT", help="wan: the proxy's control address, in place of --config.")
@click.option("--watch", is_flag=True, help="Overview, top, ledger: repeat until Ctrl-C.")
@click.option("--every", type=click.FloatRange(0.1), default=2.0, show_default=True, metavar="SECONDS",
              help="Interval of --watch and of top's figures.")  # fmt: skip
@click.option("--web", is_flag=True, help="Overview: serve one datacentre's page from this machine, until Ctrl-C.")
@click.option("--listen", metavar="HOST:PORT", help="With --web: listen here (default: a free port of 127.0.0.1).")
@click.option(
    "--wait", is_flag=True, help="processes: wait until all are up; registry: until all replicas have caught up."
)
@click.option(
    "--timeout",
    type=DURATION,
    help="With --wait: time limit (processes 3min, registry 2min); shards: time limit of an answer (10s).",
)
@click.option("--replica", metavar="NAME", help="shards: ask this replica instead of the config group's leader.")
@click.option("--sort", type=click.Choice(["cpu", "memory", "rate", "name"]),
              help="top: sort by this, largest first (default: cpu for processes, otherwise rate).")  # fmt: skip
@click.option("--limit", type=click.IntRange(min=1),
              help="audit: number of entries (default: 50); top: lines (default: as many as fit).")  # fmt: skip
@run_option
@deployed(
    required=False, unless=["urls", "control"], datacentre="Only this datacentre (default: all, or the only one)."
)
def status(at: Deployed, part: str, **given: Any) -> int:
    """Calls the function of the part with the given options."""
    chosen = PARTS[part]
    options = taken(f"status {part}", chosen.takes, "part config output_format", given)
    module, _, function = chosen.function.partition(":")
    code = getattr(importlib.import_module(f"photon.cli.{module}"), function)(at, **options)
    return int(code)


# -- the overview ----------------------------------------------------------------------------------------------------
def overview(
    at: Deployed,
    urls: tuple[str, ...] = (),
    watch: bool = False,
    web: bool = False,
    listen: str | None = None,
    every: float = 2.0,
) -> int:
    """Implements ``photon status`` without a part."""
    if (at.given is None) == (not urls):
        raise click.UsageError("give a deployment file with --config, or status pages with --url")
    if web:
        if urls or watch:
            raise click.UsageError("--web needs --config, and cannot be combined with --url or --watch")
        _web(at, listen or FREE_PORT)
        return DONE
    if listen is not None:
        raise click.UsageError("--listen requires --web")
    with _looking(at, urls, every) as look:
        return _show(at, look, every if watch else None)


def _web(at: Deployed, listen: str) -> None:
    import logging

    from photon.assembly.room import Room
    from photon.cli.serve import run
    from photon.config import log
    from photon.status.process import serve_status

    log.configure(json=False, level=logging.WARNING)
    settings = at.settings

    def serving(name: str, url: str) -> None:
        at.show({"datacentre": name, "url": url}, f"{url} shows {name}; stop it with Ctrl-C")

    def page(stop: asyncio.Event) -> Awaitable[None]:
        room = Room(settings, at.base, stop, at.datacentre, listen=listen)
        return serve_status(room, operator=True, serving=serving)

    run(page, with_parent=False)


def _show(at: Deployed, look: Look, every: float | None) -> int:
    """Shows the overview once, or every ``every`` seconds."""
    from photon.status.parts import overview

    def shown() -> list[dict[str, Any]]:
        said = look()
        if at.json:
            print_json({"datacentres": said})
        else:
            if every is not None and os.isatty(1):
                click.clear()
            show(*overview(said, time.time()))
        return said

    said = shown() if every is None else again(shown, every)
    if said is None:
        return DONE
    if not any(process["up"] for each in said for process in each["processes"]):
        return FAILED
    return ATTENTION if any(each["alarms"] for each in said) else DONE


@contextmanager
def _looking(at: Deployed, urls: tuple[str, ...], every: float) -> Iterator[Look]:
    """Yields a function that returns the overviews. Asks all processes once before, because rates need two looks."""
    if urls:
        yield lambda: [_fetched(url) for url in urls]
        return
    from photon import __version__
    from photon.status.view import View

    with asking(at) as (names, ask):
        views = {name: View(name, __version__, at.settings.beside(name)) for name in names}

        def look() -> list[dict[str, Any]]:
            found = ask()
            return [view.update(found.seen_from(name)) for name, view in views.items()]

        look()
        time.sleep(min(every, 1.0))
        yield look


def _fetched(url: str) -> dict[str, Any]:
    """Fetches the overview from a status page. Raises PhotonError, UsageError."""
    import urllib.error
    import urllib.request

    import orjson

    address = f"{url.rstrip('/')}/status.json"
    if not address.startswith(("http://", "https://")):
        raise UsageError(f"--url {url}: must begin with http:// or https://")
    try:
        with urllib.request.urlopen(address, timeout=FETCH_S) as reply:
            said = orjson.loads(reply.read(PAGE_BYTES_MAX))
    except (OSError, ValueError) as error:
        raise PhotonError(f"{address}: no status page answers ({error}); is photon serve status running?") from None
    if not isinstance(said, dict) or "processes" not in said:
        raise PhotonError(f"{address}: answers, but is not a Photon status page")
    said.pop("parts", None)  # the page's tables, as text
    return said

"""``photon wan``: runs and controls the proxy that delays and cuts connections between regions."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from photon.cli.audited import audited
from photon.cli.errors import DONE
from photon.cli.heads import PATH, Deployed, config, deployed
from photon.cli.looking import through
from photon.cli.units import DURATION
from photon.config.errors import UsageError
from photon.fleet.parts import Column, Part

if TYPE_CHECKING:
    from photon.lab.wan.client import WanClient
    from photon.lab.wan.links import DirectionNow

T = TypeVar("T")


def _controlled(command: Callable[..., Any]) -> Callable[..., Any]:
    control = click.option("--control", metavar="HOST:PORT", help="The proxy's control address.")
    named = "The deployment file, which has wan.control and [tls]."
    return control(deployed(required=False, unless=["control"], sets=False, help=named)(audited(command)))


def _tell(at: Deployed, control: str | None, what: Callable[[WanClient], Awaitable[T]]) -> T:
    """Connects to the proxy and makes one request. Uses plain text if the proxy is given by its address."""
    from photon.config.tls import WAN, towards
    from photon.lab.wan.client import WanClient

    address = _control(at, control)
    to = None if at.given is None else towards(at.tls, WAN)
    return through(lambda: WanClient(address, to), what)


def _control(at: Deployed, control: str | None) -> str:
    if (control is None) == (at.given is None):
        raise UsageError("give either --control HOST:PORT or --config FILE")
    if control is not None:
        return _checked(control)
    if at.settings.wan is None:
        raise UsageError(f"{at.config}: has no [wan]; there is no proxy to control")
    return at.settings.wan.control


def _checked(control: str) -> str:
    from photon.supervision.ports import host_and_port

    try:
        host_and_port(control)
    except ValueError as error:
        raise UsageError(f"--control: {error}") from None
    return control


@click.command("serve")
@click.option("--routes", type=PATH, help="JSON list of routes.")
@config(required=False, unless=("routes",), help="In place of --routes: a file whose hosts are container names.")
@click.option("--control", required=True, metavar="HOST:PORT", help="Address at which to listen for commands.")
@click.option("--round-trip", type=DURATION, default="0s", help="Initial round trip between any two regions.")
@click.option("--stop-with-parent", is_flag=True, help="Stop when standard input ends.")
@click.option("--tls", "certificates", type=PATH, help="Directory of certificates; commands then need mutual TLS.")
def wan_serve(
    routes: Path | None,
    config: Path | None,
    control: str,
    round_trip: float,
    stop_with_parent: bool,
    certificates: Path | None,
) -> None:
    """Run the proxy until SIGTERM. Each route listens in one region and connects to a target in another.

    A route is {"listen": "127.0.0.1:7101", "source": "east", "destination": "west", "target": "127.0.0.1:7001"}.

    With --config, the routes and the certificate come from a deployment in containers (photon up --compose).

    \b
    Example:
      photon wan serve --routes routes.json --control 127.0.0.1:7100 --round-trip 100ms
    """
    from photon.config import log, runtime
    from photon.config.stopping import stop_event
    from photon.config.tls import WAN
    from photon.fleet.access import logged, tls_in
    from photon.lab.wan.links import DELAY_S_MAX
    from photon.lab.wan.service import serve
    from photon.supervision.routes import read_routes

    _checked(control)
    if round_trip > 2 * DELAY_S_MAX:
        raise UsageError(f"--round-trip: must be at most {2 * DELAY_S_MAX:g} s")
    if (routes is None) == (config is None):
        raise UsageError("give either --routes FILE or --config FILE")
    if config is not None:
        from photon.config.loader import load
        from photon.supervision.routes import gateway_routes

        settings = load(config, environment=os.environ)
        found = gateway_routes(settings)
        if certificates is None and settings.tls is not None:
            certificates = config.parent / settings.tls.directory
    elif routes is not None:
        found = read_routes(routes)
    log.configure(json=True)
    tls = logged(tls_in(certificates, WAN)) if certificates is not None else None

    async def main() -> None:
        stop = stop_event(with_parent=stop_with_parent)
        await serve(found, control=control, delay_s=round_trip / 2, stop=stop, tls=tls)

    runtime.run(main())


COLUMNS = (
    Column("from", "source"), Column("to", "destination"), Column(">delay", "delay_ms", "{:g} ms".format),
    Column(">fault", "fault"), Column(">delivered", "bytes", "{:,} B".format), Column(">connections"),
)  # fmt: skip


def directions(at: Deployed, control: str | None = None) -> int:
    """``photon status wan``: shows delays and faults between regions."""
    found = _tell(at, control, lambda client: client.directions())
    rows = [_as_json(each) for each in found]
    at.part(Part("", rows, COLUMNS))
    return DONE


@click.command("set")
@click.argument("a", required=False)
@click.argument("b", required=False)
@_controlled
@click.option("--round-trip", type=DURATION, help="Round trip between A and B; half of it in each direction.")
@click.option("--delay", type=DURATION, help="One-way delay between A and B, in each direction.")
@click.option("--cut", is_flag=True, help="Cut the connections between A and B, or between A and all others.")
@click.option("--fault", type=click.Choice(["drop", "reset", "refuse"]),
              help="With --cut: hold bytes back silently, reset connections, or refuse new ones.  "
                   "[default: drop]")  # fmt: skip
@click.option("--from-all", is_flag=True, help="With --cut: in place of B, all other regions.")
@click.option("--one-way", is_flag=True, help="With --delay or --cut: only from A to the other region.")
@click.option("--heal", is_flag=True, help="Lift the faults between A and B, all of A's, or all; delays stay.")
def wan_set(
    at: Deployed, a: str | None, b: str | None, control: str | None, round_trip: float | None, delay: float | None,
    cut: bool, fault: str | None, from_all: bool, one_way: bool, heal: bool,
) -> None:  # fmt: skip
    """Delay, cut or heal traffic between regions A and B. Applies to open connections too.

    \b
    Examples:
      photon wan set east west --round-trip 100ms --control 127.0.0.1:7100
      photon wan set east west --delay 80ms --one-way --config photon.toml
      photon wan set east --cut --from-all --fault reset --config photon.toml
      photon wan set --heal --control 127.0.0.1:7100
    """
    from photon.lab.wan.links import Fault

    if (round_trip is not None) + (delay is not None) + cut + heal != 1:
        raise UsageError("give exactly one of --round-trip, --delay, --cut and --heal")
    if one_way and (heal or round_trip is not None):
        raise UsageError("--one-way requires --delay or --cut; a round trip covers both directions")
    if (fault is not None or from_all) and not cut:
        raise UsageError("--fault and --from-all require --cut")
    kind, both = Fault[(fault or "drop").upper()], not one_way
    if heal:
        _tell(at, control, lambda client: client.heal(a, b))
    elif a is None or (b is not None if from_all else b is None):
        raise UsageError("give a second region or --from-all" if cut else "give two regions")
    elif b is None:
        _tell(at, control, lambda client: client.isolate(a, kind, both=both))
    elif cut:
        _tell(at, control, lambda client: client.cut(a, b, kind, both=both))
    else:
        each = delay if delay is not None else (round_trip or 0.0) / 2
        _tell(at, control, lambda client: client.delay(a, b, each, both=both))
    if at.json:  # text output is empty; scripts get the current directions
        at.show([_as_json(each) for each in _tell(at, control, lambda client: client.directions())], "")


def _as_json(each: DirectionNow) -> dict[str, str | int | float]:
    return {
        "source": each.source,
        "destination": each.destination,
        "delay_ms": round(each.delay_s * 1000, 3),
        "fault": each.fault.name.lower(),
        "bytes": each.bytes,
        "connections": each.connections,
    }

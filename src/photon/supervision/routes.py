"""The routes between regions through the proxy: their ports, and the file that passes them to the proxy.

The file is a JSON list of objects with the fields of Route.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import msgspec

from photon.config.errors import UsageError
from photon.config.settings import NAME, Settings
from photon.fleet.processes import Process, listening, processes
from photon.supervision.ports import can_listen, free_ports, host_and_port

ROUTES_MAX = 1024  # maximum number of routes in one file; each needs a listening port


class Route(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One port of the proxy. A connection to ``listen`` in region ``source`` leads to ``target`` in another
    region."""

    listen: str  # host:port
    source: str
    destination: str  # region
    target: str  # host:port


class RoutesError(UsageError):
    """Raised for routes that cannot be used. One line: file, route, and a valid value."""


def write_routes(path: Path, routes: Iterable[Route]) -> None:
    """Writes the file atomically. Raises RoutesError for routes that cannot be served, OSError."""
    rows = list(routes)
    _check(path, rows)
    new = path.with_name(path.name + ".new")
    new.write_bytes(msgspec.json.format(msgspec.json.encode(rows), indent=2) + b"\n")
    os.replace(new, path)


def read_routes(path: Path) -> list[Route]:
    """Reads a file of routes. Raises RoutesError."""
    try:
        rows = msgspec.json.decode(path.read_bytes(), type=list[Route])
    except FileNotFoundError:
        raise RoutesError(f"{path}: no such file; give an existing file of routes") from None
    except OSError as error:
        raise RoutesError(f"{path}: cannot be read: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        why = str(error).replace("`", "'")
        raise RoutesError(
            f"{path}: {why}; it must be a JSON list of objects with listen, source, destination, target"
        ) from None
    _check(path, rows)
    return rows


def _check(path: Path, rows: Sequence[Route]) -> None:
    if len(rows) > ROUTES_MAX:
        raise RoutesError(f"{path}: {len(rows)} routes; one proxy serves at most {ROUTES_MAX}")
    seen: dict[str, int] = {}
    for number, row in enumerate(rows):
        where = f"{path}: route {number}"
        for field, address in (("listen", row.listen), ("target", row.target)):
            try:
                if host_and_port(address)[1] == 0:
                    raise ValueError("port 0 is not valid here; give a port")
            except ValueError as error:
                raise RoutesError(f"{where}: {field}: {error}") from None
        for field, region in (("source", row.source), ("destination", row.destination)):
            if not re.fullmatch(NAME, region):
                raise RoutesError(f"{where}: {field}: {region!r} is not a valid region name; names match {NAME}")
        if row.source == row.destination:
            raise RoutesError(
                f"{where}: source and destination are both {row.source!r}; a route connects two regions"
            )
        if row.listen in seen:
            raise RoutesError(f"{where}: route {seen[row.listen]} also listens at {row.listen}; use another port")
        seen[row.listen] = number


def kept_routes(
    settings: Settings,
    file: Path,
    *,
    draw: Callable[[int], list[int]] = free_ports,
    is_free: Callable[[str], bool] | None = None,
) -> tuple[Route, ...]:
    """Returns the proxy's routes. Keeps ports in ``file`` that are still free, and draws the others.

    ``draw(n)``: returns n free ports; ``is_free``: checks a host:port. An unreadable file counts as empty.
    """
    is_free = is_free or can_listen
    old: list[Route] = []
    with contextlib.suppress(RoutesError):
        old = read_routes(file)
    named = (address.rpartition(":")[2] for address in listening(settings))  # because a status page may have any port
    taken = {int(port) for port in named if port.isdecimal()}
    kept = {_ends(r): r.listen for r in old if is_free(r.listen) and host_and_port(r.listen)[1] not in taken}
    taken |= {host_and_port(listen)[1] for listen in kept.values()}
    count = routes_needed(settings)
    fresh = iter([port for port in draw(count + len(taken)) if port not in taken] if count else [])
    routes = routes_of(settings, [next(fresh) for _ in range(count)])
    return tuple(msgspec.structs.replace(r, listen=kept.get(_ends(r), r.listen)) for r in routes)


def routes_of(settings: Settings, ports: Sequence[int], host: str = "127.0.0.1") -> tuple[Route, ...]:
    """Returns one route for each pair of a region and a replica or keeper of copies in another region; none without
    ``[wan]``.

    ``ports``: at least ``routes_needed`` free ports.
    """
    pairs = _pairs(settings)
    return tuple(
        Route(f"{host}:{port}", source, destination, target)
        for (source, destination, target), port in zip(pairs, ports, strict=False)
    )


def routes_needed(settings: Settings) -> int:
    return len(_pairs(settings))


def regions(settings: Settings) -> list[str]:
    return sorted({each.region for each in processes(settings) if each.kind != "wan"})


def called_across(settings: Settings) -> list[Process]:
    """Returns the processes that are called from other regions: replicas and keepers of copies."""
    called = (each for each in processes(settings) if each.kind in ("registry", "copies"))
    return sorted(called, key=lambda each: (each.kind != "registry", each.name))


def gateway_routes(settings: Settings) -> list[Route]:
    """Returns the routes of a gateway between container networks, where each region has one network. They lead to the
    services that other regions call, at the same port, and from the monitoring's region to the status pages. The
    gateway is ``wan.REGION`` in a region, a service ``HOST.REGION`` in its own. Raises RoutesError."""
    found: list[Route] = []
    joining = {settings.region(datacentre) for datacentre in settings.datacentre}
    outside = [region for region in regions(settings) if region not in joining]
    watching = (outside or regions(settings))[0]  # monitoring runs preferably in a region without a datacentre
    called = [
        (source, each.region, each.address or "")
        for source in regions(settings)
        for each in called_across(settings)
        if each.kind == "registry" or source in joining
    ]
    called += [
        (watching, settings.region(name), each.page) for name, each in settings.datacentre.items() if each.page
    ]
    for source, at, address in called:
        if at != source:
            host, port = host_and_port(address)
            found.append(Route(f"wan.{source}:{port}", source, at, f"{host}.{at}:{port}"))
    _check(Path("the deployment file"), found)
    return found


def _pairs(settings: Settings) -> list[tuple[str, str, str]]:
    """Returns (region, another region, address there) for each possible call between regions."""
    if settings.wan is None:
        return []
    called = [(each.region, each.address or "") for each in called_across(settings)]
    return [(source, at, target) for source in regions(settings) for at, target in called if at != source]


def _ends(route: Route) -> tuple[str, str, str]:
    return route.source, route.destination, route.target

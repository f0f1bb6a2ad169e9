"""The file of routes that the proxy is started with: a JSON list of objects with the fields of Route."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from photon.config.errors import UsageError
from photon.config.settings import NAME
from photon.lab.wan.api import Route

ROUTES_MAX = 1024
"""In one file; each is a listening port."""
_EXAMPLE = "127.0.0.1:7101"


class RoutesError(UsageError):
    """One line: file, route, and what would be right."""


class _Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    listen: str
    source: str
    destination: str
    target: str


def write_routes(path: Path, routes: Iterable[Route]) -> None:
    """Writes the file in one piece. Raises RoutesError for routes that cannot be served, OSError."""
    rows = [_Row(each.listen, each.source, each.destination, each.target) for each in routes]
    _check(path, rows)
    new = path.with_name(path.name + ".new")
    new.write_bytes(msgspec.json.format(msgspec.json.encode(rows), indent=2) + b"\n")
    os.replace(new, path)


def read_routes(path: Path) -> list[Route]:
    """The routes of a file. Raises RoutesError."""
    try:
        rows = msgspec.json.decode(path.read_bytes(), type=list[_Row])
    except FileNotFoundError:
        raise RoutesError(f"{path}: no such file; name an existing file of routes") from None
    except OSError as error:
        raise RoutesError(f"{path}: cannot be read: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        why = str(error).replace("`", "'")
        raise RoutesError(
            f"{path}: {why}; it must be a JSON list of objects with listen, source, destination, target"
        ) from None
    _check(path, rows)
    return [Route(row.listen, row.source, row.destination, row.target) for row in rows]


def host_and_port(address: str) -> tuple[str, int]:
    """``host:port`` or ``[v6]:port`` -> both. Raises ValueError."""
    host, colon, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{address!r} must be host:port; an IPv6 address stands in brackets")
    if not colon or not host or not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65535:
        raise ValueError(f"{address!r} must be host:port, for instance {_EXAMPLE}")
    return host, int(port)


def _check(path: Path, rows: Sequence[_Row]) -> None:
    if len(rows) > ROUTES_MAX:
        raise RoutesError(f"{path}: {len(rows)} routes; at most {ROUTES_MAX} are served by one proxy")
    seen: dict[str, int] = {}
    for number, row in enumerate(rows):
        where = f"{path}: route {number}"
        for field, address in (("listen", row.listen), ("target", row.target)):
            try:
                if host_and_port(address)[1] == 0:
                    raise ValueError("port 0 leads nowhere; name a port")
            except ValueError as error:
                raise RoutesError(f"{where}: {field}: {error}") from None
        for field, region in (("source", row.source), ("destination", row.destination)):
            if not re.fullmatch(NAME, region):
                raise RoutesError(f"{where}: {field}: {region!r} is no region's name; names match {NAME}")
        if row.source == row.destination:
            raise RoutesError(f"{where}: source and destination are both {row.source!r}; a route joins two regions")
        if row.listen in seen:
            raise RoutesError(f"{where}: {row.listen} is where route {seen[row.listen]} listens; use another port")
        seen[row.listen] = number

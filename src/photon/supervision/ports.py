"""Splits ``host:port`` addresses, and finds free ports on this machine."""

from __future__ import annotations

import contextlib
import random
import re
import socket
from collections import deque

from photon.config.errors import PhotonError

_EXAMPLE = "127.0.0.1:7101"
PORTS = range(15_000, 30_000)
# Ports that this process has drawn recently. They may not be in use yet, so all others are drawn first.
_drawn: deque[int] = deque(maxlen=128)


class NoFreePort(PhotonError):
    """Raised if fewer ports are free than needed."""


def free_ports(count: int) -> list[int]:
    """Returns free ports of 127.0.0.1. Raises NoFreePort.

    They are below the range that the kernel uses for outgoing connections: a port in that range could be taken while
    a killed process restarts. All are even, because a datacentre's page is at the port after its address.
    """
    with contextlib.ExitStack() as stack:
        ports: list[int] = []
        if count == 0:
            return ports
        late, even = set(_drawn), PORTS[PORTS.start % 2 :: 2]
        for port in sorted(random.sample(even, len(even)), key=late.__contains__):
            each = stack.enter_context(socket.socket())
            try:
                each.bind(("127.0.0.1", port))
            except OSError:
                continue
            ports.append(port)
            if len(ports) == count:
                _drawn.extend(ports)
                return ports
    raise NoFreePort(
        f"fewer than {count} of the ports {PORTS.start} to {PORTS.stop - 1} are free; stop processes that use them"
    )


def free_row(count: int) -> int:
    """Returns the first of ``count`` consecutive free ports. Raises NoFreePort."""
    while True:
        first = free_ports(1)[0]
        others = range(first + 1, first + count)
        if not any(port in _drawn or not can_listen(f"127.0.0.1:{port}") for port in others):
            _drawn.extend(others)
            return first


def can_listen(address: str) -> bool:
    with socket.socket() as each:
        each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections of a previous run may linger
        try:
            each.bind(host_and_port(address))
        except OSError:
            return False
        return True


def host_and_port(address: str) -> tuple[str, int]:
    """Splits ``host:port`` or ``[v6]:port``. Raises ValueError."""
    host, colon, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise ValueError(f"{address!r} must be host:port; put an IPv6 address in brackets")
    if not colon or not host or not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65535:
        raise ValueError(f"{address!r} must be host:port, such as {_EXAMPLE}")
    return host, int(port)

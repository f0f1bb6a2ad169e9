"""Addresses of processes: ``host:port`` taken apart, and ports of this machine that nobody listens on."""

from __future__ import annotations

import contextlib
import random
import re
import socket
from collections import deque

from photon.config.errors import PhotonError

_EXAMPLE = "127.0.0.1:7101"
PORTS = range(15_000, 30_000)
_drawn: deque[int] = deque(maxlen=128)
"""By this process last: maybe nobody listens on them yet, so they are drawn again after all others."""


class NoFreePort(PhotonError):
    """Fewer are free than are needed."""


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that nobody listens on now. Raises NoFreePort.

    Below the range from which the kernel gives ports to connections: such a one could be taken while a killed process
    is being restarted.
    """
    with contextlib.ExitStack() as stack:
        ports: list[int] = []
        if count == 0:
            return ports
        late = set(_drawn)
        for port in sorted(random.sample(PORTS, len(PORTS)), key=late.__contains__):
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
        f"of the ports {PORTS.start} to {PORTS.stop - 1} fewer than {count} are free; end what holds them"
    )


def can_listen(address: str) -> bool:
    with socket.socket() as each:
        each.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections of the run before may linger
        try:
            each.bind(host_and_port(address))
        except OSError:
            return False
        return True


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

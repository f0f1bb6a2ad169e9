"""Ports of this machine for processes that are about to be started."""

from __future__ import annotations

import contextlib
import random
import socket

from photon.config.errors import PhotonError

PORTS = range(15_000, 30_000)


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
        for port in random.sample(PORTS, len(PORTS)):
            each = stack.enter_context(socket.socket())
            try:
                each.bind(("127.0.0.1", port))
            except OSError:
                continue
            ports.append(port)
            if len(ports) == count:
                return ports
    raise NoFreePort(
        f"of the ports {PORTS.start} to {PORTS.stop - 1} fewer than {count} are free; end what holds them"
    )

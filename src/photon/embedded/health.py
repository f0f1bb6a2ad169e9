"""Whether a process answers its health service, and for how long it has not."""

from __future__ import annotations

import contextlib
import enum
import os
from pathlib import Path

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from photon.config.tls import Towards, open_channel

_LISTEN = "0A"
"""In the kernel's table of sockets."""


class Health(enum.Enum):
    """What a process says of itself."""

    SERVING = "serving"
    NOT_SERVING = "not serving"
    """It answers, so it does not hang: a registry replica without a majority says so for as long as that lasts."""
    SILENT = "silent"


async def ask_health(address: str, name: str, timeout: float, to: Towards | None = None) -> Health:
    """Asks a process's gRPC health service once. ``to`` None: plain text."""
    async with open_channel(address, to=to) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        try:
            reply = await stub.Check(health_pb2.HealthCheckRequest(service=name), timeout=timeout)
        except grpc.aio.AioRpcError as error:
            return Health.NOT_SERVING if error.code() is grpc.StatusCode.NOT_FOUND else Health.SILENT
        serving = reply.status == health_pb2.HealthCheckResponse.SERVING
        return Health.SERVING if serving else Health.NOT_SERVING


def listens(pid: int, address: str) -> bool:
    """Whether it is this process that listens at host:port. Another one there would answer in its place, while this
    one is about to end because the port is in use. True where that is not to be known."""
    port = address.rpartition(":")[2]
    if not port.isdigit():
        return True
    sockets: set[str] = set()
    known = False
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            rows = [line.split() for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]]
            sockets |= {
                row[9] for row in rows if row[3] == _LISTEN and int(row[1].rpartition(":")[2], 16) == int(port)
            }
            known = True
    if not known:
        return not os.path.exists("/proc/self/net/tcp")  # of a process that has just ended it is not told
    return any(name in sockets for name in _sockets(pid))


def _sockets(pid: int) -> list[str]:
    """Inodes of the sockets that a process has open."""
    found = []
    with contextlib.suppress(OSError):
        for entry in os.scandir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                target = os.readlink(entry.path)
                if target.startswith("socket:["):
                    found.append(target[8:-1])
    return found


class Answers:
    """The health of one process over time. Pure."""

    def __init__(self) -> None:
        self.last: Health | None = None
        self.was_up = False
        """It served once; only then can it be said to hang."""
        self.silent_s = 0.0
        self._at_s: float | None = None

    def heard(self, health: Health, now_s: float, gap_max_s: float) -> None:
        """Counts the time between two checks as silent only up to ``gap_max_s``: when the one who asks was itself
        stopped for a while, that says nothing of the one who is asked."""
        if health is not Health.SILENT or not self.was_up:
            self.silent_s = 0.0
        elif self._at_s is not None:
            self.silent_s += min(now_s - self._at_s, gap_max_s)
        self.was_up = self.was_up or health is Health.SERVING
        self.last, self._at_s = health, now_s

    def excused(self) -> None:
        """Its silence was wanted (paused); counting starts anew."""
        self.silent_s, self._at_s = 0.0, None

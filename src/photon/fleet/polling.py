"""Asks a deployment's processes for their metrics and details. Everything that polls processes uses it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import grpc
import grpc.aio
import orjson

from photon.config.metrics import metrics_pb2 as pb
from photon.config.metrics.families import Family, decode
from photon.config.metrics.service import METRICS_SERVICE, PART
from photon.config.rpc import serves
from photon.config.settings import Settings
from photon.config.tls import Tls, open_channel, towards, unreachable
from photon.fleet.processes import KINDS, READERS, Process, asked_of

ASK_S = 1.5
LIST_S = 1.5  # seconds to wait for the registry's list of slots
RECONNECT_MS = 2_000  # longest delay before a process that is back is found
_OPTIONS = (("grpc.max_reconnect_backoff_ms", RECONNECT_MS),)


@dataclass(frozen=True, slots=True)
class Heard:
    """The answer of one process. ``problem`` is set if it did not answer."""

    process: Process
    families: Sequence[Family] = ()
    details: dict[str, Any] = field(default_factory=dict)
    problem: str = ""
    asked_s: float = 0.0  # this machine's Unix times before asking and after the answer
    answered_s: float = 0.0

    @property
    def up(self) -> bool:
        return not self.problem


class Gatherer:
    """Asks all processes at once, each with a time limit, and keeps a channel open to each. Runs on one event
    loop."""

    def __init__(
        self, tls: Tls | None, timeout: float = ASK_S, *, details: bool = True, samples: bool = True
    ) -> None:
        """``tls``: our certificate; `None` means plain text. ``timeout``: seconds to wait for an answer. ``details``,
        ``samples``: whether to ask for details and for metrics."""
        self._tls, self._timeout = tls, timeout
        self._request = pb.MetricsRequest(details=details, no_samples=not samples)
        self._channels: dict[Process, grpc.aio.Channel] = {}

    async def gather(self, processes: Iterable[Process]) -> list[Heard]:
        """Returns the answers of ``processes``, in the same order. Closes the channels to all other processes."""
        wanted = list(dict.fromkeys(processes))
        for gone in self._channels.keys() - set(wanted):
            await self._channels.pop(gone).close(None)
        return list(await asyncio.gather(*map(self.ask, wanted)))

    async def close(self) -> None:
        await self.gather(())

    async def ask(self, process: Process) -> Heard:
        channel = self._channels.get(process)
        if channel is None:
            to = towards(self._tls, process.identity)
            channel = self._channels[process] = open_channel(process.address or "", _OPTIONS, to)
        stub = METRICS_SERVICE.stub(channel)
        try:
            part = ((PART, KINDS[process.kind].health),)
            asked_s = time.time()
            reply = await stub.Read(self._request, timeout=self._timeout, metadata=part)
            answered_s, details = time.time(), orjson.loads(reply.details or b"{}")
            details = details if isinstance(details, dict) else {}
            return Heard(process, decode(reply.samples), details, "", asked_s, answered_s)
        except grpc.aio.AioRpcError as error:
            return Heard(process, problem=unreachable(error, tls=self._tls is not None))
        except ValueError as error:
            return Heard(process, problem=f"its answer cannot be read: {error}")


async def gathered(
    tls: Tls | None, processes: Iterable[Process], *, details: bool = False, timeout: float = ASK_S
) -> list[Heard]:
    """Asks processes once. See Gatherer."""
    gatherer = Gatherer(tls, timeout, details=details)
    try:
        return await gatherer.gather(processes)
    finally:
        await gatherer.close()


def dispatchers_of(settings: Settings, datacentre: str) -> list[Process]:
    """Returns a datacentre's dispatchers that have an address, or the join on Spark in their place."""
    return [each for each in asked_of(settings, datacentre) if each.kind in READERS]


async def healthy(process: Process, tls: Tls | None, timeout: float) -> bool:
    """Returns True if the process's gRPC health service reports it as serving within ``timeout`` seconds."""
    async with open_channel(process.address or "", to=towards(tls, process.identity)) as channel:
        return await serves(channel, KINDS[process.kind].health, timeout) is True


async def dispatchers_serve(settings: Settings, datacentre: str, tls: Tls | None, timeout: float) -> bool:
    """Returns True if the datacentre has dispatchers and all of them are healthy."""
    known = dispatchers_of(settings, datacentre)
    return bool(known) and all(await asyncio.gather(*(healthy(each, tls, timeout) for each in known)))

"""Polls the processes of a deployment: those that its file names, and those found in addition. All pollers use it.

Joiners that the file does not name are in the registry's list of slots, under the address of their last process.
A silent one is shown as down until it is back: when it ended for good, a neighbour redoes its slot and notes no
address there, or an operator retires the slot.
"""

from __future__ import annotations

import asyncio
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
from photon.fleet.access import registry_client
from photon.fleet.processes import COMMON, KINDS, READERS, Process, asked_of, of_datacentre
from photon.idregistry.client.grpc_client import RegistryClient
from photon.idregistry.client.whereabouts import listed
from photon.idregistry.core.outcomes import Refusal
from photon.idregistry.witness import KnownSlot

ASK_S = 1.5
LIST_S = 1.5  # longest wait for the registry's list of slots
RECONNECT_MS = 2_000  # longest time until a process that came back is found
FOUND_MAX = 256  # largest number of joiners of one datacentre that the deployment file does not name
_OPTIONS = (("grpc.max_reconnect_backoff_ms", RECONNECT_MS),)


@dataclass(frozen=True, slots=True)
class Heard:
    """The answer of one process. ``problem`` is set if there is none."""

    process: Process
    families: Sequence[Family] = ()
    details: dict[str, Any] = field(default_factory=dict)
    problem: str = ""

    @property
    def up(self) -> bool:
        return not self.problem


class Gatherer:
    """Asks all processes at once, each with a time limit, and keeps a channel to each. Runs on one event loop."""

    def __init__(
        self, tls: Tls | None, timeout: float = ASK_S, *, details: bool = True, samples: bool = True
    ) -> None:
        """``tls``: our certificate; `None` means plain text. ``timeout``: seconds for an answer. ``details``: also
        gets what they report besides their metrics; ``samples``: also gets the metrics."""
        self._tls, self._timeout = tls, timeout
        self._request = pb.MetricsRequest(details=details, no_samples=not samples)
        self._channels: dict[Process, grpc.aio.Channel] = {}

    async def gather(self, processes: Iterable[Process]) -> list[Heard]:
        """Asks them and answers in their order. Closes channels to others."""
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
            reply = await stub.Read(self._request, timeout=self._timeout, metadata=part)
            details = orjson.loads(reply.details or b"{}")
            return Heard(process, decode(reply.samples), details if isinstance(details, dict) else {})
        except grpc.aio.AioRpcError as error:
            return Heard(process, problem=unreachable(error, tls=self._tls is not None))
        except ValueError as error:
            return Heard(process, problem=f"its answer cannot be read: {error}")


async def gathered(
    tls: Tls | None, processes: Iterable[Process], *, details: bool = False, timeout: float = ASK_S
) -> list[Heard]:
    """Asks processes once: see Gatherer."""
    gatherer = Gatherer(tls, timeout, details=details)
    try:
        return await gatherer.gather(processes)
    finally:
        await gatherer.close()


class Discovered:
    """Joiners of one datacentre that the file does not name, at their last known addresses. Pure."""

    def __init__(self, datacentre: str, named: Iterable[str]) -> None:
        """``named``: addresses in the file, which are asked anyway."""
        self._datacentre, self._named = datacentre, frozenset(named)
        self._processes: list[Process] = []

    def heard_list(self, slots: Iterable[KnownSlot]) -> None:
        """Takes joiners from the registry's list. While the registry does not answer, the last list holds."""
        found = sorted((slot.name, at) for slot, at in listed(slots, self._datacentre, self._named))[:FOUND_MAX]
        self._processes = [of_datacentre("joiner", self._datacentre, name, at) for name, at in found]

    def candidates(self) -> Sequence[Process]:
        return self._processes


class _Finder:
    def __init__(self, settings: Settings, datacentre: str, tls: Tls | None) -> None:
        self._named = asked_of(settings, datacentre)
        self._joiners = Discovered(datacentre, settings.joiners(datacentre).values())
        self._registry: RegistryClient | None = None
        self._settings, self._tls = settings, tls

    async def processes(self) -> list[Process]:
        """The processes to ask now; the registry is asked for joiners."""
        self._registry = self._registry or registry_client(self._settings, self._tls)
        slots = await self._registry.recovery.list_slots(timeout=LIST_S)
        if not isinstance(slots, Refusal):
            self._joiners.heard_list(slots)
        return [*self._named, *self._joiners.candidates()]

    async def close(self) -> None:
        if self._registry is not None:
            await self._registry.close()


class Asker:
    """Polls several datacentres at once. Asks a process of more than one, like the registry, only once."""

    def __init__(self, settings: Settings, datacentres: Sequence[str], tls: Tls | None) -> None:
        """``datacentres``: empty if all processes belong to none."""
        self._common = [] if datacentres else asked_of(settings, "")
        self._finders = [_Finder(settings, name, tls) for name in datacentres]
        self._gatherer = Gatherer(tls)

    async def look(self) -> list[Heard]:
        """Asks all of them."""
        wanted = [await finder.processes() for finder in self._finders]
        return await self._gatherer.gather([*self._common, *(process for some in wanted for process in some)])

    async def ask(self, process: Process) -> Heard:
        return await self._gatherer.ask(process)

    async def close(self) -> None:
        await self._gatherer.close()
        for finder in self._finders:
            await finder.close()


def seen_from(heard: Sequence[Heard], datacentre: str) -> list[Heard]:
    """The answers about one of several datacentres: its own processes, then those that belong to no single one."""
    common = [each for each in heard if each.process.kind in COMMON]
    own = [each for each in heard if each.process.datacentre == datacentre and each.process.kind not in COMMON]
    return [*own, *common]


def dispatchers_of(settings: Settings, datacentre: str) -> list[Process]:
    """A datacentre's dispatchers with an address, or the join on Spark in their place."""
    return [each for each in asked_of(settings, datacentre) if each.kind in READERS]


async def healthy(process: Process, tls: Tls | None, timeout: float) -> bool:
    """True if its gRPC health service says so within ``timeout`` seconds."""
    async with open_channel(process.address or "", to=towards(tls, process.identity)) as channel:
        return await serves(channel, KINDS[process.kind].health, timeout) is True


async def dispatchers_serve(settings: Settings, datacentre: str, tls: Tls | None, timeout: float) -> bool:
    """True if all dispatchers of the datacentre are healthy, and there are some."""
    known = dispatchers_of(settings, datacentre)
    return bool(known) and all(await asyncio.gather(*(healthy(each, tls, timeout) for each in known)))

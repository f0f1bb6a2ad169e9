"""Polls the processes of a deployment: those that its file names, and those found in addition. All pollers use it.

Joiners that the file does not name are in the registry's list of slots, under the address of their last process.
A silent one is shown as down until it is back: when it ended for good, a neighbour redoes its slot and notes no
address there, or an operator retires the slot. Dispatchers with a free name are found through the workers that share
their state, and through that state if it is on this machine. Of these, one that never answered is not shown: it may
be long gone, and its work is another worker's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import orjson

from photon.config.metrics import metrics_pb2 as pb
from photon.config.metrics.service import METRICS_SERVICE
from photon.config.rpc import serves
from photon.config.settings import Settings
from photon.config.tls import Tls, open_channel, towards, unreachable
from photon.dispatcher.database import STATE_NAME
from photon.dispatcher.worker_names import living_workers
from photon.fleet.access import registry_client
from photon.fleet.processes import COMMON, KINDS, READERS, Process, asked_of, of_datacentre
from photon.idregistry.client.grpc_client import RegistryClient
from photon.idregistry.core.outcomes import Refusal
from photon.idregistry.witness import KnownSlot
from photon.joiner.whereabouts import listed

ASK_S = 1.5
LIST_S = 1.5  # longest wait for the registry's list of slots
RECONNECT_MS = 2_000  # longest time until a process that came back is found
FOUND_MAX = 256  # largest number of processes of a kind in one datacentre that the deployment file does not name
_OPTIONS = (("grpc.max_reconnect_backoff_ms", RECONNECT_MS),)


@dataclass(frozen=True, slots=True)
class Heard:
    """The answer of one process. ``problem`` is set if there is none."""

    process: Process
    text: str = ""
    details: dict[str, Any] = field(default_factory=dict)
    problem: str = ""

    @property
    def up(self) -> bool:
        return not self.problem


class Gatherer:
    """Asks all processes at once, each with a time limit, and keeps a channel to each. Runs on one event loop."""

    def __init__(self, tls: Tls | None, timeout: float = ASK_S, *, details: bool = True, text: bool = True) -> None:
        """``tls``: our certificate; `None` means plain text. ``timeout``: seconds for an answer. ``details``: also
        gets what they report besides their metrics; ``text``: also gets the metrics' text."""
        self._tls, self._timeout = tls, timeout
        self._request = pb.MetricsRequest(details=details, no_text=not text)
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
            reply = await stub.Read(self._request, timeout=self._timeout)
            details = orjson.loads(reply.details or b"{}")
            return Heard(process, reply.text.decode(), details if isinstance(details, dict) else {})
        except grpc.aio.AioRpcError as error:
            return Heard(process, problem=unreachable(error, tls=self._tls is not None))
        except ValueError as error:
            return Heard(process, problem=f"its answer cannot be read: {error}")


async def gathered(tls: Tls | None, processes: Iterable[Process], *, details: bool = False) -> list[Heard]:
    """Asks processes once: see Gatherer."""
    gatherer = Gatherer(tls, details=details)
    try:
        return await gatherer.gather(processes)
    finally:
        await gatherer.close()


class Discovered:
    """Processes of one kind in one datacentre that the file does not name: their last known address, and which have
    answered. Pure."""

    def __init__(self, kind: str, datacentre: str, named: Iterable[str]) -> None:
        """``named``: addresses in the file, which are asked anyway."""
        self._kind, self._datacentre, self._named = kind, datacentre, frozenset(named)
        self._processes: dict[str, Process] = {}
        self._answered: set[str] = set()

    def heard_list(self, slots: Iterable[KnownSlot]) -> None:
        """Takes joiners from the registry's list. While the registry does not answer, the last list holds."""
        self._hear({slot.name: address for slot, address in listed(slots, self._datacentre, self._named)})

    def heard_workers(self, heard: Iterable[Heard], here: Mapping[str, str]) -> None:
        """Takes what dispatchers reported; ``here``: name -> host:port from the state on this machine. While none
        answers and there is no state here, the last answer holds."""
        said = [each.details["workers"] for each in heard if each.details.get("workers")]
        found = {str(one["worker"]): str(one["address"]) for workers in said for one in workers} | dict(here)
        if found:
            self._hear({name: address for name, address in found.items() if address not in self._named})

    def candidates(self) -> Sequence[Process]:
        return list(self._processes.values())

    def shows(self, name: str, *, up: bool) -> bool:
        """False if it is silent and always was."""
        if up:
            self._answered.add(name)
        return name in self._answered

    def _hear(self, found: Mapping[str, str]) -> None:
        kept = sorted(found.items())[:FOUND_MAX]
        self._processes = {name: of_datacentre(self._kind, self._datacentre, name, at) for name, at in kept}
        self._answered &= self._processes.keys()


def once(heard: Iterable[Heard]) -> list[Heard]:
    """Drops dispatchers already heard at another address: one name may lead to any of several."""
    seen: set[str] = set()
    found = []
    for each in heard:
        worker = each.details.get("worker") if each.process.kind == "dispatcher" else None
        if worker is None or worker not in seen:
            found.append(each)
        if worker is not None:
            seen.add(worker)
    return found


class _Finder:
    def __init__(self, settings: Settings, datacentre: str, tls: Tls | None, base: Path | None) -> None:
        pipeline = settings.datacentre[datacentre]
        self._named = asked_of(settings, datacentre)
        self._joiners = Discovered("joiner", datacentre, [each.address for each in pipeline.joiners.values()])
        self._workers = Discovered("dispatcher", datacentre, pipeline.dispatcher_addresses())
        self._state = None if base is None else base / pipeline.state / STATE_NAME
        self._registry: RegistryClient | None = None
        self._settings, self._tls = settings, tls

    async def processes(self) -> list[Process]:
        """The processes to ask now; the registry is asked for joiners."""
        self._registry = self._registry or registry_client(self._settings, self._tls)
        slots = await self._registry.recovery.list_slots(timeout=LIST_S)
        if not isinstance(slots, Refusal):
            self._joiners.heard_list(slots)
        return [*self._named, *self._workers.candidates(), *self._joiners.candidates()]

    def shown(self, heard: Sequence[Heard]) -> list[Heard]:
        """The answers to show: without dispatchers that never answered, and without duplicates."""
        workers = set(self._workers.candidates())
        shown = once(
            each
            for each in heard
            if each.process not in workers or self._workers.shows(each.process.name, up=each.up)
        )
        self._workers.heard_workers(shown, _workers_at(self._state))
        return shown

    async def close(self) -> None:
        if self._registry is not None:
            await self._registry.close()


class Asker:
    """Polls several datacentres at once. Asks a process that belongs to more than one, like the registry, only once.

    The first look finds dispatchers that took a free name; the second one asks them.
    """

    def __init__(self, settings: Settings, datacentres: Sequence[str], tls: Tls | None, base: Path | None) -> None:
        """``datacentres``: empty if all processes belong to none. ``base``: directory of the deployment file, to find
        what is on this machine; `None` if nothing is."""
        self._common = [] if datacentres else asked_of(settings, "")
        self._finders = [_Finder(settings, name, tls, base) for name in datacentres]
        self._gatherer = Gatherer(tls)

    async def look(self) -> list[Heard]:
        """Asks all of them."""
        wanted = [await finder.processes() for finder in self._finders]
        heard = await self._gatherer.gather([*self._common, *(process for some in wanted for process in some)])
        said = {each.process: each for each in heard}
        shown: dict[Process, Heard] = {process: said[process] for process in self._common}
        for finder, processes in zip(self._finders, wanted, strict=True):
            answers = finder.shown([said[process] for process in dict.fromkeys(processes)])
            shown.update((each.process, each) for each in answers)
        return list(shown.values())

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


def _workers_at(state: Path | None) -> dict[str, str]:
    """Live dispatchers that share a state on this machine, name -> host:port."""
    return {} if state is None else {each.name: each.address for each in living_workers(state)}


def dispatchers_of(settings: Settings, base: Path, datacentre: str) -> list[Process]:
    """Dispatchers known here, or the join on Spark in their place: from the file, and from the state that workers of
    this machine share."""
    pipeline = settings.datacentre[datacentre]
    named = [each for each in asked_of(settings, datacentre) if each.kind in READERS]
    found = Discovered("dispatcher", datacentre, pipeline.dispatcher_addresses())
    found.heard_workers((), _workers_at(base / pipeline.state / STATE_NAME))
    return [*named, *found.candidates()]


async def healthy(process: Process, tls: Tls | None, timeout: float) -> bool:
    """True if its gRPC health service says so within ``timeout`` seconds."""
    async with open_channel(process.address or "", to=towards(tls, process.identity)) as channel:
        return await serves(channel, KINDS[process.kind].health, timeout) is True


async def dispatcher_serves(settings: Settings, base: Path, datacentre: str, tls: Tls | None, timeout: float) -> bool:
    """True if any dispatcher of the datacentre that is known here is healthy."""
    known = dispatchers_of(settings, base, datacentre)
    return any(await asyncio.gather(*(healthy(each, tls, timeout) for each in known)))


async def ask_dispatchers(
    settings: Settings, base: Path, datacentre: str, tls: Tls | None, timeout: float
) -> list[Heard]:
    """All dispatchers of a datacentre that can be found, each worker once, and the silent addresses. Each one that
    answers names those that share its state, so one address that leads to any of them is enough."""
    gatherer = Gatherer(tls, timeout)
    found = Discovered("dispatcher", datacentre, ())
    heard: dict[str | None, Heard] = {}
    fresh = dispatchers_of(settings, base, datacentre)
    try:
        while fresh:
            heard |= {each.process.address: each for each in await gatherer.gather(fresh)}
            found.heard_workers(heard.values(), {})
            fresh = [each for each in found.candidates() if each.address not in heard][: FOUND_MAX - len(heard)]
    finally:
        await gatherer.close()
    return once(heard.values())

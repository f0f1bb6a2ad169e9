"""A look: the state of a deployment at one moment, as a value. ``doctor`` applies rules to it, ``status`` makes rows
from it, ``top`` compares two of them, and ``explain`` starts with one.

Joiners that are not in the file are in the registry's list of slots, with the address of their last process. A joiner
that does not answer is shown as down until it is back, until a neighbour redoes its slot (which removes the address),
or until an operator retires the slot.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from photon.config.errors import PhotonError
from photon.config.settings import Settings
from photon.config.tls import OPERATOR, Tls
from photon.fleet.access import registry_client, tls_of
from photon.fleet.numbers import Numbers
from photon.fleet.polling import ASK_S, LIST_S, Gatherer, Heard, gathered
from photon.fleet.processes import COMMON, Process, asked_of, listening, of_datacentre
from photon.idregistry.client.grpc_client import RegistryClient
from photon.idregistry.client.whereabouts import listed
from photon.idregistry.core.outcomes import Refusal
from photon.idregistry.witness import KnownSlot

if TYPE_CHECKING:
    from photon.fleet.here import Here
    from photon.fleet.watermarks import DatacentreWatermark
    from photon.idregistry.operate.inspection import Inspection

FOUND_MAX = 256  # maximum number of one datacentre's joiners that are not in the file


@dataclass(frozen=True)
class Look:
    """The result of one look at a deployment. Parts that were not examined are empty."""

    at_s: float  # Unix time
    heard: Sequence[Heard] = ()
    settings: Settings | None = None  # `None` if there is no usable file
    unasked: str = ""  # why the processes were not asked
    replicas: Mapping[str, Inspection] = field(default_factory=dict)  # registry replicas, as inspected by an operator
    watermarks: Sequence[DatacentreWatermark] = ()
    here: Here | None = None  # this machine

    @cached_property
    def now(self) -> Numbers:
        return Numbers(self.heard)

    @property
    def running(self) -> bool:
        return any(each.up for each in self.heard)

    def of(self, *kinds: str) -> list[Heard]:
        return [each for each in self.heard if each.process.kind in kinds]

    def seen_from(self, datacentre: str) -> Look:
        """Returns the look without other datacentres: this one's processes, then those that belong to no single
        one."""
        own = [
            each for each in self.heard if each.process.datacentre == datacentre and each.process.kind not in COMMON
        ]
        return replace(self, heard=[*own, *self.of(*COMMON)])


def processes_of(settings: Settings, datacentre: str, slots: Iterable[KnownSlot]) -> list[Process]:
    """Returns a datacentre's processes in the file, and its joiners that are only in the registry's list of slots."""
    named = frozenset(settings.joiners(datacentre).values()) if datacentre else ()
    found = sorted((slot.name, at) for slot, at in listed(slots, datacentre, named))[:FOUND_MAX]
    return [
        *asked_of(settings, datacentre),
        *(of_datacentre("joiner", datacentre, name, at) for name, at in found),
    ]


async def look_at(
    settings: Settings, datacentre: str, kinds: Sequence[str], tls: Tls | None, timeout: float = ASK_S
) -> Look:
    """Asks a datacentre's processes of these kinds once."""
    asked = [each for each in asked_of(settings, datacentre) if each.kind in kinds]
    return Look(time.time(), await gathered(tls, asked, details=True, timeout=timeout), settings)


class Asker:
    """Looks at several datacentres repeatedly. Asks shared processes, such as the registry, only once per look."""

    def __init__(self, settings: Settings, datacentres: Sequence[str], tls: Tls | None) -> None:
        """``datacentres``: empty if no process belongs to a datacentre."""
        self._settings, self._datacentres, self._tls = settings, datacentres, tls
        self._gatherer = Gatherer(tls)
        self._registry: RegistryClient | None = None
        self._slots: Sequence[KnownSlot] = ()  # the last known list, used while the registry does not answer

    async def look(self) -> Look:
        if self._datacentres:
            self._registry = self._registry or registry_client(self._settings, self._tls)
            slots = await self._registry.recovery.list_slots(timeout=LIST_S)
            self._slots = self._slots if isinstance(slots, Refusal) else slots
        names = self._datacentres or ("",)
        wanted = [each for name in names for each in processes_of(self._settings, name, self._slots)]
        return Look(time.time(), await self._gatherer.gather(wanted), self._settings)

    async def close(self) -> None:
        await self._gatherer.close()
        if self._registry is not None:
            await self._registry.close()


async def _twice(settings: Settings, tls: Tls | None) -> Look:
    """Asks twice. The second time all channels are open, so that connecting does not distort the clock comparison."""
    asker = Asker(settings, sorted(settings.datacentre), tls)
    try:
        await asker.look()
        return await asker.look()
    finally:
        await asker.close()


def whole(settings: Settings, base: Path, named: Sequence[str], tell: Callable[[str], None]) -> Look:
    """Looks at everything, including this machine. ``named``: datacentres on this machine; if empty, guessed from
    addresses and directories. ``tell``: called with the name of the next step."""
    from photon.fleet import here
    from photon.fleet.watermarks import watermarks
    from photon.idregistry.operate.operator_client import OperatorClient

    addresses = {name: replica.address for name, replica in settings.registry.replicas.items()}
    try:
        tls, unasked = tls_of(settings, base, OPERATOR), ""
    except PhotonError as error:
        tls, unasked = None, f"the processes cannot be asked: {error}"
    seen = Look(time.time(), settings=settings, unasked=unasked)
    if not unasked:
        tell("processes")
        seen = asyncio.run(_twice(settings, tls))
        tell("registry")
        with OperatorClient(addresses, tls) as client:
            replicas = client.measure_all() if addresses else {}
        kept = asyncio.run(watermarks(settings, base, list(settings.datacentre), lambda: tls))
        seen = replace(seen, replicas=replicas, watermarks=kept)
    tell("disks, logs, ports, tables")
    ours = [each.process.address or "" for each in seen.heard if each.up]
    return replace(seen, here=here.of_deployment(settings, base, named, listening(settings), ours))

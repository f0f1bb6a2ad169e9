"""Asks the processes of datacentres: those that the deployment file names, and those that are found beside them.

One place for everybody who asks (``photon status``, ``top``, ``doctor``, the status page). The first look learns of
dispatchers that took a free name from those that share a state with them; the second one asks them.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from photon.config.settings import Settings
from photon.config.tls import Tls
from photon.dispatcher.worker_names import living_workers
from photon.embedded.ledger import ledger_file
from photon.embedded.services import registry_client
from photon.idregistry.client import RegistryClient
from photon.idregistry.outcomes import Refusal
from photon.status.discovered import Discovered, DiscoveredWorkers, once
from photon.status.gathering import Gatherer, Heard
from photon.status.targets import Target, joiner_target, targets_of, worker_target

LIST_S = 1.5
"""The registry's list of slots is waited for so long."""


class Finder:
    """Of one datacentre. On one event loop."""

    def __init__(self, settings: Settings, datacentre: str, tls: Tls | None, base: Path | None = None) -> None:
        """``base``: directory of the deployment file, for what lies on this machine; None: nothing does."""
        pipeline = settings.datacentre[datacentre]
        self._discovered = Discovered(datacentre, [joiner.address for joiner in pipeline.joiners.values()])
        self._workers = DiscoveredWorkers(pipeline.dispatcher_addresses())
        self._state = None if base is None else ledger_file(base / pipeline.state)
        self._registry: RegistryClient | None = None
        self._settings, self._datacentre, self._tls = settings, datacentre, tls
        self._named = targets_of(settings, datacentre, tls)
        self._found: dict[Target, Discovered | DiscoveredWorkers] = {}

    async def targets(self) -> list[Target]:
        """Whom to ask now."""
        await self._discover()
        workers = [worker_target(self._datacentre, *each, self._tls) for each in self._workers.candidates()]
        joiners = [joiner_target(self._datacentre, *each, self._tls) for each in self._discovered.candidates()]
        self._found = {**dict.fromkeys(joiners, self._discovered), **dict.fromkeys(workers, self._workers)}
        return [*self._named, *workers, *joiners]

    def shown(self, heard: Sequence[Heard], now_s: float) -> list[Heard]:
        """What is shown of the answers of its targets: not who was found and never answered, nor anybody twice."""
        shown = once(
            [
                each
                for each in heard
                if each.target not in self._found
                or self._found[each.target].shows(each.target.process, up=each.up, now_s=now_s)
            ]
        )
        self._workers.heard_workers(shown, self._workers_here())
        return shown

    async def close(self) -> None:
        """Of the channel to the registry."""
        if self._registry is not None:
            await self._registry.close()

    def _workers_here(self) -> dict[str, str]:
        """Dispatchers whose state lies on this machine, name -> host:port."""
        return {} if self._state is None else {each.name: each.address for each in living_workers(self._state)}

    async def _discover(self) -> None:
        """Joiners that the file does not name: asks the registry where the pipeline has it so."""
        if not self._settings.datacentre[self._datacentre].discover:
            return
        if self._registry is None:
            self._registry = registry_client(self._settings, self._tls)
        listed = await self._registry.recovery.list_slots(timeout=LIST_S)
        if not isinstance(listed, Refusal):
            self._discovered.heard_list(listed)


class Asker:
    """Of several datacentres at once; who belongs to more than one, as the registry does, is asked once."""

    def __init__(self, settings: Settings, datacentres: Sequence[str], tls: Tls | None, base: Path | None) -> None:
        """See Finder."""
        self._finders = [Finder(settings, name, tls, base) for name in datacentres]
        self._gatherer = Gatherer()

    async def look(self, now_s: float) -> list[Heard]:
        """Asks all of them. ``now_s``: monotonic."""
        wanted = [await finder.targets() for finder in self._finders]
        heard = await self._gatherer.gather([target for some in wanted for target in some])
        said = {each.target: each for each in heard}
        shown: dict[Target, Heard] = {}
        for finder, targets in zip(self._finders, wanted, strict=True):
            answers = finder.shown([said[target] for target in dict.fromkeys(targets)], now_s)
            shown.update((each.target, each) for each in answers)
        return list(shown.values())

    async def ask(self, target: Target) -> Heard:
        """One of them again."""
        return await self._gatherer.ask(target)

    async def close(self) -> None:
        """Of all channels."""
        await self._gatherer.close()
        for finder in self._finders:
            await finder.close()

"""Observes a deployment from outside during a run: dispatchers, the leader, the verifiers' alarms."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

from photon.assembly.verifier import pipeline_of
from photon.config.disk import RealDisk
from photon.config.settings import Settings
from photon.config.tls import Tls
from photon.fleet.numbers import Numbers
from photon.fleet.polling import Gatherer, Heard
from photon.fleet.processes import Process, processes
from photon.verifier.status import status_of

SHARD = "1"  # the group whose leader counts as the registry's


class Onlooker:
    """Queries the processes named in the deployment file. Use it on one event loop, and ``close`` it."""

    def __init__(self, settings: Settings, tls: Tls | None, timeout: float) -> None:
        """``timeout``: seconds to wait for each answer."""
        listening = [each for each in processes(settings) if each.address is not None]
        self._dispatchers = [each for each in listening if each.kind == "dispatcher"]
        self._replicas = [each for each in listening if each.kind == "registry"]
        self._gatherer = Gatherer(tls, timeout, details=False)

    async def dispatchers(self, datacentre: str) -> list[Heard]:
        """The answers of a datacentre's dispatchers; empty if not all of them answer."""
        asked = [each for each in self._dispatchers if each.datacentre == datacentre]
        heard = await asyncio.gather(*map(self._gatherer.ask, asked))
        return list(heard) if all(each.up for each in heard) else []

    async def leader(self) -> tuple[Process, Numbers] | None:
        for heard in await asyncio.gather(*map(self._gatherer.ask, self._replicas)):
            now = Numbers([heard])
            if now.of(heard.process, "photon_registry_leader", shard=SHARD):
                return heard.process, now
        return None

    async def close(self) -> None:
        await self._gatherer.close()


def lag_bytes(heard: Sequence[Heard]) -> int:
    return int(Numbers(heard).sum("photon_dispatcher_lag_bytes"))


def alarms_in(settings: Settings, base: Path) -> list[str]:
    """One line for each active alarm of any slot. ``base``: directory of the deployment file."""
    found = []
    for name in settings.datacentre:
        for slot in status_of(RealDisk(), pipeline_of(settings, base, name)[1]).slots:
            found += [f"verifier of {name}, slot {slot.slot}: {alarm.finding}: {alarm.what}" for alarm in slot.alarms]
            found += [f"verifier of {name}, slot {slot.slot}: {slot.problem}"] if slot.problem else []
    return found

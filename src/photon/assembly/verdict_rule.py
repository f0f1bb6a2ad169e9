"""Holds the verdict *unmatched* back while a process of the datacentre works under an older file than another one.

Event stores, dispatchers and joiners announce the settings that decide this verdict when they start; the registry
says which are the newest (``idregistry/core/verdict_rules.py``). The joiner, through which each verdict goes, asks
again every few seconds. What has its primary event is joined meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator
from hashlib import blake2b
from typing import TYPE_CHECKING

import msgspec

from photon.assembly.room import Room
from photon.config.clock import Clock
from photon.config.errors import UsageError
from photon.config.stopping import until
from photon.config.structured import get_logger
from photon.idregistry.core.outcomes import Refusal, Status

if TYPE_CHECKING:
    from photon.adapters.contract import Adapter
    from photon.config.settings import Join, Settings
    from photon.idregistry.client.grpc_client import RegistryClient
    from photon.idregistry.core.verdict_rules import VerdictRules

SETTINGS = (
    *("primary_files", "follow_links", "missing_logs", "primary_max_delay", "duplicates"),
    *("match", "within", "unmatched", "unmatched_after"),
)
DIGEST_BYTES = 6  # of each setting
ASK_S = 2.0  # between two questions
ANSWER_S = 2.0  # until one of them is given up
TODO = "restart each process of an older file with the newer one"
HEARD_S = 30.0  # after that time without an answer a newer rule may be there

log = get_logger(__name__)


def verdict_rule(join: Join, adapter: Adapter) -> bytes:
    """Digests of what decides whether an event is called unmatched, in the order of SETTINGS."""
    values = {
        "follow_links": sorted(map(str, adapter.primary_links)),
        "duplicates": adapter.primary_duplicates,
        "primary_files": sorted(join.primary_files),
    }
    said = [values[name] if name in values else getattr(join, name) for name in SETTINGS]
    return b"".join(blake2b(msgspec.json.encode(each), digest_size=DIGEST_BYTES).digest() for each in said)


def differing(one: bytes, other: bytes) -> list[str]:
    """Settings in which two rules differ; empty if another release made one of them."""
    if {len(one), len(other)} != {DIGEST_BYTES * len(SETTINGS)}:
        return []
    places = range(0, len(one), DIGEST_BYTES)
    digests = zip(SETTINGS, places, strict=True)
    return [name for name, at in digests if one[at : at + DIGEST_BYTES] != other[at : at + DIGEST_BYTES]]


def processes_behind(settings: Settings, datacentre: str) -> list[str]:
    """Names of the processes that a joiner's verdicts rest on, as they announce themselves."""
    workers = sorted(settings.datacentre[datacentre].dispatchers) or [""]
    return [named("eventstore", datacentre), *(named("dispatcher", datacentre, worker) for worker in workers)]


def named(kind: str, datacentre: str, member: str = "") -> str:
    return f"{kind} {member} of {datacentre}" if member else f"{kind} of {datacentre}"


class Unmatched:
    """Says why a process makes no verdict *unmatched* now. ``begin`` before it works; then ``run``."""

    def __init__(
        self,
        registry: RegistryClient,
        settings: Settings,
        datacentre: str,
        adapter: Adapter,
        process: str,
        clock: Clock,
    ) -> None:
        """``process``: its name, from ``named``; empty: none that lasts."""
        self._registry, self._clock = registry, clock
        self._datacentre, self._process = datacentre, process
        self._join = settings.datacentre[datacentre].join
        self._rule = verdict_rule(settings.join[self._join], adapter)
        self._others = processes_behind(settings, datacentre)
        self._waits, self._heard = "the registry has not said yet which file is the newest", clock.monotonic()

    @property
    def waits(self) -> str:
        """One line; empty: it makes such verdicts."""
        if not self._waits and self._clock.monotonic() - self._heard > HEARD_S:
            return "the registry does not say which file is the newest"
        return self._waits

    async def begin(self, stop: asyncio.Event) -> bool:
        """Announces the rule, as long as it takes; False if ``stop`` came first. Raises UsageError if refused."""
        said = ""
        while not stop.is_set():
            refusal = await self._ask()
            if refusal is None:
                return True
            if refusal.status is Status.REFUSED:
                raise UsageError(f"the registry refuses {self._process or 'this process'}: {refusal.reason}")
            if refusal.reason != said:
                log.warning("waiting for the registry", problem=refusal.reason)
            said = refusal.reason
            await until(stop, ASK_S)
        return False

    async def run(self, stop: asyncio.Event) -> None:
        said = ""
        while not stop.is_set():
            if self.waits != said:
                said = self.waits
                if said:
                    log.warning("no event is called unmatched now", join=self._join, why=said, todo=TODO)
                else:
                    log.info("events are called unmatched again", join=self._join)
            await until(stop, ASK_S)
            await self._ask()

    async def _ask(self) -> Refusal | None:
        known = await self._registry.recovery.judge_by(
            self._join, self._datacentre, self._process, self._rule, timeout=ANSWER_S
        )
        if isinstance(known, Refusal):
            return known
        self._heard = self._clock.monotonic()
        self._waits = "; ".join(behind(known, self._process, self._rule, self._others))
        return None


def behind(known: VerdictRules, process: str, rule: bytes, others: Collection[str]) -> Iterator[str]:
    """A line for each process that works under an older rule: ``process`` under ``rule``, and ``others``."""
    for name in (process, *others):
        its = rule if name == process else known.processes.get(name, known.newest)
        if its != known.newest:
            which = ", ".join(differing(its, known.newest)) or "the release"
            yield f"{which}: {name or 'this joiner'} has an older file than {known.brought or 'another process'}"


async def announce(room: Room, registry: RegistryClient, process: str) -> bool:
    """Announces the rule of a process that makes no verdicts by itself; False if the room's stop came first."""
    rule = Unmatched(registry, room.settings, room.datacentre, room.adapter(), process, room.clock)
    return await rule.begin(room.stop)

"""Withholds the verdict *unmatched* while processes of the datacentre run with different deployment files.

Event stores, dispatchers and joiners announce the settings that decide this verdict when they start; the registry
knows the newest ones (``idregistry/core/verdict_rules.py``). The joiner, which every verdict passes through, asks
again every few seconds. Meanwhile, events that have a primary event are joined as usual.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Literal

import msgspec

from photon.assembly.room import Room
from photon.assembly.samples import answered
from photon.config.clock import Clock
from photon.config.stopping import until
from photon.config.structured import get_logger
from photon.idregistry.core.outcomes import Refusal

if TYPE_CHECKING:
    from photon.adapters.contract import Adapter
    from photon.config.settings import Join
    from photon.idregistry.client.routing import RoutedRegistry
    from photon.idregistry.core.verdict_rules import VerdictRules

SETTINGS = (
    *("primary_files", "follow_links", "missing_logs", "primary_max_delay", "duplicates"),
    *("match", "within", "unmatched", "unmatched_after"),
)
DIGEST_BYTES = 6  # length of a setting's digest
ASK_S = 2.0  # pause between two requests
ANSWER_S = 2.0  # time limit of a request
TODO = "restart the processes that have an older file"
HEARD_S = 30.0  # without an answer for this long, there may be a newer rule

log = get_logger(__name__)


def verdict_rule(join: Join, adapter: Adapter) -> bytes:
    """Returns digests of the settings that decide whether an event is unmatched, in the order of SETTINGS."""
    values = {
        "follow_links": sorted(map(str, adapter.primary_links)),
        "duplicates": adapter.primary_duplicates,
        "primary_files": sorted(join.primary_files),
    }
    said = [values[name] if name in values else getattr(join, name) for name in SETTINGS]
    encoded = [msgspec.json.encode(each, enc_hook=float) for each in said]
    return b"".join(blake2b(each, digest_size=DIGEST_BYTES).digest() for each in encoded)


def differing(one: bytes, other: bytes) -> list[str]:
    """Returns the settings in which two rules differ; empty if one of them comes from another release."""
    if {len(one), len(other)} != {DIGEST_BYTES * len(SETTINGS)}:
        return []
    places = range(0, len(one), DIGEST_BYTES)
    digests = zip(SETTINGS, places, strict=True)
    return [name for name, at in digests if one[at : at + DIGEST_BYTES] != other[at : at + DIGEST_BYTES]]


def named(kind: str, datacentre: str, member: str = "") -> str:
    return f"{kind} {member} of {datacentre}" if member else f"{kind} of {datacentre}"


class Unmatched:
    """Decides whether a process withholds the verdict *unmatched*. Call ``begin`` before it works, then ``run``."""

    def __init__(
        self,
        registry: RoutedRegistry,
        clock: Clock,
        *,
        join: str,
        datacentre: str,
        process: str,
        rule: bytes,
        others: Sequence[str] = (),
    ) -> None:
        """``process``: its name, from ``named``; empty if the name changes with each start. ``others``: processes
        that the verdicts depend on."""
        self._registry, self._clock = registry, clock
        self._join, self._datacentre, self._process, self._rule, self._others = (
            join,
            datacentre,
            process,
            rule,
            others,
        )
        self._waits, self._heard = "the registry has not reported yet which file is newest", clock.monotonic()

    @property
    def waits(self) -> str:
        """Returns why the verdict is withheld, on one line; empty if it is not."""
        if not self._waits and self._clock.monotonic() - self._heard > HEARD_S:
            return "the registry does not report which file is newest"
        return self._waits

    async def begin(self, stop: asyncio.Event) -> bool:
        """Announces the rule, waiting for the registry as long as necessary. Returns False if ``stop`` came first."""
        return await answered(self._ask, stop, ASK_S) is not None

    async def run(self, stop: asyncio.Event) -> None:
        said = ""
        while not stop.is_set():
            if self.waits != said:
                said = self.waits
                if said:
                    log.warning("no event is declared unmatched for now", join=self._join, why=said, todo=TODO)
                else:
                    log.info("events are declared unmatched again", join=self._join)
            await until(stop, ASK_S)
            await self._ask()

    async def _ask(self) -> Literal[True] | Refusal:
        asked = self._clock.monotonic()
        known = await self._registry.recovery.judge_by(
            self._join, self._datacentre, self._process, self._rule, timeout=ANSWER_S
        )
        if isinstance(known, Refusal):
            return known
        self._heard = asked
        self._waits = "; ".join(behind(known, self._process, self._rule, self._others))
        return True


def behind(known: VerdictRules, process: str, rule: bytes, others: Collection[str]) -> Iterator[str]:
    """Yields a line for each process that has an older rule: ``process`` (whose rule is ``rule``) and ``others``."""
    for name in (process, *others):
        its = rule if name == process else known.processes.get(name, known.newest)
        if its != known.newest:
            which = ", ".join(differing(its, known.newest)) or "the release"
            yield f"{which}: {name or 'this joiner'} has an older file than {known.brought or 'another process'}"


class Agreed:
    """Replaces `Unmatched` where all parts run in one process, with one file."""

    waits = ""

    async def begin(self, stop: asyncio.Event) -> bool:
        return True

    async def run(self, stop: asyncio.Event) -> None:
        await stop.wait()


def unmatched(room: Room, registry: RoutedRegistry, process: str) -> Unmatched | Agreed:
    """Returns the `Unmatched` of a process in the room's pipeline."""
    if room.alone is not None:
        return Agreed()
    pipeline, at = room.pipeline, room.datacentre
    dispatchers = [named("dispatcher", at, each) for each in pipeline.dispatcher_names()]
    return Unmatched(
        registry,
        room.clock,
        join=pipeline.join,
        datacentre=at,
        process=process,
        rule=verdict_rule(room.settings.join[pipeline.join], room.adapter()),
        others=(named("eventstore", at), *dispatchers),
    )

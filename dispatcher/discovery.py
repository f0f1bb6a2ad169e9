"""Finds a datacentre's joiners and keeps the list current: the shell around ``joiner_set``."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass
from typing import Protocol

from photon.batch.events import Events
from photon.config.clock import Clock
from photon.config.stopping import end, until
from photon.config.structured import get_logger
from photon.dispatcher.calls import Calls
from photon.dispatcher.flow import Target
from photon.dispatcher.joiner_set import Changes, Heard, JoinerSet
from photon.dispatcher.reporting import Troubles
from photon.idregistry.core.outcomes import Refusal
from photon.idregistry.witness import KnownSlot
from photon.joiner.api import JoinAnswers, Joiner

LIST_S = 2.0  # interval of requests to the registry for its slots, and to due joiners for their health
LOOK_S = 0.25  # the same interval while no joiner is used
HEALTH_S = 4.0  # longest wait for their answers
LEFT_POLL_S = 0.1
LISTING, JOINERS = "list of slots", "joiners"  # their names in the log

log = get_logger(__name__)


class Found(Joiner, Protocol):
    """A joiner at an address."""

    async def serves(self, timeout: float) -> bool | None:
        """True if the joiner reports that it serves; ``None`` if it does not answer within ``timeout`` seconds."""

    async def close(self) -> None:
        """Closes the connection. Calls in flight end with an unknown outcome."""


class Here(Joiner, Protocol):
    """A joiner in this process."""

    @property
    def started(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class FoundHere:
    joiner: Here

    async def join(self, events: Events, *, timeout: float) -> JoinAnswers:
        return await self.joiner.join(events, timeout=timeout)

    async def serves(self, timeout: float) -> bool:
        return self.joiner.started

    async def close(self) -> None:
        pass  # it belongs to its service


ListSlots = Callable[[], Awaitable[Sequence[KnownSlot] | Refusal]]


@dataclass(eq=False)
class Discovery:
    """Keeps one dispatcher engine supplied with joiners. ``run`` it on the engine's event loop."""

    joiners: JoinerSet
    list_slots: ListSlots
    connect: Callable[[str], Found]
    clock: Clock

    def __post_init__(self) -> None:
        self._used: dict[str, tuple[Found, Target]] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()  # a joiner may have to be asked sooner

    async def run(self, calls: Calls, troubles: Troubles) -> None:
        """Runs until it is cancelled; then all connections are closed."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._follow_list(calls, troubles))
                group.create_task(self._follow_health(calls))
        finally:
            await end(self._tasks)
            for found, _ in self._used.values():
                await found.close()

    async def _follow_list(self, calls: Calls, troubles: Troubles) -> None:
        while True:
            listed = await self.list_slots()
            now = self.clock.monotonic()
            if isinstance(listed, Refusal):
                troubles.met(LISTING, listed.reason or "no replica answers", now)
            else:
                troubles.well(LISTING, now)
                self._carry_out(self.joiners.listed(listed, now), calls, {})
                self._changed.set()
                if self._used:
                    troubles.well(JOINERS, now)
                else:
                    troubles.met(
                        JOINERS,
                        "no joiner serves; start one with photon serve joiner, list them with photon status slots",
                        now,
                    )
            await asyncio.sleep(LIST_S if self._used else LOOK_S)

    async def _follow_health(self, calls: Calls) -> None:
        while True:
            for address in self.joiners.due(self.clock.monotonic()):
                self._begin(self._ask(address, calls))
            await until(self._changed, LIST_S if self._used else LOOK_S)
            self._changed.clear()

    async def _ask(self, address: str, calls: Calls) -> None:
        used = self._used.get(address)
        found = used[0] if used is not None else self.connect(address)
        try:
            serves = await found.serves(HEALTH_S)
            if used is not None and self._used.get(address) is not used:
                return  # removed in the meantime
            if used is not None:
                self.joiners.answered(address, used[1].answered_at)
            heard = Heard.NOTHING if serves is None else Heard.SERVES if serves else Heard.SERVES_NOT
            changes = self.joiners.heard(address, heard, self.clock.monotonic())
            self._carry_out(changes, calls, {address: found})
        finally:
            if used is None and (address not in self._used or self._used[address][0] is not found):
                await found.close()

    def _carry_out(self, changes: Changes, calls: Calls, found: dict[str, Found]) -> None:
        if changes.remove:
            self._changed.set()
        for address in changes.add:
            self._used[address] = found[address], calls.add(found[address], address)
            log.info("a joiner is now in use", address=address, joiners=len(self._used))
        for removed in changes.remove:
            joiner, target = self._used.pop(removed.address)
            calls.remove(target)
            log.info(
                "a joiner is no longer in use", address=removed.address, gone=removed.gone, joiners=len(self._used)
            )
            self._begin(self._end(joiner, target, gone=removed.gone))

    async def _end(self, joiner: Found, target: Target, *, gone: bool) -> None:
        """Waits for calls in flight, which time out, then closes the connection."""
        try:
            waits = not gone
            while waits:
                await asyncio.sleep(LEFT_POLL_S)
                waits = target.outstanding > 0
        finally:
            await joiner.close()

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a task that asks a joiner failed", error=f"{type(error).__name__}: {error}")

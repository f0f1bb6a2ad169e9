"""A joiner that finds its slot itself when it starts (``slot.auto`` says which ones it tries)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from photon.batch.events import Events
from photon.config.disk import Disk
from photon.config.structured import get_logger
from photon.idregistry.api import Slot
from photon.idregistry.core.outcomes import Refusal
from photon.idregistry.witness import KnownSlot
from photon.joiner.adopter import has_work_left
from photon.joiner.api import JoinAnswers, Outcome
from photon.joiner.engine import JoinerEngine, JoinerStats
from photon.joiner.slot.auto import AUTO_MAX, Here, auto_name, is_auto, to_try
from photon.joiner.slot.identity import SlotRefused
from photon.joiner.slot.lock import is_held
from photon.joiner.slot.output import OutputDamaged
from photon.joiner.slot.redo_log import RedoLogDamaged
from photon.joiner.slot.slot import STATE_NAME
from photon.outputs.published import RETIRED_NAME

TAKE_S = 0.5
"""For the lock of a slot that looked free: who only looks holds it for an instant."""
ASK_AGAIN_S = 0.5

log = get_logger(__name__)

ListSlots = Callable[[], Awaitable[Sequence[KnownSlot] | Refusal]]


class AutoJoiner:
    """A ``JoinerEngine`` whose slot is known once it has started. Implements ``joiner.api.Joiner``."""

    def __init__(
        self,
        disk: Disk,
        slots: Path,
        datacentre: str,
        named: Sequence[str],
        list_slots: ListSlots,
        make: Callable[[str], JoinerEngine],
    ) -> None:
        """``slots``: the directory that holds the slots' state directories; ``named``: slots of the deployment file,
        of all datacentres; ``make``: an engine in a slot, which waits for its lock no longer than ``TAKE_S``."""
        self._disk = disk
        self._slots = slots
        self._datacentre = datacentre
        self._named = frozenset(named)
        self._list_slots = list_slots
        self._make = make
        self._engine: JoinerEngine | None = None
        self.left = False
        """As JoinerEngine."""

    @property
    def opened(self) -> JoinerEngine | None:
        """The engine whose slot is open."""
        return None if self._engine is None else self._engine.opened

    async def start(self) -> None:
        """Opens the first slot that can be opened. Raises SlotRefused when there is none, OSError.

        A slot that is refused, or cannot be read, is left to an operator, who is told so; another one serves.
        """
        known = {each.name: each.retired for each in await self._known()}
        here = await asyncio.to_thread(self._here)
        for name in to_try(self._datacentre, here, known, self._named):
            engine = self._make(name)
            try:
                await engine.start()
            except (SlotRefused, RedoLogDamaged, OutputDamaged) as error:
                if await asyncio.to_thread(is_held, self._slots / name):
                    continue  # another joiner was quicker
                log.error("a free slot cannot be taken; the next one is tried", slot=name, why=str(error))
                continue
            log.info("this joiner has taken a slot", slot=name)
            self._engine = engine
            return
        raise SlotRefused(
            f"{self._slots}: no slot {auto_name(self._datacentre, 1)} to {auto_name(self._datacentre, AUTO_MAX)} can "
            "be taken; see photon status slots, and retire those that are lost"
        )

    async def _known(self) -> Sequence[KnownSlot]:
        while True:
            found = await self._list_slots()
            if not isinstance(found, Refusal):
                return found
            await asyncio.sleep(ASK_AGAIN_S)

    def _here(self) -> dict[str, Here]:
        if not self._disk.exists(self._slots):
            return {}
        found = {}
        for name in self._disk.names(self._slots):
            if is_auto(name, self._datacentre):
                state = self._slots / name
                found[name] = Here(
                    held=is_held(state),
                    opened=self._disk.exists(state / STATE_NAME),
                    left=has_work_left(self._disk, state, Slot(name, self._datacentre, "")),
                    retired=self._disk.exists(state / RETIRED_NAME),
                )
        return found

    async def close(self, *, at_once: bool = False) -> None:
        if self._engine is not None:
            await self._engine.close(at_once=at_once)
            self.left = self._engine.left
            self._engine = None

    @property
    def started(self) -> bool:
        return self._engine is not None and self._engine.started

    def stats(self) -> JoinerStats:
        assert self._engine is not None, "start comes first"
        return self._engine.stats()

    async def join(self, events: Events, *, timeout: float) -> JoinAnswers:
        if self._engine is None:
            return JoinAnswers.alike(len(events), Outcome.RETRY, "the joiner is not started", overloaded=True)
        return await self._engine.join(events, timeout=timeout)

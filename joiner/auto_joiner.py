"""A joiner that chooses its slot itself when it starts, from the disk and the registry's list.

Such slots are named ``DATACENTRE-auto-NUMBER``, so that names differ between datacentres. A slot left by an earlier
joiner is preferred to a new one, so that its redo log is redone at once. A choice is only an attempt: the lock
decides which process has a slot, and the registry decides which directory is the slot. So a joiner tries one slot
after another, and a crash leaves at most an empty directory, whose name the next joiner takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
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
from photon.joiner.slot.identity import SlotRefused
from photon.joiner.slot.lock import is_held
from photon.joiner.slot.output import OutputDamaged
from photon.joiner.slot.redo_log import RedoLogDamaged
from photon.joiner.slot.slot import STATE_NAME
from photon.outputs.log.format import RETIRED_NAME

MARK = "-auto-"
AUTO_MAX = 256  # limit of automatic slot numbers per datacentre, which start at 1


@dataclass(frozen=True, slots=True)
class Here:
    held: bool  # a process has its lock
    opened: bool  # True if a joiner has opened it; otherwise only its name was taken
    left: bool  # it may have work left to redo
    retired: bool


def auto_name(datacentre: str, number: int) -> str:
    return f"{datacentre}{MARK}{number}"


def is_auto(slot: str, datacentre: str) -> bool:
    before, _, number = slot.rpartition(MARK)
    if before != datacentre or not (number.isascii() and number.isdigit()) or len(number) > len(str(AUTO_MAX)):
        return False
    return 1 <= int(number) <= AUTO_MAX and auto_name(datacentre, int(number)) == slot


def to_try(
    datacentre: str, here: Mapping[str, Here], known: Mapping[str, bool], named: Container[str]
) -> Iterable[str]:
    """Returns the slots in the order to try them; none if all names are in use or lost.

    ``known``: slots of the registry, and whether they are retired; ``named``: slots of the deployment file, which are
    never taken. A slot in the registry without a directory here is on another machine or lost: an operator must
    retire it.
    """
    redo: list[str] = []
    empty: list[str] = []
    fresh: list[str] = []
    for number in range(1, AUTO_MAX + 1):
        name = auto_name(datacentre, number)
        if name in named or known.get(name, False):
            continue
        there = here.get(name)
        if there is not None and (there.held or there.retired):
            continue
        if there is not None and there.opened:
            (redo if there.left else empty).append(name)
        elif name not in known:
            fresh.append(name)
    return [*redo, *empty, *fresh]


TAKE_S = 0.5  # wait for the lock of a slot that looked free: observers hold it only for an instant
ASK_AGAIN_S = 0.5

log = get_logger(__name__)

ListSlots = Callable[[], Awaitable[Sequence[KnownSlot] | Refusal]]


@dataclass(eq=False)
class AutoJoiner:
    """A ``JoinerEngine`` whose slot is known once it has started. Implements ``joiner.api.Joiner``.

    ``slots``: the directory with the slots' state directories; ``named``: slots of the deployment file, of all
    datacentres; ``make``: creates an engine for a slot, which waits for its lock at most ``TAKE_S``.
    """

    disk: Disk
    slots: Path
    datacentre: str
    named: Sequence[str]
    list_slots: ListSlots
    make: Callable[[str], JoinerEngine]

    def __post_init__(self) -> None:
        self._named = frozenset(self.named)
        self._engine: JoinerEngine | None = None
        self.left = False  # as in JoinerEngine

    @property
    def opened(self) -> JoinerEngine | None:
        return None if self._engine is None else self._engine.opened

    async def start(self) -> None:
        """Opens the first slot that can be opened. Raises SlotRefused if there is none, OSError.

        A refused or unreadable slot is reported to the operator, and another one is used.
        """
        known = {each.name: each.retired for each in await self._known()}
        here = await asyncio.to_thread(self._here)
        for name in to_try(self.datacentre, here, known, self._named):
            engine = self.make(name)
            try:
                await engine.start()
            except (SlotRefused, RedoLogDamaged, OutputDamaged) as error:
                if await asyncio.to_thread(is_held, self.slots / name):
                    continue  # another joiner was faster
                log.error("a free slot cannot be taken; the next one is tried", slot=name, why=str(error))
                continue
            log.info("this joiner has taken a free slot", slot=name)
            self._engine = engine
            return
        raise SlotRefused(
            f"{self.slots}: no slot {auto_name(self.datacentre, 1)} to {auto_name(self.datacentre, AUTO_MAX)} can "
            "be taken; see photon status slots, and retire those that are lost"
        )

    async def _known(self) -> Sequence[KnownSlot]:
        while True:
            found = await self.list_slots()
            if not isinstance(found, Refusal):
                return found
            await asyncio.sleep(ASK_AGAIN_S)

    def _here(self) -> dict[str, Here]:
        if not self.disk.exists(self.slots):
            return {}
        found = {}
        for name in self.disk.names(self.slots):
            if is_auto(name, self.datacentre):
                state = self.slots / name
                found[name] = Here(
                    held=is_held(state),
                    opened=self.disk.exists(state / STATE_NAME),
                    left=has_work_left(self.disk, state, Slot(name, self.datacentre, "")),
                    retired=self.disk.exists(state / RETIRED_NAME),
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

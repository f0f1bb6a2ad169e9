"""Finds slots of its pipeline on this machine that no process uses, and finishes their work (rule 13).

A joiner that was removed from the configuration, or whose process does not come back, leaves a slot directory: its
redo log may own ids that are not written yet, and its files may not be final. No other slot ever takes those ids:
their records can only be written in that directory, under its lock and a new incarnation.

Slots are adopted one at a time, each for a few seconds at most: a returning owner waits longer than that for its
lock. A slot is done when its redo log is empty and its files are final; ``adopted.json`` then notes its incarnation,
and no adopter opens the slot again before another process has. An adopted slot serves no requests, and a fault in it
does not end this process: the slot's engine ends, and the next try starts it again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import msgspec

from photon.config.back_off import BackOff
from photon.config.clock import Clock
from photon.config.decoding import DECODE_ERRORS
from photon.config.disk import Disk
from photon.config.errors import PhotonError
from photon.config.stopping import until
from photon.config.structured import get_logger
from photon.config.versioned_file import decoded
from photon.idregistry.api import Slot
from photon.joiner.engine import JoinerEngine
from photon.joiner.shell import Die
from photon.joiner.slot.identity import SPARK_NAME, SlotRefused, read_state
from photon.joiner.slot.lock import LOCK_NAME, is_held
from photon.joiner.slot.slot import STATE_NAME
from photon.outputs.cleared import read_clearing
from photon.outputs.published import read_slot

# First and longest wait before retrying an unfinished slot; doubled each time.
PAUSES = BackOff(first=10.0, most=600.0)
SLOTS_MAX = 1024  # watched slot directories of one pipeline


@dataclass(frozen=True, slots=True)
class Seen:
    slot: str
    held: bool  # a process has its lock
    taken: int  # changes whenever a process takes the lock
    left: bool  # True if it may have work left: it was opened since last left empty


@dataclass(slots=True)
class _Free:
    """A slot whose lock is free. Times: monotonic seconds."""

    since: float
    taken: int
    next: float = 0.0
    tries: int = 0


class Orphans:
    """Remembers how long each slot's lock has been free. Not thread-safe."""

    def __init__(self, adopt_after_s: float) -> None:
        self._adopt_after_s = adopt_after_s
        self._free: dict[str, _Free] = {}

    def look(self, seen: Iterable[Seen], now: float) -> list[str]:
        """Returns the slots to adopt now, longest waiting first."""
        free: dict[str, _Free] = {}
        for each in list(seen)[:SLOTS_MAX]:
            if each.held or not each.left:
                continue
            known = self._free.get(each.slot)
            if known is None or known.taken != each.taken:
                known = _Free(now, each.taken)
            free[each.slot] = known
        self._free = free
        due = [name for name, each in free.items() if now >= max(each.since + self._adopt_after_s, each.next)]
        return sorted(due, key=lambda name: (free[name].since, name))

    def tried(self, slot: str, taken: int, now: float, *, moved: bool = False) -> float:
        """Notes a try that did not finish the slot. Returns seconds to the next try.

        ``taken``: as in ``Seen``, after our own try; ``moved``: part of the work was done, so the next try comes
        soon.
        """
        free = self._free.setdefault(slot, _Free(now, taken))
        free.taken = taken
        free.tries = 1 if moved else free.tries + 1
        pause = PAUSES.delay(free.tries)
        free.next = now + pause
        return pause


LOOK_S = 5.0  # interval of looking at the directories, times a random 0.5 to 1.5
HOLD_S = 5.0  # longest time that a slot is kept open; shorter than an owner's wait for its lock (``lock.WAIT_S``)
START_S = 60.0  # time limit for opening it: the registry may be unreachable, and a large log takes time
POLL_S = 0.1
MARK_NAME = "adopted.json"

log = get_logger(__name__)


class SlotEnded(asyncio.CancelledError):
    """Raised by ``die`` in an adopted slot: ends the task in which it is raised, and the slot with it."""


class Mark(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag_field="version", tag=1):
    """The content of ``adopted.json``: the incarnation that was left without work."""

    incarnation: int


@dataclass(frozen=True, slots=True)
class Adopted:
    """A slot to redo: its engine, not started yet, and one pass of its verifier if this joiner runs one."""

    engine: JoinerEngine
    verify: Callable[[], Awaitable[object]] | None = None


# Makes the engine of the named slot, with separate connections: it must not share a registry client with another
# slot.
Open = Callable[[str, Die], AbstractAsyncContextManager[Adopted]]


@dataclass(eq=False)
class Adopter:
    """Adopts slots of one pipeline on one machine. ``run`` it in parallel with the joiner's own slot.

    ``slots``: the directory with the slots' state directories; ``random``: returns 0 to 1.
    """

    disk: Disk
    slots: Path
    datacentre: str
    clock: Clock
    random: Callable[[], float]
    open_slot: Open
    adopt_after_s: float
    hold_s: float = HOLD_S
    look_s: float = LOOK_S

    def __post_init__(self) -> None:
        self._orphans = Orphans(self.adopt_after_s)
        self._said: dict[str, str] = {}
        self._moved: set[str] = set()  # slots whose last try did part of the work

    async def run(self, stop: asyncio.Event) -> None:
        while not await until(stop, self.look_s * (0.5 + self.random())):
            await self.look()

    async def look(self) -> list[str]:
        """Looks for slots once, and redoes those that are due. Returns the names of finished ones."""
        seen = await asyncio.to_thread(self._seen)
        done = []
        for slot in self._orphans.look(seen, self.clock.monotonic()):
            if not await asyncio.to_thread(self._is_left, slot):
                continue  # another joiner was faster
            why = await self._adopt(slot)
            if not why:
                log.info("an orphaned slot was redone and left empty", slot=slot)
                done.append(slot)
                self._said.pop(slot, None)
                continue
            taken = _taken(self.slots / slot)
            again = self._orphans.tried(slot, taken, self.clock.monotonic(), moved=slot in self._moved)
            if self._said.get(slot) != why:
                log.warning("an orphaned slot is not redone yet", slot=slot, why=why, again_s=again)
                self._said[slot] = why
        return done

    # -- what lies there -----------------------------------------------------------------------------------------
    def _seen(self) -> list[Seen]:
        if not self.disk.exists(self.slots):
            return []
        found = []
        for name in self.disk.names(self.slots):
            state = self.slots / name
            if self.disk.exists(state / SPARK_NAME):
                continue  # its next driver repeats its batches
            if self.disk.exists(state / STATE_NAME) and self.disk.exists(state / LOCK_NAME):
                found.append(Seen(name, is_held(state), _taken(state), self._is_left(name)))
        return found

    def _is_left(self, name: str) -> bool:
        return has_work_left(self.disk, self.slots / name, Slot(name, self.datacentre, ""))

    # -- one slot ------------------------------------------------------------------------------------------------
    async def _adopt(self, slot: str) -> str:
        """Redoes a slot. Returns why it is not finished; empty if it is."""
        ended: list[str] = []

        def die(reason: str) -> NoReturn:
            ended.append(reason)
            raise SlotEnded(reason)

        try:
            async with self.open_slot(slot, die) as adopted:
                try:
                    async with asyncio.timeout(START_S):
                        await adopted.engine.start()
                    async with asyncio.timeout(self.hold_s):
                        return await self._bring_to_its_end(slot, adopted, ended)
                finally:
                    self._note(slot, adopted.engine)
                    await asyncio.shield(adopted.engine.close(at_once=True))
        except TimeoutError:
            return "the registry did not answer in time, or the remaining work is too much for one try"
        except SlotEnded as reason:
            return str(reason)
        except (PhotonError, ValueError, OSError) as error:
            return str(error)

    async def _bring_to_its_end(self, slot: str, adopted: Adopted, ended: list[str]) -> str:
        engine, state = adopted.engine, self.slots / slot
        while not await engine.drain(POLL_S):
            if ended:
                return ended[0]
            await asyncio.sleep(POLL_S)  # settle returns at once if all remaining work waits for a clock
        await engine.shell.roll()
        await engine.shell.witnessed(float("inf"))
        while (open_files := self._not_final(state)) and not ended:
            if adopted.verify is not None:
                await adopted.verify()
            await engine.shell.finish_cleared()
            await asyncio.sleep(POLL_S)
        if ended or open_files or not engine.shell.core.empty:
            return ended[0] if ended else "new work arrived"
        last = read_state(self.disk, state / STATE_NAME, Slot(slot, self.datacentre, "")).last
        self.disk.replace(state / MARK_NAME, msgspec.json.encode(Mark(last)))
        return ""

    def _note(self, slot: str, engine: JoinerEngine) -> None:
        self._moved.discard(slot)
        if engine.started:
            stats = engine.stats()
            if stats.open_ids < stats.redone:
                self._moved.add(slot)

    def _not_final(self, state: Path) -> list[str]:
        """Returns the files that still have to become final; damaged ones wait for an operator."""
        bad = read_clearing(self.disk, state).trouble
        files = read_slot(self.disk, state).files
        return [each.name for each in files if not each.final and each.length and each.name not in bad]


def has_work_left(disk: Disk, state: Path, slot: Slot) -> bool:
    """True if the slot was opened since it was last left empty. False for an unreadable slot, which is left alone."""
    try:
        known = read_state(disk, state / STATE_NAME, slot)
    except (SlotRefused, OSError):
        return False
    return bool(known.nonce) or known.last != _mark_of(disk, state)


def _mark_of(disk: Disk, state: Path) -> int:
    """Returns the incarnation that left the slot empty; 0 if there is none, or the mark cannot be read."""
    path = state / MARK_NAME
    if not disk.exists(path):
        return 0
    try:
        return decoded(disk.read(path), Mark).incarnation
    except DECODE_ERRORS:
        return 0


def _taken(state: Path) -> int:
    """Returns a value that changes whenever the lock is taken, as its holder writes its pid there."""
    try:
        return (state / LOCK_NAME).stat().st_mtime_ns
    except OSError:
        return 0

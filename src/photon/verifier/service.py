"""The continuous verifier of one pipeline: verifies every slot below its state directory, including slots that appear
later.

Clearing is prompt, with a task for each slot; checking against the sources shares one slow thread, limited to part of
a core. A slot whose files are damaged is reported and skipped; the others are verified.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from photon.config.clock import Clock
from photon.config.disk import Disk
from photon.config.errors import PhotonError
from photon.config.stopping import until
from photon.config.structured import get_logger
from photon.idregistry.api import Digester, Registry
from photon.outputs.log.format import DamagedRange
from photon.outputs.published import read_damaged
from photon.verifier import lock
from photon.verifier.alarms import AlarmKind, AlarmLog
from photon.verifier.checker import NAME, CheckedSlice, Checker
from photon.verifier.seen_ids import SeenIds
from photon.verifier.slot_work import KeptStep, LineFindings, OwnedStep, SlotPlace, Step
from photon.verifier.source_finder import SourceFinder
from photon.verifier.verifier import Verifier
from photon.verifier.watermark_keeper import WatermarkKeeper

if TYPE_CHECKING:
    from photon.idregistry.client.recovery import Recovery

IDLE_S = 1.0
RETRY_S = 5.0
AGAIN_S = 1.0  # interval of reading a slice again during the grace of a log that lacks a record


@dataclass(frozen=True, slots=True)
class ServiceLimits:
    """Times in seconds."""

    period_s: float = 1.0  # interval of passes over a slot
    retry_s: float = 5.0  # after a failure
    discover_s: float = 1.0
    owned_alarm_s: float = 300.0
    owned_every_most_s: float = 60.0
    check_share: float = 0.25  # share of one core; 0 disables checking
    # Time for which a record that no log has is looked for again: the log may be whole again in a moment.
    log_grace_s: float = 30.0
    look_s: float = 30.0  # interval of looking for deleted logs, and for changed output files
    save_s: float = 1.0
    window_ids: int = 1 << 18

    @property
    def owned_every_s(self) -> float:
        """Interval of scans: an id that is owned for too long is noticed within a fifth of that time."""
        return max(min(self.owned_alarm_s / 5, self.owned_every_most_s), 0.2)


@dataclass(slots=True)
class _CheckedSlot:
    checker: Checker | None = None
    said: str = ""
    not_before_s: float = float("-inf")
    # (kind of output, log) -> since when it lacks a record named in a line; monotonic seconds.
    missing: dict[tuple[str, str], float] = field(default_factory=dict)

    def close(self) -> None:
        """Closes the checker; the next one reads its place again."""
        if self.checker is not None:
            self.checker.close()
            self.checker = None


Slots = Callable[[], Mapping[str, tuple[Path, AlarmLog]]]  # name -> (state directory, alarms) of the existing slots


def pause_s(cpu_s: float, took_s: float, share: float) -> float:
    """Returns the pause after a slice that took ``cpu_s`` of CPU time and ``took_s`` of real time."""
    return max(cpu_s / share - took_s, 0.0)


@dataclass(eq=False)
class CheckLoop:
    disk: Disk
    clock: Clock
    output: Path
    sources: SourceFinder
    slots: Slots
    limits: ServiceLimits

    def __post_init__(self) -> None:
        self._own: dict[str, _CheckedSlot] = {}

    async def run(self, stop: asyncio.Event) -> None:
        saved = looked = float("-inf")
        with ThreadPoolExecutor(1, thread_name_prefix="check") as pool:
            loop = asyncio.get_running_loop()
            try:
                while not stop.is_set():
                    if self.clock.monotonic() - looked >= self.limits.look_s:
                        looked = self.clock.monotonic()
                        await loop.run_in_executor(pool, self._look)
                    idle = not await self._round(pool, stop)
                    if idle or self.clock.monotonic() - saved >= self.limits.save_s:
                        saved = self.clock.monotonic()
                        self._save()
                    if idle:
                        await until(stop, IDLE_S)
            finally:
                pool.submit(self._close).result()
                self._save()

    async def _round(self, pool: ThreadPoolExecutor, stop: asyncio.Event) -> bool:
        loop = asyncio.get_running_loop()
        busy = False
        slots = self.slots()
        for gone in set(self._own) - set(slots):
            self._own.pop(gone).close()
        for name, (state, alarms) in slots.items():
            own = self._own.setdefault(name, _CheckedSlot())
            if stop.is_set() or self.clock.monotonic() < own.not_before_s:
                continue
            try:
                done, cpu_s, took_s = await loop.run_in_executor(pool, self._step, own, state)
                if done is not None:
                    busy = True
                    self._take(own, done, alarms)
                self._well(own, alarms)
            except (PhotonError, OSError) as error:
                self._trouble(name, own, error)
                with contextlib.suppress(PhotonError, OSError):  # the disk may be the problem
                    alarms.tell(AlarmKind.DAMAGED, own.said, self.clock.now_ns(), file=NAME)
                continue
            await until(stop, pause_s(cpu_s, took_s, self.limits.check_share))
        return busy

    def _take(self, own: _CheckedSlot, done: CheckedSlice, alarms: AlarmLog) -> None:
        if self._may_come_back(own, done):
            own.not_before_s = self.clock.monotonic() + AGAIN_S
            return
        now_ns = self.clock.now_ns()
        for each in done.found:
            alarms.tell(
                each.finding, each.what, now_ns, file=done.file.name, offset=each.offset, event_id=each.event_id
            )
        assert own.checker is not None
        own.checker.commit(done)

    def _may_come_back(self, own: _CheckedSlot, done: CheckedSlice) -> bool:
        """True if a log in which a record is missing may still come back: its grace time is not over.

        Each log gets its grace once, until no record of a slice of this kind is missing, so that many invented lines
        do not delay checking.
        """
        kind = done.file.kind
        if not done.missing:
            own.missing = {each: since for each, since in own.missing.items() if each[0] != kind}
            return False
        now = self.clock.monotonic()
        newest = max(own.missing.setdefault((kind, each), now) for each in done.missing)
        return now - newest < self.limits.log_grace_s

    def _trouble(self, name: str, own: _CheckedSlot, error: Exception) -> None:
        own.not_before_s = self.clock.monotonic() + RETRY_S
        own.close()
        if (text := one_line(error)) != own.said:
            own.said = text
            log.error("slot is not checked against its sources", slot=name, why=text)

    def _well(self, own: _CheckedSlot, alarms: AlarmLog) -> None:
        own.said = ""
        if alarms.is_open(AlarmKind.DAMAGED, NAME):
            alarms.over(AlarmKind.DAMAGED, self.clock.now_ns(), file=NAME)

    def _save(self) -> None:
        for name, own in self._own.items():
            if own.checker is not None:
                try:
                    own.checker.save()
                except OSError as error:
                    self._trouble(name, own, error)

    # -- in the thread -----------------------------------------------------------------------------------------------
    def _step(self, own: _CheckedSlot, state: Path) -> tuple[CheckedSlice | None, float, float]:
        """Checks a slice. Returns (the slice, its CPU time, its duration), in seconds."""
        began, cpu = self.clock.monotonic(), time.thread_time()
        if own.checker is None:
            own.checker = Checker(self.disk, state, self.output, self.sources)
        done = own.checker.step(self.clock.now_ns())
        return done, time.thread_time() - cpu, self.clock.monotonic() - began

    def _look(self) -> None:
        with contextlib.suppress(OSError):  # its reader reports a missing log directory
            self.sources.look(self.clock.now_ns())

    def _close(self) -> None:
        for own in self._own.values():
            if own.checker is not None:
                own.checker.close()
        self.sources.close()


def one_line(error: Exception) -> str:
    """Returns an error's message as one line."""
    if isinstance(error, OSError):
        return f"{error.filename or 'the disk'}: {error.strerror or error}"
    return " ".join(str(error).split())


OWN_DIR = "verifier"
MISSING_DIR = "missing"
SLOTS_MAX = 1024  # slots of one pipeline

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class VerifiedPipeline:
    state: Path
    output: Path
    joiners: Sequence[str]  # configured slots: one whose directory is missing is reported if it owns ids

    @property
    def slots(self) -> Path:
        return self.state / "slots"

    @property
    def own(self) -> Path:
        return self.state / OWN_DIR


@dataclass(frozen=True, slots=True)
class VerifierWorld:
    disk: Disk
    clock: Clock
    registry: Registry
    scans: Recovery
    digester: Digester


@dataclass(slots=True)
class _Slot:
    place: SlotPlace
    steps: list[Step]
    alarms: AlarmLog
    lock: int
    missing: bool
    said: str = ""  # the last failure reported


@dataclass(eq=False)
class VerifierService:
    """Verifies one pipeline. Create it on the event loop that runs it.

    ``sources`` opens the raw logs, given the verifier's own directory; not called if nothing is checked. ``more``:
    further steps for each existing slot, after its published output is cleared. ``watermarks``: kept in parallel;
    ``None`` means that there are none.
    """

    pipeline: VerifiedPipeline
    world: VerifierWorld
    limits: ServiceLimits
    sources: Callable[[Path], SourceFinder]
    more: Sequence[Callable[[SlotPlace], Step]] = ()
    watermarks: WatermarkKeeper | None = None

    def __post_init__(self) -> None:
        self._slots: dict[str, _Slot] = {}
        self._alarms: dict[str, AlarmLog] = {}
        self._seen = SeenIds(self.limits.window_ids)
        self._failed: dict[str, str] = {}
        self._names: set[str] = set(self.pipeline.joiners)

    async def run(self, stop: asyncio.Event, ready: Callable[[], Awaitable[None]]) -> None:
        """Runs until ``stop``. Calls ``ready`` once it holds the locks.

        Raises VerifierBusy if another process verifies here, and the errors of opening the sources.
        """
        own = self.pipeline.own
        self.world.disk.make_dir(own)
        held = lock.take(own)
        try:
            if self.watermarks is not None:
                self.watermarks.open()
            async with asyncio.TaskGroup() as tasks:
                self._discover(stop, tasks)
                if self.limits.check_share > 0:
                    tasks.create_task(self._checking().run(stop), name="check")
                if self.watermarks is not None:
                    tasks.create_task(self.watermarks.run(stop), name="watermarks")
                await ready()
                while not stop.is_set():
                    self._discover(stop, tasks)
                    await until(stop, self.limits.discover_s)
        except BaseExceptionGroup as group:
            raise _first(group) from None
        finally:
            if self.watermarks is not None:  # which slots use until their last pass
                self.watermarks.close()
            for slot in self._slots.values():
                os.close(slot.lock)
            os.close(held)

    def _checking(self) -> CheckLoop:
        sources = self.sources(self.pipeline.own)
        return CheckLoop(self.world.disk, self.world.clock, self.pipeline.output, sources, self._present, self.limits)

    def _present(self) -> Mapping[str, tuple[Path, AlarmLog]]:
        return {name: (slot.place.state, slot.alarms) for name, slot in self._slots.items() if not slot.missing}

    # -- slots -----------------------------------------------------------------------------------------------------
    def _discover(self, stop: asyncio.Event, tasks: asyncio.TaskGroup) -> None:
        """Starts work on slots that appeared, or whose directory came or went. Raises VerifierBusy."""
        slots = self.pipeline.slots
        there = {name for name in self.world.disk.names(slots) if (slots / name).is_dir()}
        self._names |= set(sorted(there - self._names)[: SLOTS_MAX - len(self._names)])
        for name in sorted(self._names):
            known = self._slots.get(name)
            if known is not None:
                if known.missing == (name not in there):
                    continue
                del self._slots[name]
                os.close(known.lock)
            try:
                slot = self._slots[name] = self._begin(name, missing=name not in there)
            except lock.VerifierBusy:
                raise
            except (PhotonError, OSError) as error:
                self._tell_failed(name, error)
                continue
            self._failed.pop(name, None)
            tasks.create_task(self._passes(slot, stop), name=f"slot {name}")

    def _begin(self, name: str, *, missing: bool) -> _Slot:
        world = self.world
        state = self.pipeline.slots / name
        own = self.pipeline.own / MISSING_DIR / name if missing else state / OWN_DIR
        world.disk.make_dir(own)
        held = lock.take(own)
        try:
            alarms = AlarmLog(world.disk, own, name)
            steps = self._steps(SlotPlace(name, state, own), alarms, missing=missing)
        except BaseException:
            os.close(held)
            raise
        self._alarms[name] = alarms
        log.info("slot found", slot=name, missing=missing)
        return _Slot(SlotPlace(name, state, own), steps, alarms, held, missing)

    def _damaged(self, slot: str) -> Sequence[DamagedRange]:
        """Raises PublishedDamaged, OSError."""
        return read_damaged(self.world.disk, self.pipeline.slots / slot)

    def _steps(self, place: SlotPlace, alarms: AlarmLog, *, missing: bool) -> list[Step]:
        world, limits = self.world, self.limits
        owned = OwnedStep(
            world.disk, place, world.scans, alarms, world.clock,
            alarm_s=limits.owned_alarm_s, every_s=limits.owned_every_s,
        )  # fmt: skip
        if missing:
            return [owned.pass_]
        findings = LineFindings(place.name, self._alarms, self._seen, world.clock, damaged=self._damaged)
        if self.watermarks is not None:
            findings.cleared = self.watermarks.published
        verifier = Verifier(
            world.disk, place.state, self.pipeline.output, world.digester, world.registry, findings=findings
        )
        kept = KeptStep(world.disk, place, self.pipeline.output, alarms, world.clock, limits.look_s)
        return [verifier.run_once, *(make(place) for make in self.more), owned.pass_, kept.pass_]

    async def _passes(self, slot: _Slot, stop: asyncio.Event) -> None:
        while not stop.is_set() and self._slots.get(slot.place.name) is slot:
            pause_s = self.limits.period_s
            try:
                for step in slot.steps:
                    await step()
                self._well(slot)
            except (PhotonError, OSError) as error:
                self._trouble(slot, error)
                pause_s = self.limits.retry_s
            await until(stop, pause_s)

    def _trouble(self, slot: _Slot, error: Exception) -> None:
        text = one_line(error)
        if text != slot.said:
            slot.said = text
            log.error("slot is not verified", slot=slot.place.name, why=text)
            with contextlib.suppress(PhotonError, OSError):  # the disk may be the problem
                slot.alarms.tell(AlarmKind.DAMAGED, text, self.world.clock.now_ns())

    def _well(self, slot: _Slot) -> None:
        slot.said = ""
        if slot.alarms.is_open(AlarmKind.DAMAGED):
            slot.alarms.over(AlarmKind.DAMAGED, self.world.clock.now_ns())

    def _tell_failed(self, name: str, error: Exception) -> None:
        text = one_line(error)
        if self._failed.get(name) != text:
            self._failed[name] = text
            log.error("slot is not verified", slot=name, why=text)


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error

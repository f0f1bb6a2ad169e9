"""The continuous verifier of one pipeline: every slot below its state directory, those that appear while it runs too.

Clearing is prompt and has a task for each slot; checking against the sources shares one slow thread with a bounded
part of a core. A slot whose files are damaged is reported and skipped; the others go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from photon.config.clock import Clock
from photon.config.disk import Disk
from photon.config.errors import PhotonError
from photon.config.stopping import until
from photon.config.structured import get_logger
from photon.idregistry.api import Digester, Registry
from photon.verifier import lock
from photon.verifier.alarms import AlarmKind, AlarmLog
from photon.verifier.check_loop import CheckLimits, CheckLoop, one_line
from photon.verifier.seen_ids import SeenIds
from photon.verifier.slot_work import ClearStep, LineFindings, OwnedStep, SlotPlace, Step
from photon.verifier.source_finder import SourceFinder
from photon.verifier.verifier import Verifier

if TYPE_CHECKING:
    from photon.idregistry.client.recovery import Recovery

OWN_DIR = "verifier"
MISSING_DIR = "missing"
SLOTS_MAX = 1024
"""Of one pipeline."""

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ServiceLimits:
    """Times in seconds."""

    period_s: float = 0.5
    """From one pass of a slot to the next."""
    retry_s: float = 5.0
    """After a failure."""
    discover_s: float = 1.0
    owned_alarm_s: float = 300.0
    owned_every_most_s: float = 60.0
    check_share: float = 0.25
    """Of one core; 0: nothing is checked."""
    log_grace_s: float = 30.0
    """A record that no log has is looked for again for so long."""
    look_s: float = 30.0
    """The source directories are looked at so often, for logs that go."""
    save_s: float = 1.0
    window_ids: int = 1 << 18

    @property
    def owned_every_s(self) -> float:
        """An id that is owned for too long is noticed within a fifth of that time."""
        return max(min(self.owned_alarm_s / 5, self.owned_every_most_s), 0.2)


@dataclass(frozen=True, slots=True)
class VerifiedPipeline:
    state: Path
    output: Path
    joiners: Sequence[str]
    """Slots that are configured: one whose directory is missing is reported when it owns ids."""

    @property
    def slots(self) -> Path:
        return self.state / "slots"

    @property
    def own(self) -> Path:
        return self.state / OWN_DIR


@dataclass(frozen=True, slots=True)
class VerifierWorld:
    """Clock, disk and registry that the service uses."""

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
    said: str = ""
    """The failure that was told last."""


class VerifierService:
    """Create it on the event loop that runs it."""

    def __init__(
        self,
        pipeline: VerifiedPipeline,
        world: VerifierWorld,
        limits: ServiceLimits,
        sources: Callable[[Path], SourceFinder],
        more: Sequence[Callable[[SlotPlace], Step]] = (),
    ) -> None:
        """``sources`` opens the raw logs, given the verifier's own directory; not called when nothing is checked.

        ``more``: further steps of each slot that is there, after what is published was cleared.
        """
        self._more = more
        self._pipeline = pipeline
        self._world = world
        self._limits = limits
        self._sources = sources
        self._slots: dict[str, _Slot] = {}
        self._alarms: dict[str, AlarmLog] = {}
        self._seen = SeenIds(limits.window_ids)
        self._failed: dict[str, str] = {}
        self._names: set[str] = set(pipeline.joiners)

    async def run(self, stop: asyncio.Event, ready: Callable[[], Awaitable[None]]) -> None:
        """Until ``stop``; ``ready`` is called once it has the locks.

        Raises VerifierBusy, when another process verifies here, and what opening the sources raises.
        """
        own = self._pipeline.own
        self._world.disk.make_dir(own)
        held = lock.take(own)
        try:
            async with asyncio.TaskGroup() as tasks:
                self._discover(stop, tasks)
                if self._limits.check_share > 0:
                    tasks.create_task(self._checking().run(stop), name="check")
                await ready()
                while not stop.is_set():
                    self._discover(stop, tasks)
                    await until(stop, self._limits.discover_s)
        except BaseExceptionGroup as group:
            raise _first(group) from None
        finally:
            for slot in self._slots.values():
                os.close(slot.lock)
            os.close(held)

    def _checking(self) -> CheckLoop:
        own = self._limits
        limits = CheckLimits(own.check_share, own.look_s, own.save_s, own.log_grace_s)
        sources = self._sources(self._pipeline.own)
        return CheckLoop(self._world.disk, self._world.clock, self._pipeline.output, sources, self._present, limits)

    def _present(self) -> Mapping[str, tuple[Path, AlarmLog]]:
        return {name: (slot.place.state, slot.alarms) for name, slot in self._slots.items() if not slot.missing}

    # -- slots -----------------------------------------------------------------------------------------------------
    def _discover(self, stop: asyncio.Event, tasks: asyncio.TaskGroup) -> None:
        """Begins slots that appeared, and those whose directory came or went. Raises VerifierBusy."""
        slots = self._pipeline.slots
        there = {name for name in self._world.disk.names(slots) if (slots / name).is_dir()}
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
        world = self._world
        state = self._pipeline.slots / name
        own = self._pipeline.own / MISSING_DIR / name if missing else state / OWN_DIR
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

    def _steps(self, place: SlotPlace, alarms: AlarmLog, *, missing: bool) -> list[Step]:
        world, limits = self._world, self._limits
        owned = OwnedStep(
            world.disk, place, world.scans, alarms, world.clock,
            alarm_s=limits.owned_alarm_s, every_s=limits.owned_every_s,
        )  # fmt: skip
        if missing:
            return [owned]
        findings = LineFindings(place.name, self._alarms, self._seen, world.clock)
        verifier = Verifier(
            world.disk, place.state, self._pipeline.output, world.digester, world.registry, findings=findings
        )
        return [ClearStep(verifier), *(make(place) for make in self._more), owned]

    async def _passes(self, slot: _Slot, stop: asyncio.Event) -> None:
        while not stop.is_set() and self._slots.get(slot.place.name) is slot:
            pause_s = self._limits.period_s
            try:
                for step in slot.steps:
                    await step.pass_()
                self._well(slot)
            except (PhotonError, OSError) as error:
                self._trouble(slot, error)
                pause_s = self._limits.retry_s
            await until(stop, pause_s)

    def _trouble(self, slot: _Slot, error: Exception) -> None:
        text = one_line(error)
        if text != slot.said:
            slot.said = text
            log.error("slot is not verified", slot=slot.place.name, why=text)
            with contextlib.suppress(PhotonError, OSError):  # the disk may be the trouble
                slot.alarms.tell(AlarmKind.DAMAGED, text, self._world.clock.now_ns())

    def _well(self, slot: _Slot) -> None:
        slot.said = ""
        if slot.alarms.is_open(AlarmKind.DAMAGED):
            slot.alarms.over(AlarmKind.DAMAGED, self._world.clock.now_ns())

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

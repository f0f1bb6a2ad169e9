"""Checks all slots of a pipeline against the raw logs, in one thread, with a bounded share of a core."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from photon.config.clock import Clock
from photon.config.disk import Disk
from photon.config.errors import PhotonError
from photon.config.stopping import until
from photon.config.structured import get_logger
from photon.verifier.alarms import AlarmKind, AlarmLog
from photon.verifier.checker import NAME, CheckedSlice, Checker
from photon.verifier.source_finder import SourceFinder

IDLE_S = 0.5
RETRY_S = 5.0
AGAIN_S = 1.0
"""A slice with a record that no log has is read again so often during its grace."""

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CheckLimits:
    """``share`` of one core; times in seconds."""

    share: float = 0.25
    look_s: float = 30.0
    """The log directories are looked at so often, for logs that come and go."""
    save_s: float = 1.0
    log_grace_s: float = 30.0
    """A record that no log has is looked for again for so long: the log may be whole again in a moment."""


@dataclass(slots=True)
class _CheckedSlot:
    """A slot's checker, and what keeps it from working."""

    checker: Checker | None = None
    said: str = ""
    not_before_s: float = float("-inf")
    missing: dict[tuple[str, str], float] = field(default_factory=dict)
    """(kind of output, log) -> since when it lacks a record that a line names; monotonic seconds."""


Slots = Callable[[], Mapping[str, tuple[Path, AlarmLog]]]
"""Name -> (state directory, alarms) of the slots that are there."""


def pause_s(cpu_s: float, took_s: float, share: float) -> float:
    """How long to rest after a slice of so much CPU time that took so long on the clock."""
    return max(cpu_s / share - took_s, 0.0)


class CheckLoop:
    """Checks slices of all slots in turn."""

    def __init__(
        self, disk: Disk, clock: Clock, output: Path, sources: SourceFinder, slots: Slots, limits: CheckLimits
    ) -> None:
        self._disk = disk
        self._clock = clock
        self._output = output
        self._sources = sources
        self._slots = slots
        self._limits = limits
        self._own: dict[str, _CheckedSlot] = {}

    async def run(self, stop: asyncio.Event) -> None:
        """Checks until ``stop`` is set."""
        saved = looked = float("-inf")
        with ThreadPoolExecutor(1, thread_name_prefix="check") as pool:
            loop = asyncio.get_running_loop()
            try:
                while not stop.is_set():
                    if self._clock.monotonic() - looked >= self._limits.look_s:
                        looked = self._clock.monotonic()
                        await loop.run_in_executor(pool, self._look)
                    idle = not await self._round(pool, stop)
                    if idle or self._clock.monotonic() - saved >= self._limits.save_s:
                        saved = self._clock.monotonic()
                        self._save()
                    if idle:
                        await until(stop, IDLE_S)
            finally:
                pool.submit(self._close).result()
                self._save()

    async def _round(self, pool: ThreadPoolExecutor, stop: asyncio.Event) -> bool:
        """A slice of each slot; whether there was anything to check."""
        loop = asyncio.get_running_loop()
        busy = False
        slots = self._slots()
        for gone in set(self._own) - set(slots):
            del self._own[gone]
        for name, (state, alarms) in slots.items():
            own = self._own.setdefault(name, _CheckedSlot())
            if stop.is_set() or self._clock.monotonic() < own.not_before_s:
                continue
            try:
                done, cpu_s, took_s = await loop.run_in_executor(pool, self._step, own, state)
                if done is not None:
                    busy = True
                    self._take(own, done, alarms)
                self._well(own, alarms)
            except (PhotonError, OSError) as error:
                self._trouble(name, own, error)
                with contextlib.suppress(PhotonError, OSError):  # the disk may be the trouble
                    alarms.tell(AlarmKind.DAMAGED, own.said, self._clock.now_ns(), file=NAME)
                continue
            await until(stop, pause_s(cpu_s, took_s, self._limits.share))
        return busy

    def _take(self, own: _CheckedSlot, done: CheckedSlice, alarms: AlarmLog) -> None:
        if self._may_come_back(own, done):
            own.not_before_s = self._clock.monotonic() + AGAIN_S
            return
        now_ns = self._clock.now_ns()
        for each in done.found:
            alarms.tell(
                each.finding, each.what, now_ns, file=done.file.name, offset=each.offset, event_id=each.event_id
            )
        assert own.checker is not None
        own.checker.commit(done)

    def _may_come_back(self, own: _CheckedSlot, done: CheckedSlice) -> bool:
        """Whether a log that lacks a record has not been looked into for long enough. Each log has its grace once,
        until a slice of this kind lacks nothing: where many lines are invented checking does not fall behind."""
        kind = done.file.kind
        if not done.missing:
            own.missing = {each: since for each, since in own.missing.items() if each[0] != kind}
            return False
        now = self._clock.monotonic()
        newest = max(own.missing.setdefault((kind, each), now) for each in done.missing)
        return now - newest < self._limits.log_grace_s

    def _trouble(self, name: str, own: _CheckedSlot, error: Exception) -> None:
        own.not_before_s = self._clock.monotonic() + RETRY_S
        own.checker = None  # it reads its place again
        if (text := one_line(error)) != own.said:
            own.said = text
            log.error("slot is not checked against its sources", slot=name, why=text)

    def _well(self, own: _CheckedSlot, alarms: AlarmLog) -> None:
        own.said = ""
        if alarms.is_open(AlarmKind.DAMAGED, NAME):
            alarms.over(AlarmKind.DAMAGED, self._clock.now_ns(), file=NAME)

    def _save(self) -> None:
        for name, own in self._own.items():
            if own.checker is not None:
                try:
                    own.checker.save()
                except OSError as error:
                    self._trouble(name, own, error)

    # -- in the thread -----------------------------------------------------------------------------------------------
    def _step(self, own: _CheckedSlot, state: Path) -> tuple[CheckedSlice | None, float, float]:
        """The slice, its CPU time, and how long it took."""
        began, cpu = self._clock.monotonic(), time.thread_time()
        if own.checker is None:
            own.checker = Checker(self._disk, state, self._output, self._sources)
        done = own.checker.step(self._clock.now_ns())
        return done, time.thread_time() - cpu, self._clock.monotonic() - began

    def _look(self) -> None:
        with contextlib.suppress(OSError):  # its reader reports a log directory that is missing
            self._sources.look(self._clock.now_ns())

    def _close(self) -> None:
        for own in self._own.values():
            if own.checker is not None:
                own.checker.close()
        self._sources.close()


def one_line(error: Exception) -> str:
    """The message of an error in one line."""
    if isinstance(error, OSError):
        return f"{error.filename or 'the disk'}: {error.strerror or error}"
    return " ".join(str(error).split())

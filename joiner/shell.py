"""Runs a slot's core: its disk work in threads, its requests to the registry, its replies to waiting calls.

Group commit: one thread writes and syncs the redo log; meanwhile further frames queue for the next sync. A second
thread owns the output, a third one compresses final files. All state is changed on the event loop.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from contextvars import Context, copy_context
from dataclasses import dataclass
from typing import Any, NoReturn

from photon.batch.ids import Ids
from photon.batch.verdicts import Verdicts
from photon.config.clock import Clock, utc
from photon.config.errors import PhotonError
from photon.config.stopping import at_own_end, end, until
from photon.config.structured import get_logger
from photon.config.telemetry import spans
from photon.idregistry.api import Answer, Kind, Registry
from photon.joiner.copies.shipping import PERIOD_S as COPIES_S
from photon.joiner.copies.shipping import CopyShipping, CopyStats
from photon.joiner.core import Append, Insert, Instruction, Redone, Release, Reply, SlotCore, Stop, SyncOutput, Write
from photon.joiner.rows import Rows
from photon.joiner.slot.slot import SlotStore
from photon.joiner.slot.witness import WitnessKeeper
from photon.joiner.unshown import Unshown

log = get_logger(__name__)

Die = Callable[[str], NoReturn]  # ends the process at once with one line for the operator; never returns (rule 7)


def die(reason: str) -> NoReturn:
    """Ends the process immediately, without flushing buffers or closing files (rule 7)."""
    with suppress(OSError):  # a full disk
        sys.stderr.write(f"photon: {reason}\n")
        sys.stderr.flush()
    for tell in at_own_end:
        tell()
    os._exit(PhotonError.exit_code)


@dataclass(frozen=True, slots=True)
class ShellLimits:
    """Periods and time-outs, in seconds."""

    insert_timeout_s: float = 5.0
    tick_s: float = 0.02
    maintain_s: float = 1.0
    witness_s: float = 1.0  # shortest interval of extending the witness, unless a caller waits for it


@dataclass(eq=False)
class SlotShell:
    """Runs one open slot. Everything except disk calls happens on the event loop on which ``start`` was called."""

    core: SlotCore
    store: SlotStore
    registry: Registry
    clock: Clock
    end_process: Die
    limits: ShellLimits = ShellLimits()
    witness: WitnessKeeper | None = None  # ``None``: there is none, and all durable output is shown
    shipping: CopyShipping | None = None  # ``None``: the output has no copy

    def __post_init__(self) -> None:
        self._ended = False
        self._failure = ""
        self._unshown = Unshown()
        self._witnessing = asyncio.Lock()
        self._finishing = asyncio.Lock()
        self._calls: dict[int, asyncio.Future[Reply]] = {}
        self._traced: dict[int, Context] = {}  # contexts of calls with a traced batch
        self._logging: list[spans.Span] = []
        self._writing: list[spans.Span] = []
        self._told_early = False
        self._appends: list[tuple[int, Rows]] = []
        self._releases: list[int] = []
        self._writes: list[Write] = []
        self._sync_output = False
        self._redone: Redone | None = None
        self._last_write = 0
        self._redo_wake = asyncio.Event()
        self._output_wake = asyncio.Event()
        self._progress = asyncio.Event()
        self._taken_up = asyncio.Event()
        self._pools = [
            ThreadPoolExecutor(1, thread_name_prefix=f"slot-{name}") for name in ("redo", "output", "final")
        ]
        self._tasks: list[asyncio.Task[None]] = []
        self._inserts: set[asyncio.Task[None]] = set()

    # -- what the engine calls -------------------------------------------------------------------------------
    def start(self, kept: Sequence[tuple[int, Rows]]) -> None:
        """Begins redoing the kept rows, and serves at once (rule 5)."""
        if self.witness is not None:
            self._unshown.found(self.store.witness, self.store.shown)
        self._do(self.core.start(kept))
        for loop in (self._redo_loop, self._output_loop, self._tick_loop, self._maintain_loop, self._witness_loop):
            self._tasks.append(asyncio.create_task(self._guarded(loop)))
        if self.shipping is not None:
            self._tasks.append(asyncio.create_task(self._guarded(self._copies_loop, self.shipping)))

    @property
    def oldest_unshown_ns(self) -> int:
        """A lower bound of the event times of accepted records that are neither dropped nor published yet; NEVER_NS
        if there are none.
        """
        return min(self.core.oldest_open_ns, self._unshown.oldest_ns)

    async def register(self, rows: Rows, deadline: float) -> Reply:
        """Logs, registers and writes one batch. Returns its outcomes by ``deadline`` (monotonic seconds)."""
        number, instructions = self.core.submit(rows, deadline)
        call: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._calls[number] = call
        if spans.current.get() is not None:
            self._traced[number] = copy_context()
        self._taken_up.set()
        self._do(instructions)
        return await call

    async def drain(self, deadline: float) -> bool:
        """Waits until the redo log is empty, and all output is durable and published. False if time ran out first, or
        if all remaining work waits for a clock.
        """
        while not self.core.empty or self._redone is not None:
            if self.clock.monotonic() >= deadline or self.core.waits_for_time:
                return False
            self._do(self.core.tick(self.clock.monotonic(), hurry=True))
            self._progress.clear()
            await until(self._progress, self.limits.tick_s)
        return True

    async def witnessed(self, deadline: float) -> bool:
        """Waits until the witness has all durable output, and the copy shows it. False if time ran out first."""
        while not (await self.extend_witness() and (self.shipping is None or self.shipping.told)):
            if self.clock.monotonic() >= deadline:
                return False
            await asyncio.sleep(self.limits.tick_s)
        return True

    async def begin_witness(self) -> None:
        """Waits until the slot has a witness: without one, all durable output is published."""
        while self.witness is not None and not self.witness.end:
            await self.extend_witness()
            if not self.witness.end:
                await asyncio.sleep(self.limits.tick_s)

    @property
    def copies(self) -> CopyStats | None:
        return None if self.shipping is None else self.shipping.stats()

    async def roll(self) -> None:
        """Closes the output files, so that they can become final once they are cleared."""
        await self._in(1, self.store.roll_output)
        await self.extend_witness()

    async def extend_witness(self) -> bool:
        """Extends the witness over all output that is durable and in the copy, and publishes it (rules 6 and 14).

        Returns False if the registry did not answer, or the copy lacks something.
        """
        keeper = self.witness
        if keeper is None:
            return True
        async with self._witnessing:
            durable = self.store.witness
            whole = durable if self.shipping is None else self.shipping.bound(durable, keeper.end)
            while (to := keeper.due(whole)) is not None:
                known = await self.registry.extend_witness(keeper.slot, keeper.incarnation, keeper.end, to)
                if reason := keeper.heard(known):
                    self._die(reason)
                if known is None:
                    return False
                await self._in(1, self.store.show, to)
                self._unshown.shown(to)
                if to == whole:
                    break
            return whole == durable

    async def finish_cleared(self) -> int:
        """Makes rolled and cleared files final. Returns their number."""
        async with self._finishing:  # a concurrent caller then finds nothing left
            names = self.store.cleared()
            for name in names:
                await self._in(2, self.store.finish, name)
                await self._in(1, self.store.forget, [name])
            return len(names)

    async def close(self) -> None:
        """Ends the tasks and threads. Unfinished work stays in the redo log; open calls get no answer."""
        await end([*self._tasks, *self._inserts])
        for pool in self._pools:
            await asyncio.to_thread(pool.shutdown)
        for call in self._calls.values():
            call.cancel()
        self.store.close()

    # -- instructions ----------------------------------------------------------------------------------------
    def _do(self, instructions: Sequence[Instruction]) -> None:
        for each in instructions:
            match each:
                case Append(frame, rows):
                    self._appends.append((frame, rows))
                    if logging := spans.begin("joiner.redo_log", rows=len(rows)):
                        self._logging.append(logging)
                    self._redo_wake.set()
                case Insert(frame, inserts):
                    work = self._guarded(self._insert, frame, inserts)
                    task = asyncio.create_task(work, context=self._traced.get(frame))
                    self._inserts.add(task)
                    task.add_done_callback(self._inserts.discard)
                case Write():
                    self._unshown.written.append((each.number, each.oldest_ns))
                    self._writes.append(each)
                    if writing := spans.begin("joiner.write"):
                        self._writing.append(writing)
                    self._output_wake.set()
                case SyncOutput():
                    self._sync_output = True
                    self._output_wake.set()
                case Reply(frame):
                    call = self._calls.pop(frame, None)
                    self._traced.pop(frame, None)
                    if call is not None and not call.done():
                        call.set_result(each)
                case Release(frames):
                    self._releases += frames
                    self._redo_wake.set()
                case Redone():
                    self._redone = each
                    self._output_wake.set()
                case Stop(reason):
                    self._die(reason)

    async def _insert(self, frame: int, inserts: Ids) -> None:
        try:
            with spans.span("joiner.register", ids=len(inserts)):
                answers = await self.registry.insert(inserts, timeout=self.limits.insert_timeout_s)
        except Exception:  # a bug in the client must not lose the request's rows: their fate is unknown, so retry
            log.exception("the registry client failed; asking again", ids=len(inserts))
            answers = Verdicts.blank(len(inserts), Answer.UNKNOWN)
        self._do(self.core.answered(frame, answers, self.clock.monotonic()))
        self._tell_early()
        self._progress.set()

    def _tell_early(self) -> None:
        """Warns once of early rows: rows logged before the clock was set back wait until it catches up."""
        early = self.core.early
        if early and not self._told_early:
            log.warning(
                "logged records newer than the registry's clock wait in the redo log; set the clock if it is slow",
                records=len(early),
                clock=utc(self.clock.now_ns()),
                newest=utc(max(early.values())),
            )
        self._told_early = bool(early)

    # -- loops -----------------------------------------------------------------------------------------------
    async def _redo_loop(self) -> None:
        while True:
            await self._redo_wake.wait()
            self._redo_wake.clear()
            appends, self._appends = self._appends, []
            releases, self._releases = self._releases, []
            traced, self._logging = self._logging, []
            await self._in(0, self._redo_work, appends, releases)
            for span in traced:
                span.end()
            if appends:
                self._do(self.core.redo_synced(appends[-1][0]))
            self._progress.set()

    def _redo_work(self, appends: Sequence[tuple[int, Rows]], releases: Sequence[int]) -> None:
        if releases:
            self.store.release(releases)
        if appends:
            self.store.log(appends)

    async def _output_loop(self) -> None:
        while True:
            await self._output_wake.wait()
            self._output_wake.clear()
            writes, self._writes = self._writes, []
            traced, self._writing = self._writing, []
            sync, self._sync_output = self._sync_output, False
            chunks = [chunk for write in writes for chunk in write.chunks]
            await self._in(1, self._output_work, chunks, sync, self.clock.monotonic())
            for span in traced:
                span.end()
            if writes:
                self._last_write = writes[-1].number
                self._do(self.core.written(self._last_write, sum(len(data) for _, data in chunks)))
            if sync:
                self._unshown.synced(self._last_write, self.store.witness)
                if self.witness is None:
                    self._unshown.shown(self.store.witness)
                self._do(self.core.output_synced(self._last_write))
            if self._redone is not None:
                await self._in(1, self.store.publish_redone, self._redone.upto)
                self._redone = None
            self._progress.set()

    def _output_work(self, chunks: Sequence[tuple[Kind, bytes]], sync: bool, now: float) -> None:
        if chunks:
            self.store.write(chunks, now)
        if sync:
            self.store.sync_output(now)

    async def _tick_loop(self) -> None:
        while True:
            await asyncio.sleep(self.limits.tick_s)
            if self.core.empty:  # nothing depends on time
                self._taken_up.clear()
                await self._taken_up.wait()
            else:
                self._do(self.core.tick(self.clock.monotonic()))

    async def _maintain_loop(self) -> None:
        while True:
            await asyncio.sleep(self.limits.maintain_s)
            await self._in(1, self.store.sync_output, self.clock.monotonic())
            await self.finish_cleared()

    async def _witness_loop(self) -> None:
        while True:
            await asyncio.sleep(self.limits.witness_s)
            await self.extend_witness()

    async def _copies_loop(self, copies: CopyShipping) -> None:
        while True:
            moved = await copies.step()
            if copies.ended:
                self._die(copies.ended)
            if copies.held != self.store.held:
                await self._in(1, self.store.hold, copies.held)
            if not moved:
                await asyncio.sleep(COPIES_S)

    # -- threads and failures --------------------------------------------------------------------------------
    async def _in(self, pool: int, work: Callable[..., None], *args: Any) -> None:
        await asyncio.get_running_loop().run_in_executor(self._pools[pool], self._unless_ended, work, *args)

    def _unless_ended(self, work: Callable[..., None], *args: Any) -> None:
        """Runs ``work`` unless the slot has failed: after a failed sync no later sync can be trusted (rule 7)."""
        if self._ended:
            raise OSError(self._failure or "the slot has failed before")  # the first failure names the cause
        try:
            work(*args)
        except BaseException as error:
            self._failure, self._ended = str(error), True
            raise

    def _die(self, reason: str) -> NoReturn:
        self._ended = True
        self.end_process(reason)

    async def _guarded(self, work: Callable[..., Coroutine[Any, Any, None]], *args: Any) -> None:
        """Runs ``work``. Ends the process after a failed write or sync (rule 7) or a bug: a start redoes it."""
        try:
            await work(*args)
        except OSError as error:
            where = f"{error.filename}: {error.strerror}" if error.filename else str(error)
            self._die(
                f"the slot's disk failed ({where}); free space or replace the disk, then start the joiner again"
            )
        except Exception as error:
            log.exception("the slot failed")
            self._die(f"the slot failed: {type(error).__name__}: {error}")

"""The joiner of one join in one slot: looks up, adapts, logs, registers, writes and answers (paper, section 3.3)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from photon.adapters.contract import Adapter, AdapterError
from photon.batch.events import Events
from photon.config.file_lock import POLL_S
from photon.config.structured import get_logger
from photon.config.telemetry.spans import span
from photon.idregistry.api import Slot
from photon.joiner.api import JoinAnswers, Outcome
from photon.joiner.copies.shipping import Copying
from photon.joiner.core import CoreLimits, OpenRecord, SlotCore
from photon.joiner.opening import Surroundings, open_slot, shipping, to_its_end
from photon.joiner.shell import ShellLimits, SlotShell
from photon.joiner.slot.identity import SlotRefused
from photon.joiner.slot.lock import WAIT_S, SlotLock
from photon.joiner.slot.output import OutputLimits
from photon.joiner.slot.redo_log import SEGMENT_BYTES
from photon.joiner.slot.slot import AGES, Ages, SlotPaths, SlotStore
from photon.joiner.slot.witness import WitnessKeeper
from photon.joiner.verdicts import Decided, Judge, LineBuilder, merge_reply, rows_of, settle_mismatched, unregistered


@dataclass(frozen=True, slots=True)
class Bounds:
    ids: int = 64 << 10  # ids being looked up or registered
    record_bytes: int = 256 << 20  # bytes of would-be records in memory
    redo_bytes: int = 4 << 30  # bytes of the redo log on disk


class Throttle:
    """Limits ids in progress. Counts those of calls still looking up; the core counts ids being registered."""

    def __init__(self, bounds: Bounds) -> None:
        self._bounds = bounds
        self.looking_up = 0

    def refusal(self, ids: int, *, open_ids: int, record_bytes: int, redo_bytes: int) -> str:
        """Returns why a batch of ``ids`` ids is refused now; empty if it is accepted.

        An idle joiner refuses no batch for its size.
        """
        bounds = self._bounds
        held = self.looking_up + open_ids
        if held and held + ids > bounds.ids:
            return f"overloaded: {held} ids in flight, the limit is {bounds.ids}"
        if record_bytes >= bounds.record_bytes:
            return f"overloaded: {record_bytes} bytes of records in flight, the limit is {bounds.record_bytes}"
        if redo_bytes >= bounds.redo_bytes:
            return f"overloaded: the redo log holds {redo_bytes} bytes, the limit is {bounds.redo_bytes}"
        return ""


log = get_logger(__name__)

_T = TypeVar("_T")

REDO_PARTS = 4  # a full redo log has at least about this many segments


@dataclass(frozen=True, slots=True)
class JoinerLimits:
    """A joiner's bounds and periods, with defaults."""

    bounds: Bounds = field(default_factory=Bounds)
    core: CoreLimits = field(default_factory=CoreLimits)
    shell: ShellLimits = field(default_factory=ShellLimits)
    output: OutputLimits = field(default_factory=OutputLimits)
    segment_bytes: int = SEGMENT_BYTES
    lock_wait_s: float = WAIT_S
    # Longest time an orderly stop spends deciding and publishing; supervisors and Docker wait 30 s.
    close_s: float = 20.0

    def fitting(self) -> JoinerLimits:
        """Returns limits that fit the redo log's size: a small one has smaller segments and carries open rows over
        sooner.

        Space is freed by whole segments, the newest one only once it is full: a segment larger than the log's limit
        would never be freed.
        """
        part = max(1, self.bounds.redo_bytes // REDO_PARTS)
        behind = min(self.core.carry_over_behind_bytes, part)
        core = replace(self.core, carry_over_behind_bytes=behind)
        return replace(self, core=core, segment_bytes=min(self.segment_bytes, part))


@dataclass(frozen=True, slots=True)
class JoinerStats:
    """Counts since the process started."""

    outcomes: dict[Outcome, int]
    open_ids: int
    record_bytes: int
    redo_bytes: int
    refused_batches: int
    redone: int  # rows that the start found in the redo log but not in the output


class JoinerEngine:
    """Implements ``joiner.api.Joiner`` in this process. Call ``start`` first; the lock is held until ``close``."""

    def __init__(
        self,
        slot: Slot,
        paths: SlotPaths,
        world: Surroundings,
        adapter: Adapter,
        build_lines: LineBuilder,
        *,
        limits: JoinerLimits | None = None,
        check_payloads: bool = True,
        ages: Ages = AGES,
        copying: Copying | None = None,
        withholds: Callable[[], str] = lambda: "",
    ) -> None:
        """``copying``: ``None`` means that the output has no copy in another datacentre.

        ``withholds``: returns why no event may be declared unmatched now; empty if it may.
        """
        self._copying = copying
        self.withholds = withholds
        self._slot = slot
        self._paths = paths
        self._world = world
        self._judge = Judge(adapter, check_payloads=check_payloads)
        self._build_lines = build_lines
        self._limits = (limits or JoinerLimits()).fitting()
        self._ages = ages
        self._throttle = Throttle(self._limits.bounds)
        self._lock = SlotLock(paths.state)
        self._shell: SlotShell | None = None
        self._refusing = ""
        self.left = False  # True if ``close`` had to leave work in the redo log
        self._counts: Counter[Outcome] = Counter()
        self._refused = 0
        self._redone = 0

    # -- life ------------------------------------------------------------------------------------------------
    async def start(self) -> None:
        """Takes the lock, opens the slot, begins to redo the remaining work, and serves at once (rules 5 to 7).

        Raises SlotRefused, RedoLogDamaged, OutputDamaged or OSError; the process should then end. Waits for the
        registry without limit.
        """
        world, limits = self._world, self._limits
        await self._take_lock()
        try:
            store = SlotStore(
                world.disk,
                self._paths,
                self._slot.name,
                output_limits=limits.output,
                segment_bytes=limits.segment_bytes,
            )
            store.ships = self._copying is not None
            opened, ends = await open_slot(self._slot, self._paths, store, world, self._copying, ages=self._ages)
            accepts = self._ages.accept_damaged_log
            recovered = await to_its_end(partial(store.recover, accept_damaged_log=accepts))
        except BaseException:
            self._lock.release()
            raise
        incarnation = opened.incarnation
        past = [number for number in recovered.incarnations if number != incarnation]
        world.registry.announce(self._slot, [*past, incarnation])
        self._redone = sum(len(rows) for _, rows in recovered.kept)
        for lost in recovered.lost:
            log.error(
                "a part of the redo log was lost; its ids are given up and joined again once the rest is redone",
                slot=self._slot.name,
                lost=str(lost),
            )
        log.info(
            "slot opened",
            slot=self._slot.name,
            incarnation=incarnation,
            logged=recovered.logged,
            redone=self._redone,
            completed=recovered.found.completed,
            cut=recovered.found.cut,
        )
        core = SlotCore(incarnation, limits.core)
        witness = WitnessKeeper(self._slot.name, incarnation, opened.witness)
        copies = None
        if self._copying is not None:
            copies = shipping(self._copying, self._slot, incarnation, store, world.clock, ends)
        self._shell = SlotShell(core, store, world.registry, world.clock, world.die, limits.shell, witness, copies)
        await self._shell.begin_witness()  # before anything is written
        self._shell.start(recovered.kept)

    async def _take_lock(self) -> None:
        """Takes the lock, waiting a limited time for a dying predecessor; not in a thread, which could not be
        stopped.
        """
        deadline = self._world.clock.monotonic() + self._limits.lock_wait_s
        while True:
            try:
                return self._lock.take(wait_s=0.0)
            except SlotRefused:
                if self._world.clock.monotonic() >= deadline:
                    raise
            await asyncio.sleep(POLL_S)

    async def drain(self, timeout: float) -> bool:
        """Refuses new work and empties the redo log. False if rows are still unknown after ``timeout`` seconds."""
        self._refusing = "draining: this slot takes no new work"
        return await self.shell.drain(self._world.clock.monotonic() + timeout)

    async def settle(self, timeout: float) -> bool:
        """Like ``drain``, but continues serving.

        Afterwards everything accepted so far is dropped, or durable and published, or waits in the redo log for a
        clock.
        """
        deadline = self._world.clock.monotonic() + timeout
        done = await self.shell.drain(deadline) or self.shell.core.waits_for_time
        return done and await self.shell.witnessed(deadline)

    async def close(self, *, at_once: bool = False) -> None:
        """Works on what remains for at most ``close_s`` (not with ``at_once``), ends the threads, and releases the
        lock.

        ``left`` is True if something is undecided or unpublished: the next start finishes it.
        """
        if self._shell is not None:
            deadline = self._world.clock.monotonic() + self._limits.close_s
            shell, self.left = self._shell, True
            if not at_once:
                drained = await self.drain(self._limits.close_s)
                self.left = not (await shell.witnessed(deadline) and drained)
            await shell.close()
            self._say_left(shell)
            self._shell = None
        self._lock.release()

    def _say_left(self, shell: SlotShell) -> None:
        """Logs the work left by an orderly stop. The process logs nothing after this line."""
        if not self.left:
            log.info("slot closed: everything accepted is decided and published", slot=self._slot.name)
            return
        copies = shell.copies
        log.warning(
            "slot closed before everything was published; readers see the rest after the next start of its joiner",
            slot=self._slot.name,
            undecided=shell.core.open_rows,
            unpublished_bytes=shell.store.unpublished_bytes,
            not_copied_bytes=copies.behind_bytes if copies is not None else 0,
        )

    @property
    def started(self) -> bool:
        return self._shell is not None

    @property
    def shell(self) -> SlotShell:
        if self._shell is None:
            raise RuntimeError("the joiner is not started")
        return self._shell

    @property
    def opened(self) -> JoinerEngine | None:
        return self if self.started else None

    @property
    def slot(self) -> str:
        return self._slot.name

    @property
    def directories(self) -> SlotPaths:
        return self._paths

    @property
    def redo_limit(self) -> int:
        """The redo log's size in bytes above which new work is refused."""
        return self._limits.bounds.redo_bytes

    def open_records(self) -> list[OpenRecord]:
        return self.shell.core.open_records()

    def stats(self) -> JoinerStats:
        core, store = self.shell.core, self.shell.store
        held = core.open_bytes + core.unwritten_bytes
        return JoinerStats(dict(self._counts), core.open_rows, held, store.redo_bytes, self._refused, self._redone)

    # -- one batch -------------------------------------------------------------------------------------------
    async def join(self, events: Events, *, timeout: float) -> JoinAnswers:
        """Makes one attempt at each event; after ``timeout`` seconds unknown rows are RETRY."""
        if self._shell is None or (reason := self._refusal(len(events))):
            self._refused += 1
            why = reason if self._shell is not None else "the joiner is not started"
            return JoinAnswers.alike(len(events), Outcome.RETRY, why, overloaded=True)
        if not len(events):
            return JoinAnswers.alike(0, Outcome.RETRY)
        with span("joiner.join", slot=self.slot, events=len(events)) as traced:
            answers = await self._join(events, self._world.clock.monotonic() + timeout)
            if traced is not None:
                traced.note(**answers.noted())
        self._counts.update(answers.counts())
        return answers

    async def _join(self, events: Events, deadline: float) -> JoinAnswers:
        self._throttle.looking_up += len(events)
        try:
            decided = await self._decide(events)
        finally:
            self._throttle.looking_up -= len(events)
        return await self._register(events, decided, deadline)

    def _refusal(self, ids: int) -> str:
        if self._refusing:
            return self._refusing
        core = self.shell.core
        return self._throttle.refusal(
            ids,
            open_ids=core.open_rows,
            record_bytes=core.open_bytes + core.unwritten_bytes,
            redo_bytes=self.shell.store.redo_bytes,
        )

    async def _decide(self, events: Events) -> Decided:
        store = self._world.store
        with span("joiner.look_up", keys=len(events)):
            found = await self._judge.look_up(store, events)
        core = self.shell.core
        try:
            decided = self._judge.decide(events, found, core.outstanding, core.early)
        except AdapterError as error:
            self._world.die(str(error))
        if decided.mismatched:
            settle_mismatched(events, decided, (await store.progress()).read_past_ns)
        if decided.undone and self.withholds():
            decided.withhold_unmatched()
        if decided.undone:
            self._judge.inline(events, decided)
        return decided

    async def _register(self, events: Events, decided: Decided, deadline: float) -> JoinAnswers:
        if not any(decided.kinds):
            return unregistered(decided)
        shell = self.shell
        token = shell.core.take_token()
        lines = self._build_lines(events, decided, token, self._world.clock.now_ns())
        reply = await shell.register(rows_of(events, decided, lines, token), deadline)
        return merge_reply(events, decided, reply, self._slot.datacentre)

"""The dispatcher's shell: follower, joiners, registry, database and clock around the core. One event loop.

Database and core are changed together without yielding, so no crash or cancellation separates ``changes`` from their
commit. The follower is read on the event loop: reading a block costs less than a hand-over to a thread.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import numpy as np

from photon.adapters.contract import Adapter
from photon.adapters.envelope import Envelope
from photon.adapters.logs.api import Block
from photon.adapters.logs.follower import Follower
from photon.adapters.logs.problems import AMBIGUOUS, UNREAD, ProblemKind
from photon.adapters.logs.tail import Tail
from photon.adapters.logs.watching import Watcher
from photon.batch.columns import Mask
from photon.config.back_off import BackOff
from photon.config.clock import NS_PER_S, Clock, utc
from photon.config.stopping import end, until
from photon.config.structured import get_logger
from photon.dispatcher.arrivals import Arrivals
from photon.dispatcher.calls import Calls, RegistryLookUps
from photon.dispatcher.contents import Contents
from photon.dispatcher.core import Core
from photon.dispatcher.discovery import Discovery
from photon.dispatcher.errors import StateError
from photon.dispatcher.events import Batch
from photon.dispatcher.exports import Exports
from photon.dispatcher.flow import Flow, Target
from photon.dispatcher.homes import Homes
from photon.dispatcher.intake import LineRules
from photon.dispatcher.ledger import Ledger, Verdict, figures
from photon.dispatcher.limits import Limits
from photon.dispatcher.lookups import Backlog, Behind, LookUpPolicy, divergences, must_know, settle
from photon.dispatcher.progress import IDLE_S, AskProgress, Pace, ProgressWatch
from photon.dispatcher.queues import Shares
from photon.dispatcher.replay.rereading import Sources, rereading
from photon.dispatcher.reporting import RETIMED_S, Troubles, tell_given_up, tell_retimed
from photon.dispatcher.retry import SETTLED_NS, TOO_NEW_ONCE_S, Patience
from photon.dispatcher.retry_loader import LOOK_S, RetryLoader
from photon.dispatcher.state import State
from photon.dispatcher.status import JoinTimes, Pending, Status, oldest, oldest_stretches
from photon.dispatcher.undecided import Claims
from photon.eventstore.api import ArrivalNotices
from photon.idregistry.api import Digester, Registry
from photon.joiner.api import JoinAnswers, Joiner, Outcome
from photon.joiner.foreign_columns import records_of

# The registry's commit time in seconds: from a registration's request until all datacentres can see it.
Measure = Callable[[], Awaitable[float | None]]

# Called before blocks are processed. If it returns False, they must not be processed, and the dispatcher ends.
Begun = Callable[[Sequence[Block]], Awaitable[bool]]
AWAY = BackOff(first=0.2, most=30.0)  # waits for an adapter that cannot read now
POLL_BYTES = 1 << 20
READ_SHARE_S = 0.05  # longest time spent reading before answers and commits have their turn
QUESTIONS_IN_FLIGHT = 4  # look-ups at a time
UNSETTLED_MAX = 4  # look-ups of a backlog at a time, each for one reading
REST_S = 1.0  # longest pause at rest: then due rows are loaded and the claim is made
UNSETTLED_BUSY = 2  # the same while fresh traffic needs look-ups and registrations too
CLOCK_BACK_NS = 5 * NS_PER_S  # a clock that goes back by more, and by more than clocks may differ, has been set
COMMIT_TIME = "commit time"  # its name in log lines about troubles


@dataclass(frozen=True, slots=True)
class Options:
    """A dispatcher's options. ``once``: stop once every event read has a verdict or cannot get one in this run."""

    once: bool = False
    in_flight: int = 8  # batches per joiner
    join_timeout_s: float = 30.0
    look_ups: LookUpPolicy = LookUpPolicy.NEVER
    look_up_timeout_s: float = 2.0
    identical_copies: bool = False  # the foreign files of all datacentres are byte-identical
    uncertainty_ns: int = 0  # S: times of one id that differ by more are reported
    guessed_ids: bool = False  # event ids may name something else: see ``contents``
    measure_s: float = 3.0  # interval of measuring the registry's commit time
    first_measure_s: float = 0.25  # the same until the first result
    commit_s: float = 0.2
    scan_s: float = 0.02
    progress_s: float = 0.05
    idle_progress_s: float = IDLE_S
    stop_s: float = 5.0  # longest wait of a graceful stop for answers in flight


@dataclass(frozen=True, slots=True)
class Policy:
    patience: Patience
    limits: Limits = field(default_factory=Limits)
    options: Options = field(default_factory=Options)


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Resources that the dispatcher's process opens and closes. ``random``: uniform in [0, 1)."""

    join: str
    datacentre: str
    adapter: Adapter
    digester: Digester
    joiners: Sequence[Joiner]
    progress: AskProgress
    registry: Registry | None
    envelope: Envelope
    clock: Clock
    random: Callable[[], float]
    homes: Homes | None = None  # the datacentres that share the work, with a registry; ``None`` if there is only one
    measure: Measure | None = None  # asked for the head start
    discovery: Discovery | None = None  # finds joiners in addition to those given
    compare_first: bool = False  # compare the first records of a run with the results of another process
    # Reports the arrival of primary events that others wait for. If ``None``, and with ``once``, they are found by
    # back-off.
    waking: ArrivalNotices | None = None
    begun: Begun | None = None


class DispatcherEngine:
    """Reads, sends, retries and commits until it is stopped or, with ``once``, done. Raises StateError, OSError."""

    def __init__(
        self,
        world: Surroundings,
        policy: Policy,
        follower: Follower,
        state: State,
        exports: Exports,
        *,
        who: str = "its dispatcher",
        watcher: Watcher | None = None,
        sources: Sources | None = None,
    ) -> None:
        """The caller opens and closes follower, state and exports. ``who``: the dispatcher's name in messages.

        ``watcher`` notifies the follower of changes; ``None`` means polling. ``sources``: where logs are reread;
        ``None`` disables rereading.
        """
        clock, homes, limits, options = world.clock, world.homes, policy.limits, policy.options
        if not world.joiners and world.discovery is None:
            raise ValueError("a dispatcher needs at least one joiner")
        if homes is not None and world.registry is None:
            raise ValueError("several datacentres share their work through a registry")
        self._world = world
        self._follower = follower
        self._registry = world.registry
        self._state = state
        self._exports = exports
        self._clock = clock
        self._options = options
        self._limits = limits
        self._homes = homes
        self._claims = Claims(state.database, follower, who)
        self._log = get_logger("photon.dispatcher")
        self._compared = False  # the first records were compared with those of another process
        # With --once nobody waits for fresh events.
        self._shares = Shares(1.0 if options.once else limits.catch_up_share, 0)
        self._contents = Contents(state.database) if options.guessed_ids else None
        self._core = Core(
            LineRules(world.adapter, world.digester, policy.patience),
            world.envelope,
            limits,
            world.datacentre,
            random=world.random,
            highs=state.highs(),
            rewritten=state.rewritten(),
            retry_rows=state.retry_rows,
            retry_bytes=state.retry_bytes,
            homes=homes,
            shares=self._shares,
            identical_copies=options.identical_copies,
            uncertainty_ns=options.uncertainty_ns,
            seen=None if self._contents is None else self._contents.see,
        )
        self._troubles = Troubles(self._log)
        self._wake = asyncio.Event()
        waiting = self._core.waiting
        pace = Pace(options.progress_s, options.idle_progress_s, once=options.once)
        self._store = ProgressWatch(
            world.progress, waiting, state, self._troubles, clock, self._wake.set, pace, policy.patience.slack_ns
        )
        self._behind = Behind(several=homes is not None)
        self._caught_up = False  # whether it had caught up when it last stopped reading
        self._look_ups = RegistryLookUps(world.registry, self._troubles, clock, options.look_up_timeout_s)
        self._is_behind = False
        self._backlog = Backlog(self._core)
        self._questions = self._unsettled = 0
        soon = None if homes is None else lambda: homes.head_start.answer_s
        self._flow = Flow(
            0, in_flight=options.in_flight, random=world.random, batch_events=limits.batch_events, soon=soon
        )
        timeout_s = options.join_timeout_s
        self._calls = Calls(world.joiners, self._flow, self._troubles, clock, timeout_s, self._resized)
        self._before = Counter(state.counts())
        self._tail = Tail(
            follower,
            watcher,
            clock.monotonic,
            report=self._log.warning,
            scan_s=options.scan_s,
            gather_s=limits.gather_s,
        )
        self._rereads, self._reopened = (
            ([], None)
            if sources is None
            else rereading(self._core, state, self._look_ups, clock, self._wake.set, sources)
        )
        self._stopping = False
        self._away = 0  # consecutive failures of an adapter that cannot read now
        self._attempts: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None
        self._read_to_end = False  # once: the follower has returned everything
        self._retries = RetryLoader(waiting, state, once=options.once, now_ns=clock.now_ns())
        self._arrivals: Arrivals | None = None
        if world.waking is not None and not options.once:
            self._arrivals = Arrivals(world.waking, waiting, state, self._retries, clock, self._wake.set)
        self._next_commit = self._next_retimed = 0.0
        self._at_rest = False  # nothing happened since a commit that changed nothing, and no event is in memory
        self._clock_ns = state.clock_ns  # the latest time seen
        self._early_told = False

    def _resized(self, joiners: int) -> None:
        self._shares.resize(joiners * self._options.in_flight * self._limits.batch_events)
        self._wake.set()

    # -- control ----------------------------------------------------------------------------------------------------
    def stop(self) -> None:
        """Ends ``run`` soon: waits for answers in flight, then commits."""
        self._stopping = True
        self._wake.set()

    @property
    def times(self) -> JoinTimes:
        return self._core.counting.times

    @property
    def core(self) -> Core:
        return self._core

    def status(self, *, conflicts: bool = False) -> Status:
        """Returns the current figures. ``conflicts``: also finds different lines with one id; may be slow."""
        found = self._contents.found() if conflicts and self._contents is not None else (0, None)
        counts = self._before.copy()
        counts.update(self._core.counting.live)
        read, known = self._follower.backlog()
        stored_ns = self._state.oldest_first_read_ns()
        oldest = [ns for ns in (self._core.logs.oldest_first_read_ns(), stored_ns) if ns is not None]
        return Status(
            **figures(counts),
            bytes_read=read,
            bytes_known=known,
            in_flight=self._flow.outstanding,
            stored=self._state.retry_rows,
            stored_bytes=self._state.retry_bytes,
            oldest_stored_ns=stored_ns,
            joiners_failing=self._flow.ejected,
            look_ups=self._look_ups.looked_up,
            attempts=self._calls.asked,
            oldest_first_read_ns=min(oldest, default=None),
            caught_up=self._follower.caught_up() and self._core.logs.window_bytes == 0,
            arrived=self._core.waiting.arrivals,
            followed=self._core.waiting.followed,
            reopened=self._reopened.listed if self._reopened is not None else 0,
            reopened_missing=self._reopened.missing if self._reopened is not None else 0,
            left=self._core.queues.left,
            head_start_s=self._homes.head_start.seconds if self._homes is not None else 0.0,
            homes=self._homes.status() if self._homes is not None else (),
            lag=self._follower.lag(),
            problems={kind.value: n for kind, n in self._follower.problems.items()},
            conflicting=found[0],
            conflict=found[1],
            unread=tuple(map(str, self._follower.unread((*UNREAD, ProblemKind.VANISHED)))),
            unended=tuple(map(str, self._follower.unread((ProblemKind.UNENDED,)))),
            alike=tuple(map(str, self._follower.unread(AMBIGUOUS))) if self._core.intake.placed else (),
        )

    def oldest(self, limit: int) -> list[Pending]:
        held = (self._core.held(stretch) for stretch in oldest_stretches(self._core.logs.heads(), limit))
        return oldest(held, self._state.oldest_rows(limit), self._clock.now_ns(), limit)

    def ledger(self) -> Ledger:
        return self._state.ledger()

    # -- the loop ---------------------------------------------------------------------------------------------------
    async def run(self) -> None:
        """Runs until ``stop`` or, with ``once``, until done. All verdicts are committed when it returns."""
        asking = [asyncio.create_task(self._store.run())]
        if self._homes is not None and self._world.measure is not None:
            asking.append(asyncio.create_task(self._follow_commit_time(self._homes, self._world.measure)))
        asking += [asyncio.create_task(run()) for run in self._rereads]
        if self._world.discovery is not None:
            asking.append(asyncio.create_task(self._world.discovery.run(self._calls, self._troubles)))
        if self._arrivals is not None:
            asking.append(asyncio.create_task(self._arrivals.run()))
        for task in asking:
            task.add_done_callback(self._attempted)
        self._tail.attach(asyncio.get_running_loop(), self._wake.set)
        try:
            while not self._stopping and self._failure is None:
                await self._turn()
                if self._options.once and self._done():
                    break
            await self._wind_down()
        finally:
            self._tail.close()
            await end([*asking, *self._attempts])
        if self._failure is not None:
            raise self._failure

    async def _turn(self) -> None:
        """Runs one round of reading, sending and committing, then waits until there is more to do."""
        woken = self._wake.is_set()
        self._wake.clear()
        read = await self._read()
        now, now_ns = self._clock.monotonic(), self._clock.now_ns()
        self._look_at_clock(now_ns)
        self._retries.look(now_ns, now)
        sent = self._send(now)
        if now >= self._next_commit:
            self._at_rest = not (self._commit(now) or self._core.waiting.open or self._options.once)
            self._next_commit = now + self._options.commit_s
        elif woken or sent or read:
            self._at_rest = False
        if sent or read:
            await asyncio.sleep(0)
            return
        pause = self._pause(self._clock.monotonic())
        if pause > 0:
            await until(self._wake, pause)

    def _look_at_clock(self, now_ns: int) -> None:
        """Warns if the clock is behind a time it has shown before, and makes waiting events due."""
        back_ns, self._clock_ns = self._clock_ns - now_ns, now_ns
        if back_ns > max(CLOCK_BACK_NS, self._core.intake.rules.patience.slack_ns):
            self._log.warning(
                "this machine's clock has gone back: waiting events are tried now, and then follow the new time; "
                "set the clock if it is slow",
                clock=utc(now_ns),
                was=utc(now_ns + back_ns),
            )
            self._retries.clock_went_back(now_ns)

    def _tell_early(self, batch: Batch, are_early: Mask, now_ns: int) -> None:
        """Warns that events are newer than the clock, unless they are due within seconds. For --once."""
        early = np.flatnonzero(are_early)
        newest = batch.events.row(int(early[batch.events.times[early].argmax()]))
        if newest.event_time_ns <= now_ns + TOO_NEW_ONCE_S * NS_PER_S:
            return
        self._early_told = True
        self._log.warning(
            "events newer than this machine's clock wait until it catches up, with --once for a later run; set "
            "the clock if it is slow",
            clock=utc(now_ns),
            event_time=utc(newest.event_time_ns),
            event_id=newest.event_id,
            log=newest.file.path,
            offset=newest.offset,
        )

    def _pause(self, now: float) -> float:
        moments = [now + REST_S if self._at_rest else self._next_commit]
        if self._retries.pending:
            moments.append(now + LOOK_S)
        if self._may_read:
            moments.append(self._tail.next_at())
        if (due := self._core.next_due(self._patience_s()[1])) is not None and self._flow.has_room(now):
            moments.append(due)
        if (due := self._core.queues.next_due(now)) is not None and self._questions < QUESTIONS_IN_FLIGHT:
            moments.append(due)
        if (free := self._flow.next_free(now)) is not None:
            moments.append(free)
        return min(moments) - now

    # -- reading ----------------------------------------------------------------------------------------------------
    @property
    def _may_read(self) -> bool:
        return self._store.may_read and not self._read_to_end

    async def _read(self) -> bool:
        """Scans if it is time to, and reads blocks for a while. Returns True if it read any."""
        if not self._may_read:
            return False
        begun = now = self._clock.monotonic()
        if not self._tail.due(now) and self._caught_up and not self._options.once:
            return False  # no scan is due
        if self._tail.due(now):
            begun_ns = self._clock.now_ns()
            self._tail.scan()
            self._claims.scanned(self._follower.seen_ns(begun_ns))
            now = self._clock.monotonic()
            self._look_at_backlog(now)
        took = False
        while (
            self._core.intake.room()
            and self._unsettled < (UNSETTLED_BUSY if self._shares.busy(now) else UNSETTLED_MAX)
            and now - begun < READ_SHARE_S
            and not self._stopping
        ):
            blocks = self._follower.poll(POLL_BYTES)
            if not blocks:
                if self._options.once and not took:
                    await self._read_last()
                break
            took = True
            await self._take(blocks)
            now = self._clock.monotonic()
        if self._core.intake.placed:
            self._follower.speak()
        self._caught_up = self._follower.caught_up()
        return took

    def _look_at_backlog(self, now: float) -> None:
        if self._registry is None or self._options.look_ups is LookUpPolicy.NEVER:
            return
        read, known = self._follower.backlog()
        caught_up = self._caught_up and not self._core.queues.long
        head_start_s = self._homes.head_start.seconds if self._homes is not None else 0.0
        self._is_behind = self._behind.look(known - read, caught_up, now, head_start_s)
        self._choose_look_first()

    def _choose_look_first(self) -> None:
        """Decides if events are looked up before they are sent."""
        asks = self._is_behind and (self._homes is not None or self._backlog.worth.pays)
        self._core.queues.look_first = asks or self._options.look_ups is LookUpPolicy.ALWAYS

    async def _take(self, blocks: Sequence[Block]) -> None:
        """Parses blocks, and sends ready events meanwhile, so that joiners have work while the rest is parsed."""
        self._store.wanted()
        if self._world.compare_first and not self._compared:
            await self._compare_first(blocks[0])
        if self._world.begun is not None and not await self._world.begun(blocks):
            self.stop()
            return
        now_ns = self._clock.now_ns()
        whole = self._is_behind and self._backlog.worth.next()
        # Reread blocks of one log at a time: two logs may hold the same lines.
        for repeated, some in groupby(blocks, lambda block: block.identity if self._core.logs.repeats(block) else ""):
            take = self._backlog.take if whole or repeated else self._core.intake.take
            for block in some:
                for _ in take(block, now_ns, self._clock.monotonic()):
                    self._send(self._clock.monotonic())
                    await asyncio.sleep(0)
                    if not self._core.intake.away:
                        self._away = 0
                    elif not await self._until_back():
                        return  # the block is incomplete, so it is read again
            if whole or repeated:
                self._unsettled += 1
                question = self._backlog.question()
                self._begin(self._settle_repeated(question) if repeated else self._settle(question))

    async def _compare_first(self, block: Block) -> None:
        """Raises AdapterError if another process computes different headers for the first records of this run."""
        from photon.adapters.testkit.first_records import FirstRecords  # only runs with user code need it
        from photon.adapters.testkit.other_process import NotThere

        records, offsets = records_of(block)
        if not records:
            return
        self._compared = True
        first = FirstRecords(self._world.adapter, list(zip(offsets, records, strict=True)), block.file)
        try:
            await asyncio.to_thread(first.compare)
        except NotThere as error:
            why = str(error)
            self._log.warning("the first records were not compared with those of another process", why=why)

    async def _until_back(self) -> bool:
        """Waits before the adapter is asked again; returns False if the engine is to stop."""
        if not self._away:
            self._log.warning(
                "the adapter cannot read records now; it will be called again", why=self._core.intake.away
            )
        self._away += 1
        until = self._clock.monotonic() + AWAY.delay(self._away)
        while not self._stopping and self._clock.monotonic() < until:
            await asyncio.sleep(AWAY.first)
            self._send(self._clock.monotonic())
        return not self._stopping

    async def _read_last(self) -> None:
        """Scans once more, then reads last lines that have no line end. For --once, when all else was read."""
        self._follower.scan()
        if not self._follower.caught_up():
            return
        while blocks := self._follower.poll(POLL_BYTES, final=True):
            await self._take(blocks)
            if self._stopping:
                return
        self._read_to_end = True
        self._wake.set()

    # -- sending ----------------------------------------------------------------------------------------------------
    def _send(self, now: float) -> bool:
        """Sends as many batches as joiners and the registry accept. Returns True if there were any."""
        if self._homes is not None:
            self._core.queues.batch_events = self._flow.batch_events()
        sent = self._ask(now)
        flush, wait_s = self._patience_s()
        while (target := self._flow.choose(now)) is not None:
            batch = self._core.next_batch(now, flush=flush, wait_s=wait_s, most=self._flow.most_events(target))
            self._flow.sent(target, len(batch) if batch is not None else 0, now)
            if batch is None:
                break
            sent = True
            self._begin(self._attempt(target, batch, now))
        return sent

    def _patience_s(self) -> tuple[bool, float]:
        """Returns (whether nothing more can be read now, seconds that fresh events wait for a batch to fill)."""
        if self._read_to_end or not self._core.intake.room():
            return True, 0.0
        flush, wait_s = self._follower.caught_up(), self._limits.batch_wait_s
        return flush, self._flow.company_s(wait_s) if flush else wait_s

    def _ask(self, now: float) -> bool:
        asked = False
        while self._questions < QUESTIONS_IN_FLIGHT and (batch := self._core.next_question(now)) is not None:
            asked = True
            self._questions += 1
            self._begin(self._look_up(batch))
        return asked

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        self._store.wanted()
        task = asyncio.create_task(work)
        self._attempts.add(task)
        task.add_done_callback(self._attempted)

    def _attempted(self, task: asyncio.Task[None]) -> None:
        self._attempts.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failure = self._failure or error
        self._wake.set()

    async def _attempt(self, target: Target, batch: Batch, sent_at: float) -> None:
        answers: JoinAnswers | None = None
        try:
            answers = await self._calls.join(target, batch.events)
        finally:
            now = self._clock.monotonic()
            self._flow.answered(target, len(batch), answers, sent_at, now)
        if answers is None or len(answers.verdicts) != len(batch):
            answers = JoinAnswers.alike(len(batch), Outcome.RETRY)
        tell_given_up(self._log, batch.events, answers)
        now_ns = self._clock.now_ns()
        if not self._early_told and answers.verdicts.says(Outcome.TOO_NEW):
            self._tell_early(batch, answers.verdicts.outcomes == Outcome.TOO_NEW, now_ns)
        self._core.answered(batch, answers, now_ns, now)

    async def _look_up(self, batch: Batch) -> None:
        """Looks events up; known ones get their verdicts. If the look-up fails, joiners decide."""
        found = await self._look_ups.look_up(batch.events.digests, batch.events.times)
        self._questions -= 1
        now = self._clock.monotonic()
        left = settle(self._core, batch, found, self._clock.now_ns(), now)
        self._core.queues.asked(left, len(batch), now, patient=batch.patient)

    async def _settle(self, question: Batch) -> None:
        found = await self._look_ups.look_up(question.events.digests, question.events.times)
        self._unsettled -= 1
        self._backlog.settle(question, found, self._clock.now_ns(), self._clock.monotonic())
        self._choose_look_first()

    async def _settle_repeated(self, question: Batch) -> None:
        """Looks up reread events. Sends none of them until it is known which ones were counted."""
        while not self._stopping and self._failure is None:
            if self._core.logs.clear(question.stretches):
                # Ask the store first: a row leaves it only after its verdict exists.
                waiting = self._state.lines_that_wait(list(set(question.events.keys)))
                found = await self._look_ups.look_up(question.events.digests, question.events.times)
                if self._registry is None or not must_know(question, found):
                    self._unsettled -= 1
                    places = {} if found is None else divergences(question, found, waiting)
                    for identity, at in places.items():
                        self._core.logs.diverge(identity, at)
                    self._backlog.settle(question, found, self._clock.now_ns(), self._clock.monotonic(), waiting)
                    if places:
                        self._commit(self._clock.monotonic(), at_once=True)
                    return
            await asyncio.sleep(self._options.commit_s)

    async def _follow_commit_time(self, homes: Homes, measure: Measure) -> None:
        """Adapts the head start to the registry's commit time, which is unknown before the first commit."""
        pauses = BackOff(self._options.first_measure_s, self._options.measure_s).pauses()
        while True:
            pause_s = next(pauses)
            try:
                commit_s = await measure()
                if commit_s is not None:
                    homes.head_start.measured(commit_s)
                    pause_s = self._options.measure_s
                self._troubles.well(COMMIT_TIME, self._clock.monotonic())
            except Exception as error:
                self._troubles.met(COMMIT_TIME, f"{type(error).__name__}: {error}", self._clock.monotonic())
            await asyncio.sleep(pause_s)

    # -- committing -------------------------------------------------------------------------------------------------
    def _commit(self, now: float, *, store_all: bool = False, at_once: bool = False) -> bool:
        """Commits all changes so far. Returns True if more than the claim changed."""
        counting, committing = self._core.counting, self._core.committing
        if counting.retimed is not None and now >= self._next_retimed:
            tell_retimed(self._log, counting.retimed, counting.live[Verdict.RETIMED])
            counting.retimed, self._next_retimed = None, now + RETIMED_S
        now_ns = self._clock.now_ns()
        changes = committing.changes(now_ns, now, store_all=store_all)
        changed = bool(changes)
        # Not between two blocks, where the claim would not cover everything read.
        if not at_once and (changes or store_all or self._claims.due(now)):
            changes.also += self._claims.change(committing.undecided(), now_ns, now)
        elif not changed:
            return False
        changes.also.append(("INSERT OR REPLACE INTO meta VALUES ('clock_ns', ?)", (now_ns,)))
        if self._contents is not None:
            changes.also += self._contents.changes()
        self._state.commit(changes)
        committing.committed()
        if changes.exports:
            self._exports.flush()
        return changed

    def _done(self) -> bool:
        """True if nothing is left to read, and nothing can change in this run."""
        waiting, state = self._core.waiting, self._state
        if not self._read_to_end or waiting.open or self._attempts:
            return False
        self._commit(self._clock.monotonic(), store_all=True)
        if state.retry_rows and not self._retries.swept:
            return False
        if state.retry_rows and state.waits_for_something(SETTLED_NS):
            return False
        if waiting.given_up:
            self._log.warning(
                "events could not be decided and wait for the next run; a primary log that was read before may be "
                "gone",
                events=waiting.given_up,
            )
        return True

    async def _wind_down(self) -> None:
        """Waits for answers in flight; events without a verdict then go to the retry store."""
        if isinstance(self._failure, StateError):
            return
        if self._attempts:
            await asyncio.wait(self._attempts, timeout=self._options.stop_s)
        self._commit(self._clock.monotonic(), store_all=True)

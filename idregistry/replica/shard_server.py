"""Serves one shard on one replica: queues requests, proposes Raft entries one after another, returns replies.

Everything here runs on one event loop; the driver's thread applies entries and passes their outcomes to the loop.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from photon.batch.ids import Ids
from photon.batch.verdicts import Verdicts
from photon.config.clock import Clock
from photon.config.structured import get_logger
from photon.idregistry.api import BATCH_BITS, U8, Answer
from photon.idregistry.core import commands as c
from photon.idregistry.core.config_machine import ConfigMachine
from photon.idregistry.core.former_shards import NotKnown, held_elsewhere
from photon.idregistry.core.outcomes import Answered, GroupFacts, Refusal, SlotClaim, Status
from photon.idregistry.core.restored_shard import CLOSED, CLOSED_REASON
from photon.idregistry.core.shard_standing import Bools
from photon.idregistry.core.sharding import FOREVER
from photon.idregistry.core.state_machine import UNKNOWN_CALLER, WRONG_SHARD, BatchAnswers, ShardMachine
from photon.idregistry.raft.api import Applied, Group, GroupState, NotLeader, ProposalOutcome
from photon.idregistry.replica.batching import Batcher, Entry, MemoryLimit, Waiting
from photon.idregistry.replica.clocks import ClockWatch
from photon.idregistry.replica.lead_placement import LeadPlacement
from photon.idregistry.replica.proposing import applied, not_applied, not_leading, propose, proposed

log = get_logger(__name__)

PROPOSAL_TIMEOUT = 5.0  # seconds after which an entry in flight counts as unknown and the next one is proposed
_CONFIG_POLL = 0.01

_NOT_OURS = Refusal(Status.WRONG_SHARD, "not all ids belong to this shard")

Future = asyncio.Future[Answered]


@dataclass(eq=False, kw_only=True)
class ShardServer:
    """Serves one shard; only the group's leader proposes."""

    number: int
    group: Group
    machine: ShardMachine
    machines: Mapping[int, ShardMachine]  # the state machines of all shards
    config: ConfigMachine
    clock: Clock
    clocks: ClockWatch
    memory: MemoryLimit
    leading: LeadPlacement

    def __post_init__(self) -> None:
        self.damaged = False  # rows in memory do not match their sums
        self.batcher: Batcher[Future] = Batcher()
        self._pump_scheduled = False

    # -- requests -----------------------------------------------------------------------------------------------
    async def insert(self, caller: int, claim: SlotClaim | None, ids: Ids, *, timeout: float) -> Answered:
        """Registers ids, in one attempt of at most ``timeout`` seconds."""
        deadline = self.clock.monotonic() + timeout
        refused = _checked(ids, c.check_inserts) or self._refusal() or self._no_memory()
        refused = refused or await self._introduce(caller, claim, ids, deadline)
        if refused is not None:
            return refused
        self.leading.inserted(self.machine.datacentre_of(caller), len(ids))
        # TOO_NEW needs a clock, so it is decided here and not when the entry is applied. A known id has its answer,
        # regardless of its event time: otherwise it would wait for that time.
        too_new = ids.times > self.clocks.too_new_after_ns()
        if (rows := np.flatnonzero(too_new)).size:
            too_new[rows] = ~self.machine.holds(ids.take(rows).digests, FOREVER[1])
        return await self._by_entry(ids, too_new, caller, deadline)

    async def clear(self, ids: Ids, *, timeout: float) -> Answered:
        """Clears ids, in one attempt of at most ``timeout`` seconds."""
        deadline, none = self.clock.monotonic() + timeout, np.zeros(len(ids), np.bool_)
        return _checked(ids) or self._refusal() or await self._by_entry(ids, none, 0, deadline)

    def look_up(self, ids: Ids) -> Answered:
        """Looks ids up in local memory; the answers are hints."""
        if not self.machine.configured:
            return Refusal(Status.UNKNOWN, f"shard {self.number} has not been set up yet")
        if refused := _checked(ids):
            return refused
        found = self.machine.look_up(ids.digests, ids.times)
        if found.says(WRONG_SHARD):
            return _NOT_OURS
        missing = np.flatnonzero(found.outcomes != Answer.PRESENT)
        with contextlib.suppress(NotKnown):  # a miss costs one wasted join
            held, _ = self.held_elsewhere(ids.take(missing).digests)
            found.outcomes[missing[held]] = Answer.ELSEWHERE
        return found

    def held_elsewhere(self, digests: bytes, *, restoring: bool = False) -> tuple[Bools, int]:
        """See ``former_shards``. Raises NotKnown."""
        removed = self.config.changes.removed
        return held_elsewhere(self.number, digests, self.machines, removed, restoring=restoring)

    async def propose_own(self, command: c.Reopen | c.RegisterAgain, *, timeout: float) -> U8 | str | Refusal:
        """Proposes the command for those ids that no other shard holds; the others are answered ELSEWHERE.

        A string says why the state machine refused the command. Raises CommandError.
        """
        c.decode_shard(
            c.encode(command)
        )  # an entry that no replica could decode must not be committed: it would stop them all
        try:
            held, config = self.held_elsewhere(command.digests, restoring=isinstance(command, c.RegisterAgain))
        except NotKnown as reason:
            return Refusal(Status.UNKNOWN, str(reason))
        answers = np.full(len(held), Answer.ELSEWHERE, np.uint8)
        rows = np.flatnonzero(~held)
        if rows.size:
            own = c.encode(command.take(rows, config))
            found: U8 | str | Refusal = await applied(self.group, own, f"shard {self.number}", timeout=timeout)
            if isinstance(found, str | Refusal):
                return found
            answers[rows] = found
        return answers

    def facts(self) -> GroupFacts:
        state, batcher = self.group.state(), self.batcher
        return GroupFacts.of(
            self.number,
            state,
            ids=self.machine.ids,
            batches=batcher.batches,
            batch_mean=batcher.ids / batcher.batches if batcher.batches else 0.0,
            commit_ms_p50=batcher.commit_ms(0.5),
            commit_ms_p99=batcher.commit_ms(0.99),
            bytes=self.machine.resident_bytes,
            overloaded=batcher.overloaded,
            checked=self.machine.checks.last,
            alarms=tuple(self._alarms(state)),
        )

    def _alarms(self, state: GroupState) -> Iterator[str]:
        if not state.writable:
            yield "the disk is full: this replica is inactive until there is room, and then resumes by itself"
        if self.memory.reached:
            yield self.memory.reason
        if self.damaged:
            yield "rows in memory have been corrupted: replace or restart this replica, and check its machine"
        difference = self.machine.checks.difference
        if difference is not None:
            yield (
                f"the state after entry {difference.index} differs from the leader's ({difference.ours.hex()}, "
                f"{difference.leaders.hex()}): if one replica differs, replace it; if all do, replace the leader"
            )

    # -- facts that concern every shard -------------------------------------------------------------------------
    @property
    def leads(self) -> bool:
        return self.group.state().is_leader

    def let_nearer_lead(self) -> None:
        """Transfers leadership to a replica near the datacentre that inserts most, if there is one.

        The leader calls it once a second.
        """
        better = self.leading.better(self.clock.monotonic())
        to = next((name for name in better if self.group.hears(name)), None)
        if to is not None:
            log.info("registry.lead_moves", shard=self.number, to=to, why="most inserts come from there")
            self.group.transfer(to)

    async def propose(self, command: c.ShardCommand) -> ProposalOutcome:
        return await proposed(self.group, c.encode(command), timeout=PROPOSAL_TIMEOUT)

    # -- inside -------------------------------------------------------------------------------------------------
    def _refusal(self) -> Refusal | None:
        if refused := not_leading(self.group.state()):
            return refused
        if not self.machine.configured:
            return Refusal(Status.UNKNOWN, f"shard {self.number} is being set up")
        if self.machine.closed:
            return Refusal(Status.UNKNOWN, f"shard {self.number} {CLOSED_REASON}")
        return None

    def _no_memory(self) -> Refusal | None:
        return Refusal(Status.OVERLOADED, self.memory.reason) if self.memory.reached else None

    async def _introduce(self, caller: int, claim: SlotClaim | None, ids: Ids, deadline: float) -> Refusal | None:
        """Makes sure, if necessary by a separate entry, that this shard knows the owners of the ids' tokens."""
        incarnations = {caller, *(ids.tokens >> np.uint64(BATCH_BITS)).tolist()}
        if self.machine.knows(incarnations):
            return None
        if claim is None:
            return Refusal(Status.UNKNOWN_CALLER)
        wanted = incarnations.union(claim.incarnations)
        announcement = self.config.announcement(claim.slot.name, wanted)
        while announcement is None:  # the config group's entry has not reached this replica yet
            if self.clock.monotonic() + _CONFIG_POLL > deadline:
                return Refusal(
                    Status.UNKNOWN, f"incarnation {caller} of slot {claim.slot.name} is not known here yet"
                )
            await asyncio.sleep(_CONFIG_POLL)
            announcement = self.config.announcement(claim.slot.name, wanted)
        if isinstance(announcement, str):
            return Refusal(Status.REFUSED, announcement)
        outcome = await self.propose(announcement)
        if isinstance(outcome, Applied):
            return Refusal(Status.REFUSED, outcome.result) if outcome.result else None
        return not_applied(outcome, f"shard {self.number}")

    async def _by_entry(self, ids: Ids, too_new: Bools, caller: int, deadline: float) -> Answered:
        """Proposes all ids except too new ones and ones that another shard holds. ``caller``: 0 means a clear."""
        try:
            held, config = self.held_elsewhere(ids.digests)
        except NotKnown as reason:
            return Refusal(Status.UNKNOWN, str(reason))
        apart = held | too_new
        if len(ids) and not np.count_nonzero(apart):
            return await self._queued(ids, caller, deadline, config)
        whole = Verdicts.plain(np.where(held, np.uint8(Answer.ELSEWHERE), np.uint8(Answer.TOO_NEW)))
        rows = np.flatnonzero(~apart)
        if not rows.size:
            return whole
        found = await self._queued(ids.take(rows), caller, deadline, config)
        return found if isinstance(found, Refusal) else whole.put([(rows, found)])

    async def _queued(self, ids: Ids, caller: int, deadline: float, config: int) -> Answered:
        future: Future = asyncio.get_running_loop().create_future()
        if not self.batcher.offer(Waiting(future, ids, caller, deadline, config)):
            return Refusal(Status.OVERLOADED, f"shard {self.number} has {self.batcher.queued_ids} ids waiting")
        self._pump_soon()
        try:
            async with asyncio.timeout(max(deadline - self.clock.monotonic(), 0)):
                return await future
        except TimeoutError:
            return Refusal(Status.UNKNOWN, f"shard {self.number} did not commit in time")

    def _pump_soon(self) -> None:
        """Schedules ``_pump`` to run after all handlers that are ready now have queued their requests."""
        if not self._pump_scheduled and self.batcher.may_take:
            self._pump_scheduled = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        self._pump_scheduled = False
        entry, expired = self.batcher.take(self.clock.monotonic())
        for future in expired:
            _resolve(future, Refusal(Status.UNKNOWN, f"shard {self.number} could not process the request in time"))
        if entry is None:
            return
        propose(
            self.group,
            c.encode(entry.command()),
            timeout=PROPOSAL_TIMEOUT,
            done=lambda outcome: self._finished(entry, outcome),
            loop=asyncio.get_running_loop(),
        )
        self._pump_soon()

    def _finished(self, entry: Entry[Future], outcome: ProposalOutcome) -> None:
        self.batcher.finish(entry, self.clock.monotonic(), applied=isinstance(outcome, Applied))
        if isinstance(outcome, Applied) and isinstance(outcome.result, BatchAnswers):
            for future, answers in entry.split(outcome.result):
                _resolve(future, _judged(answers))
        else:
            refusal = not_applied(outcome, f"shard {self.number}")
            for future in entry.tickets:
                _resolve(future, refusal)
            if isinstance(outcome, NotLeader):
                for future in self.batcher.drain():
                    _resolve(future, refusal)
        self._pump_soon()


def _checked(ids: Ids, check: Callable[[Ids], None] = c.check_number) -> Refusal | None:
    try:
        check(ids)
    except c.CommandError as error:
        return Refusal(Status.REFUSED, str(error))
    return None


def _judged(answers: Verdicts) -> Answered:
    """Returns a Refusal if there is an internal answer, so that the caller repeats the whole request with the
    same tokens."""
    if answers.says(WRONG_SHARD):
        return _NOT_OURS
    if answers.says(UNKNOWN_CALLER):
        return Refusal(Status.UNKNOWN_CALLER)
    if answers.says(CLOSED):
        return Refusal(Status.UNKNOWN, f"this shard {CLOSED_REASON}")
    return answers


def _resolve(future: Future, reply: Answered) -> None:
    if not future.done():
        future.set_result(reply)

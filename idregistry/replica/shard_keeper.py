"""Carries out changes of the shards on one replica: opens and closes groups, proposes entries, answers operators.

Runs on the replica's event loop, called by its caretaker. Its decisions use only the state applied on this replica;
``reshard_plan`` and the machines hold the rules.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, replace

from photon.config.clock import Clock
from photon.config.structured import get_logger
from photon.idregistry.core import commands as c
from photon.idregistry.core.commands import NO_TIME
from photon.idregistry.core.config_machine import ConfigMachine
from photon.idregistry.core.outcomes import Refusal, Status
from photon.idregistry.core.reshard_plan import Plan, config_step, plan, seeds, shard_step
from photon.idregistry.core.resharding import Action, Ask, Change, Resharding, ReshardOutcome, ShardView, Stage
from photon.idregistry.core.shard_changes import Changes, Intent
from photon.idregistry.core.shard_standing import ShardFacts, Standing
from photon.idregistry.core.state_machine import ShardMachine
from photon.idregistry.raft.api import Applied, Group
from photon.idregistry.raft.host import RaftHost
from photon.idregistry.replica.clocks import ClockWatch
from photon.idregistry.replica.proposing import applied, proposed
from photon.idregistry.replica.shard_server import PROPOSAL_TIMEOUT, ShardServer

log = get_logger(__name__)

BEHIND_S = 5.0  # how long a verification waits for shards of this replica to catch up
BEHIND_POLL_S = 0.05


@dataclass(eq=False, kw_only=True)
class ShardKeeper:
    name: str
    config_group: Group
    config: ConfigMachine
    groups: dict[int, Group]  # the replica's own, as is ``shards``; both are changed here
    shards: dict[int, ShardServer]
    serve: Callable[[int, Group, ShardMachine], ShardServer]
    opener: RaftHost | None  # ``None``: no change can begin
    clock: Clock
    clocks: ClockWatch
    retention: bool

    def __post_init__(self) -> None:
        # (the config group's value, its live shards): cached, as it is needed many times a second.
        self._live: tuple[Changes, frozenset[int]] = Changes(), frozenset()
        self._coming: dict[int, tuple[ShardMachine, Future[Group | None]]] = {}
        self._failed: dict[int, str] = {}  # shard -> why its group could not be opened; only a restart tries again
        # Shards that must serve before this replica is ready: shards present at its start, and shards opened since.
        self.waited_for = set(self.shards)

    # -- the caretaker's --------------------------------------------------------------------------------------------
    @property
    def changing(self) -> bool:
        changes = self.config.changes
        known = (server.machine.sharding.standing for server in self.shards.values() if self.is_live(server.number))
        return (
            changes.pending is not None
            or bool(self._coming)
            or any(standing.decided < changes.decided for standing in known)
        )

    def is_live(self, shard: int) -> bool:
        changes = self.config.changes
        if changes is not self._live[0]:
            self._live = changes, frozenset(changes.live)
        return shard in self._live[1]

    def open_and_close(self) -> None:
        """Adds the groups of activated shards, and removes the groups of removed shards."""
        if self.opener is None:
            return
        changes = self.config.changes
        for number in changes.live:
            if number not in self.shards and number not in self._coming and number not in self._failed:
                self._open(self.opener, number)
        for number, (machine, coming) in list(self._coming.items()):
            if coming.done():
                del self._coming[number]
                self._opened(number, machine, coming)
        wanted = changes.pending.shards if changes.pending is not None else ()
        for number in list(self.shards):
            # A number given out but no longer live never returns.
            if number <= changes.last_shard and not self.is_live(number) and number not in wanted:
                self.shards.pop(number)
                self.groups.pop(number)
                self.waited_for.discard(number)
                self.opener.remove_group(number)
                log.info("registry.shard_removed", replica=self.name, shard=number)

    async def care_for_changes(self) -> bool:
        """Makes the config group's next proposal, if this replica leads it; True if nothing is left to do."""
        if not self.config_group.state().is_leader:
            return True
        # An untrusted clock must not abort a late change; other decisions here need no clock.
        now_ns = NO_TIME if self.clocks.objection() else self.clock.now_ns()
        step = config_step(self.config.changes, self._facts(), now_ns)
        if step is None:
            return self.config.changes.pending is None
        outcome = await proposed(self.config_group, c.encode(step), timeout=PROPOSAL_TIMEOUT)
        if isinstance(outcome, Applied) and not outcome.result and isinstance(step, c.Decide):
            log.info("registry.reshard", config=step.config, activated=step.activate, reason=step.reason or None)
        return False

    def steps(self, server: ShardServer) -> list[c.ShardCommand]:
        """Returns the proposals, in order, for a live shard led from here."""
        facts = server.machine.sharding
        if facts.number:
            self.waited_for.add(server.number)
            step = shard_step(self.config.changes, facts, retention=self.retention)
            return [] if step is None else [step]
        # Fences, incarnations and config are read at one moment, and the config is entered last: so the shard opens
        # with every fence made before its activation, regardless of other proposers.
        founding = self.config.founding(server.number)
        missing = [slot for slot in founding.slots if not server.machine.has_heard(slot)]
        return [*seeds(missing), founding.configure]

    # -- requests -----------------------------------------------------------------------------------------------
    def without_shard(self, shard: int) -> Refusal:
        """Returns the refusal for a shard that is not (or no longer) here."""
        changes = self.config.changes
        if shard in changes.live or shard > changes.last_shard:
            return Refusal(Status.UNKNOWN, f"replica {self.name} has not opened shard {shard} yet")
        return Refusal(Status.WRONG_SHARD, f"replica {self.name} has no shard {shard}")

    async def answer(self, ask: Ask, *, timeout: float) -> ReshardOutcome:
        if ask.action is Action.STATUS:
            return self.status()
        if ask.action is Action.VERIFY:
            await self._caught_up(min(timeout / 2, BEHIND_S))
            found = await problems(self.config, self.shards)
            return self.status(problems=tuple(found))
        state = self.config_group.state()
        if not state.is_leader:
            return Refusal(Status.NOT_LEADER, leader=state.leader or "")
        if ask.action is Action.ABORT:
            return await self._abort(ask, timeout)
        return await self._apply(ask, timeout)

    def status(
        self, planned: Plan | None = None, why: tuple[str, ...] = (), problems: tuple[str, ...] = ()
    ) -> Resharding:
        changes = self.config.changes
        facts = self._facts()
        change = None
        if planned is not None:
            wanted = planned.intend
            intent = Intent(wanted.config, wanted.starts_ns, wanted.shards, planned.added, planned.leaving)
            change = _change(intent, Stage.PLANNED)
        elif changes.pending is not None:
            change = _change(changes.pending, Stage.PREPARING)
        elif changes.last is not None:
            settled = all(n in facts and facts[n].standing.decided == changes.decided for n in changes.live)
            last, stage = changes.last, Stage.ACTIVATED if changes.last.activated else Stage.ABORTED
            change = _change(last.intent, stage, last.reason, settled)
        return Resharding(
            replica=self.name,
            config=changes.config,
            ranges=changes.ranges,
            change=change,
            shards=[self._view(number, facts.get(number), changes.until(number)) for number in changes.live],
            removed=changes.removed,
            now_ns=self.clock.now_ns(),
            why_not_sooner=planned.why if planned is not None else why,
            problems=problems,
        )

    # -- inside -------------------------------------------------------------------------------------------------
    def _open(self, opener: RaftHost, number: int) -> None:
        machine = ShardMachine()
        try:
            self._coming[number] = machine, opener.add_group(number, machine)
        except ValueError as error:
            self._failed[number] = str(error)
            log.error("registry.shard_not_opened", replica=self.name, shard=number, reason=str(error))

    def _opened(self, number: int, machine: ShardMachine, coming: Future[Group | None]) -> None:
        error = coming.exception()
        group = None if error else coming.result()
        if group is None:
            self._failed[number] = str(error)
            log.error("registry.shard_not_opened", replica=self.name, shard=number, reason=str(error))
            return
        self.groups[number] = group
        self.shards[number] = self.serve(number, group, machine)
        log.info("registry.shard_opened", replica=self.name, shard=number)

    def _facts(self) -> dict[int, ShardFacts]:
        return {number: server.machine.sharding for number, server in self.shards.items()}

    def _view(self, number: int, facts: ShardFacts | None, until: int) -> ShardView:
        group = self.groups.get(number)
        leader = (group.state().leader or "") if group is not None else ""
        facts = facts or ShardFacts(number, Standing(), NO_TIME, NO_TIME, until, ids=0)
        known = facts.standing
        prepared = known.prepared.config if known.prepared else 0
        config, decided, refused = known.config, known.decided, known.refused
        return ShardView(
            number, config, decided, prepared, refused, facts.latest, facts.boundary, until, facts.ids, leader
        )

    async def _apply(self, ask: Ask, timeout: float) -> ReshardOutcome:
        changes = self.config.changes
        known = changes.decided if changes.pending is None else changes.pending.config
        if ask.config and ask.action is Action.APPLY and known == ask.config:
            return self.status()  # the request is a repetition
        doubt = self.clocks.objection()
        if doubt:
            return Refusal(Status.REFUSED, f"replica {self.name} proposes no change of the shards: {doubt}")
        if self.opener is None:
            return Refusal(Status.REFUSED, "this replica cannot open further shards")
        planned = plan(
            changes,
            self._facts(),
            ask.shards,
            now_ns=self.clock.now_ns(),
            uncertainty_ns=self.clocks.time.uncertainty_ns,
            lead_s=ask.lead_s,
        )
        if isinstance(planned, str):
            return Refusal(Status.REFUSED, planned)
        if ask.config and planned.intend.config != ask.config:
            return Refusal(Status.REFUSED, f"the next change is number {planned.intend.config}, not {ask.config}")
        silent = [number for number in changes.live if not self.groups[number].state().leader]
        if silent and ask.action is Action.APPLY:
            return Refusal(Status.REFUSED, f"shards {silent[:8]} have no leader, so they could not prepare")
        if ask.action is Action.PLAN or ask.dry_run:
            return self.status(planned)
        refused = await self._propose(planned.intend, timeout)
        return refused or self.status(why=planned.why)

    async def _caught_up(self, patience: float) -> None:
        """Waits up to ``patience`` seconds until no shard is behind the config group."""
        for _ in range(int(patience / BEHIND_POLL_S)):
            if not any(_behind(self.config.changes, self.shards)):
                return
            await asyncio.sleep(BEHIND_POLL_S)

    async def _abort(self, ask: Ask, timeout: float) -> ReshardOutcome:
        changes = self.config.changes
        pending = changes.pending
        if pending is None or ask.config not in (0, pending.config):
            last = changes.last
            if last is not None and ask.config == last.intent.config and not last.activated:
                return self.status()
            return Refusal(Status.REFUSED, "no such change of the shards is under way")
        if ask.dry_run:
            return self.status()
        command = c.Decide(pending.config, False, "aborted by an operator")
        return await self._propose(command, timeout) or self.status()

    async def _propose(self, command: c.ConfigCommand, timeout: float) -> Refusal | None:
        timeout = min(timeout, PROPOSAL_TIMEOUT)
        reason = await applied(self.config_group, c.encode(command), "the config group", timeout=timeout)
        if not isinstance(reason, Refusal):
            return Refusal(Status.REFUSED, reason) if reason else None
        unknown = reason.status is Status.UNKNOWN
        return replace(reason, reason=f"{reason.reason}: check the status") if unknown else reason


def _change(intent: Intent, stage: Stage, reason: str = "", settled: bool = False) -> Change:
    of = intent
    return Change(of.config, of.starts_ns, of.shards, of.added, of.leaving, stage, reason, settled)


async def problems(config: ConfigMachine, shards: Mapping[int, ShardServer]) -> list[str]:
    """Checks a replica's content against the shard config: returns ids in the wrong shard and shards that are
    behind.

    One line each, for display. Takes time in proportion to the ids, in pieces, so that others can run meanwhile.
    """
    changes = config.changes
    found = list(_behind(changes, shards))
    for number in changes.live:
        if (server := shards.get(number)) is None:
            continue
        misplaced = 0
        for bucket in server.machine.bucket_numbers():
            misplaced += server.machine.misplaced(bucket)
            await asyncio.sleep(0)
        if misplaced:
            found.append(f"shard {number} holds {misplaced} ids that belong to other shards")
    known = {*changes.live, *config.changes.live}  # a change may have been activated meanwhile
    for number, server in shards.items():
        if number not in known and server.machine.ids:
            found.append(f"shard {number} is not in the config but holds {server.machine.ids} ids")
    return found


def _behind(changes: Changes, shards: Mapping[int, ShardServer]) -> Iterator[str]:
    """Yields the problems that a replica also shows while it merely has to catch up."""
    if not changes.ranges:
        yield "the registry is not set up yet"
        return
    if changes.pending is not None:
        yield f"change {changes.pending.config} of the shards is under way: verify again once it has ended"
    for number in changes.live:
        server = shards.get(number)
        if server is None or not server.machine.configured:
            yield f"shard {number} is not open here"
            continue
        facts = server.machine.sharding
        if facts.number != number:
            yield f"shard {number} is configured as shard {facts.number}"
        if facts.standing.decided != changes.decided:
            yield f"shard {number} knows changes up to {facts.standing.decided}, but there are {changes.decided}"
        elif facts.standing.config != changes.config or server.machine.ranges != changes.ranges:
            yield f"shard {number} serves config {facts.standing.config}, but the config group's is {changes.config}"

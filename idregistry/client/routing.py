"""The Registry that callers use: routes each id to its shard, retries until the time-out, merges the answers.

One implementation for the embedded registry and the gRPC client; they differ in the Backend, which makes one try at
one replica. Nothing here raises for an unreachable registry: ids without an answer are UNKNOWN.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar

import numpy as np

from photon.batch.ids import NO_IDS, Ids
from photon.batch.verdicts import Verdicts
from photon.config.back_off import BackOff
from photon.config.clock import Clock
from photon.idregistry.api import I64, U8, U64, Answer, Opened, Pulse, Slot
from photon.idregistry.client.recovery import Recovery
from photon.idregistry.core.outcomes import Answered, Description, OpenOutcome, Refusal, SlotClaim, Status
from photon.idregistry.core.sharding import split

OPEN_TIMEOUT = 10.0
_BACK_OFF = BackOff(first=0.01, most=0.25)

_LATE = Refusal(Status.UNKNOWN, "no answer in time")

T = TypeVar("T")

# (shard, some of the ids, deadline) -> the shard's answer for them.
One = Callable[[int, Ids, float], Awaitable[Answered]]


class Backend(Protocol):
    """Makes one try at the most likely replica, and remembers hints. Raises nothing for an unreachable registry."""

    async def describe(self, *, timeout: float) -> Description | Refusal: ...

    async def open_slot(self, slot: Slot, last: int, nonce: bytes, *, timeout: float) -> OpenOutcome: ...

    async def insert(
        self, shard: int, caller: int, claim: SlotClaim | None, ids: Ids, *, timeout: float
    ) -> Answered: ...

    async def clear(self, shard: int, ids: Ids, *, timeout: float) -> Answered: ...

    async def look_up(self, shard: int, ids: Ids, *, timeout: float) -> Answered: ...

    async def pulse(self, *, timeout: float) -> Pulse: ...

    async def ask(self, group: int, method: str, request: Any, *, timeout: float) -> Any:
        """Sends any other request to the group's leader; returns its reply or a Refusal."""

    async def close(self) -> None: ...


GRACE_S = 1.0  # After the first answer, the wait for the others. Shards are at different distances.
LATE_S = 0.05  # how long to wait for late shards after the others
LOOK_S = 2.0  # once per interval of this length a late shard gets the same wait as others

ShardCall = tuple[int, Coroutine[Any, Any, bool]]  # a shard and its call, which returns True if the shard answered


class ShardCalls:
    """Calls of one kind to several shards at once; a silent shard delays only its own ids.

    Waits up to GRACE_S after the first answer for the others; ids without an answer are unknown. A shard that did
    not answer in time is *late*: later calls wait only LATE_S for it, except once every LOOK_S. A call to a single
    shard may take the caller's whole time-out, so repeating the call for the unknown ids gets their answers.
    """

    def __init__(self) -> None:
        self._late: set[int] = set()
        self._look_at = 0.0

    async def run(self, calls: Sequence[ShardCall]) -> None:
        """Runs all calls, and cancels the slow ones. If calls raise exceptions, raises one of them."""
        tasks = [(shard, asyncio.ensure_future(call)) for shard, call in calls]
        try:
            await self._wait(tasks)
            for shard, task in tasks:
                if task.done() and task.result():
                    self._late.discard(shard)
                else:
                    self._late.add(shard)
        finally:
            for _, task in tasks:
                if not task.done():
                    task.cancel()
                elif not task.cancelled():
                    task.exception()  # only the first of several exceptions was raised

    async def _wait(self, tasks: Sequence[tuple[int, asyncio.Future[bool]]]) -> None:
        now = asyncio.get_running_loop().time()
        looks = now >= self._look_at
        if looks:
            self._look_at = now + LOOK_S
        everyone = [task for _, task in tasks]
        prompt = [task for shard, task in tasks if looks or shard not in self._late] or everyone
        if len({shard for shard, _ in tasks}) == 1:
            await asyncio.wait(everyone)
            return
        await asyncio.wait(prompt, return_when=asyncio.FIRST_COMPLETED)
        if some := [task for task in prompt if not task.done()]:
            await asyncio.wait(some, timeout=GRACE_S)
        if some := [task for task in everyone if not task.done()]:
            await asyncio.wait(some, timeout=LATE_S)


def _as_unknown(found: Verdicts, answer: Answer) -> Verdicts:
    outcomes = np.where(found.outcomes == answer, np.uint8(Answer.UNKNOWN), found.outcomes)
    return replace(found, outcomes=outcomes)


class RoutedRegistry:
    """Implements api.Registry over a Backend. For use on one event loop."""

    def __init__(self, backend: Backend, clock: Clock) -> None:
        self._backend = backend
        self._clock = clock
        self._description: Description | None = None
        self._stale = False  # a replica said that the description is out of date or too new: ask before the next call
        self._claim: SlotClaim | None = None
        self._inserts, self._clears, self._look_ups = ShardCalls(), ShardCalls(), ShardCalls()
        self.problem = ""  # why the last unanswered try failed, for display
        # Requests of verifiers, dispatchers and operators besides ``api.Registry``.
        self.recovery = Recovery(self.ask, self.described, clock)
        self.read_witness, self.extend_witness = self.recovery.read_witness, self.recovery.extend_witness

    # -- api.Registry -------------------------------------------------------------------------------------------
    async def open_slot(self, slot: Slot, last: int, nonce: bytes) -> Opened | None:
        """See api.Registry; gives up after OPEN_TIMEOUT seconds."""
        outcome = await self._persist(
            self._clock.monotonic() + OPEN_TIMEOUT,
            lambda timeout: self._backend.open_slot(slot, last, nonce, timeout=timeout),
        )
        if isinstance(outcome, Opened):
            return outcome
        if outcome.status is Status.REFUSED:
            return Opened(0, 0, outcome.reason)
        return None

    def announce(self, slot: Slot, incarnations: Sequence[int]) -> None:
        if not incarnations:
            raise ValueError(f"slot {slot.name}: no incarnation to announce")
        self._claim = SlotClaim(slot, tuple(incarnations))

    async def insert(self, inserts: Ids, *, timeout: float) -> Verdicts:
        if self._claim is None:
            raise RuntimeError("registry: call announce() before the first insert")
        return await self._of_shards(inserts, timeout, self._insert_part, self._inserts)

    async def clear(self, digests: bytes, times: I64, tokens: U64, *, timeout: float) -> U8:

        async def one(shard: int, ids: Ids, deadline: float) -> Answered:
            return await self._persist(deadline, lambda left: self._backend.clear(shard, ids, timeout=left))

        return (await self._of_shards(Ids.of(digests, times, tokens), timeout, one, self._clears)).outcomes

    async def look_up(self, digests: bytes, times: I64, *, timeout: float) -> Verdicts:

        async def one(shard: int, ids: Ids, deadline: float) -> Answered:
            return await self._persist(deadline, lambda left: self._backend.look_up(shard, ids, timeout=left))

        return await self._of_shards(Ids.of(digests, times), timeout, one, self._look_ups)

    async def close(self) -> None:
        await self._backend.close()

    # -- besides the contract ------------------------------------------------------------------------------------
    async def describe(self, *, timeout: float) -> Description | None:
        """Returns a replica's description of the deployment once it is set up; ``None`` after the time-out."""
        return await self.described(self._clock.monotonic() + timeout, fresh=True)

    async def ask(self, group: int, method: str, request: Any, *, deadline: float) -> Any:
        """Sends any request to a group's leader. Returns a Refusal after the deadline or if a retry is useless."""
        return await self._persist(
            deadline, lambda remaining: self._backend.ask(group, method, request, timeout=remaining)
        )

    async def pulse(self, timeout: float) -> Pulse:
        """Asks all replicas at once for round-trip and commit times. A silent one takes the whole ``timeout``."""
        return await self._backend.pulse(timeout=timeout)

    async def introduce(self, *, timeout: float) -> bool:
        """Announces the incarnations to every shard. After True, shards answer inserts of the slot's earlier
        incarnations with STALE_INCARNATION. False means unknown: call it again.
        """
        deadline = self._clock.monotonic() + timeout
        shards = await self.recovery.shards(timeout=timeout)
        for shard in shards:
            if isinstance(await self._insert_part(shard, NO_IDS, deadline), Refusal):
                return False
        return bool(shards)

    # -- inside -------------------------------------------------------------------------------------------------
    async def _of_shards(self, ids: Ids, timeout: float, one: One, parts: ShardCalls) -> Verdicts:
        """Calls ``one`` for each shard's ids, concurrently; ids without an answer are UNKNOWN.

        Ids answered ELSEWHERE go to the shards of earlier configs, newest config first.
        """
        found = Verdicts.blank(len(ids), Answer.UNKNOWN)
        if not len(ids):
            return found
        deadline = self._clock.monotonic() + timeout
        description = await self.described(deadline)
        if description is None:
            return found
        rows: I64 | None = None
        for each in reversed(description.ranges):
            said: list[tuple[I64, Verdicts]] = []

            async def ask(shard: int, some: I64, said: list[tuple[I64, Verdicts]] = said) -> bool:
                answered = await one(shard, ids.take(some), deadline)
                if isinstance(answered, Verdicts):
                    said.append((some, answered))
                return isinstance(answered, Verdicts)

            calls = [(part.shard, ask(part.shard, part.rows)) for part in split(ids.digests, each.shards, rows)]
            if len(calls) == 1:
                await calls[0][1]
            elif calls:
                await parts.run(calls)
            found = found.put(said)
            if not found.says(Answer.ELSEWHERE):
                return found
            rows = np.flatnonzero(found.outcomes == Answer.ELSEWHERE)
        self._stale = True
        return _as_unknown(found, Answer.ELSEWHERE)

    async def described(self, deadline: float, *, fresh: bool = False) -> Description | None:
        """Like ``describe``, with a monotonic deadline.

        Unless ``fresh``, returns the last description until a replica reports that it is outdated.
        """
        known = self._description
        if known is not None and not fresh and not self._stale:
            return known

        async def one(timeout: float) -> Description | Refusal:
            outcome = await self._backend.describe(timeout=timeout)
            if isinstance(outcome, Description) and not outcome.ranges:
                return Refusal(Status.UNKNOWN, "the registry is being set up")
            return outcome

        outcome = await self._persist(deadline, one)
        if isinstance(outcome, Refusal):
            return None
        known = self._description
        if known is None or outcome.config >= known.config:  # otherwise the replica is behind
            self._description = outcome
        self._stale = False
        return self._description

    async def _insert_part(self, shard: int, ids: Ids, deadline: float) -> Answered:
        claim = self._claim
        if claim is None:
            raise RuntimeError("registry: call announce() before the first insert")
        caller = claim.incarnations[-1]
        perhaps_committed = False

        async def attempt(claimed: SlotClaim | None, remaining: float) -> Answered:
            nonlocal perhaps_committed
            before, perhaps_committed = perhaps_committed, True  # even if this attempt is interrupted
            outcome = await self._backend.insert(shard, caller, claimed, ids, timeout=remaining)
            certain = isinstance(outcome, Verdicts) or outcome.status is not Status.UNKNOWN
            perhaps_committed = before or not certain
            # An earlier attempt may have committed these: a slow clock of the new leader says nothing about them.
            return _as_unknown(outcome, Answer.TOO_NEW) if before and isinstance(outcome, Verdicts) else outcome

        outcome = await self._persist(deadline, lambda remaining: attempt(None, remaining))
        if isinstance(outcome, Refusal) and outcome.status is Status.UNKNOWN_CALLER:
            outcome = await self._persist(deadline, lambda remaining: attempt(claim, remaining))
        return outcome

    async def _persist(self, deadline: float, attempt: Callable[[float], Awaitable[T | Refusal]]) -> T | Refusal:
        """Retries ``attempt`` until it is answered or refused for good, or the deadline passes."""
        failures = 0
        before: Refusal | None = None
        while True:
            outcome = await self._within(deadline, attempt)
            if not isinstance(outcome, Refusal):
                return outcome
            if outcome is _LATE and before is not None:
                return Refusal(Status.UNKNOWN, before.reason or outcome.reason)  # the last known reason
            before = outcome
            if outcome.reason:
                self.problem = outcome.reason
            if outcome.status in (Status.UNKNOWN_CALLER, Status.REFUSED):
                return outcome
            if outcome.status is Status.WRONG_SHARD:  # counts as unknown: the caller's next attempt routes again
                self._stale = True
                return outcome
            failures += 1
            pause = _BACK_OFF.delay(failures)
            if self._clock.monotonic() + pause >= deadline:
                return outcome
            # A named leader is asked at once, but only the first time, as two replicas may name each other.
            if not (outcome.status is Status.NOT_LEADER and outcome.leader and failures == 1):
                await asyncio.sleep(pause)

    async def _within(self, deadline: float, attempt: Callable[[float], Awaitable[T | Refusal]]) -> T | Refusal:
        try:
            async with asyncio.timeout(max(deadline - self._clock.monotonic(), 0)):
                return await attempt(max(deadline - self._clock.monotonic(), 0.001))
        except TimeoutError:
            return _LATE

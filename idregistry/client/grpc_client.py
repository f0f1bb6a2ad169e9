"""The registry over gRPC: makes one try at the most likely replica. ``routing`` does routing and retries.

The client learns a shard's leader from Describe, from NOT_LEADER hints and from silence. After a failed try it asks
the next replica and for a while ignores hints to the one that failed, since replicas notice a leader's death later
than clients do. Look-ups go to the nearest replica (``nearest_replica``), which is measured while there are look-ups.
Any gRPC error means unknown. Replicas are named on the wire; their addresses come from this client's configuration,
since regions may reach a replica at different addresses.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np

from photon.batch.ids import Ids
from photon.batch.verdicts import Verdicts
from photon.config.clock import Clock, SystemClock
from photon.config.tls import Tls
from photon.idregistry import registry_pb2 as pb
from photon.idregistry.api import Opened, Pulse, Slot
from photon.idregistry.client import messages
from photon.idregistry.client.channels import Channels
from photon.idregistry.client.nearest_replica import Nearest
from photon.idregistry.client.routing import RoutedRegistry
from photon.idregistry.core.commands import CONFIG_GROUP
from photon.idregistry.core.outcomes import Answered, Description, OpenOutcome, Refusal, SlotClaim, Status, pulse_of
from photon.idregistry.core.resharding import Action, Ask, ReshardOutcome

TRY_SECONDS_MAX = 2.0  # one try at one replica: a hanging one must not use up the call's whole time-out
LOOK_UP_SECONDS_MIN = 0.5
# A look-up's try may take this many round trips, but at least LOOK_UP_SECONDS_MIN: a batch of ids takes several.
LOOK_UP_ROUND_TRIPS = 10
# After WRONG_SHARD, how long to wait for a replica with a newer config than the first one to answer.
DOUBT_SECONDS = 0.25
PROBE_SECONDS = 1.0  # while there are look-ups, every replica is probed at this interval
SILENT_SECONDS = 1.0  # a replica that did not answer is not tried as a leader for this time, if there is another

_Probe = asyncio.Task[Description | Refusal]


def newer(one: Description | Refusal, other: Description) -> Description:
    """Returns the description with the newer config."""
    return one if isinstance(one, Description) and one.config > other.config else other


class GrpcBackend:
    """Sends requests to replicas, and remembers which one leads each group, which is nearest and which are silent."""

    def __init__(
        self,
        addresses: Mapping[str, str],
        clock: Clock,
        tls: Tls | None = None,
        here: Mapping[str, object] | None = None,
    ) -> None:
        """``addresses``: all replicas, name -> host:port as seen from here; ``here``: see ``Channels``. Call on the
        event loop."""
        if not addresses:
            raise ValueError("registry: no replica's address is configured")
        self._addresses = dict(addresses)
        self._names = list(addresses)
        self._clock = clock
        self._channels = Channels(addresses, tls, here)
        self._nearest = Nearest(self._names)
        self._leaders: dict[int, str] = {}
        self._terms: dict[int, int] = {}
        self._silent: dict[str, float] = {}  # replica -> when it failed to answer
        self._probes: dict[str, _Probe] = {}  # at most one under way per replica
        self._probed_at = -float("inf")
        self._doubted = False  # a replica said WRONG_SHARD: the next description is the newest of several

    # -- Backend ------------------------------------------------------------------------------------------------
    async def describe(self, *, timeout: float) -> Description | Refusal:
        """Asks all replicas; returns the first description of a registry that is set up.

        After WRONG_SHARD, waits another DOUBT_SECONDS and returns the newest description, since the nearest replica
        may be behind.
        """
        deadline = self._clock.monotonic() + min(timeout, TRY_SECONDS_MAX)
        doubted, self._doubted = self._doubted, False
        waiting: set[_Probe] = set(self._probe().values())
        best: Description | Refusal = Refusal(Status.UNKNOWN, f"no registry replica answers: {self._addresses}")
        while waiting:
            remaining = max(deadline - self._clock.monotonic(), 0)
            done, waiting = await asyncio.wait(waiting, timeout=remaining, return_when=asyncio.FIRST_COMPLETED)
            if not done:
                break
            for outcome in (each.result() for each in done if not each.cancelled()):
                if not isinstance(outcome, Description):
                    if isinstance(best, Refusal):
                        best = Refusal(Status.UNKNOWN, f"no registry replica answers; {outcome.reason}")
                    continue
                best = newer(best, outcome)
                if outcome.ranges and not doubted:
                    return outcome
                if outcome.ranges:
                    deadline = min(deadline, self._clock.monotonic() + DOUBT_SECONDS)
        return best

    async def pulse(self, *, timeout: float) -> Pulse:
        probes = self._probe()
        await asyncio.wait(probes.values(), timeout=timeout)
        found = {name: probe.result() for name, probe in probes.items() if probe.done() and not probe.cancelled()}
        answers = {name: outcome for name, outcome in found.items() if isinstance(outcome, Description)}
        return pulse_of(answers.values(), {name: self._nearest.round_trip_s(name) for name in answers})

    async def open_slot(self, slot: Slot, last: int, nonce: bytes, *, timeout: float) -> OpenOutcome:
        request = pb.OpenSlotRequest(slot=messages.slot_name(SlotClaim(slot, ())), last=last, nonce=nonce)
        reply = await self.ask(CONFIG_GROUP, "OpenSlot", request, timeout=timeout)
        if isinstance(reply, Refusal):
            return reply
        return Opened(reply.incarnation, reply.newest, reply.reason, messages.witness_of(reply.witness))

    async def insert(self, shard: int, caller: int, claim: SlotClaim | None, ids: Ids, *, timeout: float) -> Answered:
        slot = messages.slot_name(claim) if claim else None
        request = pb.InsertRequest(shard=shard, caller=caller, slot=slot, **Ids.encode([ids]))
        reply = await self.ask(shard, "Insert", request, timeout=timeout)
        return reply if isinstance(reply, Refusal) else messages.verdicts_of(reply, len(ids), reply.owner_tokens)

    async def clear(self, shard: int, ids: Ids, *, timeout: float) -> Answered:
        request = pb.ClearRequest(shard=shard, **Ids.encode_cleared([ids]))
        reply = await self.ask(shard, "Clear", request, timeout=timeout)
        if isinstance(reply, Refusal):
            return reply
        if len(reply.answers) != len(ids):
            return Refusal(Status.UNKNOWN, f"the reply has {len(reply.answers)} answers for {len(ids)} ids")
        return Verdicts.plain(np.frombuffer(reply.answers, np.uint8))

    async def look_up(self, shard: int, ids: Ids, *, timeout: float) -> Answered:
        """Looks up ids at the nearest replica, and at another one if that one is cut off or far behind."""
        deadline = self._clock.monotonic() + timeout
        if self._clock.monotonic() - self._probed_at >= PROBE_SECONDS:
            self._probe()
        name = self._nearest.choose(shard)
        outcome = await self._look_up_at(name, shard, ids, timeout)
        other = self._nearest.choose(shard)
        if isinstance(outcome, Refusal) or other == name or not self._nearest.doubtful(name, shard):
            return outcome
        second = await self._look_up_at(other, shard, ids, deadline - self._clock.monotonic())
        return outcome if isinstance(second, Refusal) else second

    async def ask(self, group: int, method: str, request: Any, *, timeout: float) -> Any:
        """Makes one try at the presumed leader, and learns from the outcome which replica to ask next."""
        name = self._leaders.get(group) or self._names[group % len(self._names)]
        reply = await self._channels.call(name, method, request, timeout=min(timeout, TRY_SECONDS_MAX))
        if isinstance(reply, pb.OpenSlotReply) and reply.status == pb.STATUS_REFUSED:
            return reply  # an answer, not a failure: it names the newest incarnation
        if isinstance(reply, Refusal):
            self._silent[name] = self._clock.monotonic()
            refusal = reply
        else:
            self._silent.pop(name, None)
            answer = messages.refused(reply)
            if answer is None:
                self._leaders[group] = name
                return reply
            refusal = answer
        self._doubted |= refusal.status is Status.WRONG_SHARD
        hint = refusal.leader
        if refusal.status is Status.NOT_LEADER and hint in self._addresses and hint != name and self._speaks(hint):
            self._leaders[group] = hint
        elif refusal.status in (Status.NOT_LEADER, Status.UNKNOWN) and self._leaders.get(group, name) == name:
            self._leaders[group] = self._after(name)
        return refusal

    async def reshard(self, ask: Ask, *, replica: str = "", timeout: float) -> ReshardOutcome:
        """Makes one try at ``replica``, or at the config group's leader. Raises KeyError for an unknown replica."""
        request = messages.reshard_request(ask)
        if replica:
            reply = await self._channels.call(replica, "Reshard", request, timeout=timeout)
        else:
            reply = await self.ask(CONFIG_GROUP, "Reshard", request, timeout=timeout)
        if isinstance(reply, Refusal):
            return reply
        return messages.refused(reply) or messages.resharding_of(reply)

    async def close(self) -> None:
        probes = list(self._probes.values())
        for probe in probes:
            probe.cancel()
        await asyncio.gather(*probes, return_exceptions=True)
        await self._channels.close()

    # -- inside -------------------------------------------------------------------------------------------------
    async def _look_up_at(self, name: str, shard: int, ids: Ids, timeout: float) -> Answered:
        round_trip = self._nearest.round_trip_s(name)
        longest = LOOK_UP_SECONDS_MIN if round_trip == float("inf") else LOOK_UP_ROUND_TRIPS * round_trip
        limit = min(timeout, max(longest, LOOK_UP_SECONDS_MIN), TRY_SECONDS_MAX)
        request = pb.LookUpRequest(shard=shard, digests=ids.digests, times=ids.times.astype("<i8").tobytes())
        reply = await self._channels.call(name, "LookUp", request, timeout=max(limit, 0.0))
        outcome = reply if isinstance(reply, Refusal) else messages.refused(reply)
        if outcome is not None and outcome.status is Status.WRONG_SHARD:
            self._doubted = True
            self._nearest.led(name, shard, False)  # it may be behind: the next probe tells
            return outcome
        if outcome is not None:
            self._nearest.failed(name)
            return outcome
        self._nearest.led(name, shard, reply.led)
        return messages.verdicts_of(reply, len(ids), bytes(8 * len(ids)))

    def _probe(self) -> dict[str, _Probe]:
        """Probes each replica, unless its last probe is still unanswered."""
        self._probed_at = self._clock.monotonic()
        for name in self._names:
            if name not in self._probes:
                self._probes[name] = asyncio.create_task(self._probe_one(name), name=f"registry-probe-{name}")
                self._probes[name].add_done_callback(partial(self._probed, name))
        return dict(self._probes)

    def _probed(self, name: str, probe: _Probe) -> None:
        del self._probes[name]

    async def _probe_one(self, name: str) -> Description | Refusal:
        if not self._channels.connected(name):  # opening the connection does not count as part of the round trip
            outcome = await self._describe_at(name)
            if isinstance(outcome, Refusal):
                return outcome
        asked = self._clock.monotonic()
        outcome = await self._describe_at(name)
        now = self._clock.monotonic()
        if isinstance(outcome, Description):
            self._nearest.answered(name, now - asked)
            self._learn(name, outcome, now)
        return outcome

    async def _describe_at(self, name: str) -> Description | Refusal:
        reply = await self._channels.ask(name, "Describe", pb.DescribeRequest(), timeout=TRY_SECONDS_MAX)
        outcome = reply if isinstance(reply, Refusal) else messages.described(reply)
        if isinstance(outcome, Refusal):
            self._nearest.failed(name)
        return outcome

    def _learn(self, name: str, description: Description, now: float) -> None:
        for facts in description.groups:
            self._nearest.led(name, facts.group, bool(facts.leader))
            self._nearest.applied(name, facts.group, facts.applied, now)
            if facts.leader in self._addresses and facts.term >= self._terms.get(facts.group, 0):
                self._leaders[facts.group], self._terms[facts.group] = facts.leader, facts.term

    def _speaks(self, name: str) -> bool:
        return self._clock.monotonic() - self._silent.get(name, -float("inf")) >= SILENT_SECONDS

    def _after(self, name: str) -> str:
        """Returns the replica to try after ``name``: the next in order, if possible one that is not silent."""
        at = self._names.index(name) + 1
        turn = [*self._names[at:], *self._names[:at]]
        return next((each for each in turn if each != name and self._speaks(each)), turn[0])


class RegistryClient(RoutedRegistry):
    """Implements api.Registry over gRPC. Create it on the event loop that uses it; ``close`` it at the end."""

    def __init__(
        self,
        addresses: Mapping[str, str],
        *,
        clock: Clock | None = None,
        tls: Tls | None = None,
        here: Mapping[str, object] | None = None,
        over: GrpcBackend | None = None,
    ) -> None:
        """``addresses``: all replicas, name -> host:port as seen from here.

        ``tls``: ``None`` means plain text. ``here``: see ``Channels``. ``over``: a backend to use instead.
        """
        clock = clock or SystemClock()
        self._grpc = over or GrpcBackend(addresses, clock, tls, here)
        super().__init__(self._grpc, clock)

    def another(self) -> RegistryClient:
        """Returns a client for another slot that shares this client's connections."""
        return RegistryClient({}, clock=self._clock, over=self._grpc)

    async def reshard(self, ask: Ask, *, replica: str = "", timeout: float) -> ReshardOutcome:
        """Plans, begins, ends or shows a change of the shards (rule 16). Retries until there is an answer.

        ``replica`` answers STATUS and VERIFY from its own state; without it the config group's leader is asked. A
        Refusal with REFUSED says in ``reason`` why nothing was done; with any other status the outcome is unknown.
        """
        if replica and ask.action not in (Action.STATUS, Action.VERIFY):
            raise ValueError(f"{ask.action.name.lower()} must be sent to the leader, not to replica {replica}")
        return await self._persist(
            self._clock.monotonic() + timeout,
            lambda remaining: self._grpc.reshard(ask, replica=replica, timeout=remaining),
        )

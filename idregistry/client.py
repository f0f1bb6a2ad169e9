"""The registry over gRPC. Routing and retries are ``routing``'s; here is one try at the replica that seems right.

Which replica leads a shard is learnt from Describe, from NOT_LEADER hints and from silence: after a failed try the
next replica is asked. Any gRPC error means unknown. Replicas are named on the wire; a name's address is what this
client was configured with, since each region may reach a replica by another one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import grpc
import grpc.aio
import numpy as np

from photon.config.clock import Clock, SystemClock
from photon.idregistry import commands as c
from photon.idregistry import registry_pb2 as pb
from photon.idregistry import registry_pb2_grpc
from photon.idregistry.api import Opened, Slot
from photon.idregistry.outcomes import (
    ClearOutcome,
    Description,
    GroupFacts,
    InsertOutcome,
    LookUpOutcome,
    OpenOutcome,
    OwnerColumns,
    Refusal,
    SlotClaim,
    Status,
)
from photon.idregistry.routing import RoutedRegistry
from photon.idregistry.server import CONFIG_GROUP
from photon.idregistry.service import MESSAGE_BYTES_MAX

TRY_SECONDS_MAX = 2.0
"""One try at one replica: one that hangs must not use up a call's whole time-out."""
LOOK_UP_SECONDS_MAX = 0.5

_CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", MESSAGE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_BYTES_MAX),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.enable_retries", 0),
)


class GrpcBackend:
    """One channel per replica."""

    def __init__(self, addresses: Mapping[str, str]) -> None:
        """``addresses``: all replicas, name -> host:port as seen from here. Call on the event loop."""
        if not addresses:
            raise ValueError("registry: no replica's address is configured")
        self._addresses = dict(addresses)
        self._names = list(addresses)
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._stubs: dict[str, Any] = {}
        self._leaders: dict[int, str] = {}
        self._near = self._names[0]

    # -- Backend ------------------------------------------------------------------------------------------------
    async def describe(self, *, timeout: float) -> Description | Refusal:
        """The first replica that answers is the nearest: look-ups go there."""
        timeout = min(timeout, TRY_SECONDS_MAX)
        tries = [asyncio.ensure_future(self._describe_one(name, timeout)) for name in self._names]
        best: Description | Refusal = Refusal(Status.UNKNOWN, f"no registry replica answers: {self._addresses}")
        try:
            for next_done in asyncio.as_completed(tries):
                name, outcome = await next_done
                if isinstance(outcome, Description):
                    best = outcome
                    if outcome.ranges:
                        self._near = name
                        break
        finally:
            for each in tries:
                each.cancel()
            await asyncio.gather(*tries, return_exceptions=True)
        if isinstance(best, Description):
            leaders = {group.group: group.leader for group in best.groups if group.leader in self._addresses}
            self._leaders.update(leaders)
        return best

    async def open_slot(self, slot: Slot, last: int, nonce: bytes, *, timeout: float) -> OpenOutcome:
        request = pb.OpenSlotRequest(slot=_slot_name(SlotClaim(slot, ())), last=last, nonce=nonce)
        reply = await self._at_leader(CONFIG_GROUP, "OpenSlot", request, timeout)
        if isinstance(reply, Refusal):
            return reply
        return Opened(reply.incarnation, reply.newest, reply.reason)

    async def insert(
        self, shard: int, caller: int, claim: SlotClaim | None, columns: c.Columns, *, timeout: float
    ) -> InsertOutcome:
        request = pb.InsertRequest(
            shard=shard,
            caller=caller,
            slot=_slot_name(claim) if claim else None,
            digests=columns.digests,
            times=columns.times,
            tokens=columns.tokens,
            kinds=columns.kinds,
            tags=columns.tags,
            generations=columns.generations,
        )
        reply = await self._at_leader(shard, "Insert", request, timeout)
        if isinstance(reply, Refusal):
            return reply
        return _owners(reply, len(columns), reply.owner_tokens)

    async def clear(self, shard: int, columns: c.ClearColumns, *, timeout: float) -> ClearOutcome:
        request = pb.ClearRequest(shard=shard, digests=columns.digests, times=columns.times, tokens=columns.tokens)
        reply = await self._at_leader(shard, "Clear", request, timeout)
        if isinstance(reply, Refusal):
            return reply
        if len(reply.answers) != len(columns):
            return Refusal(Status.UNKNOWN, f"a reply of {len(reply.answers)} answers for {len(columns)} ids")
        return np.frombuffer(reply.answers, np.uint8)

    async def look_up(self, shard: int, digests: bytes, times: bytes, *, timeout: float) -> LookUpOutcome:
        name = self._near
        request = pb.LookUpRequest(shard=shard, digests=digests, times=times)
        reply = await self._call(name, "LookUp", request, min(timeout, LOOK_UP_SECONDS_MAX))
        outcome = reply if isinstance(reply, Refusal) else _refused(reply)
        if outcome is not None:
            if self._near == name:
                self._near = self._after(name)
            return outcome
        n = len(times) // 8
        return _owners(reply, n, bytes(8 * n))

    async def close(self) -> None:
        for channel in self._channels.values():
            await channel.close(None)
        self._channels.clear()
        self._stubs.clear()

    # -- inside -------------------------------------------------------------------------------------------------
    async def _describe_one(self, name: str, timeout: float) -> tuple[str, Description | Refusal]:
        reply = await self._call(name, "Describe", pb.DescribeRequest(), timeout)
        return name, reply if isinstance(reply, Refusal) else _described(reply)

    async def _at_leader(self, group: int, method: str, request: Any, timeout: float) -> Any:
        """One try at the presumed leader; learns from its outcome who to ask next."""
        name = self._leaders.get(group) or self._names[group % len(self._names)]
        reply = await self._call(name, method, request, min(timeout, TRY_SECONDS_MAX))
        if isinstance(reply, pb.OpenSlotReply) and reply.status == pb.STATUS_REFUSED:
            return reply  # an answer: it says what the newest incarnation is
        refusal = reply if isinstance(reply, Refusal) else _refused(reply)
        if refusal is None:
            self._leaders[group] = name
            return reply
        if refusal.status is Status.NOT_LEADER and refusal.leader in self._addresses and refusal.leader != name:
            self._leaders[group] = refusal.leader
        elif refusal.status in (Status.NOT_LEADER, Status.UNKNOWN) and self._leaders.get(group, name) == name:
            self._leaders[group] = self._after(name)
        return refusal

    async def _call(self, name: str, method: str, request: Any, timeout: float) -> Any:
        try:
            return await getattr(self._stub(name), method)(request, timeout=timeout)
        except grpc.aio.AioRpcError as error:
            return Refusal(Status.UNKNOWN, f"registry replica {name}: {error.code().name.lower()}")

    def _stub(self, name: str) -> Any:
        stub = self._stubs.get(name)
        if stub is None:
            channel = grpc.aio.insecure_channel(self._addresses[name], options=_CHANNEL_OPTIONS)
            self._channels[name] = channel
            stub = self._stubs[name] = registry_pb2_grpc.RegistryStub(channel)  # type: ignore[no-untyped-call]
        return stub

    def _after(self, name: str) -> str:
        """The next replica in turn."""
        return self._names[(self._names.index(name) + 1) % len(self._names)]


class RegistryClient(RoutedRegistry):
    """api.Registry over gRPC. Make it on the event loop it is used on; ``close`` it."""

    def __init__(self, addresses: Mapping[str, str], *, clock: Clock | None = None) -> None:
        """``addresses``: all replicas, name -> host:port as seen from here."""
        super().__init__(GrpcBackend(addresses), clock or SystemClock())


def _slot_name(claim: SlotClaim) -> pb.SlotName:
    slot = claim.slot
    return pb.SlotName(
        slot=slot.name, datacentre=slot.datacentre, address=slot.address, incarnations=claim.incarnations
    )


def _refused(reply: Any) -> Refusal | None:
    """Replies of all kinds have a status and a reason; a status of a newer release counts as unknown."""
    if reply.status == pb.STATUS_OK:
        return None
    known = {status.value for status in Status} - {Status.UNSPECIFIED}
    status = Status(reply.status) if reply.status in known else Status.UNKNOWN
    return Refusal(status, reply.reason, getattr(reply, "leader_hint", ""))


def _owners(reply: Any, n: int, tokens: bytes) -> OwnerColumns | Refusal:
    columns = (reply.answers, reply.owner_kinds, reply.owner_tags, reply.owner_datacentres, tokens)
    if [len(each) for each in columns] != [n, n, 4 * n, n, 8 * n]:
        return Refusal(Status.UNKNOWN, f"a reply of {len(reply.answers)} answers for {n} ids")
    return OwnerColumns(
        np.frombuffer(reply.answers, np.uint8),
        np.frombuffer(tokens, "<u8"),
        np.frombuffer(reply.owner_kinds, np.uint8),
        np.frombuffer(reply.owner_tags, "<u4"),
        np.frombuffer(reply.owner_datacentres, np.uint8),
        tuple(reply.datacentres),
    )


def _described(reply: pb.DescribeReply) -> Description | Refusal:
    ranges = tuple(c.Range(each.start_ns, each.end_ns, tuple(each.shards)) for each in reply.ranges)
    try:
        c.check_ranges(ranges)
    except c.CommandError as error:
        return Refusal(Status.UNKNOWN, f"replica {reply.replica}: {error}")
    groups = [
        GroupFacts(
            group=each.group,
            leader=each.leader,
            is_leader=each.is_leader,
            term=each.term,
            applied=each.applied,
            healthy=True,
            ids=each.ids,
            batches=each.batches,
            batch_mean=each.batch_mean,
            commit_ms_p50=each.commit_ms_p50,
            commit_ms_p99=each.commit_ms_p99,
        )
        for each in reply.groups
    ]
    return Description(reply.replica, ranges, groups, reply.id_rule)

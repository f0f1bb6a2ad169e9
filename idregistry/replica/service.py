"""Implements a replica's gRPC services (registry.proto): one for callers, one for operators (config/rights.py).

The reply carries the result, and also a refusal; any non-OK gRPC status means unknown.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import wraps
from typing import Any

from photon.config.rights import OWNED_SLOT, DatacentreOf
from photon.config.rpc import UNPROBED, Context, seconds_left
from photon.config.telemetry.spans import span
from photon.idregistry import registry_pb2 as pb
from photon.idregistry.api import Slot
from photon.idregistry.client import messages
from photon.idregistry.client.channels import MESSAGE_BYTES_MAX, REGISTRY
from photon.idregistry.core import commands as c
from photon.idregistry.core.config_machine import ConfigMachine
from photon.idregistry.core.outcomes import Refusal, SlotClaim
from photon.idregistry.replica.operator import Operator
from photon.idregistry.replica.recovery import RecoveryServer
from photon.idregistry.replica.server import RegistryReplica

REQUEST_SECONDS_DEFAULT = 5.0  # deadline of callers that set none
_REPLY_MARGIN = 0.05  # answer UNKNOWN this long before the caller's deadline, so that the reason arrives in time

SERVER_OPTIONS = (
    *REGISTRY.sizes,
    ("grpc.so_reuseport", 0),  # a port in use is an error, not a second server
    # Permits pings on idle connections, by which clients notice a silent cut (channels.py).
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 500),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.keepalive_permit_without_calls", 1),
    *UNPROBED,
    ("grpc.http2.lookahead_bytes", MESSAGE_BYTES_MAX),
)


def _or_refusal(method: Callable[[Any, Any, Context], Awaitable[Any]]) -> Callable[[Any, Any, Context], Any]:
    @wraps(method)
    async def answered(self: Any, request: Any, context: Context) -> Any:
        outcome = await method(self, request, context)
        return messages.refusal_reply(request, outcome) if isinstance(outcome, Refusal) else outcome

    return answered


class RegistryServicer:
    """Translates messages to calls of the replica, and back."""

    def __init__(self, replica: RegistryReplica) -> None:
        self._replica = replica
        self._recovery = RecoveryServer(replica)

    @_or_refusal
    async def OpenSlot(self, request: pb.OpenSlotRequest, context: Context) -> pb.OpenSlotReply | Refusal:  # noqa: N802
        slot = Slot(request.slot.slot, request.slot.datacentre, request.slot.address)
        opened = await self._replica.open_slot(slot, request.last, request.nonce, timeout=_timeout(context))
        if isinstance(opened, Refusal):
            return opened
        if not opened.incarnation:
            return pb.OpenSlotReply(status=pb.STATUS_REFUSED, reason=opened.reason, newest=opened.newest)
        return pb.OpenSlotReply(
            status=pb.STATUS_OK,
            incarnation=opened.incarnation,
            newest=opened.newest,
            witness=messages.witness_logs(opened.witness),
        )

    @_or_refusal
    async def Insert(self, request: pb.InsertRequest, context: Context) -> pb.InsertReply | Refusal:  # noqa: N802
        ids = messages.ids_of(
            request.digests, request.times, request.tokens, request.kinds, request.tags, request.generations
        )
        if isinstance(ids, Refusal):
            return ids
        server = self._replica.shard(request.shard)
        if isinstance(server, Refusal):
            return server
        claim = None
        if request.HasField("slot"):
            named = request.slot
            announced = tuple(named.incarnations[: c.MAX_ANNOUNCED + 1])  # no entry could hold more
            claim = SlotClaim(Slot(named.slot, named.datacentre, named.address), announced)
        with span("registry.insert", shard=request.shard, ids=len(ids)) as traced:
            found = await server.insert(request.caller, claim, ids, timeout=_timeout(context))
            if traced is not None and isinstance(found, Refusal):
                traced.note(refused=found.status.name.lower())
        if isinstance(found, Refusal):
            return found
        tokens = found.owner_tokens.astype("<u8", copy=False).tobytes()
        return pb.InsertReply(status=pb.STATUS_OK, owner_tokens=tokens, **messages.owners(found))

    @_or_refusal
    async def Clear(self, request: pb.ClearRequest, context: Context) -> pb.ClearReply | Refusal:  # noqa: N802
        ids = messages.ids_of(request.digests, request.times, request.tokens)
        if isinstance(ids, Refusal):
            return ids
        server = self._replica.shard(request.shard)
        found = server if isinstance(server, Refusal) else await server.clear(ids, timeout=_timeout(context))
        if isinstance(found, Refusal):
            return found
        return pb.ClearReply(status=pb.STATUS_OK, answers=found.outcomes.tobytes())

    @_or_refusal
    async def LookUp(self, request: pb.LookUpRequest, context: Context) -> pb.LookUpReply | Refusal:  # noqa: N802
        ids = messages.ids_of(request.digests, request.times)
        if isinstance(ids, Refusal):
            return ids
        server = self._replica.shard(request.shard)
        if isinstance(server, Refusal):
            return server
        found = server.look_up(ids)
        if isinstance(found, Refusal):
            return found
        led = server.group.state().leader is not None  # else its look-ups become outdated
        return pb.LookUpReply(status=pb.STATUS_OK, led=led, **messages.owners(found))

    async def Describe(self, request: pb.DescribeRequest, context: Context) -> pb.DescribeReply:  # noqa: N802
        return messages.description_reply(self._replica.describe())

    async def ReadClock(self, request: pb.ReadClockRequest, context: Context) -> pb.ReadClockReply:  # noqa: N802
        return pb.ReadClockReply(now_ns=self._replica.clocks.time.clock.now_ns())

    @_or_refusal
    async def Reshard(self, request: pb.ReshardRequest, context: Context) -> pb.ReshardReply | Refusal:  # noqa: N802
        ask = messages.reshard_ask(request)
        outcome = ask if isinstance(ask, Refusal) else await self._replica.reshard(ask, timeout=_timeout(context))
        return outcome if isinstance(outcome, Refusal) else messages.reshard_reply(outcome)

    async def _recover(self, request: Any, context: Context) -> Any:
        return await self._recovery.answer(request, timeout=_timeout(context))

    ReadWitness = ExtendWitness = RetireSlot = ListSlots = _recover
    ClearBelow = ScanOwned = ScanReopened = Reopen = Trace = JudgeBy = KeepSamples = _recover


class OperatorServicer:
    """Translates messages to calls of ``Operator``, and back."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator

    async def Inspect(self, request: pb.InspectRequest, context: Context) -> pb.InspectReply:  # noqa: N802
        return self._operator.inspect()

    @_or_refusal
    async def Barrier(self, request: pb.BarrierRequest, context: Context) -> pb.BarrierReply | Refusal:  # noqa: N802
        outcome = await self._operator.barrier(request.group, request.mark)
        if isinstance(outcome, Refusal):
            return outcome
        return pb.BarrierReply(status=pb.STATUS_OK, index=outcome[0], term=outcome[1])

    async def Export(self, request: pb.ExportRequest, context: Context) -> AsyncIterator[pb.ExportPart]:  # noqa: N802
        async for part in self._operator.export(request.group, request.mark):
            yield part

    @_or_refusal
    async def TransferLeader(  # noqa: N802
        self, request: pb.TransferLeaderRequest, context: Context
    ) -> pb.OperatorReply | Refusal:
        return self._operator.transfer(request.group, request.to) or pb.OperatorReply(status=pb.STATUS_OK)

    @_or_refusal
    async def Follow(self, request: pb.FollowRequest, context: Context) -> pb.OperatorReply | Refusal:  # noqa: N802
        refused = self._operator.follow(request.epoch, dict(request.members))
        return refused or pb.OperatorReply(status=pb.STATUS_OK)

    @_or_refusal
    async def OpenShard(self, request: pb.OpenShardRequest, context: Context) -> pb.OperatorReply | Refusal:  # noqa: N802
        boundary = request.boundary_ns if request.raise_boundary else None
        refused = await self._operator.open_shard(request.shard, boundary)
        return refused or pb.OperatorReply(status=pb.STATUS_OK)

    @_or_refusal
    async def RegisterAgain(  # noqa: N802
        self, request: pb.RegisterAgainRequest, context: Context
    ) -> pb.RegisterAgainReply | Refusal:
        names = ("slot", "datacentre", "digests", "times", "tokens", "kinds", "tags", "generations", "cleared")
        command = c.RegisterAgain(**{name: getattr(request, name) for name in names})
        answers = await self._operator.register_again(request.shard, command)
        if isinstance(answers, Refusal):
            return answers
        return pb.RegisterAgainReply(status=pb.STATUS_OK, answers=answers)


def datacentres_in(config: ConfigMachine) -> DatacentreOf:
    """Returns a function that finds the datacentre of the slot in a request, if this replica knows it."""

    def datacentre_of(kind: str, request: Any) -> str:
        if kind == OWNED_SLOT:
            return config.datacentre_of(slot=request.slot)
        return config.datacentre_of(incarnation=request.caller)

    return datacentre_of


def _timeout(context: Context) -> float:
    return seconds_left(context, default=REQUEST_SECONDS_DEFAULT, margin=_REPLY_MARGIN)

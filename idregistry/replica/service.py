"""The gRPC face of a replica (registry.proto). Results are in the body; any non-OK status means unknown."""

from __future__ import annotations

from typing import Any, TypeVar

from photon.config.rights import OWNED_SLOT, DatacentreOf
from photon.config.rpc import Context, seconds_left
from photon.idregistry import registry_pb2 as pb
from photon.idregistry.api import Opened, Slot
from photon.idregistry.client.channels import REGISTRY
from photon.idregistry.client.messages import description_reply, ids_of, owners, refusal
from photon.idregistry.client.recovery_messages import witness_logs
from photon.idregistry.client.reshard_messages import ask_of, reply_of
from photon.idregistry.core import commands as c
from photon.idregistry.core.config_machine import ConfigMachine
from photon.idregistry.core.outcomes import Refusal, SlotClaim
from photon.idregistry.replica.recovery import RecoveryServer, Request
from photon.idregistry.replica.server import RegistryReplica

REQUEST_SECONDS_DEFAULT = 5.0
"""For callers that set no deadline."""
_REPLY_MARGIN = 0.05
"""Answer UNKNOWN so much before the caller's deadline, so that the reason still reaches it."""

Reply = TypeVar("Reply")

SERVER_OPTIONS = (
    *REGISTRY.sizes,
    ("grpc.so_reuseport", 0),  # a port in use is an error, not a second server
    # Clients ping idle connections to notice a silent cut (channels.py): those pings are no abuse.
    ("grpc.http2.min_recv_ping_interval_without_data_ms", 500),
    ("grpc.http2.max_ping_strikes", 0),
    ("grpc.keepalive_permit_without_calls", 1),
)


class RegistryServicer:
    """Translates; all else is the replica's."""

    def __init__(self, replica: RegistryReplica) -> None:
        self._replica = replica
        self._recovery = RecoveryServer(replica)

    async def OpenSlot(self, request: pb.OpenSlotRequest, context: Context) -> pb.OpenSlotReply:  # noqa: N802
        slot = Slot(request.slot.slot, request.slot.datacentre, request.slot.address)
        outcome = await self._replica.open_slot(slot, request.last, request.nonce, timeout=_timeout(context))
        if isinstance(outcome, Refusal):
            return pb.OpenSlotReply(**refusal(outcome))
        return _opened(outcome)

    async def Insert(self, request: pb.InsertRequest, context: Context) -> pb.InsertReply:  # noqa: N802
        ids = ids_of(request.digests, request.times, request.tokens, request.kinds, request.tags, request.generations)
        if isinstance(ids, Refusal):
            return pb.InsertReply(**refusal(ids))
        claim = None
        if request.HasField("slot"):
            named = request.slot
            announced = tuple(named.incarnations[: c.MAX_ANNOUNCED + 1])  # no entry could hold more
            claim = SlotClaim(Slot(named.slot, named.datacentre, named.address), announced)
        found = await self._replica.insert(request.shard, request.caller, claim, ids, timeout=_timeout(context))
        if isinstance(found, Refusal):
            return pb.InsertReply(**refusal(found))
        tokens = found.owner_tokens.astype("<u8", copy=False).tobytes()
        return pb.InsertReply(status=pb.STATUS_OK, owner_tokens=tokens, **owners(found))

    async def Clear(self, request: pb.ClearRequest, context: Context) -> pb.ClearReply:  # noqa: N802
        ids = ids_of(request.digests, request.times, request.tokens)
        found = (
            ids
            if isinstance(ids, Refusal)
            else await self._replica.clear(request.shard, ids, timeout=_timeout(context))
        )
        if isinstance(found, Refusal):
            return pb.ClearReply(**refusal(found))
        return pb.ClearReply(status=pb.STATUS_OK, answers=found.outcomes.tobytes())

    async def LookUp(self, request: pb.LookUpRequest, context: Context) -> pb.LookUpReply:  # noqa: N802
        ids = ids_of(request.digests, request.times)
        found = ids if isinstance(ids, Refusal) else self._replica.look_up(request.shard, ids)
        if isinstance(found, Refusal):
            said = refusal(found)
            return pb.LookUpReply(status=said["status"], reason=said["reason"])  # it names no leader
        return pb.LookUpReply(status=pb.STATUS_OK, led=self._replica.led(request.shard), **owners(found))

    async def Describe(self, request: pb.DescribeRequest, context: Context) -> pb.DescribeReply:  # noqa: N802
        return description_reply(self._replica.describe())

    async def ReadClock(self, request: pb.ReadClockRequest, context: Context) -> pb.ReadClockReply:  # noqa: N802
        return pb.ReadClockReply(now_ns=self._replica.clocks.time.clock.now_ns())

    async def Reshard(self, request: pb.ReshardRequest, context: Context) -> pb.ReshardReply:  # noqa: N802
        ask = ask_of(request)
        if not isinstance(ask, Refusal):
            outcome = await self._replica.reshard(ask, timeout=_timeout(context))
            if not isinstance(outcome, Refusal):
                return reply_of(outcome)
            ask = outcome
        return pb.ReshardReply(**refusal(ask))

    # -- recovery -----------------------------------------------------------------------------------------------
    async def ReadWitness(self, request: pb.ReadWitnessRequest, context: Context) -> pb.WitnessReply:  # noqa: N802
        return await self._recover(request, context, pb.WitnessReply)

    async def ExtendWitness(  # noqa: N802
        self, request: pb.ExtendWitnessRequest, context: Context
    ) -> pb.WitnessReply:
        return await self._recover(request, context, pb.WitnessReply)

    async def RetireSlot(self, request: pb.RetireSlotRequest, context: Context) -> pb.RetireSlotReply:  # noqa: N802
        return await self._recover(request, context, pb.RetireSlotReply)

    async def ClearBelow(self, request: pb.ClearBelowRequest, context: Context) -> pb.ClearBelowReply:  # noqa: N802
        return await self._recover(request, context, pb.ClearBelowReply)

    async def ScanOwned(self, request: pb.ScanOwnedRequest, context: Context) -> pb.EntriesReply:  # noqa: N802
        return await self._recover(request, context, pb.EntriesReply)

    async def ScanReopened(self, request: pb.ScanReopenedRequest, context: Context) -> pb.EntriesReply:  # noqa: N802
        return await self._recover(request, context, pb.EntriesReply)

    async def Reopen(self, request: pb.ReopenRequest, context: Context) -> pb.ReopenReply:  # noqa: N802
        return await self._recover(request, context, pb.ReopenReply)

    async def Trace(self, request: pb.TraceRequest, context: Context) -> pb.TraceReply:  # noqa: N802
        return await self._recover(request, context, pb.TraceReply)

    async def ListSlots(self, request: pb.ListSlotsRequest, context: Context) -> pb.ListSlotsReply:  # noqa: N802
        return await self._recover(request, context, pb.ListSlotsReply)

    async def _recover(self, request: Request, context: Context, kind: type[Reply]) -> Reply:
        reply = await self._recovery.answer(request, timeout=_timeout(context))
        assert isinstance(reply, kind)
        return reply


def datacentres_in(config: ConfigMachine) -> DatacentreOf:
    """Whose slot a request means, as far as this replica has heard."""

    def datacentre_of(kind: str, request: Any) -> str:
        if kind == OWNED_SLOT:
            return config.datacentre_of(slot=request.slot)
        return config.datacentre_of(incarnation=request.caller)

    return datacentre_of


def _timeout(context: Context) -> float:
    return seconds_left(context, default=REQUEST_SECONDS_DEFAULT, margin=_REPLY_MARGIN)


def _opened(opened: Opened) -> pb.OpenSlotReply:
    if opened.incarnation:
        return pb.OpenSlotReply(
            status=pb.STATUS_OK,
            incarnation=opened.incarnation,
            newest=opened.newest,
            witness=witness_logs(opened.witness),
        )
    return pb.OpenSlotReply(status=pb.STATUS_REFUSED, reason=opened.reason, newest=opened.newest)

"""The gRPC face of what operators do (``RegistryOperator`` in registry.proto): for them only (config/rights.py)."""

from __future__ import annotations

from collections.abc import AsyncIterator

from photon.config.rpc import Context
from photon.idregistry import registry_pb2 as pb
from photon.idregistry.client.messages import refusal
from photon.idregistry.core import commands as c
from photon.idregistry.core.outcomes import Refusal
from photon.idregistry.replica.operator import Operator


class OperatorServicer:
    """Translates; all else is the operator's."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator

    async def Inspect(self, request: pb.InspectRequest, context: Context) -> pb.InspectReply:  # noqa: N802
        return self._operator.inspect()

    async def Barrier(self, request: pb.BarrierRequest, context: Context) -> pb.BarrierReply:  # noqa: N802
        outcome = await self._operator.barrier(request.group, request.mark)
        if isinstance(outcome, Refusal):
            return pb.BarrierReply(**refusal(outcome))
        return pb.BarrierReply(status=pb.STATUS_OK, index=outcome[0], term=outcome[1])

    async def Export(self, request: pb.ExportRequest, context: Context) -> AsyncIterator[pb.ExportPart]:  # noqa: N802
        async for part in self._operator.export(request.group, request.mark):
            yield part

    async def TransferLeader(  # noqa: N802
        self, request: pb.TransferLeaderRequest, context: Context
    ) -> pb.OperatorReply:
        return _done(self._operator.transfer(request.group, request.to))

    async def OpenShard(self, request: pb.OpenShardRequest, context: Context) -> pb.OperatorReply:  # noqa: N802
        boundary = request.boundary_ns if request.raise_boundary else None
        return _done(await self._operator.open_shard(request.shard, boundary))

    async def RegisterAgain(  # noqa: N802
        self, request: pb.RegisterAgainRequest, context: Context
    ) -> pb.RegisterAgainReply:
        command = c.RegisterAgain(
            request.slot,
            request.datacentre,
            request.digests,
            request.times,
            request.tokens,
            request.kinds,
            request.tags,
            request.generations,
            request.cleared,
        )
        outcome = await self._operator.register_again(request.shard, command)
        if isinstance(outcome, Refusal):
            return pb.RegisterAgainReply(**refusal(outcome))
        return pb.RegisterAgainReply(status=pb.STATUS_OK, answers=outcome)


def _done(refused: Refusal | None) -> pb.OperatorReply:
    return pb.OperatorReply(**({"status": pb.STATUS_OK} if refused is None else refusal(refused)))

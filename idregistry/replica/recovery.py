"""What a replica answers to the requests of this room. On the event loop that serves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from photon.config.structured import get_logger
from photon.idregistry import registry_pb2 as pb
from photon.idregistry.api import DIGEST_BYTES, Answer
from photon.idregistry.client.messages import refusal
from photon.idregistry.client.recovery_messages import (
    below_reply,
    entries_reply,
    slots_reply,
    trace_reply,
    witness_of,
    witness_reply,
)
from photon.idregistry.core import commands as c
from photon.idregistry.core.former_shards import NotKnown
from photon.idregistry.core.outcomes import Refusal, Status
from photon.idregistry.core.restored_shard import CLOSED, CLOSED_REASON
from photon.idregistry.core.scans import PAGE_IDS_MAX, CursorError
from photon.idregistry.core.state_machine import WRONG_SHARD
from photon.idregistry.replica.proposing import applied, not_leading
from photon.idregistry.replica.server import RegistryReplica
from photon.idregistry.replica.shard_server import PROPOSAL_TIMEOUT, ShardServer

log = get_logger(__name__)

REOPEN_IDS_MAX = 2_048
"""Of one request: they are judged one after the other, some 20 us each."""

PAGE_SLOTS_MAX = 256
"""Slots of one page."""

Request = (
    pb.ReadWitnessRequest
    | pb.ExtendWitnessRequest
    | pb.RetireSlotRequest
    | pb.ClearBelowRequest
    | pb.ScanOwnedRequest
    | pb.ScanReopenedRequest
    | pb.ReopenRequest
    | pb.ListSlotsRequest
    | pb.TraceRequest
)
REPLY_OF: dict[type[Any], type[Any]] = {
    pb.ReadWitnessRequest: pb.WitnessReply,
    pb.ExtendWitnessRequest: pb.WitnessReply,
    pb.RetireSlotRequest: pb.RetireSlotReply,
    pb.ClearBelowRequest: pb.ClearBelowReply,
    pb.ScanOwnedRequest: pb.EntriesReply,
    pb.ScanReopenedRequest: pb.EntriesReply,
    pb.ReopenRequest: pb.ReopenReply,
    pb.ListSlotsRequest: pb.ListSlotsReply,
    pb.TraceRequest: pb.TraceReply,
}


class RecoveryServer:
    """Of one replica. Each answer's ``status`` says whether the rest of it means anything."""

    def __init__(self, replica: RegistryReplica) -> None:
        self._replica = replica

    async def answer(self, request: Request, *, timeout: float) -> Any:
        """The reply to any of the requests, within ``timeout`` seconds or a little later."""
        try:
            outcome = await self._answer(request, min(timeout, PROPOSAL_TIMEOUT))
        except (c.CommandError, CursorError) as error:
            outcome = Refusal(Status.REFUSED, str(error))
        return REPLY_OF[type(request)](**refusal(outcome)) if isinstance(outcome, Refusal) else outcome

    async def _answer(self, request: Request, timeout: float) -> Any:
        match request:
            case pb.ReadWitnessRequest():
                return self._not_leading_config() or witness_reply(self._replica.config.witnessed(request.slot))
            case pb.ListSlotsRequest():
                limit = min(request.limit or PAGE_SLOTS_MAX, PAGE_SLOTS_MAX)
                return self._not_leading_config() or slots_reply(
                    *self._replica.config.slots_after(request.after, limit)
                )
            case pb.ExtendWitnessRequest():
                end, to = witness_of(request.end), witness_of(request.to)
                extension = c.ExtendWitness(request.slot, request.incarnation, end, to)
                witnessed = await self._in_config(extension, timeout)
                return witnessed if isinstance(witnessed, Refusal) else witness_reply(witnessed)
            case pb.RetireSlotRequest():
                return await self._retire(request.slot, timeout)
            case pb.ClearBelowRequest():
                below = c.ClearBelow(request.incarnation, request.batch, request.count, request.xor)
                done = await self._in_shard(request.shard, below, timeout)
                return done if isinstance(done, Refusal) else below_reply(done)
            case pb.ScanOwnedRequest():
                return await self._scan_owned(request, timeout)
            case pb.ScanReopenedRequest():
                server = self._server(request.shard)
                if isinstance(server, Refusal):
                    return server
                return entries_reply(server.machine.reopened_page(request.cursor, request.limit or PAGE_IDS_MAX))
            case pb.ReopenRequest():
                return await self._reopen(request, timeout)
            case pb.TraceRequest():
                return self._trace(request)

    def _not_leading_config(self) -> Refusal | None:
        """A follower may be far behind."""
        return not_leading(self._replica.config_group.state())

    async def _retire(self, slot: str, timeout: float) -> pb.RetireSlotReply | Refusal:
        """The intent; the caretakers of the shards' leaders fence the slot there (rule 14)."""
        refused = await self._in_config(c.RetireSlot(slot), timeout)
        if isinstance(refused, Refusal):
            return refused
        if refused:
            return Refusal(Status.REFUSED, refused)
        log.warning("registry.retired", slot=slot)
        return pb.RetireSlotReply(status=pb.STATUS_OK, shards=self._replica.config.changes.live)

    async def _scan_owned(self, request: pb.ScanOwnedRequest, timeout: float) -> pb.EntriesReply | Refusal:
        server = self._server(request.shard)
        if isinstance(server, Refusal):
            return server
        if not request.cursor:
            # A leader that was replaced without knowing may lack ids: an entry of its own shows that it leads.
            passed = await self._in_shard(request.shard, c.Batch(), timeout)
            if isinstance(passed, Refusal):
                return passed
        elif not server.leads:
            return Refusal(Status.NOT_LEADER, leader=server.facts().leader)
        limit = request.limit or PAGE_IDS_MAX
        return entries_reply(server.machine.owned_page(request.slot, request.upto, request.cursor, limit))

    def _trace(self, request: pb.TraceRequest) -> pb.TraceReply | Refusal:
        server = self._server(request.shard)
        if isinstance(server, Refusal):
            return server
        if len(request.digest) != DIGEST_BYTES:
            return Refusal(Status.REFUSED, f"a digest has {DIGEST_BYTES} bytes, not {len(request.digest)}")
        if not server.leads:
            return Refusal(Status.NOT_LEADER, leader=server.facts().leader)
        found = server.machine.trace(request.digest, request.time_ns)
        return trace_reply(replace(found, replica=self._replica.name, applied=server.facts().applied))

    async def _reopen(self, request: pb.ReopenRequest, timeout: float) -> pb.ReopenReply | Refusal:
        ids = len(request.digests) // DIGEST_BYTES
        if ids > REOPEN_IDS_MAX:
            return Refusal(Status.REFUSED, f"{ids} ids to reopen, at most {REOPEN_IDS_MAX} go into one request")
        server = self._server(request.shard)
        if isinstance(server, Refusal):
            return server
        reopen = c.Reopen(
            request.digests, request.times, request.tokens, request.generations, request.operator, request.retired
        )
        c.decode_shard(c.encode(reopen))
        try:
            held, config = server.held_elsewhere(request.digests)
        except NotKnown as reason:
            return Refusal(Status.UNKNOWN, str(reason))
        answers = np.full(ids, Answer.ELSEWHERE, np.uint8)
        if not held.all():
            rows = np.flatnonzero(~held)
            done = await self._in_shard(request.shard, reopen.take(rows, config), timeout)
            if isinstance(done, Refusal):
                return done
            answers[rows] = done
        if (answers == CLOSED).any():
            return Refusal(Status.UNKNOWN, f"shard {request.shard} {CLOSED_REASON}")
        elsewhere = answers == WRONG_SHARD
        if elsewhere.all() and ids:
            return Refusal(Status.WRONG_SHARD, "the ids are not this shard's")
        answers[elsewhere] = Answer.UNKNOWN  # the others are done: who asks for these again learns where they belong
        return pb.ReopenReply(status=pb.STATUS_OK, answers=answers.tobytes())

    # -- proposals ----------------------------------------------------------------------------------------------
    def _server(self, shard: int) -> ShardServer | Refusal:
        server = self._replica.shard_server(shard)
        if server is None:
            return Refusal(Status.WRONG_SHARD, f"replica {self._replica.name} has no shard {shard}")
        if not server.machine.configured:
            return Refusal(Status.UNKNOWN, f"shard {shard} is being set up")
        return server

    async def _in_config(self, command: c.ConfigCommand, timeout: float) -> Any:
        data = c.encode(command)
        c.decode_config(data)  # what no replica could decode must not be committed: it would stop them all
        return await applied(self._replica.config_group, data, "the config group", timeout=timeout)

    async def _in_shard(self, shard: int, command: c.ShardCommand, timeout: float) -> Any:
        server = self._server(shard)
        if isinstance(server, Refusal):
            return server
        data = c.encode(command)
        c.decode_shard(data)
        return await applied(server.group, data, f"shard {shard}", timeout=timeout)

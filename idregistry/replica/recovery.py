"""Answers requests of joiners, verifiers, dispatchers and operators, other than inserts, clears and look-ups."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from photon.config.structured import get_logger
from photon.idregistry import registry_pb2 as pb
from photon.idregistry.api import DIGEST_BYTES, Answer
from photon.idregistry.client import messages
from photon.idregistry.core import commands as c
from photon.idregistry.core.outcomes import Refusal, Status
from photon.idregistry.core.restored_shard import CLOSED, CLOSED_REASON
from photon.idregistry.core.samples import with_others
from photon.idregistry.core.scans import PAGE_IDS_MAX, CursorError
from photon.idregistry.core.state_machine import WRONG_SHARD
from photon.idregistry.replica.proposing import applied, not_leading
from photon.idregistry.replica.server import RegistryReplica
from photon.idregistry.replica.shard_server import PROPOSAL_TIMEOUT, ShardServer

log = get_logger(__name__)

PAGE_SLOTS_MAX = 256  # slots per page


class _Refused(Exception):
    def __init__(self, refusal: Refusal) -> None:
        self.refusal = refusal


def _unless_refused(outcome: Any) -> Any:
    if isinstance(outcome, Refusal):
        raise _Refused(outcome)
    return outcome


class RecoveryServer:
    """Answers requests, on the serving event loop. An answer is valid only if its ``status`` is OK."""

    def __init__(self, replica: RegistryReplica) -> None:
        self._replica = replica

    async def answer(self, request: Any, *, timeout: float) -> Any:
        """Answers any of the requests, within ``timeout`` seconds or a little later."""
        try:
            return await self._answer(request, min(timeout, PROPOSAL_TIMEOUT))
        except _Refused as refused:
            return messages.refusal_reply(request, refused.refusal)
        except (c.CommandError, CursorError) as error:
            return messages.refusal_reply(request, Refusal(Status.REFUSED, str(error)))

    async def _answer(self, request: Any, timeout: float) -> Any:
        match request:
            case pb.ReadWitnessRequest():
                self._check_leads_config()
                return messages.witness_reply(self._replica.config.witnessed(request.slot))
            case pb.ListSlotsRequest():
                self._check_leads_config()
                limit = min(request.limit or PAGE_SLOTS_MAX, PAGE_SLOTS_MAX)
                return messages.slots_reply(*self._replica.config.slots_after(request.after, limit))
            case pb.ExtendWitnessRequest():
                end, to = messages.witness_of(request.end), messages.witness_of(request.to)
                extension = c.ExtendWitness(request.slot, request.incarnation, end, to)
                return messages.witness_reply(await self._in_config(extension, timeout))
            case pb.RetireSlotRequest():
                return await self._retire(request.slot, timeout)
            case pb.ClearBelowRequest():
                below = c.ClearBelow(request.incarnation, request.batch, request.count, request.xor)
                return messages.below_reply(await self._in_shard(request.shard, below, timeout))
            case pb.ScanOwnedRequest():
                return await self._scan_owned(request, timeout)
            case pb.ScanReopenedRequest():
                machine = self._server(request.shard).machine
                return messages.entries_reply(machine.reopened_page(request.cursor, request.limit or PAGE_IDS_MAX))
            case pb.ReopenRequest():
                return await self._reopen(request, timeout)
            case pb.TraceRequest():
                return self._trace(request)
            case pb.JudgeByRequest():
                return await self._judge_by(request, timeout)
            case pb.KeepSamplesRequest():
                return await self._keep_samples(request, timeout)

    async def _retire(self, slot: str, timeout: float) -> pb.RetireSlotReply:
        """Commits the intent to retire a slot; each shard's leader then fences the slot in its shard (rule 14)."""
        if reason := await self._in_config(c.RetireSlot(slot), timeout):
            raise _Refused(Refusal(Status.REFUSED, reason))
        log.warning("registry.retired", slot=slot)
        return pb.RetireSlotReply(status=pb.STATUS_OK, shards=self._replica.config.changes.live)

    async def _judge_by(self, request: pb.JudgeByRequest, timeout: float) -> pb.JudgeByReply:
        """Announces a verdict rule. Joiners announce theirs every few seconds, so only a change is committed."""
        self._check_leads_config()
        known = self._replica.config.verdict_rules(request.join)
        if known.announced(request.process, request.rule) is not known:
            command = c.JudgeBy(request.join, request.process, request.rule)
            if reason := await self._in_config(command, timeout):
                raise _Refused(Refusal(Status.UNKNOWN, reason))  # until it is set up
            known = self._replica.config.verdict_rules(request.join)
            by = request.process or f"a process of {request.datacentre}"
            log.info("registry.verdict_rule", join=request.join, process=by, newest=known.newest == request.rule)
        return messages.judged_reply(known)

    async def _keep_samples(self, request: pb.KeepSamplesRequest, timeout: float) -> pb.KeepSamplesReply:
        """Stores samples. Datacentres with the same logs send the same samples, so only a change is committed."""
        self._check_leads_config()
        asked, known = messages.samples_of(request), self._replica.config.samples(request.join)
        if with_others(known, asked) is not known:
            if reason := await self._in_config(c.KeepSamples(request.join, list(asked)), timeout):
                raise _Refused(Refusal(Status.UNKNOWN, reason))  # until it is set up
            known = self._replica.config.samples(request.join)
            log.info("registry.samples", join=request.join, datacentre=request.datacentre, samples=len(known))
        return pb.KeepSamplesReply(status=pb.STATUS_OK, samples=messages.sample_messages(known))

    async def _scan_owned(self, request: pb.ScanOwnedRequest, timeout: float) -> pb.EntriesReply:
        server = self._server(request.shard)
        if request.cursor:
            _unless_refused(not_leading(server.group.state()))
        else:
            # A leader that was replaced without noticing it may lack ids: committing an entry proves that it leads.
            await self._in_shard(request.shard, c.Batch(), timeout)
        limit = request.limit or PAGE_IDS_MAX
        return messages.entries_reply(server.machine.owned_page(request.slot, request.upto, request.cursor, limit))

    def _trace(self, request: pb.TraceRequest) -> pb.TraceReply:
        server = self._server(request.shard)
        if len(request.digest) != DIGEST_BYTES:
            reason = f"a digest has {DIGEST_BYTES} bytes, not {len(request.digest)}"
            raise _Refused(Refusal(Status.REFUSED, reason))
        state = server.group.state()
        _unless_refused(not_leading(state))
        found = server.machine.trace(request.digest, request.time_ns)
        return messages.trace_reply(replace(found, replica=self._replica.name, applied=state.applied))

    async def _reopen(self, request: pb.ReopenRequest, timeout: float) -> pb.ReopenReply:
        ids = len(request.digests) // DIGEST_BYTES
        if ids > messages.REOPEN_IDS_MAX:
            reason = f"{ids} ids to reopen, but at most {messages.REOPEN_IDS_MAX} fit into one request"
            raise _Refused(Refusal(Status.REFUSED, reason))
        reopen = c.Reopen(
            request.digests, request.times, request.tokens, request.generations, request.operator, request.retired
        )
        answers = _unless_refused(await self._server(request.shard).propose_own(reopen, timeout=timeout))
        if (answers == CLOSED).any():
            raise _Refused(Refusal(Status.UNKNOWN, f"shard {request.shard} {CLOSED_REASON}"))
        elsewhere = answers == WRONG_SHARD
        if elsewhere.all() and ids:
            raise _Refused(Refusal(Status.WRONG_SHARD, "the ids do not belong to this shard"))
        # the others are done; on retry the caller learns where these belong
        answers[elsewhere] = Answer.UNKNOWN
        return pb.ReopenReply(status=pb.STATUS_OK, answers=answers.tobytes())

    # -- proposals: each raises _Refused --------------------------------------------------------------------------
    def _check_leads_config(self) -> None:
        """Raises _Refused unless this replica leads the config group and is ready: others may be far behind."""
        state = self._replica.config_group.state()
        _unless_refused(not_leading(state))
        if not state.current:
            raise _Refused(Refusal(Status.NOT_LEADER))

    def _server(self, shard: int) -> ShardServer:
        server: ShardServer = _unless_refused(self._replica.shard(shard))
        if not server.machine.configured:
            raise _Refused(Refusal(Status.UNKNOWN, f"shard {shard} is being set up"))
        return server

    async def _in_config(self, command: c.ConfigCommand, timeout: float) -> Any:
        data = c.encode(command)
        c.decode_config(data)  # an entry that no replica could decode must not be committed: it would stop them all
        return _unless_refused(await applied(self._replica.config_group, data, "the config group", timeout=timeout))

    async def _in_shard(self, shard: int, command: c.ShardCommand, timeout: float) -> Any:
        data = c.encode(command)
        c.decode_shard(data)
        return _unless_refused(await applied(self._server(shard).group, data, f"shard {shard}", timeout=timeout))

"""Requests other than insert, clear and look-up, routed and retried until their time-out.

``replica/recovery.py`` answers them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import numpy as np

from photon.config.clock import Clock
from photon.idregistry import registry_pb2 as pb
from photon.idregistry.api import DIGEST_BYTES, I64, U8, U32, U64, Answer
from photon.idregistry.client import messages
from photon.idregistry.core.commands import CONFIG_GROUP, Sample, take
from photon.idregistry.core.outcomes import Description, Refusal, Status
from photon.idregistry.core.scans import Below, EntryPage, Traced
from photon.idregistry.core.sharding import shards_in, shards_of, split
from photon.idregistry.core.verdict_rules import VerdictRules
from photon.idregistry.witness import KnownSlot, Witness, Witnessed

WITNESS_TIMEOUT = 5.0


class Recovery:
    """Calls about slots, owned ids and rules: for joiners, verifiers, dispatchers and operators.

    Time-outs are in seconds. No method raises for a missing answer.
    """

    def __init__(
        self,
        ask: Callable[..., Awaitable[Any]],
        described: Callable[..., Awaitable[Description | None]],
        clock: Clock,
    ) -> None:
        """``ask`` and ``described``: see RoutedRegistry."""
        self._ask, self._described = ask, described
        self._clock = clock

    # -- config group -------------------------------------------------------------------------------------------
    async def read_witness(self, slot: str, *, timeout: float = WITNESS_TIMEOUT) -> Witnessed | None:
        return await self._witness("ReadWitness", pb.ReadWitnessRequest(slot=slot), timeout)

    async def extend_witness(
        self, slot: str, incarnation: int, end: Witness, to: Witness, *, timeout: float = WITNESS_TIMEOUT
    ) -> Witnessed | None:
        request = pb.ExtendWitnessRequest(
            slot=slot, incarnation=incarnation, end=messages.witness_logs(end), to=messages.witness_logs(to)
        )
        return await self._witness("ExtendWitness", request, timeout)

    async def _witness(self, method: str, request: Any, timeout: float) -> Witnessed | None:
        reply = await self._ask(CONFIG_GROUP, method, request, deadline=self._deadline(timeout))
        if isinstance(reply, Refusal):
            return Witnessed(0, (), reply.reason) if reply.status is Status.REFUSED else None
        return messages.witnessed_of(reply)

    async def list_slots(self, *, timeout: float) -> list[KnownSlot] | Refusal:
        found: list[KnownSlot] = []
        deadline = self._deadline(timeout)
        while True:
            request = pb.ListSlotsRequest(after=found[-1].name if found else "")
            reply = await self._ask(CONFIG_GROUP, "ListSlots", request, deadline=deadline)
            if isinstance(reply, Refusal):
                return reply
            found += messages.slots_of(reply)
            if not reply.more or not reply.slots:
                return found

    async def retire_slot(self, slot: str, *, timeout: float) -> tuple[int, ...] | Refusal:
        """Commits the intent to fence a slot in every shard (rule 14).

        ``scan_owned`` tells which shards have fenced it.

        Returns the shards that must have fenced it before the first reopening, as of the intent or later; shards
        opened after the intent start with the fence. A Refusal says why not, or that the outcome is unknown: then ask
        again.
        """
        request = pb.RetireSlotRequest(slot=slot)
        reply = await self._ask(CONFIG_GROUP, "RetireSlot", request, deadline=self._deadline(timeout))
        return reply if isinstance(reply, Refusal) else tuple(reply.shards)

    async def judge_by(
        self, join: str, datacentre: str, process: str, rule: bytes, *, timeout: float
    ) -> VerdictRules | Refusal:
        """Announces the verdict rule that ``process`` of ``datacentre`` uses; returns the rules of all processes of
        the join.
        """
        request = pb.JudgeByRequest(join=join, datacentre=datacentre, process=process, rule=rule)
        reply = await self._ask(CONFIG_GROUP, "JudgeBy", request, deadline=self._deadline(timeout))
        return reply if isinstance(reply, Refusal) else messages.judged_of(reply)

    async def keep_samples(
        self, join: str, datacentre: str, samples: Sequence[Sample], *, timeout: float
    ) -> tuple[Sample, ...] | Refusal:
        """Stores samples that a process of ``datacentre`` derived from records; returns all samples of the join."""
        request = pb.KeepSamplesRequest(join=join, datacentre=datacentre, samples=messages.sample_messages(samples))
        reply = await self._ask(CONFIG_GROUP, "KeepSamples", request, deadline=self._deadline(timeout))
        return reply if isinstance(reply, Refusal) else messages.samples_of(reply)

    # -- one shard ----------------------------------------------------------------------------------------------
    async def clear_below(
        self, shard: int, incarnation: int, batch: int, count: int, xor: bytes, *, timeout: float
    ) -> Below | None:
        """Clears the ids owned by an incarnation's batches below ``batch`` (rule 8).

        ``None`` means unknown: ask again. If the answer is not ``applied``, clear by id.
        """
        request = pb.ClearBelowRequest(shard=shard, incarnation=incarnation, batch=batch, count=count, xor=xor)
        reply = await self._ask(shard, "ClearBelow", request, deadline=self._deadline(timeout))
        if isinstance(reply, Refusal):
            return Below(False, 0, bytes(16), reply.reason) if reply.status is Status.REFUSED else None
        return messages.below_of(reply)

    async def scan_owned(
        self, shard: int, slot: str, upto: int, *, cursor: bytes = b"", limit: int = 0, timeout: float
    ) -> EntryPage | Refusal:
        """Returns a page of the ids owned by a slot's incarnations up to ``upto``.

        Pass its cursor for the next page; an empty one ends the scan.
        """
        request = pb.ScanOwnedRequest(shard=shard, slot=slot, upto=upto, cursor=cursor, limit=limit)
        return await self._page(shard, "ScanOwned", request, timeout)

    async def scan_reopened(
        self, shard: int, *, cursor: bytes = b"", limit: int = 0, timeout: float
    ) -> EntryPage | Refusal:
        """Returns a page of the reopened ids, which wait for a record with their generation (rule 14)."""
        request = pb.ScanReopenedRequest(shard=shard, cursor=cursor, limit=limit)
        return await self._page(shard, "ScanReopened", request, timeout)

    async def trace(self, digest: bytes, time_ns: int, *, timeout: float) -> Traced | Refusal:
        """Returns the registry's entry for one id with event time ``time_ns``."""
        deadline = self._deadline(timeout)
        known = await self._described(deadline)
        if known is None:
            return Refusal(Status.UNKNOWN, "no replica of the registry answers")
        missed: list[Traced] = []
        for shard in dict.fromkeys(int(shards_of(digest, each.shards)[0]) for each in reversed(known.ranges)):
            if shard in known.removed:
                continue
            request = pb.TraceRequest(shard=shard, digest=digest, time_ns=time_ns)
            reply = await self._ask(shard, "Trace", request, deadline=deadline)
            if isinstance(reply, Refusal):
                return reply
            found = messages.traced_of(reply, shard)
            if isinstance(found, Refusal):
                return found
            if found.answer in (Answer.PRESENT, Answer.REOPENED):
                return found
            missed.append(found)
        return missed[0] if missed else Refusal(Status.UNKNOWN, "the registry is being set up")

    async def _page(self, shard: int, method: str, request: Any, timeout: float) -> EntryPage | Refusal:
        reply = await self._ask(shard, method, request, deadline=self._deadline(timeout))
        return reply if isinstance(reply, Refusal) else messages.page_of(reply)

    # -- every shard --------------------------------------------------------------------------------------------
    async def shards(self, *, timeout: float) -> tuple[int, ...]:
        """Returns the numbers of all shards; empty if no replica answered in time.

        Asks on every call, since a caller that sends no ids would not notice that the shards have changed.
        """
        known = await self._described(self._deadline(timeout), fresh=True)
        if known is None:
            return ()
        return tuple(sorted(shards_in(known.ranges) - {*known.removed}))

    async def reopen(
        self,
        digests: bytes,
        times: I64,
        tokens: U64,
        generations: U32,
        *,
        operator: bool = False,
        retired: bool = False,
        timeout: float,
    ) -> U8:
        """Gives up ids whose entries are still as exported: REOPENED, NO_OP or UNKNOWN for each (rules 13-15)."""
        answers = np.full(len(times), Answer.UNKNOWN, np.uint8)
        deadline = self._deadline(timeout)
        known = await self._described(deadline)
        rows: I64 | None = None
        for each in reversed(known.ranges) if known is not None else ():
            for part in split(digests, each.shards, rows, most=messages.REOPEN_IDS_MAX):
                some = part.rows
                request = pb.ReopenRequest(
                    shard=part.shard,
                    digests=take(digests, DIGEST_BYTES, some),
                    times=times[some].astype("<i8").tobytes(),
                    tokens=tokens[some].astype("<u8").tobytes(),
                    generations=generations[some].astype("<u4").tobytes(),
                    operator=operator,
                    retired=retired,
                )
                reply = await self._ask(part.shard, "Reopen", request, deadline=deadline)
                if not isinstance(reply, Refusal) and len(reply.answers) == len(some):
                    answers[some] = np.frombuffer(reply.answers, np.uint8)
            rows = np.flatnonzero(answers == Answer.ELSEWHERE)
        answers[answers == Answer.ELSEWHERE] = Answer.UNKNOWN
        return answers

    def _deadline(self, timeout: float) -> float:
        return self._clock.monotonic() + timeout

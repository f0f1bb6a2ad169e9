"""The oracle on a registry replica: each batch of timestamps is one entry of its Raft group.

The entry is the leadership check: it commits only if a majority still follows this replica, so a deposed leader hands
out nothing. What is asked while entries are under way goes into the next one, so the batches grow with the load. An
entry without an answer may have been committed: its numbers are lost, and nobody got them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from photon.config.metrics.readings import Readings
from photon.config.rpc import Context, seconds_left
from photon.idregistry.raft.api import Applied, Group, ProposalOutcome
from photon.idregistry.replica.guests import Guest
from photon.idregistry.replica.proposing import not_applied, not_leading, propose
from photon.tables.timestamps import timestamps_pb2 as pb
from photon.tables.timestamps.client import COUNT_MAX, TIMESTAMPS

if TYPE_CHECKING:
    import grpc.aio

WAITING_MAX = 10_000
"""Requests that wait for an entry; further ones are refused."""
ENTRIES_MAX = 2
"""Entries under way: the second one is written while the first one is on its way to the majority."""
PROPOSAL_SECONDS = 5.0
MARGIN_SECONDS = 0.05
PREFIX = "photon_oracle"

Waiting = tuple[asyncio.Future[pb.TakeReply], int]


class TimestampServer:
    """The servicer of one replica. Lives on one event loop."""

    def __init__(self, group: Group, command: Callable[[int], bytes]) -> None:
        """``command``: the entry that takes so many timestamps; the machine answers with the first of them."""
        self._group = group
        self._command = command
        self._waiting: list[Waiting] = []
        self._entries = 0
        self._pump_scheduled = False
        self._taken = self._requests = self._batches = 0

    async def Take(self, request: pb.TakeRequest, context: Context) -> pb.TakeReply:  # noqa: N802
        if not 1 <= request.count <= COUNT_MAX:
            return pb.TakeReply(reason=f"count = {request.count}: must be within 1 and {COUNT_MAX}")
        if refused := not_leading(self._group.state()):
            return pb.TakeReply(leader_hint=refused.leader, reason="not the leader")
        if len(self._waiting) >= WAITING_MAX:
            return pb.TakeReply(reason=f"{WAITING_MAX} requests wait already")
        answer: asyncio.Future[pb.TakeReply] = asyncio.get_running_loop().create_future()
        self._waiting.append((answer, request.count))
        self._pump_soon()
        try:
            async with asyncio.timeout(seconds_left(context, default=PROPOSAL_SECONDS, margin=MARGIN_SECONDS)):
                return await answer
        except TimeoutError:
            return pb.TakeReply(reason="no majority of the replicas answered in time")

    def read(self, into: Readings) -> None:
        """Its metrics."""
        state = self._group.state()
        into.put_all(
            PREFIX,
            {
                "leader": state.is_leader,
                "term": state.term,
                "timestamps_total": self._taken,
                "requests_total": self._requests,
                "entries_total": self._batches,
            },
        )

    def _pump_soon(self) -> None:
        """After the handlers that are ready now."""
        if not self._pump_scheduled:
            self._pump_scheduled = True
            asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        self._pump_scheduled = False
        self._waiting = [each for each in self._waiting if not each[0].done()]
        if not self._waiting or self._entries >= ENTRIES_MAX:
            return
        batch, self._waiting = self._waiting, []
        self._entries += 1
        propose(
            self._group,
            self._command(sum(count for _, count in batch)),
            timeout=PROPOSAL_SECONDS,
            done=partial(self._finished, batch),
            loop=asyncio.get_running_loop(),
        )

    def _finished(self, batch: list[Waiting], outcome: ProposalOutcome) -> None:
        self._entries -= 1
        self._pump_soon()
        refused = None if isinstance(outcome, Applied) else not_applied(outcome, "the oracle")
        first = outcome.result if isinstance(outcome, Applied) else 0
        if refused is None:
            self._batches += 1
        for answer, count in batch:
            if refused is not None:
                reply = pb.TakeReply(leader_hint=refused.leader, reason=refused.reason or "not the leader")
            else:
                reply = pb.TakeReply(first=first)
                first += count
                self._taken += count
                self._requests += 1
            if not answer.done():
                answer.set_result(reply)


def guest(number: int, machine: Any, command: Callable[[int], bytes]) -> Guest:
    """The oracle as a guest of a registry replica."""

    def serve(group: Group, server: grpc.aio.Server) -> list[Callable[[Readings], None]]:
        servicer = TimestampServer(group, command)
        TIMESTAMPS.add(server, servicer)
        return [servicer.read]

    return Guest(number, machine, serve)

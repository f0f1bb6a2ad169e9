"""The oracle on a registry replica: runs oracle.OracleLeader over a Raft group of the registry's host.

To confirm that it leads, it proposes an entry that allocates nothing: the entry commits only if a majority still
follows this replica, and its result is the end of allocated timestamps at that moment. Requests that arrive during an
entry wait for the next one, so batches grow with the load. An entry without an answer may have been committed; its
range is then lost, and its timestamps are never handed out.

A new oracle begins at the wall clock in microseconds. So if it replaces a lost one (backups of the registry have no
timestamps), it begins above all timestamps handed out, which are fewer than a million per second.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterable
from typing import TYPE_CHECKING

from photon.config.clock import Clock
from photon.config.metrics.readings import Readings, Source
from photon.config.rpc import Context, seconds_left
from photon.idregistry.raft.api import Applied, Group, ProposalOutcome
from photon.idregistry.replica.guests import FIRST_NUMBER, Guest
from photon.idregistry.replica.proposing import not_leading, propose
from photon.tables.oracle import AT_ONCE_MAX, Action, Allocate, Answer, Confirm, OracleLeader, OracleMachine, allocate
from photon.tables.timestamps import timestamps_pb2 as pb
from photon.tables.timestamps.client import TIMESTAMPS

if TYPE_CHECKING:
    import grpc.aio

GROUP = FIRST_NUMBER
PROPOSAL_SECONDS = 5.0
MARGIN_SECONDS = 0.05
PREFIX = "photon_oracle"


class TimestampServer:
    """The gRPC servicer of one replica, on one event loop."""

    def __init__(self, group: Group, machine: OracleMachine, clock: Clock) -> None:
        self._group = group
        self._machine = machine
        self._clock = clock
        self._leader = OracleLeader()
        self._tickets = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[int]] = {}
        self._timestamps = self._requests = self._entries = 0

    async def Take(self, request: pb.TakeRequest, context: Context) -> pb.TakeReply:  # noqa: N802
        if not 1 <= request.count <= AT_ONCE_MAX:
            return pb.TakeReply(reason=f"count = {request.count}: must be between 1 and {AT_ONCE_MAX}")
        if refused := not_leading(self._group.state()):
            return pb.TakeReply(leader_hint=refused.leader, reason="not the leader")
        if not self._group.state().current:  # otherwise it might mistake an old oracle for a new one
            return pb.TakeReply(leader_hint=self._group.state().leader or "", reason="is not ready to lead yet")
        ticket = next(self._tickets)
        answer = self._waiting[ticket] = asyncio.get_running_loop().create_future()
        self._act(self._leader.requested(ticket, request.count))
        try:
            async with asyncio.timeout(seconds_left(context, default=PROPOSAL_SECONDS, margin=MARGIN_SECONDS)):
                first = await answer
        except TimeoutError:
            return pb.TakeReply(reason="no majority of the replicas answered in time")
        finally:
            self._waiting.pop(ticket, None)
        if not first:
            return pb.TakeReply(
                leader_hint=self._group.state().leader or "",
                reason="another replica leads now, or too many requests wait",
            )
        self._requests += 1
        self._timestamps += request.count
        return pb.TakeReply(first=first)

    def read(self, into: Readings) -> None:
        """Reports the oracle's metrics."""
        state = self._group.state()
        into.put_all(
            PREFIX,
            {
                "leader": state.is_leader,
                "term": state.term,
                "timestamps_total": self._timestamps,
                "requests_total": self._requests,
                "entries_total": self._entries,
            },
        )

    def _act(self, actions: Iterable[Action]) -> None:
        for action in actions:
            if isinstance(action, Allocate):
                self._propose(action)
            elif isinstance(action, Confirm):
                # Runs after the handlers that are ready now, so that their requests share the next entry.
                asyncio.get_running_loop().call_soon(self._propose, action)
            elif (answer := self._waiting.get(action.ticket)) is not None and not answer.done():
                answer.set_result(action.first if isinstance(action, Answer) else 0)

    def _propose(self, action: Allocate | Confirm) -> None:
        def done(outcome: ProposalOutcome) -> None:
            if not isinstance(outcome, Applied):
                self._act(self._leader.failed())
                return
            self._entries += 1
            if isinstance(action, Allocate):
                self._act(self._leader.allocated(outcome.result))
            else:
                self._act(self._leader.confirmed(outcome.result.end))

        if self._machine.end == 1:
            past = allocate(self._clock.now_ns() // 1000)
            self._group.propose(past, timeout=PROPOSAL_SECONDS, done=lambda outcome: None)
        command = allocate(action.timestamps if isinstance(action, Allocate) else 0)
        propose(self._group, command, timeout=PROPOSAL_SECONDS, done=done, loop=asyncio.get_running_loop())


def guest(clock: Clock) -> Guest:
    machine = OracleMachine()

    def serve(group: Group, server: grpc.aio.Server) -> list[Source]:
        servicer = TimestampServer(group, machine, clock)
        TIMESTAMPS.add(server, servicer)
        return [servicer.read]

    return Guest(GROUP, machine, serve)

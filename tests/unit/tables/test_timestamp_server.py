"""The oracle's servicer over Raft groups controlled by the test: batches, a deposed leader, a lost answer."""

from __future__ import annotations

import asyncio

import pytest

from photon.config.clock import SystemClock
from photon.config.metrics.readings import Readings
from photon.idregistry.raft.identity import KnownGroups
from photon.idregistry.replica.server import shards_to_open
from photon.tables.oracle import AT_ONCE_MAX, OracleMachine
from photon.tables.timestamps import timestamps_pb2 as pb
from photon.tables.timestamps.client import TIMESTAMPS
from photon.tables.timestamps.server import GROUP, TimestampServer
from tests.unit.idregistry.groups import LocalGroup, Log


class Oracles:
    """Two replicas of one oracle."""

    def __init__(self) -> None:
        self.log = Log()
        self.machines = {name: OracleMachine() for name in ("r1", "r2")}
        self.groups = {name: LocalGroup(name, self.log, machine) for name, machine in self.machines.items()}
        self.servers = {
            name: TimestampServer(self.groups[name], self.machines[name], SystemClock()) for name in self.machines
        }

    async def take(self, name: str = "r1", count: int = 1, timeout: float = 60.0) -> pb.TakeReply:
        reply: pb.TakeReply = await TIMESTAMPS.here(self.servers[name]).Take(
            pb.TakeRequest(count=count), timeout=timeout
        )
        return reply


async def test_each_timestamp_is_handed_out_once_and_above_those_before() -> None:
    oracles = Oracles()
    firsts = [(await oracles.take(count=count)).first for count in (3, 1, AT_ONCE_MAX, 2)]
    assert firsts[1:] == [firsts[0] + 3, firsts[0] + 4, firsts[0] + 4 + AT_ONCE_MAX]


async def test_a_new_oracle_begins_at_the_clock_so_that_a_lost_one_is_below() -> None:
    assert (await Oracles().take()).first > 1_700_000_000_000_000


async def test_a_leader_that_has_not_applied_all_yet_hands_out_nothing() -> None:
    oracles = Oracles()
    oracles.groups["r1"].current = False  # its machine may be empty and its log full
    refused = await oracles.take()
    assert (refused.first, refused.reason) == (0, "is not ready to lead yet")
    assert oracles.log.commands == []


async def test_what_is_asked_together_shares_an_entry() -> None:
    oracles = Oracles()
    await oracles.take()
    before = len(oracles.log.commands)
    replies = await asyncio.gather(*(oracles.take() for _ in range(100)))
    assert len({reply.first for reply in replies}) == 100
    assert len(oracles.log.commands) - before <= 3


async def test_a_deposed_leader_hands_out_nothing_and_comes_back_above() -> None:
    oracles = Oracles()
    first = (await oracles.take("r1")).first
    oracles.log.leader = "r2"
    refused = await oracles.take("r1")
    assert (refused.first, refused.leader_hint) == (0, "r2")
    second = (await oracles.take("r2")).first
    assert second > first
    oracles.log.leader = "r1"
    assert (await oracles.take("r1")).first > second


async def test_a_leader_that_is_deposed_while_it_confirms_hands_out_nothing() -> None:
    oracles = Oracles()
    await oracles.take("r1")
    oracles.log.lose_replies = True
    lost = await oracles.take("r1")
    assert lost.first == 0
    assert lost.reason
    oracles.log.lose_replies = False
    assert (await oracles.take("r1")).first > 0


async def test_without_a_majority_the_caller_is_told_in_time() -> None:
    oracles = Oracles()
    await oracles.take()
    oracles.log.hold = True
    reply = await oracles.take(timeout=0.2)
    assert (reply.first, reply.reason) == (0, "no majority of the replicas answered in time")
    oracles.log.release()
    assert (await oracles.take()).first


@pytest.mark.parametrize("count", [0, AT_ONCE_MAX + 1, 2**32 - 1])
async def test_a_request_for_none_or_too_many_is_refused(count: int) -> None:
    assert "must be between 1 and" in (await Oracles().take(count=count)).reason


async def test_its_metrics_count_timestamps_and_entries() -> None:
    oracles = Oracles()
    await oracles.take(count=7)
    into = Readings()
    oracles.servers["r1"].read(into)
    said = {sample.name: sample.value for family in into.families() for sample in family.samples}
    assert (said["photon_oracle_leader"], said["photon_oracle_timestamps_total"]) == (1, 7)
    assert said["photon_oracle_requests_total"] == 1


def test_its_group_is_never_opened_as_a_shard() -> None:
    assert shards_to_open(1, KnownGroups((0, 1, 2, GROUP), ())) == [1, 2]

"""A replica's knowledge of the clocks, its report on them, and the proposals it bases on them."""

from __future__ import annotations

import asyncio
import time

import pytest
import structlog

from photon.config.interval_clock import ASK_SECONDS, IntervalClock, KernelTime
from photon.idregistry.api import Answer
from photon.idregistry.core.clock_offsets import READING_S_MAX, Agreement, Reading
from photon.idregistry.core.outcomes import Status
from photon.idregistry.core.resharding import Action, Ask
from photon.idregistry.replica.clocks import ClockWatch, LoneClock, PeerClocks
from photon.idregistry.replica.server import RegistryReplica
from tests.unit.idregistry.groups import Cluster, inserts
from tests.unit.idregistry.served import opened, routed, served, until

SECOND = 10**9
S = 5 * SECOND
DAY = 86_400 * SECOND
PATIENCE_S = 20.0


class ByHand:
    """A manually set clock."""

    def __init__(self) -> None:
        self.wall_ns, self.seconds = 1_700_000_000 * SECOND, 1000.0

    def now_ns(self) -> int:
        return self.wall_ns

    def monotonic(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds
        self.wall_ns += int(seconds * SECOND)


class Shifted:
    """The system's clock, wrong by an offset."""

    def __init__(self, ahead_ns: int) -> None:
        self.ahead_ns = ahead_ns

    def now_ns(self) -> int:
        return time.time_ns() + self.ahead_ns

    def monotonic(self) -> float:
        return time.monotonic()


def heard(watch: ClockWatch, **ahead_ns: int) -> None:
    """Each of these peers answers now, after no time."""
    clock = watch.time.clock
    for peer, ahead in ahead_ns.items():
        watch.read(peer, Reading(clock.now_ns() + ahead, clock.monotonic(), clock.monotonic()))


def three(clock: ByHand) -> ClockWatch:
    return ClockWatch(IntervalClock(clock, S), ["r2", "r3"])


def test_nothing_is_proposed_before_a_majority_was_heard_or_when_it_has_been_silent_for_long() -> None:
    clock = ByHand()
    watch = three(clock)
    assert "no reading of r2, r3" in watch.objection()
    heard(watch, r2=SECOND)
    assert watch.objection() == ""
    clock.sleep(READING_S_MAX - 1)
    assert watch.objection() == ""
    clock.sleep(2)
    assert "no reading of r2, r3" in watch.objection()
    assert watch.facts().agreement is Agreement.UNCERTAIN
    with pytest.raises(KeyError):
        heard(watch, stranger=0)


def test_a_step_of_the_own_clock_is_seen_at_once_and_a_step_of_a_peer_when_it_is_read() -> None:
    clock = ByHand()
    watch = three(clock)
    heard(watch, r2=0, r3=0)
    clock.wall_ns += DAY
    assert "86400.000 s ahead of the median" in watch.objection()
    assert watch.too_new_after_ns() == pytest.approx(clock.wall_ns - DAY + S, abs=SECOND)
    clock.wall_ns -= 2 * DAY
    assert "86400.000 s behind the median" in watch.objection()
    assert watch.too_new_after_ns() == pytest.approx(clock.wall_ns + DAY + S, abs=SECOND)
    clock.wall_ns += DAY
    assert watch.objection() == ""
    heard(watch, r3=DAY)
    assert watch.objection() == ""  # one of three is wrong
    heard(watch, r2=DAY)
    assert "behind the median" in watch.objection()  # and then it is this one
    assert watch.not_after_ns(0) == clock.wall_ns - S


def test_what_changes_is_logged_once() -> None:
    clock, kernel = ByHand(), {"says": KernelTime(True, 1000)}
    watch = ClockWatch(IntervalClock(clock, S, lambda: kernel["says"]), ["r2", "r3"])
    good, unsynchronised, vague = KernelTime(True, 0), KernelTime(False, 0), KernelTime(True, S + 1)
    for says, peers_ahead, keys in (
        (good, 0, []),
        (good, DAY, ["proposes_no_boundary"]),
        (good, 0, ["agrees"]),
        (unsynchronised, 0, ["note"]),
        (vague, 0, ["note"]),
        (good, 0, []),
    ):
        kernel["says"] = says
        clock.sleep(ASK_SECONDS)  # so that the kernel is asked again
        heard(watch, r2=peers_ahead, r3=peers_ahead)
        with structlog.testing.capture_logs() as logs:
            for _ in range(3):
                watch.say("r1")
        assert [key for each in logs for key in each if key not in ("event", "log_level", "replica")] == keys


async def until_boundary(replica: RegistryReplica, *, moved: bool) -> None:
    """Polls; two rounds of the caretaker show that nothing moves."""
    machine = replica._shards[1].machine
    deadline = time.monotonic() + (PATIENCE_S if moved else 2.5)
    while machine.boundary < 0:
        if time.monotonic() >= deadline:
            assert not moved
            return
        await asyncio.sleep(0.02)
    assert moved


async def test_a_replica_whose_clock_is_doubted_proposes_no_boundary_and_no_change_of_the_shards() -> None:
    cluster = Cluster(retention_ns=SECOND)
    watch = ClockWatch(IntervalClock(Shifted(0), S), ["r2", "r3"])
    heard(watch, r2=-DAY, r3=-DAY)
    replica = cluster.replica(clocks=watch)
    replica.start()
    try:
        registry = routed(replica)
        incarnation = await opened(registry)
        await until_boundary(replica, moved=False)
        refused = await replica.reshard(Ask(Action.PLAN, shards=2), timeout=1)
        assert refused.status is Status.REFUSED
        assert refused.reason.startswith("replica r1 proposes no change of the shards: this clock is 86399.99")
        # By the others' clocks this is a day too early: it is parked, regardless of its own clock.
        early = inserts([1], incarnation, 1, times=[time.time_ns() - SECOND])
        assert (await registry.insert(early, timeout=3)).outcomes.tolist() == [Answer.TOO_NEW]
        heard(watch, r2=0, r3=0)
        assert (await registry.insert(early, timeout=3)).outcomes.tolist() == [Answer.COMMITTED]
        await until_boundary(replica, moved=True)
    finally:
        await replica.stop()


async def test_replicas_ask_each_other_over_grpc_and_the_wrong_one_knows_itself() -> None:
    cluster = Cluster(replicas=3)
    async with served(cluster) as every:
        clocks = {"r1": Shifted(0), "r2": Shifted(-DAY), "r3": Shifted(SECOND)}
        askers = []
        for name, replica in every.replicas.items():
            watch = ClockWatch(IntervalClock(clocks[name], S), [other for other in clocks if other != name])
            replica.clocks = watch
            askers.append(PeerClocks(name, watch, every.addresses, None))
        client = every.client("r2")
        try:
            for asker in askers:
                asker.start()
            replicas = every.replicas.values()
            await until(lambda: all(peer.known for r in replicas for peer in r.clocks.facts().peers.values()))
            said = {name: replica.clocks.facts() for name, replica in every.replicas.items()}
            agreements = [Agreement.AGREES, Agreement.APART, Agreement.AGREES]
            assert [facts.agreement for facts in said.values()] == agreements
            for name, facts in said.items():
                for peer, offset in facts.peers.items():
                    truth = clocks[peer].ahead_ns - clocks[name].ahead_ns
                    assert offset.low_ns - SECOND // 100 <= truth <= offset.high_ns + SECOND // 100
            assert "behind the median of all replicas" in (await client.describe(timeout=60)).clock.objection
            every.replicas["r2"].clocks.time.clock.ahead_ns = 0  # type: ignore[attr-defined]  # somebody corrects it
            assert every.replicas["r2"].clocks.objection() == ""
        finally:
            await client.close()
            for asker in askers:
                await asker.stop()


def test_a_lone_clock_parks_nothing_and_forgets_by_the_events() -> None:
    clock = ByHand()
    lone = LoneClock(IntervalClock(clock, S))
    assert lone.too_new_after_ns() > clock.wall_ns + 10_000 * DAY
    right = clock.wall_ns
    assert lone.not_after_ns(right + DAY) == right - S, "an event of the future moves no boundary beyond the clock"
    clock.wall_ns += 400 * DAY
    assert lone.not_after_ns(right) == right

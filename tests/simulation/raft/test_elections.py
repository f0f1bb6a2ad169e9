"""Leaders and when they change: single scenarios in the simulated world, without other faults."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest

from photon.idregistry.raft import rules, snapshot
from photon.idregistry.raft.api import GroupState
from photon.idregistry.raft.identity import group_directory
from photon.idregistry.raft.options import RaftOptions
from tests.simulation.world.cluster import DIRECTORY, Node
from tests.simulation.world.raft import GROUP, World, draw_options

SEEDS = range(8 if os.environ.get("PHOTON_FULL") else 3)


@pytest.fixture(autouse=True)
def few_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few snapshots, as they hold everything ever proposed: three of four rounds would write some."""
    monkeypatch.setattr(snapshot, "SNAPSHOT_SLICE_BYTES", 2_000)


def world_with_leader(
    seed: int, replicas: int = 3, options: Callable[[Random], RaftOptions] = draw_options
) -> tuple[World, Node]:
    world = World(seed, replicas=replicas, options=options)
    for node in world.nodes.values():
        world.later(0.0, node.boot)
    world.run_until(10, stop=world.settled)
    assert world.settled()
    return world, leader_of(world)


def state(node: Node) -> GroupState:
    assert node.host is not None
    return node.host.group(GROUP).state()


def leader_of(world: World) -> Node:
    (leader,) = (node for node in world.nodes.values() if node.up and state(node).is_leader)
    return leader


def run_with_clients(world: World, seconds: float, stop: Callable[[], bool] | None = None) -> bool:
    end = world.now + seconds

    def client() -> None:
        world.propose_everywhere()
        if world.now < end:
            world.later(0.03, client)

    client()
    return world.run_until(end, stop)


def cut_off(world: World, lonely: str, *, hears: bool = False, is_heard: bool = False) -> None:
    others = [name for name in world.names if name != lonely]
    world.cut |= {(lonely, each) for each in others if not is_heard} | {
        (each, lonely) for each in others if not hears
    }


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize(("hears", "is_heard"), [(False, False), (False, True), (True, False)])
def test_who_was_cut_off_does_not_disturb_the_leader(seed: int, hears: bool, is_heard: bool) -> None:
    world, leader = world_with_leader(seed)
    before = state(leader)
    away = next(node for node in world.nodes.values() if node is not leader)
    cut_off(world, away.name, hears=hears, is_heard=is_heard)
    run_with_clients(world, 5.0)
    world.cut.clear()
    run_with_clients(world, 3.0)
    world.run_until(world.now + 1.5)
    assert world.settled()
    assert (leader_of(world).name, state(leader).term) == (leader.name, before.term)
    assert len(world.acknowledged) == world.proposed
    world.check()


def test_a_follower_that_hears_not_its_leader_but_others_does_not_disturb() -> None:
    world, leader = world_with_leader(1, replicas=5)
    term = state(leader).term
    away = next(node for node in world.nodes.values() if node is not leader)
    world.cut |= {(leader.name, away.name)}
    run_with_clients(world, 5.0)
    assert state(leader).is_leader
    assert (state(leader).term, state(away).term) == (term, term)


def test_without_asking_first_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ablation: everybody would always vote for everybody."""
    monkeypatch.setattr(rules, "would_vote", lambda *_, **__: True)
    with pytest.raises(AssertionError):
        test_a_follower_that_hears_not_its_leader_but_others_does_not_disturb()


@pytest.mark.parametrize("seed", SEEDS)
def test_leadership_is_handed_over_without_an_unknown_outcome(seed: int) -> None:
    world, leader = world_with_leader(seed)
    target = next(node for node in world.nodes.values() if node is not leader)
    run_with_clients(world, 0.5)
    assert leader.host is not None
    leader.host.group(GROUP).transfer(target.name)
    world.pump_at(leader, world.now)
    began = world.now
    assert run_with_clients(world, 2.0, stop=lambda: state(target).is_leader)
    assert world.now - began < 0.3
    run_with_clients(world, 1.0)
    assert world.run_until(world.now + 5, stop=world.settled)
    assert leader_of(world) is target
    world.check()
    assert world.unknown == 0


def test_a_hand_over_to_one_that_does_not_answer_is_given_up() -> None:
    world, leader = world_with_leader(3)
    target = next(node for node in world.nodes.values() if node is not leader)
    cut_off(world, target.name)
    assert leader.host is not None
    leader.host.group(GROUP).transfer(target.name)
    world.pump_at(leader, world.now)
    run_with_clients(world, 4.0)
    assert state(leader).is_leader
    before = len(world.acknowledged)
    run_with_clients(world, 1.0)
    assert len(world.acknowledged) > before
    with pytest.raises(ValueError, match="is not another replica"):
        leader.host.group(GROUP).transfer(leader.name)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_full_disk_makes_another_lead_and_passes(seed: int) -> None:
    world, leader = world_with_leader(seed)
    run_with_clients(world, 0.5)
    leader.disk.room = 200
    run_with_clients(world, 4.0)
    assert leader.up
    assert leader.disk.times_full > 0
    now = state(leader)
    assert (now.is_leader, now.writable, now.healthy) == (False, False, True)
    assert any(state(node).is_leader for node in world.nodes.values())
    before = len(world.acknowledged)
    run_with_clients(world, 1.0)
    assert len(world.acknowledged) > before + 20
    leader.disk.room = None
    assert world.run_until(world.now + 5, stop=world.settled)
    assert state(leader).writable
    assert world.crashes == 0
    world.check()


@pytest.mark.parametrize("replicas", [1, 3])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_full_disk_that_is_met_after_a_rest_passes(seed: int, replicas: int) -> None:
    world, _ = world_with_leader(seed, replicas, options=lambda random: replace(draw_options(random), rest_after=0.0))
    run_with_clients(world, 0.3)
    world.run_until(world.now + 2.0)
    full = world.random.choice(list(world.nodes.values()))
    full.disk.room = 0
    run_with_clients(world, 2.0)
    assert full.disk.times_full > 0
    full.disk.room = None
    world.run_until(world.now + 3.0)
    before = len(world.acknowledged)
    run_with_clients(world, 1.0)
    world.run_until(world.now + 5, stop=world.settled)
    assert world.settled()
    assert all(state(node).writable for node in world.nodes.values())
    assert len(world.acknowledged) > before + 10
    assert world.crashes == 0
    world.check()


@pytest.mark.parametrize("seed", SEEDS)
def test_a_rotten_snapshot_of_the_leader_is_mended_before_it_stops_a_follower(seed: int) -> None:
    world, leader = world_with_leader(seed, options=lambda _: RaftOptions(log_bytes=300, log_margin=0))
    away = next(node for node in world.nodes.values() if node is not leader)
    cut_off(world, away.name)
    run_with_clients(world, 2.0)
    path = group_directory(DIRECTORY, GROUP) / "snapshot"
    before = leader.disk.read(path)
    leader.disk.corrupt(path, len(before) // 2)
    world.cut.clear()
    assert world.run_until(world.now + 10, stop=world.settled)
    assert world.crashes == 0
    assert leader.disk.read(path) != before
    world.check()

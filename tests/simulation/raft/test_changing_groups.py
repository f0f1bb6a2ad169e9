"""Groups that are added and removed at run time, under every fault of the Raft simulation."""

from __future__ import annotations

import sys

import msgspec
import pytest

from photon.idregistry.raft.identity import Identity
from tests.simulation.world import changing_groups as world
from tests.simulation.world.seeds import seeds, share
from tests.simulation.world.violation import Violation, ViolationInCallback

BATCH = 5


def _batches(all_seeds: list[int]) -> list[list[int]]:
    return [all_seeds[n : n + BATCH] for n in range(0, len(all_seeds), BATCH)]


def _run(seed: int, replicas: int = 3) -> world.World:
    try:
        return world.run(seed, replicas=replicas)
    except Violation as e:
        raise AssertionError(f"PHOTON_SIM_SEED={seed} ({replicas} replicas): {e}") from e


@pytest.mark.seeded
@pytest.mark.parametrize("batch", _batches(seeds(30)), ids=lambda b: f"{b[0]}-{b[-1]}")
def test_groups_keep_their_promise_while_others_come_and_go(batch: list[int]) -> None:
    done = [_run(seed) for seed in batch]
    decisions = sum(len(each.decisions) - 1 for each in done)
    acknowledged = sum(len(history.acknowledged) for each in done for history in each.histories.values())
    crashes, refused = sum(each.crashes for each in done), sum(each.refused for each in done)
    print(
        f"{len(batch)} seeds: {decisions} decisions, {acknowledged} acknowledged, {crashes} crashes, "
        f"{refused} refused to come back",
        file=sys.stderr,
    )
    if len(batch) == BATCH:
        assert decisions >= 2 * BATCH  # or nothing was tested
        assert acknowledged > 20 * BATCH


@pytest.mark.seeded
@pytest.mark.parametrize("seed", share(seeds(50), 10))
def test_five_replicas(seed: int) -> None:
    _run(seed, replicas=5)


def _old_list(seed: int) -> world.World:
    """A group worked and was removed; then the power fails, and all replicas follow the old list for a while."""
    made = world.World(seed)
    made.decisions.append(2)
    for node in made.nodes.values():
        made.later(0.0, node.boot)

    proposes = True

    def client() -> None:
        if proposes:
            made.propose_everywhere()
            made.later(0.05, client)

    client()
    made.pace = 1.0
    made.run_until(4.0)
    assert made.acknowledged([2])[2] > 10
    made.decisions.append(-2)
    assert made.run_until(made.now + 5, stop=lambda: all(n.host and n.host.numbers == [1] for n in made.able()))
    for node in made.nodes.values():
        node.crash(power=True)
    made.pace = 0.0
    made.run_until(made.now + 1.5)
    assert all(node.up for node in made.able())
    made.seen = dict.fromkeys(made.names, 2)
    made.run_until(made.now + 4.0)
    made.pace = 1.0
    proposes = False  # followers of a stream apply it a moment later
    assert made.run_until(made.now + 10, stop=made.settled)
    made.check()
    return made


@pytest.mark.parametrize("seed", range(5))
def test_a_removed_group_does_not_come_back_by_an_old_list(seed: int) -> None:
    made = _old_list(seed)
    assert made.refused > 0


def test_if_it_could_it_would_have_two_pasts(monkeypatch: pytest.MonkeyPatch) -> None:
    """The ablation: a removal is not noted on disk."""

    def forgetful(self: Identity, group: int) -> None:
        left = [each for each in self._record.groups if each != group]
        self._write(msgspec.structs.replace(self._record, groups=left))

    monkeypatch.setattr(Identity, "unmade", forgetful)
    with pytest.raises((Violation, ViolationInCallback), match="is another one than elsewhere"):
        _old_list(1)


@pytest.mark.parametrize("seed", range(5))
def test_a_replica_that_opens_a_quiet_group_late_gets_all_of_it(seed: int) -> None:
    """Nothing has happened in the group for long, and nothing else happens in it."""
    made = world.World(seed)
    made.pace = 1.0
    for node in made.nodes.values():
        made.later(0.0, node.boot)
    made.run_until(2.0)
    late = made.nodes["c"]
    made.take_care_of = {"a", "b"}
    made.decisions.append(2)
    end = made.now + 3.0
    while made.now < end:
        made.propose_everywhere()
        made.run_until(made.now + 0.1)
    acknowledged = made.acknowledged([2])[2]
    assert acknowledged > 10
    made.run_until(made.now + 30.0)
    assert late.host is not None
    assert late.host.numbers == [1]
    made.take_care_of = set(made.names)
    assert made.run_until(made.now + 10, stop=made.settled)
    assert made.acknowledged([2])[2] == acknowledged
    made.check()

"""Plans: never more at once than may be lost, the same for the same seed, and of all kinds."""

import itertools

import pytest

from photon.lab.chaos.api import Do, Step, WrongScenario
from photon.lab.chaos.plan import WEIGHTS, random_plan
from photon.lab.chaos.topology import too_much
from tests.unit.lab.chaos.places import TOPOLOGY
from tests.unit.refusals import one_line

ABLE = frozenset(Do)


def drawn(seed: int, seconds: float = 600.0) -> list[Step]:
    return random_plan(seed, TOPOLOGY, seconds, ABLE, ["registry r5"], every_s=15.0, longest_s=10.0)


@pytest.mark.parametrize("seed", range(30))
def test_a_random_plan_leaves_a_majority_and_a_pipeline(seed: int) -> None:
    steps = drawn(seed)
    assert too_much(steps, TOPOLOGY) == ""
    assert steps == drawn(seed)
    assert all(step.end_s <= 600 for step in steps)
    for step in steps:
        TOPOLOGY.check(step)


def test_all_kinds_are_drawn_and_seeds_differ() -> None:
    assert {step.do for seed in range(10) for step in drawn(seed)} == set(WEIGHTS)
    assert drawn(1) != drawn(2)


def test_only_what_can_be_done_is_drawn() -> None:
    steps = random_plan(1, TOPOLOGY, 600.0, {Do.KILL, Do.TRUNCATE}, every_s=10.0, longest_s=5.0)
    assert {step.do for step in steps} == {Do.KILL}


def test_what_changes_the_same_thing_does_not_overlap() -> None:
    network = {Do.CUT, Do.LOSS, Do.DELAY}
    steps = random_plan(5, TOPOLOGY, 600.0, ABLE, every_s=5.0, longest_s=20.0)
    cuts = sorted((step for step in steps if step.do in network), key=lambda step: step.at_s)
    assert len(cuts) > 3
    assert all(before.end_s < after.at_s for before, after in itertools.pairwise(cuts))


KILL_TWO = Step(5.0, 10.0, Do.KILL, ("registry r1", "registry r3"))


@pytest.mark.parametrize(
    ("steps", "says"),
    [
        ([KILL_TWO], ""),
        ([KILL_TWO, Step(6.0, 1.0, Do.PAUSE, ("registry r5",))], "3 of 5 replicas"),
        ([KILL_TWO, Step(16.0, 1.0, Do.PAUSE, ("registry r5",))], "3 of 5 replicas"),  # they are just coming back
        ([KILL_TWO, Step(40.0, 1.0, Do.PAUSE, ("registry r5",))], ""),
        ([KILL_TWO, Step(6.0, 0.0, Do.KILL, ("leader",))], "3 of 5 replicas"),  # it may be another one
        ([KILL_TWO, Step(6.0, 0.0, Do.RESTART, ("joiner east-1", "registry r4", "registry r5"))], "3 of 5 replicas"),
        ([Step(0.0, 0.0, Do.RESTART, tuple(TOPOLOGY.replicas))], ""),  # one after the other
        ([Step(0.0, 5.0, Do.AWAY, ("east",)), Step(1.0, 1.0, Do.CUT, ("west", "central"))], "3 of 5 replicas"),
        ([Step(0.0, 5.0, Do.AWAY, ("east",)), Step(1.0, 1.0, Do.KILL, ("joiner west-1",))], ""),
    ],
)
def test_what_is_too_much(steps: list[Step], says: str) -> None:
    found = too_much(steps, TOPOLOGY)
    assert says in found
    assert bool(says) == bool(found)


@pytest.mark.parametrize(
    ("step", "says"),
    [
        (Step(0, 1, Do.KILL, ("joiner north-1",)), "no process 'joiner north-1'"),
        (Step(0, 1, Do.KILL, ()), "the number of targets (process) is 0"),
        (Step(0, 1, Do.CUT, ("east", "north")), "no region 'north'; there are: central, east, west"),
        (Step(0, 1, Do.CUT, ("east", "east")), "names east twice"),
        (Step(0, 1, Do.AWAY, ("central",)), "no datacentre 'central'"),
        (Step(0, 1, Do.LOSS, ("east",)), "(region) is 1, but must be 2"),
    ],
)
def test_a_target_that_is_not_there(step: Step, says: str) -> None:
    with one_line(WrongScenario, says):
        TOPOLOGY.check(step)

"""Random plans: the same seed and the same deployment give the same faults. Pure."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence

from photon.lab.chaos.api import INSTANT, LEADER, Do, Step
from photon.lab.chaos.topology import Topology, too_much

TRIES = 50  # attempts to find a fault that is acceptable in addition to the present ones
# Relative frequency of each fault. Truncated logs and new shards only occur if a scenario names them.
WEIGHTS = {
    Do.KILL: 6,
    Do.PAUSE: 4,
    Do.CUT: 4,
    Do.LOSS: 2,
    Do.DELAY: 2,
    Do.DISK: 1,
    Do.CLOCK: 1,
    Do.AWAY: 2,
    Do.RESTART: 2,
}
DELAYS_S = (0.05, 0.2, 0.5)
SKEWS_S = (-60.0, -5.0, 5.0, 60.0)


def random_plan(
    seed: int,
    topology: Topology,
    seconds: float,
    able: Iterable[Do],
    fillable: Sequence[str] = (),
    *,
    every_s: float,
    longest_s: float,
) -> list[Step]:
    """Draws a fault in each ``every_s`` of the run. None is longer than ``longest_s`` or outlasts the run.
    ``fillable``: processes whose disk may be filled."""
    rnd = random.Random(seed)
    weights = {do: weight for do, weight in WEIGHTS.items() if do in set(able)}
    if len(topology.regions) < 2:
        weights = {do: weight for do, weight in weights.items() if do not in (Do.CUT, Do.LOSS, Do.DELAY)}
    if not fillable:
        weights.pop(Do.DISK, None)
    if len(topology.datacentres) < 2:
        weights.pop(Do.AWAY, None)
    steps: list[Step] = []
    begin = 0.0
    while weights and begin + every_s <= seconds:
        for _ in range(TRIES):
            at_s = begin + rnd.uniform(0.0, 0.5 * every_s)
            for_s = round(rnd.uniform(0.2, 1.0) * min(longest_s, seconds - at_s), 1)
            do = rnd.choices(list(weights), list(weights.values()))[0]
            step = _draw(rnd, do, round(at_s, 1), for_s, topology, fillable)
            if not too_much([*steps, step], topology) and not _meets_itself(step, steps):
                steps.append(step)
                break
        begin += every_s
    return steps


def _meets_itself(step: Step, steps: Iterable[Step]) -> bool:
    """True if two faults overlap that change the same part, so that the end of one would heal the other."""
    network = (Do.CUT, Do.LOSS, Do.DELAY)
    for each in steps:
        if each.at_s < step.end_s + 1 and step.at_s < each.end_s + 1:
            both_network = each.do in network and step.do in network
            if both_network or set(each.target) & set(step.target) or Do.AWAY in (each.do, step.do):
                return True
    return False


def _draw(rnd: random.Random, do: Do, at_s: float, for_s: float, topology: Topology, fillable: Sequence[str]) -> Step:
    processes, regions = list(topology.processes), list(topology.regions)
    one: Callable[[], tuple[str, ...]] = lambda: (rnd.choice(processes),)  # noqa: E731
    pair = tuple(rnd.sample(regions, 2)) if len(regions) > 1 else ()
    if do is Do.KILL:
        down = rnd.random() < 0.5
        return Step(at_s, for_s if down else 0.0, do, (LEADER,) if rnd.random() < 0.2 else one())
    if do is Do.CUT:
        target = pair if rnd.random() < 0.7 else pair[:1]
        fault = rnd.choice(("drop", "drop", "reset", "refuse"))
        return Step(at_s, for_s, do, target, {"fault": fault, "both": rnd.random() < 0.6})
    if do is Do.DELAY:
        return Step(at_s, for_s, do, pair, {"delay": rnd.choice(DELAYS_S), "both": rnd.random() < 0.5})
    if do is Do.LOSS:
        return Step(at_s, for_s, do, pair)
    if do is Do.AWAY:
        return Step(at_s, for_s, do, (rnd.choice(list(topology.datacentres)),), {"state": "kept"})
    if do is Do.CLOCK:
        return Step(at_s, for_s, do, one(), {"skew": rnd.choice(SKEWS_S)})
    if do is Do.DISK:
        return Step(at_s, for_s, do, (rnd.choice(fillable),))
    return Step(at_s, 0.0 if do in INSTANT else for_s, do, one())

"""A compressed day: the offered load over time, and its faults. Pure."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence

from photon.lab.chaos.api import LEADER, Do, Step
from photon.lab.chaos.topology import Topology

SWING = 0.7  # the night has 1 - SWING times the mean rate, the peak 1 + SWING
RESHARD_AT, AWAY_AT, AWAY_FOR = 0.25, 0.58, 0.08  # shares of the day
# Interval of faults; shorter in short days, but long enough for the replicas to catch up after the last one.
EVERY_S, EVERY_SHARE, EVERY_LEAST_S = 60.0, 1 / 16, 20.0
BEFORE_S, AFTER_S = 15.0, 25.0  # time around a lost datacentre in which nothing else is done
SETTLED_S = 10.0  # time at the end without faults


def pace(seconds: float) -> Callable[[float], float]:
    """Multiple of the mean rate at a moment of a day of the given length; its mean over the day is 1."""
    return lambda at_s: 1.0 - SWING * math.cos(2 * math.pi * at_s / seconds)


def faults(seed: int, seconds: float, topology: Topology, shards: int) -> list[Step]:
    """A day's faults: one datacentre is lost and comes back, the registry gets ``shards`` shards, and all other kinds
    take turns, one at a time. Each datacentre is one process."""
    rnd = random.Random(seed)
    datacentres = sorted(topology.datacentres)
    away = Step(round(AWAY_AT * seconds, 1), round(AWAY_FOR * seconds, 1), Do.AWAY, (rnd.choice(datacentres),))
    steps = [away, Step(round(RESHARD_AT * seconds, 1), 0.0, Do.RESHARD, (), {"shards": shards})]
    every_s = max(EVERY_LEAST_S, min(EVERY_S, EVERY_SHARE * seconds))
    kinds: list[Callable[[float], Step]] = []
    begin = 0.25 * every_s
    while begin + every_s < seconds - SETTLED_S:
        kinds = kinds or rnd.sample(drawn := _kinds(rnd, topology), len(drawn))
        step = kinds[-1](round(begin + rnd.uniform(0.0, 0.3) * every_s, 1))
        if step.end_s < away.at_s - BEFORE_S or step.at_s > away.end_s + AFTER_S:
            steps.append(step)
            kinds.pop()
        begin += every_s
    return sorted(steps, key=lambda step: step.at_s)


def _kinds(rnd: random.Random, topology: Topology) -> Sequence[Callable[[float], Step]]:
    """Returns functions that each make one fault beginning at a given time."""
    one = rnd.choice

    def of(kind: str) -> str:
        return one([name for name in topology.processes if name.split()[0] == kind])

    def two() -> tuple[str, ...]:
        return tuple(rnd.sample(list(topology.regions), 2))

    return (
        lambda at: Step(at, 0.0, Do.KILL, (of("datacentre"),)),
        lambda at: Step(at, 4.0, Do.KILL, (of("registry"),)),
        lambda at: Step(at, 4.0, Do.KILL, (LEADER,)),
        lambda at: Step(at, 4.0, Do.PAUSE, (of("datacentre"),)),
        lambda at: Step(at, 4.0, Do.PAUSE, (of("registry"),)),
        lambda at: Step(at, 4.0, Do.PAUSE, (LEADER,)),
        lambda at: Step(at, 5.0, Do.CUT, two(), {"fault": "drop", "both": one((True, False))}),
        lambda at: Step(at, 5.0, Do.LOSS, two()),
        lambda at: Step(at, 6.0, Do.DELAY, two(), {"delay": 0.2, "both": True}),
        lambda at: Step(at, 0.0, Do.RESTART, (of("datacentre"), of("registry"))),
    )

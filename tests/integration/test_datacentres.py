"""Two datacentres survive the loss of anything: each event has one verdict over both (Photon, section 3.2.2)."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from photon.lab.demo.deployment import DATACENTRES, Shape
from photon.lab.wan.links import Fault
from tests.integration.commands import drawn_seed
from tests.integration.rig import REGIONS, Rig

FULL = bool(os.environ.get("PHOTON_FULL"))
SECONDS = 6.0  # seconds of the stream for each fault drilled
LONGER_THAN_EVERY_TIME_OUT_S = 50.0
FAULTS_A_ROUND = 3


async def kills(rig: Rig) -> None:
    """kill -9 of each kind of process at random moments."""
    await rig.kill_each_kind()


async def a_datacentre(rig: Rig) -> None:
    """One whole datacentre dies and returns; then the other."""
    first, second = rig.random.sample(DATACENTRES, 2)
    await rig.pause(0.5, 2.0)
    await rig.lose([first], rig.random.uniform(1.0, 3.0))
    await rig.supervisor.ready(90)
    await rig.lose([second], rig.random.uniform(1.0, 3.0))


async def both_datacentres(rig: Rig) -> None:
    """Only the third replica is left for a while."""
    await rig.pause(1.0, 3.0)
    await rig.lose(list(DATACENTRES), rig.random.uniform(0.5, 3.0))


async def freezes(rig: Rig, seconds: float | None = None) -> None:
    """SIGSTOP of a process that others wait for."""
    names = [service.name for service in rig.demo.deployment.services()]
    for victim in rig.random.sample(names, FAULTS_A_ROUND if seconds is None else 1):
        await rig.pause(0.1, 1.0)
        await rig.freeze(victim, seconds or rig.random.uniform(1.0, 4.0))


async def cuts(rig: Rig) -> None:
    """Between two regions, in one direction or both, silent or not."""
    for _ in range(FAULTS_A_ROUND):
        source, destination = rig.random.sample(REGIONS, 2)
        fault = rig.random.choice([Fault.DROP, Fault.RESET, Fault.REFUSE])
        await rig.pause(0.1, 1.0)
        await rig.cut(source, destination, rig.random.uniform(1.0, 4.0), fault, both=rig.random.random() < 0.5)


async def lost_state(rig: Rig) -> None:
    """A datacentre restarts from the beginning of its logs."""
    await rig.pause(1.0, SECONDS)
    await rig.forget(rig.random.choice(DATACENTRES))


DRILLS = (kills, a_datacentre, both_datacentres, freezes, cuts, lost_state)


async def anything(rig: Rig) -> None:
    """One fault after the other."""
    for drill in rig.random.sample(DRILLS, 2):
        await drill(rig)


# Drills that share a deployment: its start and its end cost as much as the drills between.
PAIRS = ((kills, cuts), (a_datacentre, freezes), (both_datacentres, lost_state))
ROUNDS = [(each,) for each in [*DRILLS, *[anything] * 14]] if FULL else PAIRS
IDS = [f"{n}-{'-'.join(each.__name__ for each in drills)}" for n, drills in enumerate(ROUNDS)]


@pytest.mark.parametrize("number", range(len(ROUNDS)), ids=IDS)
async def test_each_event_has_one_verdict_over_both(tmp_path: Path, number: int) -> None:
    drills = ROUNDS[number]

    async def drill(rig: Rig) -> None:
        for each in drills:
            await each(rig)

    await _round(tmp_path, drill, len(drills) * SECONDS)


@pytest.mark.full
@pytest.mark.parametrize("kind", ["joiner east-1", "dispatcher west", "eventstore east", "registry r1"])
async def test_a_process_stopped_for_longer_than_every_time_out_goes_on(tmp_path: Path, kind: str) -> None:
    async def drill(rig: Rig) -> None:
        await rig.pause(0.5, 2.0)
        await rig.freeze(kind, LONGER_THAN_EVERY_TIME_OUT_S)

    await _round(tmp_path, drill)


async def _round(directory: Path, drill: Callable[[Rig], Awaitable[None]], seconds: float = SECONDS) -> None:
    seed = drawn_seed()
    await Rig(directory, seed, seconds=seconds, shape=Shape(joiners=1 + seed % 2, unmatched_after_s=3.0)).run(drill)

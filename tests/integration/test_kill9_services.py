"""One datacentre: kill -9 of each kind of service process at random moments; every click comes out exactly once."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from photon.lab.demo.deployment import Shape
from tests.integration.commands import drawn_seed
from tests.integration.rig import Rig

ROUNDS = 20 if os.environ.get("PHOTON_FULL") else 1
SHAPE = Shape(datacentres=("east",), joiners=1, round_trip_s=None, unmatched_after_s=3.0)


@pytest.mark.parametrize("round_", range(ROUNDS))
async def test_every_click_exactly_once_whoever_is_killed(tmp_path: Path, round_: int) -> None:
    await Rig(tmp_path, drawn_seed(), seconds=5.0, shape=SHAPE).run(Rig.kill_each_kind)


@pytest.mark.parametrize("round_", range(max(2, ROUNDS)))
async def test_so_it_does_when_they_are_one_process(tmp_path: Path, round_: int) -> None:
    shape = replace(SHAPE, together=True, joiners=2, replicas_together=round_ % 2 == 1)
    await Rig(tmp_path, drawn_seed(), seconds=6.0, shape=shape).run(kill_the_datacentre)


async def kill_the_datacentre(rig: Rig) -> None:
    """Three times at random moments, plus a replica."""
    for victim in ("datacentre east", "registry r2", "datacentre east", "joiner east-2", "datacentre east"):
        await rig.pause(0.2, 2.0)
        await rig.kill(victim)

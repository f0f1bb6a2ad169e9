"""One datacentre: kill -9 of each kind of service process at random moments; every click comes out exactly once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from photon.demo.deployment import Shape
from tests.integration.rig import Rig, drawn_seed

ROUNDS = 20 if os.environ.get("PHOTON_FULL") else 2
SHAPE = Shape(datacentres=("east",), joiners=1, round_trip_s=None, unmatched_after_s=3.0)


@pytest.mark.parametrize("round_", range(ROUNDS))
async def test_every_click_exactly_once_whoever_is_killed(tmp_path: Path, round_: int) -> None:
    await Rig(tmp_path, drawn_seed(), seconds=5.0, shape=SHAPE).run(Rig.kill_each_kind)

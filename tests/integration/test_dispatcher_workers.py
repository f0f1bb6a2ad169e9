"""Dispatchers of several workers, over two datacentres: kill -9, and SIGSTOP beyond the lease; each event once."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from photon.lab.demo.deployment import Shape
from tests.integration.commands import drawn_seed
from tests.integration.rig import Rig

ROUNDS = 20 if os.environ.get("PHOTON_FULL") else 1


TWO = Shape(joiners=1, workers=2, round_trip_s=None)
PATIENT = replace(TWO, head_start_s=5.0)
"""No home is this late merely because it waits for a core: an event that still comes twice was nobody's or both's."""


async def workers_fail(rig: Rig) -> None:
    """Two of four are killed, a third one is stopped beyond its lease."""
    names = [f"dispatcher {datacentre} w{n}" for datacentre in ("east", "west") for n in (1, 2)]
    rig.random.shuffle(names)
    for name in names[:2]:
        await rig.pause(0.0, 1.5)
        await rig.kill(name)
    await rig.freeze(names[2], 5.0)


async def no_trouble(rig: Rig) -> None:
    """All is well."""


async def test_workers_share_with_other_datacentres_as_one_dispatcher(tmp_path: Path) -> None:
    rig = Rig(tmp_path, drawn_seed(), seconds=4.0, shape=PATIENT)
    await rig.run(no_trouble)
    ledgers = rig.observer.ledgers()
    joined = sum(ledger["joined"] for ledger in ledgers.values())
    for ledger in ledgers.values():
        assert ledger["joined"] > 0.25 * joined, ledgers
        assert ledger["wasted"] < 0.1 * joined, ledgers


@pytest.mark.parametrize("round_", range(ROUNDS))
async def test_two_datacentres_whose_workers_fail(tmp_path: Path, round_: int) -> None:
    await Rig(tmp_path, drawn_seed(), seconds=6.0, shape=TWO).run(workers_fail)

"""Ids of a lost slot are given up only once they are listed (rule 14), so that readers of its output know them."""

from __future__ import annotations

import pytest

from photon.operations.slots.id_list import IdList
from tests.simulation.world.noticed import notice
from tests.simulation.world.world import run_seed

# In the first seeds a slot is lost that owned ids whose records somebody may have read.
SEEDS = (3, 6, 7, *range(8, 60))


def test_a_list_that_is_not_written_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(IdList, "sync", lambda self: None)
    notice("retiring: list not written", SEEDS, run_seed, "not listed")

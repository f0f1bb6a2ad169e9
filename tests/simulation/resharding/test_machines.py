"""Rule 16 in machines alone, and the violations that thousands of orders of entries find when a part of it is
missing."""

from __future__ import annotations

import os

import pytest

from tests.simulation.resharding import machines
from tests.simulation.resharding.ablations import ABLATIONS
from tests.simulation.world.noticed import notice
from tests.simulation.world.seeds import seeds, share

BATCH = 50
SEEDS_OF_AN_ABLATION = 3_000
_DRAWN = seeds(10)
_EXACT = _DRAWN if "PHOTON_SIM_SEED" in os.environ else _DRAWN.found
_ORDERS = [range(seed, seed + 1) if seed in _EXACT else range(10 * seed, 10 * seed + 10) for seed in share(_DRAWN, 2)]


@pytest.mark.seeded
@pytest.mark.parametrize("orders", _ORDERS, ids=lambda orders: str(orders[0]))
def test_no_order_of_entries_breaks_the_rule(orders: range) -> None:
    for seed in orders:
        try:
            machines.run(seed)
        except BaseException as e:
            raise AssertionError(f"replay with: make sim SEED={seed} (machines of resharding): {e}") from e


def test_orders_reach_what_they_are_for() -> None:
    """Changes that are activated and abandoned, and inserts accepted meanwhile."""
    ended: list[bool] = []
    accepted = 0
    for seed in range(100):
        done = machines.run(seed)
        ended += done.ended.values()
        accepted += len(done.accepted)
        if len(ended) > 100 and 0 < sum(ended) < len(ended) and accepted > 1_000:
            break
    else:
        pytest.fail(f"{ended} of changes, {accepted} inserts")


@pytest.mark.parametrize("name", ABLATIONS)
def test_a_missing_part_of_the_rule_is_noticed(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ablation = ABLATIONS[name]
    ablation.patch(monkeypatch)
    notice(f"machines: {name}", range(SEEDS_OF_AN_ABLATION), machines.run, ablation.finds)

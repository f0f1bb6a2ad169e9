"""Which seeds a simulation runs: PHOTON_SIM_SEED one; PHOTON_SIM_SEEDS how many (50), from PHOTON_SIM_BASE on.

Slow simulations run a share of them, unless PHOTON_SIM_ALL is set (``make sim N=5000``).

`make test-sim` sets the base from the clock, so each run has fresh seeds; test ids and output name them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence


def seeds(default: int = 50, *, base: int = 0) -> list[int]:
    """Seeds to run, all different for each base."""
    one = os.environ.get("PHOTON_SIM_SEED")
    if one is not None:
        return [int(one)]
    base += int(os.environ.get("PHOTON_SIM_BASE", 0))
    return list(range(base, base + int(os.environ.get("PHOTON_SIM_SEEDS", default))))


def share(all_seeds: list[int], divisor: int, *, least: int = 1) -> list[int]:
    """The first of them: one of ``divisor``, and at least so many."""
    if os.environ.get("PHOTON_SIM_ALL"):
        return all_seeds
    return all_seeds[: max(least, len(all_seeds) // divisor)]


def run_each(run_seed: Callable[[int], object], story: Callable[[int], Sequence[str]], default: int = 50) -> None:
    """Runs a schedule of each seed, and says which these are; of one that is replayed only the story."""
    if "PHOTON_SIM_SEED" in os.environ:
        (one,) = seeds()
        print("\n".join(story(one)))
        return
    found = seeds(default)
    print(f"seeds {found[0]} to {found[-1]}")
    for seed in found:
        run_seed(seed)

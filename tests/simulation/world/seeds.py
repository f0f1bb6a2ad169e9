"""Which seeds a simulation runs: PHOTON_SIM_SEED one; PHOTON_SIM_SEEDS how many (50), from PHOTON_SIM_BASE on.

Slow simulations run a share of them, unless PHOTON_SIM_ALL is set (``make sim N=5000``).

`make test-sim` sets the base from the clock, so each run has fresh seeds; test ids and output name them.
"""

from __future__ import annotations

import os


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

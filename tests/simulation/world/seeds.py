"""Which seeds a simulation runs: PHOTON_SIM_SEED one; PHOTON_SIM_SEEDS how many (50), from PHOTON_SIM_BASE on.

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

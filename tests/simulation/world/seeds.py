"""Which seeds a simulation runs: PHOTON_SIM_SEED one; PHOTON_SIM_SEEDS how many (50), from PHOTON_SIM_BASE on (0).

Slow simulations run a share of them, unless PHOTON_SIM_ALL is set (``make sim N=5000``).

`make test-sim` runs the same seeds each time, so that a change is judged by what it changes, and FRESH of
PHOTON_SIM_FRESH, a number from the clock, beside them; test ids and output name them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

FRESH = 5
Method = TypeVar("Method", bound=Any)


def seeds(default: int = 50, *, base: int = 0) -> list[int]:
    """Seeds to run, all different for each base."""
    one = os.environ.get("PHOTON_SIM_SEED")
    if one is not None:
        return [int(one)]
    begin = base + int(os.environ.get("PHOTON_SIM_BASE", 0))
    found = list(range(begin, begin + int(os.environ.get("PHOTON_SIM_SEEDS", default))))
    fresh = base + int(os.environ["PHOTON_SIM_FRESH"]) if "PHOTON_SIM_FRESH" in os.environ else begin
    return found if fresh < begin + len(found) else [*found, *range(fresh, fresh + FRESH)]


def share(all_seeds: list[int], divisor: int, *, least: int = 1) -> list[int]:
    """One of ``divisor``, and at least so many, evenly from the last on: fresh ones are among them."""
    n = len(all_seeds)
    some = n if os.environ.get("PHOTON_SIM_ALL") else min(n, max(least, n // divisor))
    return [all_seeds[n - 1 - at * n // some] for at in range(some)]


def placeless(method: Method) -> Method:
    """Of an adapter that raises: what it raised is written out with file and line, and files roll by their bytes, so
    that a seed would be another schedule in each directory that the project lies in, and after each edit above."""
    method.__code__ = method.__code__.replace(co_filename="adapter.py", co_firstlineno=1)
    return method


def run_each(run_seed: Callable[[int], object], story: Callable[[int], Sequence[str]], default: int = 50) -> None:
    """Runs a schedule of each seed, and says which these are; of one that is replayed only the story."""
    if "PHOTON_SIM_SEED" in os.environ:
        (one,) = seeds()
        print("\n".join(story(one)))
        return
    found = seeds(default)
    print(f"seeds {found[0]} to {found[-1]}, {len(found)} of them")
    for seed in found:
        run_seed(seed)

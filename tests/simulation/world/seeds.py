"""The seeds that a simulation runs: PHOTON_SIM_SEED one; PHOTON_SIM_SEEDS how many (50), from PHOTON_SIM_BASE on (0).

Slow simulations run a share of them, unless PHOTON_SIM_ALL is set (``make sim N=5000``).

`make test-sim` runs the same seeds each time, so that a change is judged by its own effect; those of ``found.json``,
which once found something in this file; and FRESH from PHOTON_SIM_FRESH on, a number derived from the commit's tree:
each change meets new ones, and anyone who reruns them meets the same. Test ids, output and failures name them
(``conftest``).
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

# File of a simulation, and which of its worlds if not the first -> seeds that found something there; ``make soak``
# adds to it.
FOUND = Path(__file__).parents[1] / "found.json"
FRESH = 3
Method = TypeVar("Method", bound=Any)


class Seeds(list[int]):
    """``found``: seeds among them that once found something, at the end."""

    found: Sequence[int] = ()


def seeds(default: int = 50, *, base: int = 0, module: str | None = None, world: str = "") -> Seeds:
    """Seeds to run, all different for each base. ``module``: the simulation's, if not the caller's. ``world``: one of
    the file's, as its test ids begin."""
    one = os.environ.get("PHOTON_SIM_SEED")
    if one is not None:
        return Seeds([int(one)])
    begin = base + int(os.environ.get("PHOTON_SIM_BASE", 0))
    drawn = Seeds(range(begin, begin + int(os.environ.get("PHOTON_SIM_SEEDS", default))))
    fresh = base + int(os.environ["PHOTON_SIM_FRESH"]) if "PHOTON_SIM_FRESH" in os.environ else begin
    if fresh >= begin + len(drawn):
        drawn += range(fresh, fresh + FRESH)
    if "PHOTON_SIM_BASE" not in os.environ:
        file = file_of(module or sys._getframe(1).f_globals["__name__"])
        found = json.loads(FOUND.read_text()).get(f"{file} {world}".strip(), [])
        drawn = Seeds([*(seed for seed in drawn if seed not in found), *found])
        drawn.found = found
    return drawn


def file_of(module: str) -> str:
    """``tests.simulation.copies.test_copies``: copies/test_copies."""
    return module.removeprefix("tests.simulation.").replace(".", "/")


def share(all_seeds: Seeds, divisor: int, *, least: int = 1) -> list[int]:
    """One of ``divisor``, and at least ``least``, evenly from the last on, so that fresh ones are among them.
    Includes all that once found something."""
    n = len(all_seeds) - len(all_seeds.found)
    some = n if os.environ.get("PHOTON_SIM_ALL") else min(n, max(least, n // divisor))
    return [*all_seeds.found, *(all_seeds[n - 1 - at * n // some] for at in range(some))]


def placeless(method: Method) -> Method:
    """For an adapter that raises: its exception is written out with file and line, and files roll by size, so that a
    seed would be another schedule in each project directory, and after each edit above."""
    method.__code__ = method.__code__.replace(co_filename="adapter.py", co_firstlineno=1)
    return method


def run_each(run_seed: Callable[[int], object], story: Callable[[int], Sequence[str]], default: int = 50) -> None:
    """Runs a schedule of each seed, and names them; of a replayed one, only the story."""
    if "PHOTON_SIM_SEED" in os.environ:
        (one,) = seeds()
        print("\n".join(story(one)))
        return
    found = seeds(default, module=story.__module__)
    print(f"seeds {found[0]} to {found[-1]}, {len(found)} of them")
    for seed in found:
        run_seed(seed)

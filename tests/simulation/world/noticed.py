"""The schedule that shows each missing rule, and those that tell of all faults. The latest ones are recorded in
``noticed.json``, and run first.

Changed code changes schedules: if one shows nothing any more, all are searched as if it were unknown, for minutes.
``make notice`` writes down the results.
"""

from __future__ import annotations

import fcntl
import itertools
import json
import os
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.simulation.world.violation import Violation

# Ablation -> the seed that shows it; simulation -> the seeds that tell of all faults.
KNOWN = Path(__file__).parents[1] / "noticed.json"
# Searches of this test: its known schedule shows nothing any more. Reported at the end of a run (``conftest``).
searched: list[str] = []


def notice(
    what: str,
    seeds: Iterable[int],
    run: Callable[[int], object],
    finds: str,
    violations: type[BaseException] | tuple[type[BaseException], ...] = Violation,
) -> int:
    """Runs schedules until one of ``violations`` says ``finds`` (a regular expression). Returns its seed; fails the
    test if none of ``seeds`` does. ``what``: which test and rule."""
    known = _known().get(what)
    tried = 0
    for seed in itertools.chain([] if known is None else [known], seeds):
        tried += 1
        try:
            run(seed)
        except violations as violation:
            if re.search(finds, str(violation)):
                print(f"{what}: seed {seed}: {violation}", file=sys.stderr)
                if tried > 1:
                    searched.append(f"{what} ({tried} schedules)")
                if os.environ.get("PHOTON_SIM_NOTE"):
                    _note(what, seed)
                return seed
    pytest.fail(f"{what}: {tried} schedules and nothing found")


def reach(
    what: str,
    seeds: Iterable[int],
    tell: Callable[[int], Iterable[str]],
    words: Iterable[str],
    enough: Callable[[], bool] = lambda: True,
) -> None:
    """Runs schedules and collects their stories until all ``words`` (regular expressions) were told and ``enough``
    holds; fails the test if something was never told. ``what``: which simulation."""
    left, telling = list(words), []
    for seed in dict.fromkeys([*_known().get(what, ()), *seeds]):
        text = "\n".join(tell(seed))
        silent = [word for word in left if not re.search(word, text, re.MULTILINE)]
        if len(silent) < len(left):
            telling.append(seed)
        left = silent
        if not left and enough():
            if os.environ.get("PHOTON_SIM_NOTE"):
                _note(what, telling)
            return
    assert not left, left
    assert enough()


def _known() -> dict[str, Any]:
    with open(KNOWN) as file:
        fcntl.flock(file, fcntl.LOCK_SH)
        known: dict[str, Any] = json.load(file)
    return known


def _note(what: str, seed: int | list[int]) -> None:
    with open(KNOWN, "r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)  # other test processes note theirs
        noted = json.load(file) | {what: seed}
        file.seek(0)
        file.truncate()
        file.write(json.dumps(noted, indent=1, sort_keys=True) + "\n")

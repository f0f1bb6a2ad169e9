"""Seeded schedules of several workers on one state, and that each measure taken out is found."""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path

import pytest

from photon.dispatcher.core import Core
from photon.dispatcher.holdings import Holdings
from photon.dispatcher.shared_state import SharedState
from photon.dispatcher.state import Changes
from tests.simulation.workers.world import Sea, Variant, Violation

ROUNDS = 16 if os.environ.get("PHOTON_FULL") else 1
SEEDS = 25
ABLATION_SEEDS = 60
REPLAY = os.environ.get("PHOTON_SIM_SEED")


def seeds(count: int) -> list[int]:
    if REPLAY is not None:
        return [int(REPLAY)]
    found = [random.SystemRandom().randrange(1 << 32) for _ in range(count)]
    print(f"PHOTON_SIM_SEED=one of {found}")
    return found


def run(seed: int, directory: Path, variant: Variant | None = None) -> Sea:
    directory.mkdir()
    sea = Sea(seed, directory, variant or Variant())
    try:
        sea.run()
    except Violation as violation:
        raise Violation(f"seed {seed}: {violation} (replay with PHOTON_SIM_SEED={seed})") from violation
    return sea


@pytest.mark.parametrize("round_", range(ROUNDS))
def test_every_line_is_counted_once_whoever_reads_it(tmp_path: Path, round_: int) -> None:
    counts: Counter[str] = Counter()
    for number, seed in enumerate(seeds(SEEDS)):
        counts += run(seed, tmp_path / str(number)).counts
    if REPLAY is None:
        assert min(counts[what] for what in ("fenced", "killed", "paused", "rolled")) > 0


class NotChecked(SharedState):
    """A commit does not ask whether its worker was taken for dead."""

    def _may_commit(self, changes: Changes) -> None:
        return None


class GivenBackUnfinished(Holdings):
    """A lease ends while what was read under it is on its way, and is committed all the same."""

    def _let_go(self, core: Core) -> None:
        self._state.release(sorted(self._leaving))
        self._mine.difference_update(self._leaving)
        self._leaving.clear()


ABLATIONS = {
    "commits are not fenced": (Variant(state=NotChecked), "ledger|rest"),
    "given back unfinished": (Variant(state=NotChecked, holdings=GivenBackUnfinished), "ledger|rest"),
    "lines of a living worker are exported": (Variant(locked=False), "rejected|late"),
}


def run_all(directory: Path, variant: Variant) -> None:
    for seed in range(ABLATION_SEEDS):
        run(seed, directory / str(seed), variant)


@pytest.mark.parametrize("name", ABLATIONS)
def test_what_is_taken_out_is_found(tmp_path: Path, name: str) -> None:
    variant, finds = ABLATIONS[name]
    with pytest.raises(Violation, match=finds):
        run_all(tmp_path, variant)

"""Seeded schedules of several workers on one state, and checks that each removed measure is noticed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from photon.adapters.logs.lag import Unread
from photon.dispatcher.core import Core
from photon.dispatcher.log_leases import LogLeases
from photon.dispatcher.shared_state import SharedState
from photon.dispatcher.state import Changes
from photon.dispatcher.undecided import Statement, WorkerClaims
from tests.simulation.workers.world import Sea, Variant
from tests.simulation.world.noticed import notice, reach
from tests.simulation.world.seeds import seeds, share
from tests.simulation.world.violation import of_seed

SEEDS = 25
_SEEDS = share(seeds(SEEDS), 8, least=6)
BATCH = 25
ABLATION_SEEDS = 60


def run(seed: int, directory: Path, variant: Variant | None = None) -> Sea:
    directory.mkdir()
    sea = Sea(seed, directory, variant or Variant())
    with of_seed(seed):
        sea.run()
    return sea


@pytest.mark.seeded
@pytest.mark.parametrize(
    "batch", [_SEEDS[n : n + BATCH] for n in range(0, len(_SEEDS), BATCH)], ids=lambda b: f"{b[0]}-{b[-1]}"
)
def test_every_line_is_counted_once_whoever_reads_it(tmp_path: Path, batch: list[int]) -> None:
    for seed in batch:
        run(seed, tmp_path / str(seed))


def test_schedules_reach_what_they_are_for(tmp_path_factory: pytest.TempPathFactory) -> None:
    told = lambda seed: +run(seed, tmp_path_factory.mktemp("sea") / "it").counts  # noqa: E731
    reach("workers", range(60), told, ("fenced", "killed", "paused", "rolled", "torn", "once", "claims moved"))


class NotChecked(SharedState):
    """A commit does not check whether its worker was taken for dead."""

    def _may_commit(self, changes: Changes) -> None:
        return None


class GivenBackUnfinished(LogLeases):
    """A lease ends while lines read under it are in flight, and they are committed all the same."""

    def _let_go(self, core: Core) -> None:
        self.state.release(sorted(self._leaving))
        self._mine.difference_update(self._leaving)
        self._leaving.clear()


class MovedUnnoticed(SharedState):
    """Lines read under other leases still count."""

    def _moved(self) -> None:
        return None


class NobodyReadsIt(LogLeases):
    """A log that no worker has counts for nobody."""

    def _without_reader(self) -> str:
        return ""


class LeavingUnread(LogLeases):
    """A returned log counts as read to its end."""

    def unread_now(self) -> Unread:
        return replace(self.follower.unread_now(), doubt=self._without_reader())


class DeadForgotten(WorkerClaims):
    """Lines in dead workers' memory are not counted."""

    def _put(self, at_ns: int, rest: tuple[str, str, str]) -> list[Statement]:
        dead = "DELETE FROM claims WHERE owner <> 0 AND owner IN (SELECT incarnation FROM workers WHERE fenced)"
        return [*super()._put(at_ns, rest), (dead, ())]


ABLATIONS = {
    "leases move unnoticed": (Variant(state=MovedUnnoticed), "claim"),
    "logs without a reader are not waited for": (Variant(holdings=NobodyReadsIt), "claim"),
    "logs that are given back count as read": (Variant(holdings=LeavingUnread), "claim"),
    "memory of the dead is forgotten": (Variant(claims=DeadForgotten), "claim"),
    "commits are not fenced": (Variant(state=NotChecked), "ledger|rest"),
    "given back unfinished": (Variant(state=NotChecked, holdings=GivenBackUnfinished), "ledger|rest"),
    "lines of a living worker are exported": (Variant(locked=False), "rejected|late"),
    "a torn line is taken for whole": (Variant(waits=False), "ledger|rest"),
}


@pytest.mark.parametrize("name", ABLATIONS)
def test_what_is_taken_out_is_found(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    variant, finds = ABLATIONS[name]
    one = lambda seed: run(seed, tmp_path_factory.mktemp("sea") / "it", variant)  # noqa: E731
    notice(f"workers: {name}", range(ABLATION_SEEDS), one, finds)

"""Seeded schedules of computations on HBase, and checks that a missing rule of its store is noticed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from photon.computing.errors import ComputingError
from photon.computing.store import Commit, Store
from photon.rows.api import Change, Put
from photon.rows.hbase.rows import HBaseRows
from tests.simulation.computing.hbase_world import run_hbase_seed
from tests.simulation.computing.world import Variant
from tests.simulation.world.noticed import notice, reach
from tests.simulation.world.seeds import seeds
from tests.simulation.world.violation import Violation
from tests.unit.computing.fake_thrift import FakeHBase

SEEDS_OF_AN_ABLATION = 400
_SEEDS = seeds()
BATCH = 25


@pytest.mark.seeded
@pytest.mark.parametrize(
    "batch", [_SEEDS[n : n + BATCH] for n in range(0, len(_SEEDS), BATCH)], ids=lambda b: f"{b[0]}-{b[-1]}"
)
def test_each_record_counts_once_wherever_a_commit_breaks_off(batch: list[int]) -> None:
    for seed in batch:
        run_hbase_seed(seed)


def test_schedules_break_commits_off_everywhere() -> None:
    wanted = [f"{call} {what}" for call in ("check", "put") for what in ("before", "after", "late", "lost", "slow")]
    wanted += ["fenced", "killed within"]
    reach("computing on HBase", range(100), lambda seed: +run_hbase_seed(seed).counts, wanted)


def blind(self: HBaseRows, change: Change, puts: Sequence[Put]) -> bool:
    self.put([Put(change.row, change.cells)])
    self.put(puts)
    return True


def as_it_comes(self: FakeHBase, put: Any) -> None:
    self.rows.setdefault(put.row, {}).update(
        {each.qualifier: (each.value, each.timestamp) for each in put.columnValues}
    )


def rows_first(self: Store, sequencer: int, commit: Commit) -> None:
    self._rows.put(self._puts(commit, self._owned(sequencer).version + 1))
    _commit(self, sequencer, commit)


_commit = Store.commit
ABLATIONS: dict[str, tuple[object, str, object]] = {
    "the head is not compared": (HBaseRows, "commit", blind),
    "the last commit is not done again": (Store, "_redo", lambda self, head, cells: None),
    "a row has what came last": (FakeHBase, "put", as_it_comes),
    "rows are written before the moment": (Store, "commit", rows_first),
}


@pytest.mark.parametrize("name", ABLATIONS)
def test_the_world_notices_a_missing_rule(name: str) -> None:
    notice(
        f"computing on HBase: {name}",
        range(SEEDS_OF_AN_ABLATION),
        lambda seed: run_hbase_seed(seed, Variant((ABLATIONS[name],))),
        "lost|twice|does not come to rest|out of order|damaged|late|final",
        (Violation, ComputingError),
    )

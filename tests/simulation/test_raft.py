"""The Raft driver under power cuts, lost, late, doubled and reordered messages, partitions and pauses."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from photon.idregistry.raft import group, host, rules, snapshot
from photon.idregistry.raft.codec import Append
from photon.idregistry.raft.options import RaftStopped
from tests.simulation.world import raft as world
from tests.simulation.world.raft import Violation
from tests.simulation.world.seeds import seeds

BATCH = 10


class _Silent:
    def info(self, *_: object, **__: object) -> None: ...

    warning = error = exception = info


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Snapshots of a few hundred bytes still take several slices and messages."""
    monkeypatch.setattr(snapshot, "SNAPSHOT_SLICE_BYTES", 200)
    monkeypatch.setattr(snapshot, "TRANSFER_BYTES", 300)
    monkeypatch.setattr(host, "log", _Silent())
    return


def _batches(all_seeds: list[int]) -> list[list[int]]:
    return [all_seeds[n : n + BATCH] for n in range(0, len(all_seeds), BATCH)]


@pytest.mark.parametrize("batch", _batches(seeds()), ids=lambda b: f"{b[0]}-{b[-1]}")
def test_no_acknowledged_command_is_lost(batch: list[int]) -> None:
    acknowledged = crashes = 0
    for seed in batch:
        try:
            done = world.run(seed)
        except Exception as e:
            raise AssertionError(f"replay with PHOTON_SIM_SEED={seed}: {e}") from e
        acknowledged += len(done.acknowledged)
        crashes += done.crashes
    print(f"{len(batch)} seeds: {acknowledged} acknowledged, {crashes} crashes", file=sys.stderr)
    assert acknowledged > 20 * len(batch)  # or nothing was tested
    assert crashes > 0


def test_a_seed_replays() -> None:
    first, second = (world.run(7) for _ in range(2))
    assert first.by_index == second.by_index
    assert (first.now, first.proposed, first.crashes) == (second.now, second.proposed, second.crashes)


@pytest.mark.parametrize("seed", seeds(50)[: max(1, len(seeds()) // 10)])
def test_five_replicas(seed: int) -> None:
    assert world.run(seed, replicas=5).acknowledged


def _finds_a_loss(runs: int, *, replicas: int = 3, lies_about: str | None = None) -> bool:
    """Whether one of the seeds ends with an acknowledged command lost, or two histories."""
    for seed in range(runs):
        try:
            world.run(seed, replicas=replicas, lies_about=lies_about)
        except Violation as e:
            if "is lost" in str(e) or "another replica" in str(e):
                print(f"seed {seed}: {e}", file=sys.stderr)
                return True
        except RaftStopped:
            continue  # the driver itself saw that its files or its peers contradict each other
    return False


def test_without_fsync_the_checker_finds_a_loss() -> None:
    assert _finds_a_loss(40, lies_about="journal-")


def test_without_normalisation_the_checker_finds_a_loss(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The library's own rule: whatever lies behind prev_index is cut, and committed up to the leader's index."""

    def naive(message: Append, log: rules.LogView) -> rules.Accepted | rules.Rejected:
        if not log.first <= message.prev_index <= log.last or log.term_at(message.prev_index) != message.prev_term:
            return rules.Rejected(log.commit + 1)
        end = message.prev_index + len(message.entries)
        return rules.Accepted(message.prev_index, message.prev_term, message.entries, end, message.commit)

    monkeypatch.setattr(group.rules, "receive_append", naive)
    caplog.set_level(100, logger="pysyncobj.syncobj")  # it complains a lot, and goes on
    assert _finds_a_loss(100)

"""The paper's figure 11: shards are tripled, and within the retention an old shard falls to a third of its size."""

from __future__ import annotations

import itertools

import numpy as np

from photon.idregistry.api import DIGEST_BYTES, Answer
from photon.idregistry.core import commands as c
from tests.unit.idregistry.resharding.deployment import S_NS, Deployment

STEP = 3 * 3_600_000_000_000
RETENTION = 24  # three days of steps
IDS_A_STEP = 900
STEADY, CHANGED, END = 28, 32, 32 + RETENTION + 5


def test_an_old_shard_falls_to_a_third_as_the_retention_passes() -> None:
    registry = Deployment(2)
    sizes: dict[int, list[int]] = {}
    for step in range(END):
        now = step * STEP
        digests = np.random.default_rng(step).bytes(DIGEST_BYTES * IDS_A_STEP)
        times = now + np.linspace(0, STEP, IDS_A_STEP, endpoint=False, dtype=np.int64)
        assert set(registry.insert(digests, times)) == {Answer.COMMITTED}
        assert set(registry.clear(digests, times)) == {Answer.CLEARED}
        now += STEP
        if step == CHANGED - 1:
            assert not isinstance(registry.begin(6, now), str)
        registry.care(now)
        for shard in registry.config.changes.live:
            registry.to_shard(shard, c.Boundary(now - RETENTION * STEP - S_NS))
            sizes.setdefault(shard, []).append(registry.shards[shard].ids)
    assert registry.config.changes.named == (1, 2, 3, 4, 5, 6)
    for old in (1, 2):
        full = np.mean(sizes[old][STEADY:CHANGED])
        assert 0.9 < full / (IDS_A_STEP * RETENTION / 2) < 1.15
        assert 0.30 < np.mean(sizes[old][-3:]) / full < 0.37
        # In a straight line: half of the way, half of the fall.
        assert 0.60 < sizes[old][CHANGED + RETENTION // 2] / full < 0.73
        falling = sizes[old][CHANGED + 2 : -5 : 2]
        assert all(later < earlier for earlier, later in itertools.pairwise(falling))
    for new in (3, 4, 5, 6):
        assert 0.9 < np.mean(sizes[new][-3:]) / (IDS_A_STEP * RETENTION / 6) < 1.15

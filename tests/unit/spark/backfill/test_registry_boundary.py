"""The registry's boundary is found by look-ups alone."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from photon.batch.verdicts import Verdicts
from photon.idregistry.api import I64, Answer
from photon.spark.backfill.registry_boundary import PRECISION_NS, RegistrySilent, boundary_in

S = 10**9


class Shards:
    """Two shards, each with its own boundary."""

    def __init__(self, *boundaries: int, silent: bool = False) -> None:
        self._boundaries = boundaries
        self._silent = silent
        self.asked = 0

    async def look_up(self, digests: bytes, times: I64, *, timeout: float) -> Verdicts:
        self.asked += 1
        shard = np.frombuffer(digests, np.uint8)[::16] % len(self._boundaries)
        below = times < np.array(self._boundaries, np.int64)[shard]
        answers = np.where(below, Answer.BELOW_BOUNDARY, Answer.ABSENT).astype(np.uint8)
        if self._silent:
            answers[-1] = Answer.UNKNOWN
        return Verdicts.plain(answers)


def found(shards: Shards, since: int, until: int) -> int | None:
    return asyncio.run(boundary_in(shards, since, until))


def test_the_latest_boundary_of_all_shards_counts() -> None:
    shards = Shards(100 * S, 5000 * S)
    boundary = found(shards, 0, 100_000 * S)
    assert boundary is not None
    assert 5000 * S <= boundary <= 5000 * S + PRECISION_NS
    assert shards.asked < 30


def test_a_range_above_or_below_it_is_told_at_once() -> None:
    assert found(Shards(100 * S), 100 * S, 200 * S) == 100 * S
    assert found(Shards(100 * S, 300 * S), 150 * S, 200 * S) is None


def test_the_earliest_boundary_is_where_no_shard_takes_anything() -> None:
    boundary = asyncio.run(boundary_in(Shards(100 * S, 5000 * S), 0, 100_000 * S, of_all=True))
    assert boundary is not None
    assert 100 * S - PRECISION_NS <= boundary <= 100 * S
    assert asyncio.run(boundary_in(Shards(100 * S, 5000 * S), 100 * S, 200 * S, of_all=True)) == 100 * S


def test_silence_is_no_answer() -> None:
    with pytest.raises(RegistrySilent):
        found(Shards(5, silent=True), 0, 10)

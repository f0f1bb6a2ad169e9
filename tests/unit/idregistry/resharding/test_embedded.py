"""Shards that change in a registry of one process on a real disk: opened, removed, found again after a restart."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from copy import copy
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from photon.batch.ids import Ids
from photon.config.clock import SystemClock
from photon.idregistry.api import Answer, Slot, token_of
from photon.idregistry.core.outcomes import Status
from photon.idregistry.core.resharding import Action, Ask, Resharding, Stage
from photon.idregistry.replica.embedded import EmbeddedRegistry, RegistryConflict
from photon.idregistry.replica.shard_keeper import problems
from photon.idregistry.replica.shard_server import ShardServer
from tests.unit.idregistry.resharding.deployment import digests_of

SLOT = Slot("slot", "dc")
SECOND = 1_000_000_000
S_NS = SECOND


async def ask(registry: EmbeddedRegistry, ask: Ask) -> Resharding:
    outcome = await registry.replica.reshard(ask, timeout=60)
    assert isinstance(outcome, Resharding), outcome
    return outcome


async def settled(registry: EmbeddedRegistry) -> Resharding:
    return await seen(registry, lambda found: found.change is not None and found.change.settled)


async def seen(registry: EmbeddedRegistry, what: Callable[[Resharding], bool]) -> Resharding:
    deadline = time.monotonic() + 60
    while True:
        found = await ask(registry, Ask(Action.STATUS))
        if what(found):
            return found
        assert time.monotonic() < deadline, found
        await asyncio.sleep(0.02)


async def insert(registry: EmbeddedRegistry, first: int, batch: int, time_ns: int) -> list[int]:
    """Sixty ids of one event time; asked again while unknown."""
    rows = Ids(
        digests_of(first, 60),
        np.full(60, time_ns, np.int64),
        np.full(60, token_of(registry.caller, batch), np.uint64),  # type: ignore[attr-defined]
        np.ones(60, np.uint8),
        np.zeros(60, np.uint32),
    )
    deadline = time.monotonic() + 60
    while True:
        answers = (await registry.insert(rows, timeout=60)).outcomes.tolist()
        if Answer.UNKNOWN not in answers:
            return answers
        assert time.monotonic() < deadline, registry.problem
        await asyncio.sleep(0.02)


async def opened(directory: Path, shards: int, last: int = 0, **options: int) -> EmbeddedRegistry:
    registry = await EmbeddedRegistry.open(directory, shards=shards, uncertainty_ns=S_NS, **options)  # type: ignore[arg-type]
    answer = await registry.open_slot(SLOT, last, bytes([last + 1]))
    assert answer.incarnation == last + 1
    registry.announce(SLOT, list(range(1, answer.incarnation + 1)))
    registry.caller = answer.incarnation  # type: ignore[attr-defined]
    return registry


async def test_growing_while_it_runs_and_found_again_after_a_restart(tmp_path: Path) -> None:
    now = SystemClock().now_ns()
    registry = await opened(tmp_path / "r", 2)
    try:
        assert set(await insert(registry, 0, 1, now)) == {Answer.COMMITTED}
        planned = await ask(registry, Ask(Action.PLAN, shards=3, lead_s=0.0))
        assert (planned.change.stage, planned.change.config) == (Stage.PLANNED, 2)
        dry = await ask(registry, Ask(Action.APPLY, shards=3, dry_run=True))
        assert dry.change.stage is Stage.PLANNED
        for _ in range(2):  # asked twice, done once
            await ask(registry, Ask(Action.APPLY, shards=3, lead_s=0.3, config=2))
        done = await settled(registry)
        assert (done.change.stage, done.change.added, done.config) == (Stage.ACTIVATED, (3,), 2)
        later = done.change.starts_ns
        await asyncio.sleep(max(later - SystemClock().now_ns(), 0) / SECOND)
        assert set(await insert(registry, 100, 2, later)) == {Answer.COMMITTED}
        assert set(await insert(registry, 0, 1, now)) == {Answer.COMMITTED}
        verified = await ask(registry, Ask(Action.VERIFY))
        assert verified.problems == ()
        assert {view.shard for view in verified.shards if view.ids} == {1, 2, 3}
    finally:
        await registry.close()
    with pytest.raises(RegistryConflict, match="has 3 shards, but the configuration says 4"):
        await EmbeddedRegistry.open(tmp_path / "r", shards=4)
    for last, shards in ((1, 2), (2, 3)):
        registry = await opened(tmp_path / "r", shards, last=last)
        try:
            assert set(await insert(registry, 100, 9, later)) == {Answer.TAKEN}
            assert (await ask(registry, Ask(Action.VERIFY))).problems == ()
        finally:
            await registry.close()


async def test_a_shard_that_opens_late_is_no_problem_and_one_that_never_does_is(tmp_path: Path) -> None:
    registry = await opened(tmp_path / "r", 2)
    shards = registry.replica._shards
    try:
        late = shards.pop(2)
        asyncio.get_running_loop().call_later(0.3, shards.setdefault, 2, late)
        assert (await ask(registry, Ask(Action.VERIFY))).problems == ()
        assert 2 in shards, "it waited"
        shards.pop(2)
        outcome = await registry.replica.reshard(Ask(Action.VERIFY), timeout=0.2)
        assert isinstance(outcome, Resharding)
        assert outcome.problems == ("shard 2 is not open here",)
        shards[2] = late
    finally:
        await registry.close()


async def test_a_shard_may_open_while_a_replica_is_verified(tmp_path: Path) -> None:
    registry = await opened(tmp_path / "r", 2)
    keeper = registry.replica._keeper
    try:
        assert set(await insert(registry, 0, 1, SystemClock().now_ns())) == {Answer.COMMITTED}
        loop, config = asyncio.get_running_loop(), copy(keeper.config)
        (range_,) = config.changes.ranges
        more = replace(config.changes, ranges=(replace(range_, shards=(*range_.shards, 3)),))
        for activate in (False, True):
            shards = dict(keeper.shards)
            loop.call_soon(shards.setdefault, 3, shards[1])
            if activate:
                loop.call_soon(setattr, config, "changes", more)
            found = await problems(config, shards)
            assert 3 in shards, "it opened meanwhile"
            assert [each for each in found if "shard 3 is not in the config" in each] == found
            assert bool(found) is not activate
    finally:
        await registry.close()


async def test_a_shard_that_left_is_removed_and_still_answered_for(tmp_path: Path) -> None:
    now = SystemClock().now_ns()
    registry = await opened(tmp_path / "r", 2, retention_ns=-10_000 * SECOND)  # the boundary runs hours ahead
    try:
        assert set(await insert(registry, 0, 1, now)) == {Answer.BELOW_BOUNDARY}
        await ask(registry, Ask(Action.APPLY, shards=1, lead_s=0.0))
        done = await seen(registry, lambda found: found.removed == (2,))
        assert [view.shard for view in done.shards] == [1]
        assert set(await insert(registry, 0, 1, now)) == {Answer.BELOW_BOUNDARY}
        deadline = time.monotonic() + 60  # its directory is removed after the config group's decision
        while isinstance(registry.replica.shard(2), ShardServer):
            assert time.monotonic() < deadline
            await asyncio.sleep(0.02)
        looked = await registry.look_up(digests_of(0, 60), np.full(60, now, np.int64), timeout=60)
        assert set(looked.outcomes.tolist()) == {Answer.BELOW_BOUNDARY}
        assert registry.healthy
    finally:
        await registry.close()
    registry = await opened(tmp_path / "r", 2, last=1)
    try:
        assert (await ask(registry, Ask(Action.STATUS))).removed == (2,)
        assert set(await insert(registry, 0, 1, now)) == {Answer.BELOW_BOUNDARY}
    finally:
        await registry.close()


async def test_what_an_operator_is_refused(tmp_path: Path) -> None:
    registry = await opened(tmp_path / "r", 2)
    try:
        for asked, why in (
            (Ask(Action.APPLY, shards=2), "2 shards already"),
            (Ask(Action.APPLY, shards=3, config=7), "number 2, not 7"),
            (Ask(Action.ABORT), "no such change"),
        ):
            outcome = await registry.replica.reshard(asked, timeout=60)
            assert outcome.status is Status.REFUSED
            assert why in outcome.reason
    finally:
        await registry.close()

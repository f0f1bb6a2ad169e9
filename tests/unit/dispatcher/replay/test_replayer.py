"""A time range dispatched again over real files: events missing in the registry come, the ledger stays as it was."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from photon.adapters.logs import reading as log_reading
from photon.adapters.logs.log_finder import find_logs
from photon.batch.verdicts import Verdicts
from photon.dispatcher import process
from photon.dispatcher.ledger import LedgerLine, Verdict
from photon.dispatcher.replay import coverage, replayer, requests
from photon.dispatcher.replay.requests import Step
from photon.dispatcher.retry import Patience
from photon.idregistry.api import I64, Answer
from tests.unit.dispatcher.test_engine import LIMITS, QUICK, FakeLookUps, World, running, until
from tests.unit.dispatcher.world import DIGESTER, HERE, HOUR, looked_up

PATIENCE = Patience(unmatched_after_ns=HOUR)


class TrueLookUps(FakeLookUps):
    """Returns the fake registry's entries."""

    async def look_up(self, digests: bytes, times: I64, *, timeout: float) -> Verdicts:
        self.asked += len(times)
        owned = {DIGESTER.digest(event_id) for event_id in self.world.registry.owners}
        there = [digests[at : at + 16] in owned for at in range(0, len(digests), 16)]
        return looked_up(np.where(there, Answer.PRESENT, Answer.ABSENT), 1, names=(HERE,))


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(coverage, "CHUNK_BYTES", 1000)
    monkeypatch.setattr(log_reading, "BLOCK_BYTES", 500)
    monkeypatch.setattr(replayer, "LOOK_S", 0.005)
    world = World(tmp_path)
    world.look_ups = TrueLookUps(world)
    world.policy = process.Policy(PATIENCE, LIMITS, QUICK)
    return world


def hours(first: int, after: int, prefix: str = "id") -> bytes:
    """A hundred events an hour."""
    return b"".join(b"%b%d k%d %d\n" % (prefix.encode(), n, n, n // 100) for n in range(first * 100, after * 100))


def state_of(world: World) -> Path:
    return world.root / "state" / process.STATE_NAME


async def read_all(world: World) -> LedgerLine:
    lines = sum(path.read_bytes().count(b"\n") for path in world.logs.iterdir())
    with world.engine() as engine:
        async with running(engine):
            await until(lambda: engine.status().read == lines and not engine.status().pending)
    return world.ledger()


def ask(world: World, first: int, after: int, pattern: str = "") -> int:
    return requests.ask(state_of(world), first * HOUR, after * HOUR, pattern, 1)


def step_of(world: World, number: int) -> Step:
    return next(each.request.step for each in requests.progress(state_of(world)) if each.request.number == number)


def forget(world: World, one: Callable[[int], bool]) -> set[bytes]:
    """The registry loses some ids, as no registry does: the test sees which ones come again."""
    gone = {event_id for event_id in world.registry.owners if one(int(event_id[2:]))}
    for event_id in gone:
        del world.registry.owners[event_id]
    world.joiners[0].seen.clear()
    return gone


async def test_what_of_a_range_has_no_verdict_gets_one_and_the_ledger_stays(world: World) -> None:
    world.write("a.log", hours(0, 20))
    world.write("b.log", hours(20, 30) + b"garbage\n")
    before = await read_all(world)
    gone = forget(world, lambda n: n % 7 == 0)
    number = ask(world, 5, 25)
    with world.engine() as engine:
        async with running(engine):
            await until(lambda: step_of(world, number) is Step.DONE)
            status = engine.status()
    inside = {event_id for event_id in gone if 500 <= int(event_id[2:]) < 2500}
    assert {event.event_id for event in world.joiners[0].seen} == inside
    assert inside <= set(world.registry.owners)
    after = world.ledger()
    assert after == replace(before, reread=before.reread + 2000)
    assert status.reread == after.reread
    assert (status.read, status.pending) == (after.read, 0)
    (told,) = requests.progress(state_of(world))
    assert [(part.path, part.events, part.known) for part in told.parts] == [
        ("a.log", 1500, 1500 - sum(int(i[2:]) < 2000 for i in inside)),
        ("b.log", 500, 500 - sum(int(i[2:]) >= 2000 for i in inside)),
    ]
    assert all(part.at >= part.stop for part in told.parts)


async def test_only_logs_that_match_and_only_chunks_of_that_time_are_read(world: World) -> None:
    world.write("a.log", hours(0, 20))
    world.write("b.log", hours(0, 20, "ib"))
    before = await read_all(world)
    number = ask(world, 5, 6, "a*")
    logs = partial(find_logs, world.logs, ("**/*",), has_header=False)
    shown = requests.preview(state_of(world), 5 * HOUR, 6 * HOUR, "a*", logs)
    assert [(each.path, each.there) for each in shown] == [("a.log", True)]
    assert 1000 <= shown[0].bytes <= 6000 < len(hours(0, 20))
    with world.engine() as engine:
        async with running(engine):
            await until(lambda: step_of(world, number) is Step.DONE)
    assert world.ledger().reread == before.reread + 100


async def test_patience_counts_from_the_asking_and_fresh_events_go_on_meanwhile(world: World) -> None:
    world.write("a.log", hours(0, 2))
    await read_all(world)
    forget(world, lambda n: n in (3, 4))
    world.joiners[0].missing = {b"k3"}
    world.read_past = 0
    number = ask(world, 0, 2)
    with world.engine() as engine:
        async with running(engine):
            await until(lambda: any(event.event_id == b"id3" for event in world.joiners[0].seen))
            await until(lambda: b"id4" in world.registry.owners)
            world.write("a.log", hours(2, 3))
            await until(lambda: engine.status().read == 300)
            assert step_of(world, number) is Step.RUNNING
            world.read_past = 2 * HOUR  # the primary logs were read an hour past the asking
            await until(lambda: step_of(world, number) is Step.DONE)
    assert world.ledger().as_dict()["pending"] == 0


@pytest.mark.parametrize("seed", range(6 if os.environ.get("PHOTON_FULL") else 3))
async def test_killed_at_any_moment_it_goes_on(world: World, seed: int) -> None:
    print(f"seed {seed}")
    draw = random.Random(seed)
    world.write("a.log", hours(0, 20))
    before = await read_all(world)
    gone = forget(world, lambda n: n % 3 == 0)
    world.registry.trouble = 0.3
    world.registry.random.seed(seed)
    number = ask(world, 2, 18)
    world.registry.late = set()
    for life in range(200):
        with world.engine() as engine:
            task = asyncio.create_task(engine.run())
            end = asyncio.get_running_loop().time() + draw.choice((0.01, 0.05, 0.1, 0.3)) * (1 + life)
            while asyncio.get_running_loop().time() < end and step_of(world, number) is not Step.DONE:  # noqa: ASYNC110
                await asyncio.sleep(0.004)
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        if step_of(world, number) is Step.DONE:
            break
    assert {event_id for event_id in gone if 200 <= int(event_id[2:]) < 1800} <= set(world.registry.owners)
    after = world.ledger()
    assert after.reread - before.reread == 1600, "counted once, however often it was begun"
    assert (after.read, after.verdicts) == (before.read, before.verdicts)


async def test_a_log_that_is_gone_is_told_and_a_cancelled_request_ends(world: World) -> None:
    world.write("a.log", hours(0, 5))
    world.write("b.log", hours(0, 5, "ib"))
    await read_all(world)
    (world.logs / "a.log").unlink()
    number = ask(world, 0, 5)
    with world.engine() as engine:
        async with running(engine):
            await until(lambda: step_of(world, number) is Step.DONE)
    (told,) = requests.progress(state_of(world))
    assert [(part.path, part.step, part.events) for part in told.parts] == [
        ("a.log", Step.UNREAD, 0),
        ("b.log", Step.DONE, 500),
    ]
    forget(world, lambda n: False)
    world.registry.owners.clear()
    world.joiners[0].gate.clear()
    number = ask(world, 0, 5)
    with world.engine() as engine:
        async with running(engine):
            await until(lambda: step_of(world, number) is Step.RUNNING)
            assert requests.cancel(state_of(world), number, 7)
            assert not requests.cancel(state_of(world), number, 8)
            following = ask(world, 10, 11)
            await until(lambda: step_of(world, following) is Step.DONE)
            world.joiners[0].gate.set()
    assert step_of(world, number) is Step.CANCELLED


def test_requests_are_bounded_the_oldest_done_are_forgotten(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with world.engine():
        pass
    monkeypatch.setattr(requests, "WAITING_MAX", 2)
    monkeypatch.setattr(requests, "KEPT_MAX", 1)
    for _ in range(4):
        assert requests.cancel(state_of(world), ask(world, 0, 1), 5)
    ask(world, 0, 1)
    ask(world, 0, 1)
    with pytest.raises(requests.StateError, match="2 replays are waiting already"):
        ask(world, 0, 1)
    assert [each.request.number for each in requests.progress(state_of(world))] == [4, 5, 6]
    with pytest.raises(requests.StateError, match="no dispatcher state"):
        requests.progress(world.root / "nowhere")
    assert Verdict.REREAD not in world.ledger().verdicts

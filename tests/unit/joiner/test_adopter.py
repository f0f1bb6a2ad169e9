"""An abandoned slot on a real disk: redone by another joiner, made final, released."""

from __future__ import annotations

import asyncio
import errno
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from photon.adapters.envelope import Envelope
from photon.config.clock import SystemClock
from photon.config.disk import RealDisk
from photon.idregistry.api import Slot
from photon.joiner.adopter import MARK_NAME, Adopted, Adopter
from photon.joiner.api import Outcome
from photon.joiner.engine import JoinerLimits, Surroundings
from photon.joiner.shell import Die, ShellLimits
from photon.joiner.slot.lock import SlotLock
from photon.joiner.slot.slot import SlotPaths
from photon.joiner.verdicts import envelope_lines
from photon.verifier.verifier import Verifier
from tests.unit.joiner.helpers import DIGESTER, NONCES, Engine, FakeRegistry, FakeStore, TextAdapter, die, event
from tests.unit.joiner.told import outcomes_of

LIMITS = JoinerLimits(
    shell=ShellLimits(insert_timeout_s=0.5, tick_s=0.005, maintain_s=0.05), lock_wait_s=0.2, close_s=0.2
)
STORE = FakeStore({b"k1": b"k1 one"})


class Claiming:
    """The one registry, seen through a separate client: it announces its own slot."""

    def __init__(self, registry: FakeRegistry) -> None:
        self._own = FakeRegistry()
        self._own.model = registry.model
        self._own.down = registry.down
        self._own.behind = registry.behind

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)


def engine_of(path: Path, slot: str, registry: Any, ends: Die = die, disk: Any = None) -> Engine:
    world = Surroundings(registry, STORE, disk or RealDisk(), SystemClock(), ends, lambda: b"%016d" % next(NONCES))
    paths = SlotPaths(path / "slots" / slot, path / "out")
    named = Slot(slot, "dc0", f"here:{slot}")
    return Engine(named, paths, world, TextAdapter({}), envelope_lines(Envelope()), limits=LIMITS)


def adopter_of(
    path: Path, registry: FakeRegistry, disk: Any = None, *, hold_s: float = 3.0, datacentre: str = "dc0"
) -> Adopter:
    @asynccontextmanager
    async def adopted(slot: str, ends: Die) -> AsyncIterator[Adopted]:
        own = Claiming(registry)
        verifier = Verifier(RealDisk(), path / "slots" / slot, path / "out", DIGESTER, own)  # type: ignore[arg-type]
        yield Adopted(engine_of(path, slot, own, ends, disk), verifier.run_once)

    return Adopter(
        RealDisk(), path / "slots", datacentre, SystemClock(), lambda: 0.5, adopted, adopt_after_s=0.0, hold_s=hold_s
    )


async def left_by_a_crash(path: Path, registry: FakeRegistry, slot: str = "s0") -> None:
    """Logged, registered by an unknown process; that process was gone before it heard of it."""
    engine = engine_of(path, slot, Claiming(registry))
    await engine.start()
    registry.down.update((0, 1))
    answers = await engine.join([event(b"id-%d" % n, b"k1") for n in range(5)], timeout=0.05)
    assert set(outcomes_of(answers)) == {Outcome.RETRY}
    await engine.close(at_once=True)
    registry.down.clear()


@pytest.fixture
async def registry(tmp_path: Path) -> FakeRegistry:
    """It has entries of a vanished process."""
    registry = FakeRegistry()
    await left_by_a_crash(tmp_path, registry)
    return registry


def joined(path: Path) -> list[str]:
    found = []
    for file in sorted((path / "out" / "joined").iterdir()):
        found += [orjson.loads(line)["event_id"] for line in file.read_bytes().splitlines()]
    return sorted(found)


async def test_it_is_redone_made_final_and_let_go(tmp_path: Path, registry: FakeRegistry) -> None:
    adopter = adopter_of(tmp_path, registry)
    assert await adopter.look() == ["s0"]
    assert joined(tmp_path) == [f"id-{n}" for n in range(5)]
    assert not registry.model.owned()
    (entry,) = (tmp_path / "slots" / "s0" / "manifest.jsonl").read_bytes().splitlines()
    assert json.loads(entry)["file"] == "joined/s0-000001.jsonl"
    mark = json.loads((tmp_path / "slots" / "s0" / MARK_NAME).read_bytes())
    assert mark == {"version": 1, "incarnation": 2}
    assert await adopter.look() == []  # nobody opens it again ...
    assert registry.model.read_witness("s0").newest == 2
    engine = engine_of(tmp_path, "s0", Claiming(registry))
    await engine.start()  # ... until its owner comes back
    assert await engine.settle(5.0)
    answers = await engine.join([event(b"id-0", b"k1"), event(b"id-9", b"k1")], timeout=60.0)
    assert outcomes_of(answers) == [Outcome.TAKEN, Outcome.JOINED]
    await engine.close()
    assert await adopter.look() == ["s0"]
    assert joined(tmp_path) == [f"id-{n}" for n in (0, 1, 2, 3, 4, 9)]


async def test_a_slot_that_is_at_work_or_of_another_datacentre_is_left_alone(
    tmp_path: Path, registry: FakeRegistry
) -> None:
    assert await adopter_of(tmp_path, registry, datacentre="dc1").look() == []
    lock = SlotLock(tmp_path / "slots" / "s0")
    lock.take()
    assert await adopter_of(tmp_path, registry).look() == []
    lock.release()
    assert await adopter_of(tmp_path, registry).look() == ["s0"]


async def test_two_adopters_at_once_write_nothing_twice(tmp_path: Path, registry: FakeRegistry) -> None:
    both = await asyncio.gather(adopter_of(tmp_path, registry).look(), adopter_of(tmp_path, registry).look())
    assert both[0] or both[1]
    assert not registry.model.owned()
    assert joined(tmp_path) == [f"id-{n}" for n in range(5)]


@pytest.mark.parametrize("trouble", ["away", "its clock is behind"])
async def test_while_the_registry_is_no_help_it_is_held_for_a_bounded_time_and_tried_again(
    tmp_path: Path, registry: FakeRegistry, trouble: str
) -> None:
    """Also if all the rest waits for a clock: others continue, and the owner may have it."""
    away = trouble == "away"
    registry.down, registry.behind = {0, 1} if away else set(), not away
    assert await adopter_of(tmp_path, registry, hold_s=0.3).look() == []
    lock = SlotLock(tmp_path / "slots" / "s0")
    lock.take(wait_s=0.0)
    lock.release()
    registry.down, registry.behind = set(), False
    assert await adopter_of(tmp_path, registry).look() == ["s0"]
    assert joined(tmp_path) == [f"id-{n}" for n in range(5)]


@pytest.mark.parametrize("newer", [True, False])
async def test_a_slot_that_is_refused_ends_nobody(tmp_path: Path, registry: FakeRegistry, newer: bool) -> None:
    if newer:
        registry.model.slots["s0"] = (99, b"")  # as of a copied directory, or of a retired slot
    else:
        (next((tmp_path / "slots" / "s0" / "redo").glob("*.redo"))).write_bytes(b"x" * 100)
    adopter = adopter_of(tmp_path, registry)
    assert await adopter.look() == []
    assert await adopter.look() == []
    assert not (tmp_path / "slots" / "s0" / MARK_NAME).exists()


async def test_a_disk_that_fails_ends_the_slot_and_not_the_process(tmp_path: Path, registry: FakeRegistry) -> None:
    assert await adopter_of(tmp_path, registry, FailingOutput()).look() == []
    lock = SlotLock(tmp_path / "slots" / "s0")
    lock.take(wait_s=0.0)
    lock.release()
    assert await adopter_of(tmp_path, registry).look() == ["s0"]  # the next one redoes what was not durable
    assert joined(tmp_path) == [f"id-{n}" for n in range(5)]


class FailingOutput(RealDisk):
    """Syncs of output fail once, and would succeed if retried."""

    def append(self, path: Path) -> Any:
        file = super().append(path)
        return _FailsOnce(file) if path.suffix == ".jsonl" else file


class _FailsOnce:
    def __init__(self, file: Any) -> None:
        self._file = file
        self._failed = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def sync(self) -> None:
        assert not self._failed, "a failed sync was tried again"
        self._failed = True
        raise OSError(errno.EIO, "Input/output error")


async def test_the_slot_of_a_join_on_spark_is_left_alone(tmp_path: Path) -> None:
    """It repeats its own batches, and a newer incarnation would end it."""
    registry, state = FakeRegistry(), tmp_path / "slots" / "s0"
    engine = engine_of(tmp_path, "s0", Claiming(registry))
    await engine.start()
    await engine.close()
    before = (state / "slot.json").read_bytes()
    (state / "spark").mkdir()
    adopter = adopter_of(tmp_path, registry)
    assert [await adopter.look() for _ in range(2)] == [[], []]
    assert (state / "slot.json").read_bytes() == before
    (state / "spark").rmdir()
    assert await adopter.look() == ["s0"]

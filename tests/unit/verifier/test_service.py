"""All slots of a pipeline: new ones, damaged ones, those without a directory."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from glob import glob
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from photon.adapters.envelope import Envelope
from photon.config.clock import SystemClock
from photon.config.disk import RealDisk
from photon.idregistry.core.outcomes import Refusal
from photon.idregistry.core.scans import EntryPage
from photon.outputs.damaged import add_damaged
from photon.outputs.log.format import DamagedRange
from photon.outputs.watermarks import JOURNAL, late_in, read_journal
from photon.verifier.alarms import Alarm, open_alarms
from photon.verifier.checker import Checker
from photon.verifier.lock import VerifierBusy
from photon.verifier.service import ServiceLimits, VerifiedPipeline, VerifierService, VerifierWorld
from photon.verifier.slot_work import SlotPlace, Step
from photon.verifier.source_finder import SourceFinder
from photon.verifier.status import acknowledged, status_of
from photon.verifier.verifier import OutputShort
from tests.lines import undone_lines
from tests.simulation.world.registry import CLEARED
from tests.unit.joiner.helpers import DIGESTER, SLOT, FakeRegistry, event
from tests.unit.verifier.logs import ADAPTER, side
from tests.unit.verifier.test_watermark_keeper import Pipeline

TOKEN = 1 << 40 | 1
QUICK = ServiceLimits(period_s=0.01, retry_s=0.01, discover_s=0.01, owned_alarm_s=0.05, check_share=0.0)


class Scans:
    """Slot -> its owned tokens."""

    def __init__(self) -> None:
        self.owned: dict[str, list[int]] = {}
        self.fenced: set[str] = set()

    async def shards(self, *, timeout: float) -> tuple[int, ...]:
        return (1,)

    async def scan_owned(
        self, shard: int, slot: str, upto: int, *, cursor: bytes = b"", limit: int = 0, timeout: float
    ) -> EntryPage | Refusal:
        tokens = np.array(self.owned.get(slot, []), np.uint64)
        n = len(tokens)
        zeros = np.zeros(n, np.int64)
        columns = (zeros.astype(np.uint8), zeros.astype(np.uint32), zeros.astype(np.uint32))
        return EntryPage(bytes(16 * n), zeros, tokens, *columns, cursor=b"", fenced=slot in self.fenced)


class Setup:
    def __init__(self, path: Path) -> None:
        self.registry, self.scans = FakeRegistry(shards=1), Scans()
        self.pipeline = VerifiedPipeline(path / "state", path / "output", ("s0",))
        for name in ("clicks", "queries", "output/joined", "state/slots"):
            (path / name).mkdir(parents=True)
        self.path = path

    def write(self, slot: str, ids: list[bytes], *, owned: bool = True) -> None:
        """A slot that has published these lines."""
        events = [event(each, b"k") for each in ids]
        for each in events if owned else []:
            self.registry.model.insert(SLOT, 1, each.digest, each.event_time_ns, TOKEN, 1, 0)
        data = b"".join(undone_lines(Envelope(), events, ["r"] * len(ids), token=TOKEN, at_ns=0))
        name = f"joined/{slot}-000001.jsonl"
        (self.path / "output" / name).write_bytes(data)
        state = self.pipeline.slots / slot
        state.mkdir(exist_ok=True)
        said = {"version": 1, "slot": slot, "files": {name: len(data)}, "rolled": []}
        (state / "durable.json").write_bytes(msgspec.json.encode(said))

    def cleared(self, event_id: bytes) -> bool:
        entry = self.registry.model.shards[0].entries.get(DIGESTER.digest(event_id))
        return entry is not None and entry.state == CLEARED

    def service(
        self, limits: ServiceLimits = QUICK, more: tuple[Callable[[SlotPlace], Step], ...] = ()
    ) -> VerifierService:
        world = VerifierWorld(RealDisk(), SystemClock(), self.registry, self.scans, DIGESTER)
        return VerifierService(self.pipeline, world, limits, self.sources, more)

    def sources(self, own: Path) -> SourceFinder:
        return SourceFinder(
            RealDisk(), own, ADAPTER, side(self.path / "clicks"), side(self.path / "queries"), patience_ns=None
        )

    def alarms(self, slot: str) -> list[Alarm]:
        return next(each.alarms for each in status_of(RealDisk(), self.pipeline).slots if each.slot == slot)

    @asynccontextmanager
    async def running(self, service: VerifierService) -> AsyncIterator[None]:
        stop, ready = asyncio.Event(), asyncio.Event()

        async def is_ready() -> None:
            ready.set()

        task = asyncio.create_task(service.run(stop, is_ready))
        try:
            async with asyncio.timeout(20):
                await asyncio.wait((task, asyncio.create_task(ready.wait())), return_when=asyncio.FIRST_COMPLETED)
                yield
        finally:
            stop.set()
            await task


async def until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - files tell nobody
        await asyncio.sleep(0.005)


@pytest.fixture
def setup(tmp_path: Path) -> Setup:
    return Setup(tmp_path)


async def test_every_slot_is_cleared_also_those_that_appear(setup: Setup) -> None:
    setup.write("s0", [b"a", b"b"])
    setup.write("orphan", [b"c"])
    async with setup.running(setup.service()):
        await until(lambda: all(map(setup.cleared, (b"a", b"b", b"c"))))
        setup.write("later", [b"d"])
        await until(lambda: setup.cleared(b"d"))
        assert status_of(RealDisk(), setup.pipeline).verifier is not None
    found = status_of(RealDisk(), setup.pipeline)
    assert [(each.slot, each.published == each.cleared, each.alarms) for each in found.slots] == [
        ("later", True, []),
        ("orphan", True, []),
        ("s0", True, []),
    ]
    assert (found.verifier, found.attention) == (None, True)


async def test_a_damaged_slot_is_told_and_does_not_hold_back_the_others(setup: Setup) -> None:
    setup.write("bad", [b"a"])
    setup.write("s0", [b"b"])
    cleared = setup.pipeline.slots / "bad/verifier/cleared.json"
    cleared.parent.mkdir()
    cleared.write_bytes(b"{")
    async with setup.running(setup.service()):
        await until(lambda: setup.cleared(b"b") and len(setup.alarms("bad")) == 1)
        (alarm,) = setup.alarms("bad")
        assert (alarm.finding, str(cleared) in alarm.what) == ("damaged", True)
        cleared.unlink()
        await until(lambda: setup.cleared(b"a") and not setup.alarms("bad"))


async def test_an_event_that_stands_in_two_slots(setup: Setup) -> None:
    setup.write("s0", [b"x", b"a"])
    setup.write("s1", [b"a"], owned=False)  # under the same token, so that the registry has no objection
    async with setup.running(setup.service()):
        await until(lambda: len(setup.alarms("s0")) + len(setup.alarms("s1")) > 0)
    assert [(each.finding, each.event_id) for each in setup.alarms("s1")] == [("doubled", "a")]
    assert "joined/s0-000001.jsonl" in setup.alarms("s1")[0].what
    async with setup.running(setup.service()):
        await until(lambda: setup.cleared(b"x"))
    assert (len(setup.alarms("s0")), len(setup.alarms("s1"))) == (0, 1)


async def test_events_of_a_damaged_range_are_written_again_without_an_alarm(setup: Setup) -> None:
    setup.write("s0", [b"x", b"a"])
    async with setup.running(setup.service()):
        await until(lambda: setup.cleared(b"a"))
        name = "joined/s0-000001.jsonl"
        size = (setup.path / "output" / name).stat().st_size
        add_damaged(RealDisk(), setup.pipeline.slots / "s0", "s0", [DamagedRange(name, 0, size, "gone", "")])
        (setup.path / "output" / name).unlink()  # second, as the service may look in between
        setup.write("s1", [b"a"], owned=False)
        setup.write("s2", [b"y"])  # whose slot is looked at behind s1
        setup.write("s3", [b"y"], owned=False)
        await until(lambda: any(setup.alarms(slot) for slot in ("s2", "s3")))
    assert (setup.alarms("s0"), setup.alarms("s1")) == ([], [])


async def test_a_copy_of_a_slot_s_directory_makes_no_twins(setup: Setup) -> None:
    setup.write("s0", [b"a", b"b"])
    shutil.copytree(setup.pipeline.slots / "s0", setup.pipeline.slots / "s0.old")
    async with setup.running(setup.service()):
        await until(lambda: all(each.cleared > 0 for each in status_of(RealDisk(), setup.pipeline).slots))
    assert [(each.slot, each.alarms) for each in status_of(RealDisk(), setup.pipeline).slots] == [
        ("s0", []),
        ("s0.old", []),
    ]


async def test_a_slot_whose_directory_is_not_there(setup: Setup) -> None:
    setup.scans.owned["s0"] = [TOKEN, TOKEN, TOKEN + 1]
    async with setup.running(setup.service()):
        await until(lambda: bool(setup.alarms("s0")))
        (alarm,) = setup.alarms("s0")
        assert alarm.what.startswith("3 ids in 2 batches of incarnation 1 are owned for")
        assert alarm.what.endswith("slot s0: its directory is not there")
        assert not (setup.pipeline.slots / "s0").exists()
        setup.scans.owned.clear()
        await until(lambda: not setup.alarms("s0"))
        setup.write("s0", [b"a"])
        await until(lambda: setup.cleared(b"a"))


async def test_a_retired_slot_is_told_as_such_and_alarms_can_be_acknowledged(setup: Setup) -> None:
    setup.scans.owned["s0"], setup.scans.fenced = [TOKEN], {"s0"}
    setup.write("s0", [b"a"])
    async with setup.running(setup.service()):
        await until(lambda: bool(setup.alarms("s0")))
        assert "slot s0: retired, no live process holds it" in setup.alarms("s0")[0].what
        assert acknowledged(RealDisk(), setup.pipeline, [], 1) == 1
        assert setup.alarms("s0") == []


async def test_two_verifiers(setup: Setup) -> None:
    setup.write("s0", [b"a"])
    async with setup.running(setup.service()):
        with pytest.raises(VerifierBusy, match="another verifier"):
            await setup.service().run(asyncio.Event(), _nothing)
    slot = setup.pipeline.slots / "s0/verifier"
    (setup.pipeline.own / "lock").unlink()  # of another pipeline, on the same slots
    async with setup.running(setup.service()):
        (setup.pipeline.own / "lock").unlink()
        with pytest.raises(VerifierBusy, match=str(slot)):
            await setup.service().run(asyncio.Event(), _nothing)


async def test_further_steps_come_after_clearing(setup: Setup) -> None:
    setup.write("s0", [b"a"])
    seen: list[tuple[str, bool]] = []

    def looks(place: SlotPlace) -> Step:
        async def look() -> None:
            seen.append((place.name, setup.cleared(b"a")))

        return look

    async with setup.running(setup.service(more=(looks,))):
        await until(lambda: len(seen) > 1)
    assert set(seen) == {("s0", True)}


async def test_lines_are_checked_against_logs_beside_clearing(setup: Setup) -> None:
    setup.write("s0", [b"a", b"b"])  # in no log at all: nobody has seen their source
    limits = ServiceLimits(period_s=0.01, discover_s=0.01, check_share=1.0, save_s=0.01)
    async with setup.running(setup.service(limits)):
        await until(lambda: setup.cleared(b"a") and status_of(RealDisk(), setup.pipeline).slots[0].behind == 0)
    (slot,) = status_of(RealDisk(), setup.pipeline).slots
    assert (slot.unverifiable, slot.gone, slot.alarms) == (2, ["clicks.log"], [])
    assert open_alarms(RealDisk(), setup.pipeline.slots / "s0/verifier") == []


async def test_a_short_output_file_costs_no_descriptors(setup: Setup, monkeypatch: pytest.MonkeyPatch) -> None:
    setup.write("s0", [b"a", b"b"])
    (setup.pipeline.output / "joined/s0-000001.jsonl").write_bytes(b"")
    monkeypatch.setattr("photon.verifier.service.RETRY_S", 0.0)
    opened, closed = list[Checker](), list[Checker]()

    def step(checker: Checker, now_ns: int) -> None:
        opened.append(checker)
        raise OutputShort(Path("joined/s0-000001.jsonl"), 0, 10)

    monkeypatch.setattr(Checker, "step", step)
    monkeypatch.setattr(Checker, "close", lambda checker: closed.append(checker))
    limits = ServiceLimits(period_s=0.01, discover_s=0.01, check_share=1.0)
    async with setup.running(setup.service(limits)):
        await until(lambda: len(opened) > 5)
    assert set(opened) == set(closed)
    (_, alarm) = open_alarms(RealDisk(), setup.pipeline.slots / "s0/verifier")
    assert alarm.todo == "do what the alarm says; the slot is then checked again automatically"


async def test_a_late_record_cleared_while_it_stops_is_journaled(
    setup: Setup, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its clearing waits until watermarks are no longer sampled."""
    setup.write("s0", [b"a"])
    stop, asks, keeper = asyncio.Event(), asyncio.Event(), Pipeline(setup.pipeline.state, at=0).keeper()
    clear = setup.registry.clear

    async def slow(*args: Any, **others: Any) -> Any:
        asks.set()
        await stop.wait()
        await asyncio.sleep(0.1)
        return await clear(*args, **others)

    monkeypatch.setattr(setup.registry, "clear", slow)
    service = setup.service()
    service.watermarks = keeper
    task = asyncio.create_task(service.run(stop, _nothing))
    async with asyncio.timeout(20):
        await until(lambda: asks.is_set() and keeper.watermarks.last is not None)
        stop.set()
        await task
    assert late_in(read_journal(RealDisk(), setup.pipeline.state)) == 1
    journal = str(setup.pipeline.state / JOURNAL)
    assert journal not in map(os.path.realpath, glob("/proc/self/fd/*"))


async def _nothing() -> None:
    pass

"""The engine on a real disk, with a registry and a store in memory."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import replace
from pathlib import Path

import msgspec
import orjson
import pytest

from photon.config.clock import NEVER_NS
from photon.config.disk import RealDisk
from photon.eventstore.api import LookUpCode
from photon.idregistry.api import Kind, Slot
from photon.joiner.api import GONE_REASON, Outcome
from photon.joiner.engine import Bounds, JoinerEngine, JoinerLimits
from photon.joiner.shell import ShellLimits
from photon.joiner.slot.identity import SlotRefused
from photon.joiner.slot.lock import SlotLock
from photon.joiner.slot.slot import Redone, SlotStore
from photon.outputs.published import read_slot
from photon.verifier.verifier import Verifier
from tests.unit.joiner.helpers import (
    DIGESTER,
    SLOT,
    WAIT,
    Died,
    FakeRegistry,
    FakeStore,
    engine_at,
    event,
    lines_under,
)
from tests.unit.joiner.told import TakenBy, answers_of, by_row, outcomes_of, owners_of

RECORDS = {
    b"k1": b"k1 one",
    b"k2": b"k2 filtered",
    b"k3": b"k3 raises",
    b"k4": b"k4 nonsense",
    b"k5": b"k5 notjson",
    b"k6": b"other record",
}


async def running(
    path: Path, registry: FakeRegistry, store: FakeStore | None = None, **options: object
) -> JoinerEngine:
    engine = engine_at(path, registry, store or FakeStore(RECORDS), **options)  # type: ignore[arg-type]
    await engine.start()
    return engine


async def test_each_event_gets_its_own_outcome_and_record(tmp_path: Path) -> None:
    engine = await running(tmp_path, FakeRegistry())
    keys = [b"k1", b"k2", b"k3", b"k4", b"k5", b"nobody"]
    answers = await engine.join([event(b"id-" + key, key) for key in keys], timeout=60.0)
    rejected = [Outcome.REJECTED] * 3
    assert outcomes_of(answers) == [Outcome.JOINED, Outcome.FILTERED, *rejected, Outcome.UNMATCHED]
    assert "RuntimeError: boom" in answers.verdicts.reasons[2]
    assert "helpers.py:" in answers.verdicts.reasons[2]
    await engine.close()
    (joined,) = lines_under(tmp_path, "joined")
    record = orjson.loads(joined)
    assert (record["event_id"], record["primary"], record["primary_source"]["offset"]) == ("id-k1", "k1 one", 7)
    assert record["token"] == f"{1 << 40 | 1:016x}"
    assert len(lines_under(tmp_path, "rejected")) == 3
    (unmatched,) = lines_under(tmp_path, "unmatched")
    assert orjson.loads(unmatched)["reason"] == "no primary event has this key"


async def test_what_would_be_unmatched_waits_while_such_verdicts_are_withheld(tmp_path: Path) -> None:
    engine = await running(tmp_path, FakeRegistry())
    keys = [b"k1", b"k2", b"k3", b"nobody", b"nobody"]
    batch = [event(b"id-" + key, key) for key in keys]
    engine.withholds = lambda: "another file is newer"
    for seen in (
        [Outcome.JOINED, Outcome.FILTERED, Outcome.REJECTED],
        [Outcome.TAKEN] * 3,
    ):
        assert outcomes_of(await engine.join(batch, timeout=60.0)) == [*seen, Outcome.NOT_YET, Outcome.NOT_YET]
    alone = await engine.join(batch[3:], timeout=60.0)
    assert outcomes_of(alone) == [Outcome.NOT_YET] * 2
    assert not alone.verdicts.reasons
    assert not list(lines_under(tmp_path, "unmatched"))
    engine.withholds = lambda: ""
    assert outcomes_of(await engine.join(batch[3:], timeout=60.0)) == [Outcome.UNMATCHED, Outcome.TAKEN]
    await engine.close()
    assert len(lines_under(tmp_path, "unmatched")) == 1


@pytest.mark.parametrize(
    ("miss", "as_of", "outcome"),
    [
        (LookUpCode.NOT_YET, 0, Outcome.NOT_YET),
        (LookUpCode.ABSENT, WAIT, Outcome.NOT_YET),
        (LookUpCode.UNAVAILABLE, 0, Outcome.RETRY),
        (LookUpCode.GONE, 0, Outcome.RETRY),
        (LookUpCode.ABSENT, NEVER_NS, Outcome.UNMATCHED),
    ],
)
async def test_a_miss_never_holds_others_back(tmp_path: Path, miss: LookUpCode, as_of: int, outcome: Outcome) -> None:
    registry = FakeRegistry()
    engine = await running(tmp_path, registry, FakeStore(RECORDS, miss=miss))
    answers = await engine.join([event(b"a", b"none", as_of=as_of), event(b"b", b"k1")], timeout=60.0)
    assert outcomes_of(answers) == [outcome, Outcome.JOINED]
    assert (answers.verdicts.reasons.get(0) == GONE_REASON) is (miss is LookUpCode.GONE)
    await engine.close()


@pytest.mark.parametrize(("read_past", "outcome"), [(5, Outcome.UNMATCHED), (0, Outcome.NOT_YET)])
async def test_a_record_with_another_key_is_a_miss(tmp_path: Path, read_past: int, outcome: Outcome) -> None:
    engine = await running(tmp_path, FakeRegistry(), FakeStore(RECORDS, read_past_ns=read_past))
    answers = await engine.join([event(b"a", b"k6", as_of=3), event(b"a", b"k6", as_of=3)], timeout=60.0)
    second = Outcome.TAKEN if outcome is Outcome.UNMATCHED else outcome
    assert outcomes_of(answers) == [outcome, second]
    await engine.close()


async def test_an_id_twice_in_a_batch_is_written_once(tmp_path: Path) -> None:
    engine = await running(tmp_path, FakeRegistry())
    same, other = event(b"a", b"k1", offset=3), event(b"a", b"k1", record=b"another line")
    answers = await engine.join([same, same, other], timeout=60.0)
    assert outcomes_of(answers) == [Outcome.JOINED, Outcome.TAKEN, Outcome.TAKEN]
    assert owners_of(answers) == {1: TakenBy("dc0", Kind.JOINED, True, 1), 2: TakenBy("dc0", Kind.JOINED, False, 1)}
    again = await engine.join([other, same], timeout=60.0)
    assert outcomes_of(again) == [Outcome.TAKEN, Outcome.TAKEN]
    assert [owners_of(again)[row].same_line for row in (0, 1)] == [False, True]
    await engine.close()
    assert len(lines_under(tmp_path, "joined")) == 1


@pytest.mark.parametrize(("name", "same"), [("clicks.log.1", True), ("copy-of-clicks.log", False)])
async def test_a_renamed_log_has_the_same_line_and_a_copy_a_duplicate(tmp_path: Path, name: str, same: bool) -> None:
    engine = await running(tmp_path, FakeRegistry())
    first = event(b"a", b"k1", offset=5)
    await engine.join([first], timeout=60.0)
    answers = await engine.join([first._replace(file=replace(first.file, path=name))], timeout=60.0)
    assert owners_of(answers)[0].same_line == same
    await engine.close()


async def test_two_joiners_write_an_id_once(tmp_path: Path) -> None:
    model = FakeRegistry()
    other = FakeRegistry()
    other.model = model.model
    here = await running(tmp_path / "here", model)
    there = await running(tmp_path / "there", other, slot=Slot("s1", "dc1"))
    events = [event(b"id-%d" % n, b"k1") for n in range(50)]
    both = await asyncio.gather(here.join(events, timeout=60.0), there.join(events, timeout=5.0))
    await here.close()
    await there.close()
    for one, two in zip(*map(outcomes_of, both), strict=True):
        assert {one, two} == {Outcome.JOINED, Outcome.TAKEN}
    assert len(lines_under(tmp_path / "here", "joined")) + len(lines_under(tmp_path / "there", "joined")) == 50


async def test_a_shard_that_is_down_holds_back_its_own_ids_only(tmp_path: Path) -> None:
    registry = FakeRegistry(shards=2)
    engine = await running(tmp_path, registry)
    registry.down = {0}
    events = [event(b"id-%d" % n, b"k1") for n in range(20)]
    downs = [registry.model.shard_of(each.digest) == 0 for each in events]
    answers = await engine.join(events, timeout=3.0)
    assert outcomes_of(answers) == [Outcome.RETRY if down else Outcome.JOINED for down in downs]
    assert not await engine.settle(0.1)
    again = await engine.join([each for each, down in zip(events, downs, strict=True) if down], timeout=0.1)
    assert set(outcomes_of(again)) == {Outcome.RETRY}
    assert engine.stats().open_ids == sum(downs), "what is outstanding is not logged again"
    registry.down = set()
    assert await engine.settle(10.0)
    last = await engine.join(events, timeout=60.0)
    assert set(outcomes_of(last)) == {Outcome.TAKEN}
    assert all(owner.same_line for owner in owners_of(last).values())
    await engine.close()
    assert len(lines_under(tmp_path, "joined")) == 20


async def test_what_an_engine_leaves_its_successor_redoes(tmp_path: Path) -> None:
    registry = FakeRegistry(shards=2)
    engine = await running(tmp_path, registry)
    registry.down = {0, 1}
    answers = await engine.join([event(b"a", b"k1"), event(b"b", b"k1")], timeout=0.05)
    assert outcomes_of(answers) == [Outcome.RETRY] * 2
    await engine.shell.close()  # without a drain
    engine._lock.release()
    registry.down = set()
    second = await running(tmp_path, registry)
    assert second.stats().redone == 2
    assert registry.announced[1] == [1, 2]
    assert await second.settle(10.0)
    await second.close()
    tokens = {orjson.loads(line)["token"] for line in lines_under(tmp_path, "joined")}
    assert tokens == {f"{1 << 40 | 1:016x}"}, "written under the token it was logged with"


async def test_everything_is_cleared_by_the_verifier_and_made_final(tmp_path: Path) -> None:
    registry = FakeRegistry()
    engine = await running(tmp_path, registry)
    await engine.join([event(b"id-%d" % n, b"k1") for n in range(10)], timeout=60.0)
    assert await engine.settle(10.0)
    await engine.shell.roll()
    verifier = Verifier(RealDisk(), tmp_path / "state", tmp_path / "out", DIGESTER, registry)
    report = await verifier.run_once()
    assert (report.cleared, report.refused, report.behind_bytes) == (10, 0, 0)
    assert registry.model.owned() == []
    await engine.shell.finish_cleared()
    await engine.close()
    (file,) = read_slot(RealDisk(), tmp_path / "state").files
    assert file.final
    assert file.length == (tmp_path / "out" / file.name).stat().st_size


async def test_too_much_in_flight_is_refused_whole(tmp_path: Path) -> None:
    registry = FakeRegistry(shards=1)
    limits = JoinerLimits(bounds=Bounds(ids=3), shell=ShellLimits(insert_timeout_s=1.0, tick_s=0.005), close_s=0.1)
    engine = await running(tmp_path, registry, limits=limits)
    registry.down = {0}
    await engine.join([event(b"a", b"k1"), event(b"b", b"k1")], timeout=0.05)
    refused = await engine.join([event(b"c", b"k1"), event(b"d", b"k1")], timeout=0.05)
    assert refused.overloaded
    assert outcomes_of(refused) == [Outcome.RETRY] * 2
    assert "overloaded" in refused.verdicts.reasons[0]
    registry.down = set()
    assert await engine.settle(10.0)
    assert not (await engine.join([event(b"c", b"k1")], timeout=60.0)).overloaded
    await engine.close()


@pytest.mark.parametrize("redo_bytes", [100, 4096])
async def test_a_small_redo_log_makes_room_again(tmp_path: Path, redo_bytes: int) -> None:
    limits = JoinerLimits(bounds=Bounds(redo_bytes=redo_bytes), shell=ShellLimits(tick_s=0.005))
    engine = await running(tmp_path, FakeRegistry(), limits=limits)
    for n in range(5):
        events = [event(b"id-%d-%d" % (n, i), b"k1") for i in range(20)]
        answers = await engine.join(events, timeout=60.0)
        while answers.overloaded:
            assert await engine.settle(10.0)
            answers = await engine.join(events, timeout=60.0)
        assert outcomes_of(answers) == [Outcome.JOINED] * 20
    await engine.close()
    assert len(lines_under(tmp_path, "joined")) == 100


async def test_a_drained_engine_takes_no_new_work(tmp_path: Path) -> None:
    engine = await running(tmp_path, FakeRegistry())
    assert outcomes_of(await engine.join([event(b"a", b"k1")], timeout=60.0)) == [Outcome.JOINED]
    assert await engine.drain(10.0)
    assert (await engine.join([event(b"b", b"k1")], timeout=60.0)).overloaded
    assert engine.stats().outcomes == {Outcome.JOINED: 1}
    await engine.close()


async def test_a_slot_serves_one_engine_at_a_time(tmp_path: Path) -> None:
    registry = FakeRegistry()
    engine = await running(tmp_path, registry)
    with pytest.raises(SlotRefused, match="locked by another live process"):
        await running(tmp_path, registry)
    await engine.close()
    again = await running(tmp_path, registry)
    await again.close()


async def end_of(engine: JoinerEngine) -> str:
    """Reason why the process ends as somebody joins an event."""
    deaths: list[str] = []
    died = asyncio.Event()

    def die(reason: str) -> None:
        deaths.append(reason)
        died.set()
        raise Died(reason)

    engine.shell._die = die  # type: ignore[assignment]
    call = asyncio.create_task(engine.join([event(b"a", b"k1")], timeout=60.0))
    async with asyncio.timeout(60):
        await died.wait()
    call.cancel()
    await asyncio.gather(call, return_exceptions=True)
    await engine.shell.close()
    engine._lock.release()
    return deaths[0]


async def test_a_failed_sync_ends_the_process(tmp_path: Path) -> None:
    registry = FakeRegistry()
    engine = await running(tmp_path, registry)

    def fail() -> None:
        raise OSError(5, "Input/output error")

    engine.shell.store._redo.sync = fail  # type: ignore[method-assign]
    assert "Input/output error" in await end_of(engine)
    assert registry.inserts == 0


async def test_stale_incarnations_end_the_process(tmp_path: Path) -> None:
    registry = FakeRegistry(shards=1)
    engine = await running(tmp_path, registry)
    registry.model.shards[0].newest[SLOT.name] = 99
    assert "STALE_INCARNATION" in await end_of(engine)


async def test_a_joiner_that_is_not_started_refuses(tmp_path: Path) -> None:
    engine = engine_at(tmp_path, FakeRegistry(), FakeStore({}))
    answers = await engine.join([event(b"a", b"k")], timeout=1.0)
    refusal = answers_of([Outcome.RETRY], reasons={0: "the joiner is not started"}, overloaded=True)
    assert by_row(answers) == by_row(refusal)
    await engine.close()


async def test_a_cancelled_start_keeps_the_lock_through_its_recovery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rule 6: a thread that still writes must not meet the slot's next owner."""
    entered, leave, order = threading.Event(), threading.Event(), []

    def recover(self: SlotStore, **_: bool) -> None:
        entered.set()
        assert leave.wait(30)
        order.append("recovered")

    release = SlotLock.release
    monkeypatch.setattr(SlotStore, "recover", recover)
    monkeypatch.setattr(SlotLock, "release", lambda lock: (order.append("released"), release(lock))[1])
    engine = engine_at(tmp_path, FakeRegistry(), FakeStore(RECORDS))
    starting = asyncio.create_task(engine.start())
    await asyncio.to_thread(entered.wait, 30)
    starting.cancel()
    await asyncio.sleep(0)
    assert not starting.done()
    leave.set()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert order == ["recovered", "released"]


async def test_each_start_publishes_what_is_redone_before_it_is_drained(tmp_path: Path) -> None:
    """Rule 13."""
    registry = FakeRegistry()
    for incarnation in (1, 2):
        engine = engine_at(tmp_path, registry, FakeStore({}))
        await engine.start()
        assert await engine.drain(10.0)
        found = msgspec.json.decode((tmp_path / "state/redone.json").read_bytes(), type=Redone)
        assert found.upto == incarnation - 1
        await engine.close()

"""The engine on a real disk, with a registry and a store in memory."""

from __future__ import annotations

import asyncio
import re
import shutil
import threading
from collections.abc import Coroutine, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import orjson
import pytest

from photon.config.clock import NEVER_NS
from photon.config.disk import RealDisk
from photon.eventstore.api import LookUpCode
from photon.idregistry.api import BATCH_BITS, Kind, Slot
from photon.idregistry.witness import WitnessLog
from photon.joiner.api import ForeignEvent, Outcome
from photon.joiner.engine import Bounds, JoinerEngine, JoinerLimits
from photon.joiner.shell import ShellLimits
from photon.joiner.slot.identity import SlotRefused
from photon.joiner.slot.lock import SlotLock
from photon.joiner.slot.output import OutputLimits, SlotLog
from photon.joiner.slot.place import KINDS
from photon.joiner.slot.slot import Ages, Redone, SlotStore
from photon.outputs.log.format import Durable
from photon.outputs.published import read_slot
from photon.verifier.verifier import Verifier
from tests.kit.stories import Story, stories
from tests.unit.joiner.helpers import (
    DIGESTER,
    SLOT,
    WAIT,
    Died,
    Engine,
    FakeRegistry,
    FakeStore,
    engine_at,
    event,
    lines_under,
)
from tests.unit.joiner.told import answers_of, by_row, outcomes_of, owners_of

RECORDS = {
    b"k1": b"k1 one",
    b"k2": b"k2 filtered",
    b"k3": b"k3 raises",
    b"k4": b"k4 nonsense",
    b"k5": b"k5 notjson",
    b"k6": b"other record",
}


T = TypeVar("T")
FILE = "joined/s0-000001.jsonl"
# The witness is extended only where a story says so.
QUIET = JoinerLimits(
    shell=ShellLimits(insert_timeout_s=1.0, tick_s=0.005, maintain_s=0.01, witness_s=3600.0),
    lock_wait_s=0.2,
    close_s=1.0,
)


class Machine:
    """A joiner's slot on disk, its registry and an event store. Events are ``id:key``; ``id:key@7`` may wait until 7,
    ``id:key/5`` stands at offset 5, ``id:key~old`` in the log ``clicks.log.1``, ``id:key~copy`` in a copy of it.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.copied = path / "machine", path / "copied"
        self.registry, self.store = FakeRegistry(), FakeStore(RECORDS)
        self.engine: Engine | None = None
        self._log: SlotLog | None = None
        self._runner = asyncio.Runner()

    def close(self) -> None:
        self.stop()
        self._runner.close()

    def _wait(self, what: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(what)

    # -- the process -------------------------------------------------------------------------------------------------
    def start(self, *flags: str, ids: str = "", misses: str = "ABSENT", read_past: str = "0") -> str:
        """``misses``: what the event store says of a key that it lacks. ``ids``: the most in flight."""
        self.store = FakeStore(RECORDS, miss=LookUpCode[misses], read_past_ns=int(read_past))
        bounds = Bounds(ids=int(ids)) if ids else Bounds()
        limits = replace(QUIET, bounds=bounds, output=OutputLimits(compress="compress" in flags))
        ages = Ages(accept_damaged_log="accept" in flags)
        engine = engine_at(self.path, self.registry, self.store, limits=limits, ages=ages)
        try:
            self._wait(engine.start())
        except SlotRefused as refusal:
            return f"refused: {str(refusal).replace(str(self.path) + '/', '').partition('. Restore its newest')[0]}"
        self.engine = engine
        return f"redone {engine.stats().redone}" if engine.stats().redone else ""

    def stop(self) -> None:
        if self.engine is not None:
            self._wait(self.engine.close())
        self.engine = None

    def kill(self) -> None:
        """Nothing is drained, and the witness hears nothing any more."""
        self._wait(self._engine.shell.close())
        self._engine._lock.release()
        self.engine = None

    def join(self, *events: str, timeout: str = "60") -> str:
        answers = self._wait(self._engine.join([self._event(each) for each in events], timeout=float(timeout)))
        shown, owners = [each.name for each in outcomes_of(answers)], owners_of(answers)
        for row, by in owners.items():
            shown[row] += f" by {by.datacentre}{', this line' * by.same_line}"
        reasons = [f"{row}: {reason.partition(' (')[0]}" for row, reason in sorted(answers.verdicts.reasons.items())]
        return "; ".join([" | ".join(shown), *reasons, *["overloaded"] * answers.overloaded])

    def settle(self, within: str = "5") -> str:
        try:
            return "settled" if self._wait(self._engine.settle(float(within))) else "not settled"
        except Died as death:
            return f"died: {death}"

    def drain(self) -> str:
        return "drained" if self._wait(self._engine.drain(10.0)) else "not drained"

    def roll(self) -> None:
        self._wait(self._engine.shell.roll())

    def finish(self) -> None:
        self._wait(self._engine.shell.finish_cleared())

    def withhold(self, why: str = "") -> None:
        """Unmatched verdicts."""
        self._engine.withholds = lambda: why

    def verify(self) -> str:
        verifier = Verifier(RealDisk(), self.path / "state", self.path / "out", DIGESTER, self.registry)
        report = self._wait(verifier.run_once())
        return f"cleared {report.cleared}, refused {report.refused}, owned {len(self.registry.model.owned())}"

    # -- the registry ------------------------------------------------------------------------------------------------
    def down(self, *shards: str) -> None:
        self.registry.down = set(map(int, shards))

    def deaf(self, witnesses: str) -> None:
        """So many answers about the witness are not heard."""
        self.registry.unknown_witnesses = int(witnesses)

    def forget_witness(self) -> None:
        self.registry.model.witnesses.clear()

    def witness(self) -> str:
        self.registry.extensions = 0
        (entry, *_) = self.registry.model.witnesses["s0"]
        return f"witness of joined-{entry.number}: {self._lines(FILE, entry.length)}"

    def asked(self) -> str:
        return f"asked {self.registry.extensions} times since"

    def another_process(self, incarnation: str) -> None:
        self.registry.model.slots["s0"] = (int(incarnation), b"another process")

    def extend_witness(self) -> None:
        assert self._wait(self._engine.shell.extend_witness())

    # -- files -------------------------------------------------------------------------------------------------------
    def output(self) -> Iterator[str]:
        for kind in ("joined", "filtered", "unmatched", "rejected"):
            shown = []
            for line in map(orjson.loads, lines_under(self.path, kind)):
                primary = ""
                if "primary" in line:
                    primary = f" with {line['primary']} at {line['primary_source']['offset']}"
                shown.append(f"{line['event_id']}{primary} in {int(line['token'], 16) >> BATCH_BITS}")
            if shown:
                yield f"{kind} {', '.join(shown)}"

    def published(self) -> str:
        found = msgspec.json.decode((self.path / "state/durable.json").read_bytes(), type=Durable)
        files = read_slot(RealDisk(), self.path / "state").files
        shown = [f"{_number(x.name)}{' final' * x.final}: {self._lines(x.name, x.length)}" for x in files]
        for what, sizes in (("durable", found.durable), ("clearable", found.clearable)):
            shown += [f"{what} {_number(name)}: {self._lines(name, size)}" for name, size in (sizes or {}).items()]
        for what, names in (("rolled", found.rolled), ("closed", found.closed)):
            shown += [f"{what} {_number(name)}" for name in names or ()]
        return ", ".join(shown)

    def hold(self, lines: str) -> None:
        """After a stop: the copy has the first ``lines``; ``-``: nobody knows."""
        if self._log is None:
            self._log = SlotLog(RealDisk(), self.path / "out", self.path / "state", "s0")
            self._log.prepare()
        whole = (self.path / "out" / FILE).read_bytes().splitlines(keepends=True)
        length = sum(map(len, whole[: int(lines.replace("-", "0"))]))
        held = [WitnessLog(1, length if kind is Kind.JOINED else 0, b"") for kind in KINDS]
        self._log.hold(() if lines == "-" else tuple(held))

    def copy(self) -> None:
        shutil.rmtree(self.copied, ignore_errors=True)
        shutil.copytree(self.path, self.copied)

    def exchange(self) -> None:
        """The directories with their copy."""
        aside = self.path.with_name("aside")
        self.path.rename(aside)
        self.copied.rename(self.path)
        aside.rename(self.copied)

    def put_back_state(self) -> None:
        shutil.rmtree(self.path / "state")
        shutil.copytree(self.copied / "state", self.path / "state")

    def spoil(self, file: str, old: str, new: str) -> None:
        path = self.path / file
        assert old.encode() in path.read_bytes()
        path.write_bytes(path.read_bytes().replace(old.encode(), new.encode(), 1))

    def remove(self, file: str) -> None:
        (self.path / file).unlink()

    @property
    def _engine(self) -> Engine:
        assert self.engine is not None
        return self.engine

    def _event(self, word: str) -> ForeignEvent:
        name, key, rest = re.fullmatch(r"(\w+):(\w+)(.*)", word).groups()  # type: ignore[union-attr]
        options = dict(re.findall(r"([@/~])(\w+)", rest))
        as_of = {"never": NEVER_NS, "wait": WAIT}.get(options.get("@", ""))
        made = event(name.encode(), key.encode(), offset=int(options.get("/", 0)))
        made = made._replace(unmatched_as_of_ns=int(options.get("@", 0)) if as_of is None else as_of)
        logs = {"old": "clicks.log.1", "copy": "copy-of-clicks.log", "": "clicks.log"}
        return made._replace(file=replace(made.file, path=logs[options.get("~", "")]))

    def _lines(self, name: str, length: int) -> str:
        file = self.path / "out" / name
        whole = file.read_bytes() if file.exists() else b""
        return f"{whole[:length].count(10)} lines of {whole.count(10)}" if whole else f"{length} bytes"


def _number(name: str) -> str:
    kind, _, file = name.partition("/")
    return f"{kind}-{int(file[3:9])}"


@pytest.mark.parametrize("story", stories(__file__, "engine.txt"), ids=str)
def test_it_answers_as_its_stories_tell(story: Story, golden: Any, tmp_path: Path) -> None:
    with closing(Machine(tmp_path)) as machine:
        golden(story, story.told_by(machine))


async def running(
    path: Path, registry: FakeRegistry, store: FakeStore | None = None, **options: object
) -> JoinerEngine:
    engine = engine_at(path, registry, store or FakeStore(RECORDS), **options)  # type: ignore[arg-type]
    await engine.start()
    return engine


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

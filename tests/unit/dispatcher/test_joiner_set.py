"""The joiners a dispatcher uses: the core, by lists, answers and the time; and the shell around it."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
import structlog
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from structlog.testing import capture_logs

from photon.batch.events import Events
from photon.config.clock import SystemClock
from photon.config.telemetry import spans
from photon.config.telemetry.otlp import OtlpTracer
from photon.dispatcher import discovery
from photon.dispatcher.calls import Calls
from photon.dispatcher.discovery import Discovery, FoundHere
from photon.dispatcher.flow import Flow
from photon.dispatcher.joiner_set import (
    ASK_MOST_S,
    CANDIDATES_MAX,
    Changes,
    Heard,
    JoinerSet,
)
from photon.dispatcher.reporting import Troubles
from photon.idregistry.client.whereabouts import noted
from photon.idregistry.core.outcomes import Refusal, Status
from photon.idregistry.witness import KnownSlot
from photon.joiner.api import JoinAnswers, Outcome
from tests.kit.stories import Story, stories

SEED = int(os.environ.get("PHOTON_SEED", "1"))


def slot(name: str, address: str, newest: int = 1, *, retired: bool = False, datacentre: str = "east") -> KnownSlot:
    return KnownSlot(name, datacentre, noted(address, "box:1:2"), newest, 1, retired, ())


class Joiners:
    """A ``JoinerSet``. Slots are ``name@host``, ``name@host/incarnation``; west's are not of this datacentre."""

    def __init__(self) -> None:
        self.joiners = JoinerSet("east")
        self.now = 0.0

    def at(self, now: str) -> None:
        self.now = float(now)

    def listed(self, *slots: str) -> Iterator[str]:
        known = []
        for each in slots:
            name, _, place = each.partition("@")
            host, _, newest = place.partition("/")
            datacentre, retired = "west" if name == "west" else "east", name == "retired"
            address = f"{host}:1" if host else ""
            known.append(slot(name, address, int(newest or 1), retired=retired, datacentre=datacentre))
        return self._told(self.joiners.listed(known, self.now))

    def due(self) -> str:
        return f"ask {' '.join(due)}" if (due := self.joiners.due(self.now)) else ""

    def heard(self, host: str, what: str) -> Iterator[str]:
        return self._told(self.joiners.heard(f"{host}:1", Heard[what], self.now))

    def asked(self, **answers: str) -> Iterator[str]:
        """Asks those that are due, which are these; each answers as told here."""
        due = self.joiners.due(self.now)
        assert sorted(due) == sorted(f"{host}:1" for host in answers)
        for address in due:
            yield from self._told(self.joiners.heard(address, Heard[answers[address.partition(":")[0]]], self.now))

    def answered(self, host: str) -> None:
        """A batch."""
        self.joiners.answered(f"{host}:1", self.now)

    def used(self) -> str:
        return f"used {' '.join(sorted(self.joiners.used))}"

    def _told(self, changes: Changes) -> Iterator[str]:
        yield from (f"add {each}" for each in changes.add)
        yield from (f"remove {each.address}{', gone' * each.gone}" for each in changes.remove)


@pytest.mark.parametrize("story", stories(__file__, "joiner_set.txt"), ids=str)
def test_it_answers_as_its_stories_tell(story: Story, golden: Any) -> None:
    golden(story, story.told_by(Joiners()))


def test_the_newest_are_kept_when_there_are_too_many() -> None:
    joiners = JoinerSet("east")
    joiners.listed([slot(f"s{n}", f"h{n}:1", n) for n in range(1, CANDIDATES_MAX + 11)], 0.0)
    due = joiners.due(0.0)
    assert len(due) == CANDIDATES_MAX
    assert "h10:1" not in due
    assert "h11:1" in due


@pytest.mark.parametrize("seed", range(SEED, SEED + 30))
def test_whoever_comes_and_goes_in_the_end_those_that_serve_are_used(seed: int) -> None:
    """Joiners start, end, die, hang and move; changes are always consistent with the joiners used before."""
    draw = random.Random(seed)
    joiners, mine = JoinerSet("east"), set[str]()
    alive: dict[str, bool] = {}  # address -> serves
    slots: dict[str, KnownSlot] = {}
    now, incarnation, calm_at = 0.0, 0, 120.0

    def carry_out(changes: Changes) -> None:
        assert not mine & set(changes.add)
        mine.update(changes.add)
        assert {each.address for each in changes.remove} <= mine
        mine.difference_update(each.address for each in changes.remove)
        assert mine == set(joiners.used)

    while now < calm_at + 2 * ASK_MOST_S:
        now += 0.25
        if now < calm_at and draw.random() < 0.1:
            incarnation += 1
            address, name = f"h{draw.randrange(6)}:1", f"s{draw.randrange(4)}"
            slots[name] = slot(name, address if draw.random() < 0.9 else "", incarnation)
            alive[address] = draw.random() < 0.8
        if now < calm_at and draw.random() < 0.05 and alive:
            alive.pop(draw.choice(sorted(alive)))
        if now % 2 == 0:
            carry_out(joiners.listed(list(slots.values()), now))
        for address in joiners.due(now):
            what = {True: Heard.SERVES, False: Heard.SERVES_NOT, None: Heard.NOTHING}[alive.get(address)]
            carry_out(joiners.heard(address, what, now))
    listed = {each.address.split(" ")[0] for each in slots.values() if each.address.startswith("h")}
    serve = {address for address in listed if alive.get(address)}
    assert mine == serve or not serve  # the last one is kept


class FakeJoiner:
    """A joiner at an address; ``site`` has its reported state."""

    def __init__(self, address: str, site: dict[str, bool | None]) -> None:
        self.address = address
        self._site = site
        self.closed = asyncio.Event()

    async def serves(self, timeout: float) -> bool | None:
        assert not self.closed.is_set()
        return self._site.get(self.address)

    async def join(self, events: Events, *, timeout: float) -> JoinAnswers:
        await self.closed.wait()
        return JoinAnswers.alike(len(events), Outcome.RETRY, failed=True)

    async def close(self) -> None:
        self.closed.set()


class Shell:
    """A discovery with invented joiners."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("LIST_S", "LOOK_S", "LEFT_POLL_S"):
            monkeypatch.setattr(discovery, name, 0.005)
        monkeypatch.setattr("photon.dispatcher.joiner_set.ASK_S", 0.005)
        monkeypatch.setattr("photon.dispatcher.joiner_set.FORGET_S", 0.05)
        self.slots: Sequence[KnownSlot] | Refusal = []
        self.site: dict[str, bool | None] = {}
        self.made: list[FakeJoiner] = []
        self.sizes: list[int] = []
        self.flow = Flow(0, in_flight=4, random=random.Random(1).random)
        self.troubles = Troubles(structlog.get_logger())
        self.calls = Calls([], self.flow, self.troubles, SystemClock(), 5.0, self.sizes.append)
        self.discovery = Discovery(JoinerSet("east"), self._list, self._connect, SystemClock())

    async def _list(self) -> Sequence[KnownSlot] | Refusal:
        return self.slots

    def _connect(self, address: str) -> FakeJoiner:
        self.made.append(FakeJoiner(address, self.site))
        return self.made[-1]

    async def until(self, targets: int) -> None:
        async with asyncio.timeout(60.0):
            while len(self.flow.targets) != targets:  # noqa: ASYNC110
                await asyncio.sleep(0.002)


class Silent(FakeJoiner):
    async def join(self, events: Events, *, timeout: float) -> JoinAnswers:
        raise OSError("it is gone")


async def test_a_call_that_fails_is_a_failure_in_its_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = InMemorySpanExporter()
    monkeypatch.setattr(spans, "tracer", OtlpTracer(1.0, Resource.get_empty(), SimpleSpanProcessor(ended)))
    calls = Shell(monkeypatch).calls
    assert await calls.join(calls.add(Silent("a:1", {}), "a"), Events.of([])) is None
    assert [each.status.description for each in ended.get_finished_spans()] == ["OSError: it is gone"]


async def test_joiners_are_connected_and_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = Shell(monkeypatch)
    shell.slots, shell.site = [slot("a", "a:1"), slot("b", "b:1")], {"a:1": True, "b:1": True}
    running = asyncio.create_task(shell.discovery.run(shell.calls, shell.troubles))
    await shell.until(2)
    shell.slots = Refusal(Status.UNKNOWN, "no leader")
    shell.site["b:1"] = None
    await shell.until(1)
    shell.slots = [slot("a", "a:1"), slot("b", "b:1"), slot("c", "c:1")]
    shell.site.update({"c:1": True, "b:1": True})
    await shell.until(3)
    assert shell.sizes[-1] == 3
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert all(each.closed.is_set() for each in shell.made)


@pytest.mark.parametrize("gone", [False, True])
async def test_what_is_on_its_way_is_waited_for_if_any_is_there(monkeypatch: pytest.MonkeyPatch, gone: bool) -> None:
    shell = Shell(monkeypatch)
    shell.slots, shell.site = [slot("a", "a:1")], {"a:1": True, "z:1": True}
    running = asyncio.create_task(shell.discovery.run(shell.calls, shell.troubles))
    await shell.until(1)
    target = shell.flow.choose(0.0)
    assert target is not None
    shell.slots = [slot("a", "a:1"), slot("z", "z:1")]
    await shell.until(2)
    shell.flow.sent(target, 1, 0.0)
    asked = asyncio.create_task(shell.calls.join(target, []))
    await asyncio.sleep(0)
    (joiner,) = [each for each in shell.made if not each.closed.is_set() and each.address == "a:1"]
    shell.site["a:1"] = None if gone else False
    await shell.until(1)
    assert shell.flow.outstanding == 1
    if not gone:
        await asyncio.sleep(0.05)
        assert not joiner.closed.is_set()
        shell.flow.answered(target, 1, None, 0.0, 1.0)
    async with asyncio.timeout(60.0):
        await joiner.closed.wait()
        assert await asked is not None
    if gone:
        shell.flow.answered(target, 1, None, 0.0, 1.0)
    assert shell.flow.outstanding == 0
    assert await shell.calls.join(target, []) is None  # it was removed since it was chosen
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_a_joiner_of_this_process_is_called_directly_and_left_open() -> None:
    class Joiner:
        started = False

        async def join(self, events: Events, *, timeout: float) -> JoinAnswers:
            return JoinAnswers.alike(len(events), Outcome.RETRY, "here", overloaded=timeout == 2.0)

    joiner = Joiner()
    found = FoundHere(joiner)
    assert not await found.serves(1.0)
    joiner.started = True
    assert await found.serves(1.0)
    await found.close()
    assert (await found.join(Events.of([]), timeout=2.0)).overloaded


async def test_that_none_serves_is_said_once_it_lasts(monkeypatch: pytest.MonkeyPatch) -> None:
    shell = Shell(monkeypatch)
    monkeypatch.setattr("photon.dispatcher.reporting.LASTS_S", 0.05)
    with capture_logs() as logs:
        running = asyncio.create_task(shell.discovery.run(shell.calls, shell.troubles))
        async with asyncio.timeout(60.0):
            while not logs:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
        shell.slots, shell.site = [slot("a", "a:1")], {"a:1": True}
        await shell.until(1)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    assert (logs[0]["event"], logs[0]["problem"].partition(";")[0]) == ("joiners: problem", "no joiner serves")

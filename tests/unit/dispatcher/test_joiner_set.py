"""The joiners a dispatcher uses: the core, by lists, answers and the time; and the shell around it."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Sequence

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
    ASK_S,
    CANDIDATES_MAX,
    FIRST_S,
    FORGET_S,
    Changes,
    Heard,
    JoinerSet,
    Removed,
)
from photon.dispatcher.reporting import Troubles
from photon.idregistry.client.whereabouts import noted
from photon.idregistry.core.outcomes import Refusal, Status
from photon.idregistry.witness import KnownSlot
from photon.joiner.api import JoinAnswers, Outcome

SEED = int(os.environ.get("PHOTON_SEED", "1"))


def slot(name: str, address: str, newest: int = 1, *, retired: bool = False, datacentre: str = "east") -> KnownSlot:
    return KnownSlot(name, datacentre, noted(address, "box:1:2"), newest, 1, retired, ())


def used(*slots: KnownSlot) -> JoinerSet:
    """All of them serve."""
    joiners = JoinerSet("east")
    joiners.listed(slots, 0.0)
    for address in joiners.due(0.0):
        joiners.heard(address, Heard.SERVES, 0.0)
    return joiners


def test_a_joiner_is_used_from_the_moment_that_it_serves() -> None:
    joiners = JoinerSet("east")
    assert joiners.listed([slot("a", "a:1")], 0.0) == Changes()
    assert joiners.due(0.0) == ["a:1"]
    assert joiners.due(0.0) == []  # its answer is awaited
    assert joiners.heard("a:1", Heard.SERVES_NOT, 0.5) == Changes()
    assert joiners.due(0.5 + FIRST_S - 0.01) == []
    assert joiners.due(0.5 + FIRST_S) == ["a:1"]
    assert joiners.heard("a:1", Heard.SERVES, 3.0) == Changes(add=["a:1"])
    assert joiners.used == ["a:1"]


def test_only_joiners_of_this_datacentre_that_can_be_called() -> None:
    joiners = JoinerSet("east")
    listed = [
        slot("a", "a:1", retired=True),
        slot("b", "b:1", datacentre="west"),
        slot("c", ""),  # only redone by another joiner
        slot("d", "0.0.0.0:1"),
        slot("g", "g:1"),
    ]
    joiners.listed(listed, 0.0)
    assert joiners.due(0.0) == ["g:1"]


def test_one_that_ends_in_order_is_used_no_more_at_once() -> None:
    joiners = used(slot("a", "a:1"))
    joiners.due(ASK_S)
    assert joiners.heard("a:1", Heard.SERVES_NOT, ASK_S) == Changes(remove=[Removed("a:1", False)])
    assert joiners.used == []


def test_one_that_is_silent_is_forgotten_after_a_while_and_found_again() -> None:
    joiners = used(slot("a", "a:1"), slot("z", "z:1"))
    now = 0.0
    while now + ASK_S < FORGET_S:
        now += ASK_S
        assert joiners.due(now) == ["a:1", "z:1"]
        joiners.heard("z:1", Heard.SERVES, now)
        assert joiners.heard("a:1", Heard.NOTHING, now) == Changes()
    now += ASK_S
    joiners.due(now)
    assert joiners.heard("a:1", Heard.NOTHING, now) == Changes(remove=[Removed("a:1", True)])
    gaps = []
    for _ in range(8):
        before = now
        while "a:1" not in joiners.due(now):
            now += ASK_S / 4
        gaps.append(now - before)
        joiners.heard("a:1", Heard.NOTHING, now)
    assert gaps == sorted(gaps)  # less and less often
    assert max(gaps) == pytest.approx(ASK_MOST_S, abs=ASK_S)
    while "a:1" not in joiners.due(now):
        now += 1.0
    assert joiners.heard("a:1", Heard.SERVES, now) == Changes(add=["a:1"])


def test_one_that_answers_batches_is_not_forgotten() -> None:
    """It is too busy to report its state."""
    joiners = used(slot("a", "a:1"), slot("z", "z:1"))
    late = 2 * FORGET_S
    joiners.due(late)
    joiners.heard("z:1", Heard.SERVES, late)
    joiners.answered("a:1", late - ASK_S)
    assert joiners.heard("a:1", Heard.NOTHING, late) == Changes()
    joiners.answered("nobody:1", late)


def test_while_all_are_silent_none_is_forgotten() -> None:
    joiners = used(slot("a", "a:1"), slot("z", "z:1"))
    late = 2 * FORGET_S
    for address in joiners.due(late):
        assert joiners.heard(address, Heard.NOTHING, late) == Changes()
    late += ASK_S
    joiners.due(late)
    joiners.heard("z:1", Heard.SERVES, late)
    assert joiners.heard("a:1", Heard.NOTHING, late) == Changes(remove=[Removed("a:1", True)])


def test_one_answer_is_enough_not_to_be_forgotten() -> None:
    joiners = used(slot("a", "a:1"))
    for step in range(1, 20):
        now = step * FORGET_S / 2
        joiners.due(now)
        what = Heard.SERVES if step % 2 else Heard.NOTHING
        assert joiners.heard("a:1", what, now) == Changes()


def test_a_slot_that_was_opened_elsewhere_moves_its_address() -> None:
    joiners = used(slot("a", "a:1", 1), slot("b", "b:1", 2))
    assert joiners.listed([slot("a", "c:1", 3), slot("b", "b:1", 2)], 1.0) == Changes(remove=[Removed("a:1", False)])
    assert joiners.due(1.0) == ["c:1"]
    assert joiners.heard("a:1", Heard.SERVES, 1.0) == Changes()  # its old address answers too late
    joiners.heard("c:1", Heard.SERVES, 1.0)
    assert sorted(joiners.used) == ["b:1", "c:1"]


def test_a_new_process_at_a_silent_address_is_asked_at_once() -> None:
    joiners = JoinerSet("east")
    joiners.listed([slot("a", "a:1", 1)], 0.0)
    joiners.due(0.0)
    joiners.heard("a:1", Heard.NOTHING, 0.0)
    joiners.listed([slot("a", "a:1", 1), slot("b", "a:1", 7)], 1.0)  # it took another slot
    assert joiners.due(1.0) == ["a:1"]


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
    assert (logs[0]["event"], logs[0]["problem"].partition(";")[0]) == ("joiners: trouble", "none serves")

"""Each fault's effect on a target, and that everything is undone."""

import asyncio

import pytest

from photon.lab.chaos import faults as module
from photon.lab.chaos.api import ChaosFailed, Do, Step
from photon.lab.chaos.faults import Faults
from tests.unit.lab.chaos.fakes import FakeLogs, FakeTarget
from tests.unit.lab.chaos.places import TOPOLOGY

ALL_WEST = " ".join(TOPOLOGY.of_datacentre("west"))
KILL_WEST, R5 = f"kill {ALL_WEST} hold", "registry r5"


@pytest.fixture
def target() -> FakeTarget:
    return FakeTarget()


@pytest.fixture
def faults(target: FakeTarget) -> Faults:
    return made(target)


async def leader() -> str | None:
    return "registry r3"


def made(target: FakeTarget, *, logs: bool = True) -> Faults:
    return Faults(target, TOPOLOGY, leader, FakeLogs(target) if logs else None)


@pytest.mark.parametrize(
    ("step", "calls"),
    [
        (Step(0, 0, Do.KILL, ("joiner east-1",)), ["kill joiner east-1 "]),
        (Step(0, 5, Do.KILL, ("leader",)), ["kill registry r3 hold", "release registry r3"]),
        (Step(0, 5, Do.PAUSE, ("leader",)), ["pause registry r3", "resume registry r3"]),
        (Step(0, 5, Do.DISK, ("registry r5",)), ["fill registry r5", "empty registry r5"]),
        (Step(0, 5, Do.CLOCK, (R5,), {"skew": -3.0}), [f"skew {R5} -3.0", f"skew {R5} None"]),
        (Step(0, 5, Do.TRUNCATE, ("east",)), ["truncate east", "restore east"]),
        (Step(0, 5, Do.AWAY, ("west",)), ["hold west", KILL_WEST, f"release {ALL_WEST}", "flow west"]),
        (
            Step(0, 5, Do.AWAY, ("west",), {"state": "lost"}),
            [
                *("hold west", KILL_WEST, "flow west"),  # lines that arrive meanwhile are left out as well
                "wipe west",
                f"release {ALL_WEST.replace('dispatcher west ', '')}",
                "photon dispatcher skip --datacentre west --to now --yes",
                f"release {ALL_WEST}",
            ],
        ),
        (Step(0, 0, Do.RESTART, ("joiner east-1", "leader")), ["restart joiner east-1", "restart registry r3"]),
        (Step(0, 0, Do.RESHARD, (), {"shards": 3}), ["photon registry reshard --shards 3"]),
    ],
)
async def test_each_fault_is_done_and_taken_back(
    target: FakeTarget, faults: Faults, step: Step, calls: list[str]
) -> None:
    await faults.begin(0, step)
    await faults.end(0)
    assert target.calls == calls
    assert await faults.heal() == []
    assert target.calls == calls


async def test_cuts_and_delays_leave_the_links_as_they_were(target: FakeTarget, faults: Faults) -> None:
    before = dict(target.links)
    await faults.begin(0, Step(0, 5, Do.CUT, ("east",), {"fault": "refuse", "both": False}))
    assert target.faults() == {"east central": "REFUSE", "east west": "REFUSE"}
    await faults.begin(1, Step(0, 5, Do.DELAY, ("central", "west"), {"delay": 0.2}))
    assert target.links["central", "west"].delay_s == target.links["west", "central"].delay_s == 0.25
    await faults.end(1)
    await faults.end(0)
    assert target.links == before


async def test_loss_resets_again_and_again(
    target: FakeTarget, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LOSS_EVERY_S", 0.001)
    monkeypatch.setattr(module, "LOSS_S", 0.001)
    before = dict(target.links)
    await faults.begin(0, Step(0, 5, Do.LOSS, ("east", "west")))
    async with asyncio.timeout(60):
        while target.calls.count("change") < 7:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
    await faults.end(0)
    assert target.links == before


async def test_what_cannot_be_taken_back_is_tried_again(
    target: FakeTarget, faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "HEAL_WAIT_S", 0.0)
    await faults.begin(0, Step(0, 5, Do.PAUSE, ("joiner east-1",)))
    target.failing["resume"] = 3
    with pytest.raises(ChaosFailed):
        await faults.end(0)
    assert await faults.heal() == []
    assert target.calls == ["pause joiner east-1", "resume joiner east-1"]
    await faults.begin(1, Step(0, 5, Do.PAUSE, ("joiner east-1",)))
    target.failing["resume"] = 10**6
    assert await faults.heal() == ["resume fails"]


async def test_a_fault_that_fails_half_way_is_taken_back(target: FakeTarget, faults: Faults) -> None:
    target.failing["kill"] = 1
    with pytest.raises(ChaosFailed):
        await faults.begin(0, Step(0, 5, Do.AWAY, ("west",)))
    assert target.calls == ["hold west", f"release {ALL_WEST}", "flow west"], "at once, not at the end of the run"
    assert await faults.heal() == []


async def test_what_fails_twice_is_left_to_the_heal(target: FakeTarget, faults: Faults) -> None:
    target.failing |= {"kill": 1, "release": 1}
    with pytest.raises(ChaosFailed, match="kill fails"):
        await faults.begin(0, Step(0, 5, Do.AWAY, ("west",)))
    assert target.calls == ["hold west"]
    assert await faults.heal() == []
    assert target.calls == ["hold west", f"release {ALL_WEST}", "flow west"]


async def test_nobody_leads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ELECTED_S", 0.05)

    async def nobody() -> None:
        return None

    with pytest.raises(ChaosFailed, match="has had no leader"):
        await Faults(FakeTarget(), TOPOLOGY, nobody, None).begin(0, Step(0, 1, Do.KILL, ("leader",)))


async def test_logs_of_others_are_not_truncated() -> None:
    with pytest.raises(ChaosFailed, match="does not write the logs"):
        await made(FakeTarget(), logs=False).begin(0, Step(0, 1, Do.TRUNCATE, ("east",)))

"""Remains of faults are undone according to the deployment's state, whoever caused them."""

from collections.abc import Mapping

from photon.lab.chaos.api import ProcessNow
from photon.lab.chaos.faults import heal
from photon.lab.wan.links import Change, Fault
from tests.unit.lab.chaos.fakes import FakeTarget
from tests.unit.lab.chaos.places import TOPOLOGY

ROUND_TRIP_S = 0.1


class Left(FakeTarget):
    """Some of its processes are as a fault left them."""

    def __init__(self, **now: ProcessNow) -> None:
        super().__init__()
        self.now = {name.replace("_", " "): each for name, each in now.items()}

    async def processes(self) -> Mapping[str, ProcessNow]:
        return {**await super().processes(), **self.now}


async def test_each_kind_of_fault_is_taken_back() -> None:
    target = Left(
        registry_r1=ProcessNow(False, 1, "paused"),
        registry_r2=ProcessNow(False, None, "held"),
        registry_r3=ProcessNow(True, 3, "up", skewed=True),
        registry_r4=ProcessNow(False, None, "held", skewed=True),
    )
    await target.change([Change("east", "west", 0.5, Fault.DROP), Change("west", "central", None, Fault.RESET)])
    target.calls.clear()
    said = await heal(target, ["registry r5"], ROUND_TRIP_S)
    assert said == [
        "resumed: registry r1",
        "restarted: registry r2",
        "restarted with the right clock: registry r3, registry r4",
        "2 directions between regions restored",
    ]
    assert target.calls == [
        "resume registry r1",
        "release registry r2",
        "skew registry r3 None",
        "skew registry r4 None",
        "change",
        "empty registry r5",
    ]
    assert not target.faults()
    assert {each.delay_s for each in await target.directions()} == {ROUND_TRIP_S / 2}


async def test_nothing_is_done_where_nothing_is_wrong() -> None:
    target = FakeTarget()
    assert await heal(target, TOPOLOGY.processes, ROUND_TRIP_S) == []
    assert {call.split()[0] for call in target.calls} == {"empty"}


async def test_without_a_proxy_nobody_is_asked_for_directions() -> None:
    target = FakeTarget()
    await target.change([Change("east", "west", 0.5, None)])
    assert await heal(target, [], None) == []

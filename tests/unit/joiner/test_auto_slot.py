"""The slot taken by a joiner that was told none: the choice, and the taking on a real disk."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from photon.batch.events import Events
from photon.config.disk import RealDisk
from photon.idregistry.client.whereabouts import is_reachable, noted, reached_at
from photon.idregistry.core.outcomes import Refusal, Status
from photon.idregistry.witness import KnownSlot
from photon.joiner.api import Outcome
from photon.joiner.auto_joiner import AUTO_MAX, AutoJoiner, Here, auto_name, is_auto, to_try
from photon.joiner.slot.identity import SlotRefused
from photon.joiner.slot.lock import SlotLock, is_held
from photon.outputs.log.format import RETIRED_NAME, retired_bytes
from tests.unit.joiner.helpers import FakeRegistry, event
from tests.unit.joiner.test_adopter import Claiming, adopter_of, engine_of
from tests.unit.joiner.told import outcomes_of

FREE = Here(held=False, opened=True, left=True, retired=False)


def first(here: dict[str, Here], known: dict[str, bool], named: Sequence[str] = (), count: int = 3) -> list[str]:
    return [name.removeprefix("east-auto-") for name in to_try("east", here, known, named)][:count]


def test_without_anything_the_first_names_are_taken() -> None:
    assert first({}, {}) == ["1", "2", "3"]
    assert len(list(to_try("east", {}, {}, ()))) == AUTO_MAX


def test_what_an_earlier_joiner_left_comes_first() -> None:
    empty = Here(held=False, opened=True, left=False, retired=False)
    here = {"east-auto-7": FREE, "east-auto-2": empty, "east-auto-4": FREE}
    assert first(here, dict.fromkeys(here, False), count=5) == ["4", "7", "2", "1", "3"]


def test_held_retired_named_and_lost_slots_are_not_taken() -> None:
    held = Here(held=True, opened=True, left=True, retired=False)
    gone = Here(held=False, opened=True, left=False, retired=True)
    here = {"east-auto-1": held, "east-auto-2": gone, "east-auto-3": FREE}
    known = {"east-auto-1": False, "east-auto-3": True, "east-auto-4": False}
    assert first(here, known, ["east-auto-5"]) == ["6", "7", "8"]


def test_an_empty_directory_is_as_good_as_none() -> None:
    """A joiner took the name and died before it opened the slot."""
    begun = Here(held=False, opened=False, left=False, retired=False)
    assert first({"east-auto-1": begun}, {}) == ["1", "2", "3"]
    assert first({"east-auto-1": begun}, {"east-auto-1": False}) == ["2", "3", "4"]  # its directory was lost


@pytest.mark.parametrize(
    ("slot", "is_one"),
    [
        ("east-auto-1", True),
        (auto_name("east", AUTO_MAX), True),
        (auto_name("east", AUTO_MAX + 1), False),
        ("east-auto-0", False),
        ("east-auto-01", False),
        ("east-auto-", False),
        ("east-auto-²", False),
        ("west-auto-1", False),
        ("east-1", False),
        ("my-east-auto-1", False),
        ("east-auto-1-auto-2", False),
    ],
)
def test_names(slot: str, is_one: bool) -> None:
    assert is_auto(slot, "east") is is_one


def test_no_two_datacentres_share_a_name() -> None:
    assert is_auto("east-auto-1-auto-2", "east-auto-1")
    assert not is_auto("east-auto-1-auto-2", "east")


@pytest.mark.parametrize(
    ("note", "reached"),
    [
        (noted("joiner-1:7101", "box:12:99"), "joiner-1:7101"),
        (noted("[::1]:7101", "box:12:99"), "[::1]:7101"),
        (noted("", "box:12:99"), ""),
        ("box:7101", ""),
        ("", ""),
        ("0.0.0.0:7101 box:12:99", ""),
        ("joiner-1:0 box:12:99", ""),
        ("joiner-1:70000 box:12:99", ""),
        ("joiner-1:²² box:12:99", ""),
        (":7101 box:12:99", ""),
    ],
)
def test_a_note_tells_where_a_joiner_is_reached(note: str, reached: str) -> None:
    assert reached_at(note) == reached


def test_an_address_that_means_every_one_cannot_be_called() -> None:
    assert not is_reachable("0.0.0.0:7101")
    assert not is_reachable("[::]:7101")
    assert is_reachable("10.0.0.1:7101")


class World:
    """A directory of slots and a registry; joiners that look for a slot there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.slots = path / "slots"
        self.registry = FakeRegistry()
        self.refusals = 0
        self.retired: set[str] = set()

    def joiner(self, named: Sequence[str] = ()) -> AutoJoiner:
        return AutoJoiner(
            RealDisk(), self.slots, "dc0", named, self._list,
            lambda slot: engine_of(self.path, slot, Claiming(self.registry)),
        )  # fmt: skip

    async def started(self, named: Sequence[str] = ()) -> AutoJoiner:
        joiner = self.joiner(named)
        await joiner.start()
        return joiner

    async def _list(self) -> Sequence[KnownSlot] | Refusal:
        if self.refusals:
            self.refusals -= 1
            return Refusal(Status.UNKNOWN, "no leader")
        names = [name for name in RealDisk().names(self.slots) if (self.slots / name / "slot.json").exists()]
        return [KnownSlot(each, "dc0", "", 1, 1, each in self.retired, ()) for each in {*names, *self.retired}]

    def held(self) -> list[str]:
        return [name for name in RealDisk().names(self.slots) if is_held(self.slots / name)]


async def test_joiners_that_start_at_once_take_different_slots(tmp_path: Path) -> None:
    world = World(tmp_path)
    joiners = [world.joiner() for _ in range(4)]
    await asyncio.gather(*(joiner.start() for joiner in joiners))
    assert world.held() == [f"dc0-auto-{number}" for number in (1, 2, 3, 4)]
    answers = [
        await joiner.join(Events.of([event(b"e%d" % at, b"k1")]), timeout=3.0) for at, joiner in enumerate(joiners)
    ]
    assert [outcomes_of(each) for each in answers] == [[Outcome.JOINED]] * 4
    assert all(joiner.started and joiner.stats().outcomes[Outcome.JOINED] == 1 for joiner in joiners)
    for joiner in joiners:
        await joiner.close()
    assert world.held() == []


async def test_a_slot_that_was_left_is_redone_by_the_next_joiner(tmp_path: Path) -> None:
    """The second of two joiners is killed with a registration that nobody answered."""
    world = World(tmp_path)
    one, two = [await world.started() for _ in range(2)]
    world.registry.down.update((0, 1))
    assert outcomes_of(await two.join(Events.of([event(b"e1", b"k1")]), timeout=0.3)) == [Outcome.RETRY]
    await two.close(at_once=True)
    world.registry.down.clear()
    third = await world.started()
    assert world.held() == ["dc0-auto-1", "dc0-auto-2"]
    assert third.stats().redone == 1
    await third.close()
    await one.close()
    (written,) = [path.read_bytes() for path in (tmp_path / "out" / "joined").glob("dc0-auto-2-*")]
    assert written.count(b"e1") == 1


async def test_what_was_adopted_is_empty_and_comes_after_what_was_not(tmp_path: Path) -> None:
    world = World(tmp_path)
    one, two = [await world.started() for _ in range(2)]
    await one.close(at_once=True)
    adopter = adopter_of(tmp_path, world.registry)
    async with asyncio.timeout(60.0):
        while not await adopter.look():
            pass
    await two.close(at_once=True)
    again = await world.started()
    assert world.held() == ["dc0-auto-2"]
    await again.close()


async def test_slots_of_the_file_and_retired_ones_are_never_taken(tmp_path: Path) -> None:
    world = World(tmp_path)
    one = await world.started()
    await one.close()
    (world.slots / "dc0-auto-1" / RETIRED_NAME).write_bytes(retired_bytes("dc0-auto-1"))
    world.retired.add("dc0-auto-3")
    (world.slots / "dc0-9").mkdir()
    two = await world.started(named=["dc0-auto-2"])
    assert world.held() == ["dc0-auto-4"]
    await two.close()


async def test_a_slot_that_cannot_be_opened_is_left_to_an_operator(tmp_path: Path) -> None:
    world = World(tmp_path)
    one = await world.started()
    await one.close(at_once=True)
    (world.slots / "dc0-auto-1" / "slot.json").write_bytes(b"not JSON")
    two = await world.started()
    assert world.held() == ["dc0-auto-2"]
    await two.close()


async def test_it_waits_for_the_registry(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.refusals = 1
    joiner = world.joiner()
    assert (await joiner.join(Events.of([event(b"e1", b"k1")]), timeout=1.0)).overloaded
    await joiner.start()
    assert world.held() == ["dc0-auto-1"]
    await joiner.close()


async def test_when_all_names_are_in_use_it_says_so(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.retired.update(auto_name("dc0", number) for number in range(2, AUTO_MAX + 1))
    holder = SlotLock(world.slots / "dc0-auto-1")
    holder.take()
    with pytest.raises(SlotRefused, match="no slot dc0-auto-1 to dc0-auto-256 can be taken; see photon status slots"):
        await world.joiner().start()
    holder.release()

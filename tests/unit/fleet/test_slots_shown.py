"""Slots that are asked for unpublished output, and the meaning of silence."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import msgspec

from photon.config.clock import NEVER_NS
from photon.config.disk import RealDisk
from photon.fleet.polling import Heard
from photon.fleet.processes import Process
from photon.fleet.slots_shown import SlotsShown
from photon.idregistry.core.outcomes import Refusal, Status
from photon.idregistry.witness import KnownSlot
from photon.joiner.adopter import MARK_NAME, Mark

KNOWN = KnownSlot("s0", "east", "a:1 host:1:1", 2, 2, retired=False, witness=())
DISK = RealDisk()


class _Deployment:
    def __init__(self, base: Path) -> None:
        self.slots = base / "slots"
        self.known: list[KnownSlot] | Refusal = [KNOWN]
        self.said: dict[str, dict[str, int]] = {}
        self.asked: list[str] = []

    def make(self, slot: str, *, mark: int = 0) -> None:
        directory = self.slots / slot
        directory.mkdir(parents=True)
        state = {"version": 1, "slot": slot, "datacentre": "east", "last": 2, "nonce": ""}
        (directory / "slot.json").write_bytes(msgspec.json.encode(state))
        if mark:
            (directory / MARK_NAME).write_bytes(msgspec.json.encode(Mark(mark)))

    async def _known(self) -> list[KnownSlot] | Refusal:
        return self.known

    async def _gather(self, processes: list[Process]) -> list[Heard]:
        self.asked = [each.address or "" for each in processes]
        heard = []
        for each in processes:
            said = self.said.get(each.address or "", {})
            slots = [{"slot": slot, "oldest_unshown_ns": ns} for slot, ns in said.items()]
            heard.append(Heard(each, details={"unshown": slots}))
        return heard

    async def ask(self) -> list[tuple[str, int | None, str]]:
        shown = SlotsShown(DISK, self.slots, "east", self._known, self._gather)
        return [(each.slot, each.unshown_ns, each.problem) for each in await shown.ask()]


async def test_each_slot_of_the_datacentre_is_asked_where_it_is_reached(tmp_path: Path) -> None:
    its = _Deployment(tmp_path)
    its.make("s0")
    its.make("auto")
    its.known = [
        KNOWN,
        replace(KNOWN, name="auto", address="b:2 host:1:1"),
        replace(KNOWN, name="other", datacentre="west"),
        replace(KNOWN, name="gone", retired=True),
        replace(KNOWN, name="backfill", address=""),
    ]
    its.said = {"a:1": {"s0": 70}, "b:2": {"auto": NEVER_NS}}
    assert await its.ask() == [("s0", 70, ""), ("auto", NEVER_NS, "")]
    assert its.asked == ["a:1", "b:2"]
    its.known = [replace(KNOWN, name="redone", address="host:1:1")]
    assert await its.ask() == [("redone", None, "its directory is not on this machine")]


async def test_a_silent_slot_says_nothing_unless_it_was_left_empty(tmp_path: Path) -> None:
    its = _Deployment(tmp_path)
    assert await its.ask() == [("s0", None, "its directory is not on this machine")]
    its.make("s0")
    assert await its.ask() == [("s0", None, "its joiner does not answer")]
    (its.slots / "s0" / MARK_NAME).write_bytes(msgspec.json.encode(Mark(2)))
    assert await its.ask() == [("s0", NEVER_NS, "")]


async def test_without_the_registry_nothing_is_known(tmp_path: Path) -> None:
    its = _Deployment(tmp_path)
    its.known = Refusal(Status.UNKNOWN, "nobody answered")
    ((_, unshown_ns, problem),) = await its.ask()
    assert unshown_ns is None
    assert "registry" in problem


async def test_a_join_on_spark_beside_dispatchers_has_shown_all_once_its_batches_are_finished(tmp_path: Path) -> None:
    its = _Deployment(tmp_path)
    its.make("s1")
    its.known = [replace(KNOWN, name="s1", address="")]
    journal = its.slots / "s1" / "spark"
    for what in ("plans", "commits", "parts"):
        (journal / what).mkdir(parents=True)
    (journal / "plans" / "000000004").touch()
    assert await its.ask() == [("s1", None, "a batch of its join on Spark is not finished")]
    (journal / "commits" / "000000004").touch()
    assert await its.ask() == [("s1", NEVER_NS, "")]
    (journal / "parts" / "000000004-0000.result").touch()
    assert (await its.ask())[0][1] is None
    shown = SlotsShown(DISK, its.slots, "east", its._known, its._gather, claimed="s1")
    assert await shown.ask() == []  # its driver claims for it

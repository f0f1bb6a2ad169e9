"""A live slot, or one with any files here, is not retired."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from photon.config.errors import PhotonError
from photon.config.settings import Pipeline, Settings
from photon.idregistry.witness import KnownSlot, WitnessLog
from photon.operations.slots import operating
from photon.operations.slots.operating import Asked, Here


def slot(newest: int = 7, length: int = 100, *, retired: bool = False) -> KnownSlot:
    return KnownSlot("east-1", "east", "host:1", newest, 3, retired, (WitnessLog(1, length, b"h"),))


class World:
    """The registry's answer to each request, and whether the joiner answers."""

    def __init__(self, base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.said = [slot()]
        self.healthy = False
        pipeline = Pipeline(
            join="clicks", primary="p", foreign="f", output="out", state="state", address="h:1",
        )  # fmt: skip
        self.here = Here(Settings(datacentre={"east": pipeline}), base)
        (base / "state").mkdir()
        monkeypatch.setattr(operating, "_known", self._known)
        monkeypatch.setattr(operating, "_registry", lambda here: Nobody())
        monkeypatch.setattr(operating, "healthy", self._healthy)

    async def _known(self, client: Any) -> list[KnownSlot]:
        return [self.said.pop(0) if len(self.said) > 1 else self.said[0]]

    async def _healthy(self, *_: Any) -> bool:
        return self.healthy

    async def refused(self, **asked: Any) -> str:
        with pytest.raises(PhotonError) as raised:
            await self.checked(**asked)
        return str(raised.value)

    async def checked(self, name: str = "east-1", **asked: Any) -> operating.Checked:
        return await operating.check(self.here, Asked(name, watch_s=0.0, **asked))


class Nobody:
    async def __aenter__(self) -> None:
        return None

    async def __aexit__(self, *_: object) -> None:
        return None


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    return World(tmp_path, monkeypatch)


async def test_one_that_is_gone_may_be_retired(world: World) -> None:
    checked = await world.checked()
    assert checked.slot == slot()
    assert checked.copy is None


async def test_one_that_lives_may_not(world: World) -> None:
    world.healthy = True
    assert "is alive: its joiner answers at h:1" in await world.refused()
    world.healthy = False
    for moved in (slot(newest=8), slot(length=101)):
        world.said = [slot(), moved]
        assert "is alive: within 0 s its joiner (host:1) has opened or extended it" in await world.refused()


async def test_one_that_can_be_read_here_may_not(world: World) -> None:
    state = world.here.base / "state" / "slots" / "east-1"
    state.mkdir(parents=True)
    (state / "retired.json").write_text("{}")  # that is no slot
    await world.checked()
    (state / "slot.json").write_text("{}")
    assert f"{state}: is readable, so slot east-1 has lost nothing" in await world.refused()
    world.said = [slot(retired=True)]  # its fence remains: the begun retirement continues
    await world.checked()


async def test_output_that_is_left_has_to_be_named(world: World) -> None:
    output = world.here.base / "out"
    (output / "joined").mkdir(parents=True)
    (output / "joined" / "east-1-000001.jsonl").write_bytes(b"{}\n" * 40)
    assert f"has 1 output files of slot east-1; name it with --copy {output}" in await world.refused()
    assert "not a copy of this slot" in await world.refused(copy=output)
    assert "has no output files of slot east-1" in await world.refused(copy=world.here.base)


async def test_a_copy_is_sealed_where_readers_look(world: World) -> None:
    (world.here.base / "state").rmdir()
    assert "has no state directory on this machine" in await world.refused(copy=world.here.base)


async def test_a_name_that_nobody_knows_is_a_mistake(world: World) -> None:
    assert "the registry knows no such slot; there are: east-1" in await world.refused(name="east-9")

"""Processes that are shown although the deployment file does not name them."""

from __future__ import annotations

from pathlib import Path

from photon.fleet.look import processes_of
from photon.idregistry.witness import KnownSlot
from tests.unit.fleet.test_polling import settings_of


def slot(name: str, address: str, *, datacentre: str = "east", retired: bool = False) -> KnownSlot:
    return KnownSlot(name, datacentre, address, 1, 1, retired, ())


def test_those_of_the_datacentre_that_can_be_called_are_asked(tmp_path: Path) -> None:
    settings = settings_of(tmp_path, east=1)
    named = next(iter(settings.joiners("east").values()))
    slots = [
        slot("named", f"{named} a:7:1"),
        slot("auto-2", "c:2 c:8:1"),
        slot("auto-1", "b:2 b:8:1"),
        slot("west", "d:2 d:8:1", datacentre="west"),
        slot("gone", "e:2 e:8:1", retired=True),
        slot("redone", "f:8:1"),
    ]
    found = [each for each in processes_of(settings, "east", slots) if each.kind == "joiner"]
    wanted = [("east-1", named), ("auto-1", "b:2"), ("auto-2", "c:2")]
    assert [(each.name, each.address) for each in found] == wanted

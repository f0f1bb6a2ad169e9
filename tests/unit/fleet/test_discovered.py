"""Processes that are shown although the deployment file does not name them."""

from __future__ import annotations

from photon.fleet.polling import Discovered
from photon.idregistry.witness import KnownSlot


def slot(name: str, address: str, *, datacentre: str = "east", retired: bool = False) -> KnownSlot:
    return KnownSlot(name, datacentre, address, 1, 1, retired, ())


def _found(found: Discovered) -> list[tuple[str, str | None]]:
    return [(each.name, each.address) for each in found.candidates()]


def test_those_of_the_datacentre_that_can_be_called_are_asked() -> None:
    found = Discovered("east", ["a:1"])
    found.heard_list(
        [
            slot("named", "a:1 a:7:1"),
            slot("auto-2", "c:2 c:8:1"),
            slot("auto-1", "b:2 b:8:1"),
            slot("west", "d:2 d:8:1", datacentre="west"),
            slot("gone", "e:2 e:8:1", retired=True),
            slot("redone", "f:8:1"),
        ]
    )
    assert _found(found) == [("auto-1", "b:2"), ("auto-2", "c:2")]

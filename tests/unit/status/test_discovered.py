"""Which joiners are shown that the deployment file does not name."""

from __future__ import annotations

from photon.idregistry.witness import KnownSlot
from photon.status.discovered import SHOWN_S, Discovered


def slot(name: str, address: str, *, datacentre: str = "east", retired: bool = False) -> KnownSlot:
    return KnownSlot(name, datacentre, address, 1, 1, retired, ())


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
    assert found.candidates() == [("auto-1", "b:2"), ("auto-2", "c:2")]


def test_who_never_answered_is_not_shown_and_who_did_is_for_a_while() -> None:
    found = Discovered("east", [])
    found.heard_list([slot("auto-1", "b:2 b:8:1")])
    assert not found.shows("auto-1", up=False, now_s=0.0)
    assert found.shows("auto-1", up=True, now_s=1.0)
    assert found.shows("auto-1", up=False, now_s=1.0 + SHOWN_S)
    assert not found.shows("auto-1", up=False, now_s=1.5 + SHOWN_S)
    assert found.shows("auto-1", up=True, now_s=99.0)
    found.heard_list([])
    found.heard_list([slot("auto-1", "b:2 b:8:1")])
    assert not found.shows("auto-1", up=False, now_s=99.0)

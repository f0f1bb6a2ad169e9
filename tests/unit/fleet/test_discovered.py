"""Processes that are shown although the deployment file does not name them."""

from __future__ import annotations

from photon.fleet.polling import Discovered, Heard, once
from photon.fleet.processes import Process
from photon.idregistry.witness import KnownSlot
from tests.unit.fleet.heard import said, silent


def slot(name: str, address: str, *, datacentre: str = "east", retired: bool = False) -> KnownSlot:
    return KnownSlot(name, datacentre, address, 1, 1, retired, ())


def _found(found: Discovered) -> list[tuple[str, str | None]]:
    return [(each.name, each.address) for each in found.candidates()]


def test_those_of_the_datacentre_that_can_be_called_are_asked() -> None:
    found = Discovered("joiner", "east", ["a:1"])
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


def test_who_never_answered_is_not_shown_and_who_did_is_while_others_name_it() -> None:
    found = Discovered("dispatcher", "east", [])
    found.heard_workers([], {"auto1": "b:2"})
    assert not found.shows("auto1", up=False)
    assert found.shows("auto1", up=True)
    assert found.shows("auto1", up=False)
    found.heard_workers([], {"auto2": "c:2"})
    found.heard_workers([], {"auto1": "b:2"})
    assert not found.shows("auto1", up=False)


def _dispatcher(worker: str, address: str, *living: tuple[str, str]) -> Heard:
    workers = [{"worker": name, "address": at} for name, at in living]
    details = {"worker": worker, "workers": workers} if worker else {}
    return Heard(Process("east", "dispatcher", worker or "east", address), details=details)


def test_dispatchers_that_took_a_free_name_are_named_by_any_of_them() -> None:
    found = Discovered("dispatcher", "east", ["dispatcher:1"])
    living = [("auto1", "a:1"), ("auto2", "b:1"), ("named", "dispatcher:1")]
    found.heard_workers([_dispatcher("auto1", "dispatcher:1", *living), said("joiner", "j")], {})
    assert _found(found) == [("auto1", "a:1"), ("auto2", "b:1")]
    found.heard_workers([], {})
    assert len(found.candidates()) == 2  # nobody answered: the last list holds
    found.heard_workers([], {"auto3": "c:1"})
    assert _found(found) == [("auto3", "c:1")]


def test_a_dispatcher_that_two_addresses_lead_to_is_heard_once() -> None:
    first, again = _dispatcher("auto1", "dispatcher:1"), _dispatcher("auto1", "a:1")
    other, alone = _dispatcher("auto2", "b:1"), _dispatcher("", "c:1")
    assert once([first, again, other, alone, silent("dispatcher", "x")])[:3] == [first, other, alone]
    assert len(once([first, again, other, alone, silent("dispatcher", "x")])) == 4

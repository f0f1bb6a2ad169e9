"""The best region for a shard's leader."""

from __future__ import annotations

import asyncio
import time

import pytest

from photon.config.clock import SystemClock
from photon.idregistry.api import Slot
from photon.idregistry.client.routing import RoutedRegistry
from photon.idregistry.replica import lead_placement, server
from photon.idregistry.replica.embedded import LocalBackend
from photon.idregistry.replica.lead_placement import LEAST_IDS, PERIOD_S, PERIODS, LeadPlacement
from tests.unit.idregistry.groups import Cluster, inserts

Near = dict[str, tuple[str, ...]]

NEAR: Near = {"east": ("r1", "r2"), "west": ("r3",), "islands": ()}


def asked(name: str, *periods: dict[str, int], near: Near = NEAR) -> list[tuple[str, ...]]:
    """The better choice after each period, with the given number of ids from each datacentre."""
    lead = LeadPlacement(name, near)
    assert lead.better(100.0) == ()  # its time begins
    said = []
    for number, period in enumerate(periods, 1):
        for datacentre, ids in period.items():
            lead.inserted(datacentre, ids)
        assert lead.better(100.0 + (number - 0.5) * PERIOD_S) == ()
        said.append(lead.better(100.0 + number * PERIOD_S))
    return said


def test_a_replica_beside_those_who_insert_is_better_once_it_was_so_for_some_periods() -> None:
    busy = {"west": 900, "east": 100}
    assert asked("r1", *[busy] * PERIODS) == [()] * (PERIODS - 1) + [("r3",)]
    assert asked("r3", {"east": LEAST_IDS}, {"east": LEAST_IDS}) == [(), ("r1", "r2")]


@pytest.mark.parametrize(
    ("name", "periods"),
    [
        pytest.param("r1", [{"east": 1000}] * 4, id="it is there"),
        pytest.param("r1", [{"west": 600, "east": 400}] * 4, id="several share the work"),
        pytest.param("r1", [{"west": LEAST_IDS - 1}] * 4, id="too few to say anything"),
        pytest.param("r1", [{"west": 900}, {}, {"west": 900}, {"east": 900}], id="not in a row"),
        pytest.param("r1", [{"islands": 900}] * 4, id="nobody is near them"),
        pytest.param("r1", [{"": 900}] * 4, id="of a datacentre that nobody knows"),
    ],
)
def test_else_the_lead_stays(name: str, periods: list[dict[str, int]]) -> None:
    assert asked(name, *periods) == [()] * len(periods)


def test_where_no_place_is_known_nothing_moves() -> None:
    assert asked("r1", *[{"west": 900}] * 4, near={}) == [()] * 4


def test_what_one_heard_before_it_led_says_nothing() -> None:
    lead = LeadPlacement("r1", NEAR)
    lead.better(0.0)
    for now in (PERIOD_S, 20 * PERIOD_S):
        lead.inserted("west", 1000)
        assert lead.better(now) == ()


@pytest.mark.parametrize("cut", [False, True])
async def test_the_caretaker_hands_the_lead_to_one_that_is_heard(cut: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lead_placement, "PERIOD_S", 0.05)
    monkeypatch.setattr(server, "CARETAKER_SECONDS", 0.06)
    cluster = Cluster(replicas=2)
    near = {"west": ("r2",)}
    replicas = [cluster.replica(name, near=near) for name in cluster.names]
    for replica in replicas:
        replica.start()
    try:
        cluster.groups["r2"][1].cut = cut
        registry = RoutedRegistry(LocalBackend(replicas[0]), SystemClock())
        slot = Slot("slot", "west", "host:1")
        opened = await registry.open_slot(slot, 0, b"n")
        registry.announce(slot, [opened.incarnation])
        until = time.monotonic() + (1.0 if cut else 20.0)
        number = 0
        while cluster.logs[1].leader == "r1" and time.monotonic() < until:
            number += LEAST_IDS
            await registry.insert(inserts(range(number, number + LEAST_IDS), opened.incarnation, 1), timeout=0.5)
            await asyncio.sleep(0.005)
        assert cluster.logs[1].leader == ("r1" if cut else "r2")
    finally:
        for replica in replicas:
            await replica.stop()

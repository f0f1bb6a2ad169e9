"""Polling a deployment finds the processes that its file does not name, and asks those of the registry once."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from photon.config.loader import load
from photon.config.metrics.readings import ProcessMetrics, Readings
from photon.config.serving import HealthyServer, listen
from photon.config.settings import Settings
from photon.fleet.look import Asker
from photon.fleet.numbers import counts_of
from photon.idregistry.witness import KnownSlot
from photon.lab.onlooker import Onlooker, lag_bytes
from photon.supervision.ports import free_ports, free_row
from tests.deployments import addresses, datacentre, join, replica, write


async def dispatcher() -> HealthyServer:
    return await listen("127.0.0.1:0", "photon.Dispatcher", metrics=ProcessMetrics())


def settings_of(base: Path, **dispatchers: int) -> Settings:
    closed = addresses(1 + 2 * len(dispatchers))
    text = [join('unmatched_after = "1h"'), replica(next(closed))]
    for name, port in dispatchers.items():
        own = iter((f"127.0.0.1:{port}", next(closed), next(closed)))
        text.append(datacentre(own, "dispatcher", "eventstore", f"joiners.{name}-1", name=name, base=f"{name}/"))
    return load(write(base, *text), environment={})


async def test_a_joiner_that_is_away_is_down_until_it_is_back_redone_or_retired(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def joiner(address: str) -> HealthyServer:
        return await listen(address, "photon.v1.Joiner", metrics=ProcessMetrics())

    here = await joiner("127.0.0.1:0")
    address = f"127.0.0.1:{here.port}"
    listed = [KnownSlot("auto-1", "east", f"{address} a:7:1", 1, 1, False, ())]

    class Registry:
        def __init__(self) -> None:
            self.recovery = self

        async def list_slots(self, *, timeout: float) -> list[KnownSlot]:
            return listed

        async def close(self) -> None:
            pass

    monkeypatch.setattr("photon.fleet.look.registry_client", lambda settings, tls: Registry())
    settings = settings_of(tmp_path, east=free_ports(1)[0])
    asker, later = Asker(settings, ["east"], None), Asker(settings, ["east"], None)

    async def up(asker: Asker) -> list[bool]:
        return [each.up for each in (await asker.look()).heard if each.process.name == "auto-1"]

    try:
        assert await up(asker) == [True]
        await here.stop(0.0)
        for _ in range(3):  # no clock lets it be forgotten, nor does a page that begins now
            assert await up(asker) == await up(later) == [False]
        here = await joiner(address)
        for _ in range(200):
            if await up(asker) == [True]:
                break
            await asyncio.sleep(0.1)
        assert await up(asker) == [True]
        await here.stop(0.0)
        for note, retired in (("a:8:1", False), (f"{address} a:7:1", True)):
            assert await up(asker) == [False]
            before, listed[0] = listed[0], KnownSlot("auto-1", "east", note, 2, 2, retired, ())
            assert await up(asker) == []
            listed[0] = before
    finally:
        await asker.close()
        await later.close()


async def test_who_belongs_to_several_datacentres_is_heard_once(tmp_path: Path) -> None:
    east, west = await dispatcher(), await dispatcher()
    try:
        asker = Asker(settings_of(tmp_path, east=east.port, west=west.port), ["east", "west"], None)
        heard = (await asker.look()).heard
        assert [each.process.title for each in heard].count("registry r1") == 1
        assert {each.process.datacentre for each in heard if each.up} == {"east", "west"}
        await asker.close()
    finally:
        for server in (east, west):
            await server.stop(0.0)


async def test_an_onlooker_sees_what_is_counted_and_who_leads(tmp_path: Path) -> None:
    def counts(into: Readings) -> None:
        for name, value in (("read_total", 10), ("wasted_joins_total", 2), ("pending_events", 1), ("lag_bytes", 70)):
            into.put(f"photon_dispatcher_{name}", value, join="clicks")
        into.put("photon_dispatcher_events_total", 9, join="clicks", verdict="joined")

    def leads(into: Readings) -> None:
        into.put("photon_registry_leader", 1, shard="1")

    first = free_row(2)
    east, other = [
        await listen(f"127.0.0.1:{port}", "photon.v1.Dispatcher", metrics=ProcessMetrics([counts]))
        for port in (first, first + 1)
    ]
    replica = await listen("127.0.0.1:0", "photon.v1.Registry", metrics=ProcessMetrics([leads]))
    settings_of(tmp_path, east=east.port, west=free_ports(1)[0])
    flags = [f'registry.replicas.r1.address="127.0.0.1:{replica.port}"', "datacentre.east.dispatchers=2"]
    onlooker = Onlooker(load(tmp_path / "photon.toml", environment={}, flags=flags), None, 60.0)
    try:
        heard, leader = await onlooker.dispatchers("east"), await onlooker.leader()
        assert leader is not None
        expected = {
            "read": 20,
            "joined": 18,
            "pending": 2,
            "wasted": 4,
            "reread": 0,
            "retimed": 0,
            "ambiguous": 0,
            "unpaired": 0,
        }
        assert (counts_of(heard), lag_bytes(heard), leader[0].label) == (expected, 140, "registry r1")
        assert await onlooker.dispatchers("west") == []
        await other.stop(0.0)
        assert await onlooker.dispatchers("east") == [], "one of two does not answer"
        await replica.stop(0.0)
        assert await onlooker.leader() is None
    finally:
        await onlooker.close()
        for server in (east, other, replica):
            await server.stop(0.0)

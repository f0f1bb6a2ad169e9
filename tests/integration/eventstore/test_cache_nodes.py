"""Cache nodes as real processes under load: killed, hung, added and removed, every click comes out exactly once."""

from __future__ import annotations

import asyncio
import json
import os
import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import grpc
import pytest

from photon.cli.errors import ATTENTION, DONE
from photon.config.certificate_files import load as load_certificates
from photon.config.loader import load
from photon.config.roles import Role, identity
from photon.config.tls import open_channel, towards
from photon.eventstore import eventstore_pb2 as pb
from photon.eventstore.api import LookUpCode
from photon.eventstore.cache_nodes import wire
from photon.eventstore.cache_nodes.wire import CACHE, NodeCounts
from photon.eventstore.client import EventStoreClient
from photon.lab.demo.deployment import CERTIFICATES, Shape
from photon.supervision.ports import free_ports
from tests.integration.commands import Result, drawn_seed, photon, soon
from tests.integration.rig import Rig

ROUNDS = 20 if os.environ.get("PHOTON_FULL") else 2
EAST = "east"
SHAPE = Shape(datacentres=(EAST,), joiners=1, caches=3, round_trip_s=None, unmatched_after_s=3.0)
PATIENCE_S = 60.0


async def counts(rig: Rig, name: str) -> NodeCounts | None:
    """A node's own counts; ``None`` means that it does not answer."""
    deployment = rig.demo.deployment
    address = load(deployment.file, environment={}).caches(EAST)[name]
    async with open_channel(address, to=towards(deployment.tls, identity(Role.DATACENTRE, EAST))) as channel:
        stub = CACHE.stub(channel)
        try:
            return wire.counts_of(await stub.Counts(pb.CacheCountsRequest(), timeout=1.0))
        except grpc.aio.AioRpcError:
            return None


async def is_warm(rig: Rig, name: str) -> bool:
    said = await counts(rig, name)
    return said is not None and said.fed_events > 0


def nodes_of(rig: Rig) -> list[str]:
    return [name.removeprefix("cache ") for name in rig.supervisor.names() if name.startswith("cache ")]


async def answered_by_nodes(rig: Rig) -> bool:
    """Asks the event store for the clicks so far; true if nodes were asked and had something."""
    before = [await counts(rig, name) for name in nodes_of(rig)]
    deployment = rig.demo.deployment
    tls = deployment.tls and load_certificates(
        deployment.file.parent / CERTIFICATES, f"datacentre-{EAST}", datetime.now(UTC)
    )
    to = towards(tls, identity(Role.DATACENTRE, EAST))
    store = EventStoreClient(deployment.settings.datacentre[EAST].eventstore, "clicks", to=to)
    keys = [query.encode() for query in rig.generator.truth.joined.values()]
    answers = (await store.look_up(keys, [0] * len(keys))).answers
    await store.close()
    after = [await counts(rig, name) for name in nodes_of(rig)]
    grown = all(a and b and a.cache.hits > b.cache.hits for a, b in zip(after, before, strict=True))
    return grown and LookUpCode.FOUND in answers


@pytest.mark.parametrize("round_", range(ROUNDS))
async def test_losing_every_cache_process_costs_no_join_and_they_warm_again(tmp_path: Path, round_: int) -> None:
    async def drill(rig: Rig) -> None:
        names = nodes_of(rig)
        for name in names:
            await soon(lambda name=name: is_warm(rig, name), PATIENCE_S, "the node is warm")  # type: ignore[misc]
        await rig.pause(0.3, 1.5)
        for name in names:
            print(f"kill -9 cache {name} {rig.supervisor.kill(f'cache {name}', hold=True)}")
        await rig.pause(0.5, 2.0)
        for name in names:
            rig.supervisor.release(f"cache {name}")
        for name in names:
            await soon(lambda name=name: is_warm(rig, name), PATIENCE_S, "the node is warm")  # type: ignore[misc]
        await soon(lambda: answered_by_nodes(rig), PATIENCE_S, "nodes answer")
        assert rig.supervisor.starts(f"eventstore {EAST}") == 1

    await Rig(tmp_path, drawn_seed(), seconds=5.0, shape=SHAPE).run(drill)


async def test_nodes_that_hang_cost_no_join(tmp_path: Path) -> None:
    async def drill(rig: Rig) -> None:
        names = nodes_of(rig)
        for name in names:
            await soon(lambda name=name: is_warm(rig, name), PATIENCE_S, "the node is warm")  # type: ignore[misc]
        await asyncio.gather(*(rig.freeze(f"cache {name}", rig.random.uniform(1.0, 3.0)) for name in names))
        await soon(lambda: answered_by_nodes(rig), PATIENCE_S, "nodes answer")

    await Rig(tmp_path, drawn_seed(), seconds=5.0, shape=SHAPE).run(drill)


async def test_the_ring_grows_and_shrinks_without_a_restart(tmp_path: Path) -> None:
    async def drill(rig: Rig) -> None:
        file = rig.demo.deployment.file
        for name in nodes_of(rig):
            await soon(lambda name=name: is_warm(rig, name), PATIENCE_S, "the node is warm")  # type: ignore[misc]
        text = file.read_text()
        rewrite(file, re.sub(r"(cache = \[[^]]*)\]", rf'\1, "127.0.0.1:{free_ports(1)[0]}"]', text))
        grown = replace(rig.demo.deployment, settings=load(file, environment={}))
        [added] = [service for service in grown.services() if service.name == f"cache {EAST}-c4"]
        await rig.supervisor.start([added])
        await soon(lambda: is_warm(rig, f"{EAST}-c4"), PATIENCE_S, "the node is warm")
        await soon(lambda: answered_by_nodes(rig), PATIENCE_S, "nodes answer")
        rewrite(file, text)
        rig.supervisor.kill(f"cache {EAST}-c4", hold=True)
        assert rig.supervisor.starts(f"eventstore {EAST}") == 1

    await Rig(tmp_path, drawn_seed(), seconds=5.0, shape=SHAPE).run(drill)


def rewrite(file: Path, text: str) -> None:
    """As an editor does it."""
    new = file.with_name("new.toml")
    new.write_text(text)
    new.replace(file)


def status(rig: Rig) -> Result:
    return photon("status", "cache", "--config", rig.demo.deployment.file, "-o", "json")


async def test_over_tls_only_the_event_store_feeds_and_asks(tmp_path: Path) -> None:
    shape = replace(SHAPE, caches=1, tls=True)

    async def drill(rig: Rig) -> None:
        [name] = nodes_of(rig)
        await soon(lambda: is_warm(rig, name), PATIENCE_S, "the node is warm")
        await soon(lambda: answered_by_nodes(rig), PATIENCE_S, "nodes answer")
        told = await asyncio.to_thread(status, rig)
        assert told.code == DONE
        [row] = json.loads(told.out)["nodes"]
        assert (row["node"], row["answers"]) == (name, True)
        assert row["hits"] > 0
        assert 0 < row["bytes"] <= row["bytes_max"]
        address = rig.demo.deployment.settings.caches(EAST)[name]
        for who in (f"spark-{EAST}", "operator"):
            own = load_certificates(tmp_path / CERTIFICATES, who, datetime.now(UTC))
            async with open_channel(address, to=own.to(identity(Role.DATACENTRE, EAST))) as channel:
                stub = CACHE.stub(channel)
                source = wire.source_of(b"")
                for call in (stub.Feed(pb.CacheFeed(source=source)), stub.Find(pb.CacheFind(source=source))):
                    with pytest.raises(grpc.aio.AioRpcError) as refused:
                        await call
                    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
        rig.supervisor.kill(f"cache {name}", hold=True)
        silent = await asyncio.to_thread(status, rig)
        assert silent.code == ATTENTION
        assert json.loads(silent.out)["nodes"][0]["answers"] is False

    await Rig(tmp_path, drawn_seed(), seconds=3.0, shape=shape).run(drill)

"""Feeding and asking nodes over gRPC: shares, changes of the ring, and nodes that come and go."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator

import pytest

from photon.eventstore.cache_nodes import wire
from photon.eventstore.cache_nodes.nodes import CacheNodes
from photon.eventstore.found_records import FoundRecords
from photon.eventstore.index import hash_keys

from ..helpers import listed, until
from .served import Served, put

SOURCE = wire.source_of(b"rule")
KEYS = [b"k%d" % number for number in range(600)]
BLOCK = b"".join(key + b",record\n" for key in KEYS)


@pytest.fixture
async def served() -> AsyncIterator[Served]:
    out = Served(["c1", "c2", "c3"])
    await out.start()
    yield out
    await out.stop()


@pytest.fixture
async def nodes() -> AsyncIterator[CacheNodes]:
    out = CacheNodes(b"rule", time.monotonic)
    yield out
    await out.close()


async def found(nodes: CacheNodes, keys: list[bytes] = KEYS) -> int:
    """Number of the keys that nodes have."""
    asked = nodes.ask(hash_keys(keys))
    assert await asked.complete(30)
    located = FoundRecords.concat(asked.located())
    assert all(each.record.partition(b",")[0] == keys[row] for row, _, each in listed(located))
    return len(set(located.rows.tolist()))


async def warm(nodes: CacheNodes, addresses: dict[str, str]) -> None:
    """The nodes are given the block, and have all of it."""
    assert nodes.set_nodes(addresses)
    put(nodes, BLOCK)

    async def all_there() -> bool:
        return await found(nodes) == len(KEYS)

    await until(all_there)


async def test_each_node_has_its_share_and_all_is_found(served: Served, nodes: CacheNodes) -> None:
    await warm(nodes, served.addresses)
    assert not nodes.set_nodes(dict(served.addresses))
    shares = [node.counts().cache.entries for node in served.nodes.values()]
    assert sum(shares) == len(KEYS)
    assert min(shares) > len(KEYS) / 6
    states = [(state.name, state.resting, state.error) for state in await nodes.states()]
    assert states == [(name, False, "") for name in ("c1", "c2", "c3")]

    async def all_fed() -> bool:
        return sum(state.fed_bytes for state in await nodes.states()) == len(BLOCK)

    await until(all_fed)


async def test_a_node_that_is_added_leaves_all_warm(served: Served, nodes: CacheNodes) -> None:
    await warm(nodes, {name: served.addresses[name] for name in ("c1", "c2")})
    nodes.set_nodes(served.addresses)
    assert await found(nodes) == len(KEYS)  # the owners before still have what moved
    assert served.nodes["c3"].counts().cache.entries == 0
    put(nodes, BLOCK, offset=len(BLOCK))
    await until(lambda: served.nodes["c3"].counts().cache.entries > len(KEYS) / 6)


async def test_a_node_that_is_removed_takes_only_its_own_keys_along(served: Served, nodes: CacheNodes) -> None:
    await warm(nodes, served.addresses)
    lost = served.nodes["c2"].counts().cache.entries
    nodes.set_nodes({name: served.addresses[name] for name in ("c1", "c3")})
    assert await found(nodes) == len(KEYS) - lost
    nodes.set_nodes({})
    assert await found(nodes) == 0
    put(nodes, BLOCK)  # nowhere to go


async def test_nodes_that_are_down_are_misses_and_warm_when_they_are_back(served: Served, nodes: CacheNodes) -> None:
    await warm(nodes, served.addresses)
    await served.stop()
    for _ in range(5):
        assert await found(nodes) == 0
    states = await nodes.states()
    assert all(state.resting and state.counts is None and state.error for state in states)
    newer = b"".join(b"n%d,record\n" % number for number in range(300))
    put(nodes, newer, offset=len(BLOCK))
    await served.start()

    async def newer_there() -> bool:
        return await found(nodes, [b"n%d" % number for number in range(300)]) == 300

    await until(newer_there)
    assert all(not state.resting for state in await nodes.states())


async def test_another_source_is_never_answered(served: Served, nodes: CacheNodes) -> None:
    await warm(nodes, served.addresses)
    other = CacheNodes(b"another rule", time.monotonic)
    other.set_nodes(served.addresses)
    assert await found(other) == 0
    await other.close()

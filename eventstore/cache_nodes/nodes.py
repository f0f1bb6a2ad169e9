"""The cache nodes of one join: their list, their feeds, and the owner of each key.

The ring is replaced as a whole when the configuration changes. For PREVIOUS_SECONDS both the new and the former owner
of a key are asked: the former owner still has the records, so a growing ring stays warm.

A look-up asks the nodes first, and also the logs if that takes long (``HedgedLookUps``). Nodes only save reads of
logs: answers are right for any set of hits (tiered.py), so the race affects only the delay.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from photon.adapters.contract import LogFile
from photon.config.hash_ring import HashRing
from photon.config.stopping import end
from photon.config.tls import Towards
from photon.eventstore.api import EventLookUps
from photon.eventstore.found_records import FoundRecords
from photon.eventstore.index import I64, U64, hash_keys
from photon.eventstore.segments import CacheEventStore

if TYPE_CHECKING:  # a store without cache nodes needs no gRPC
    from photon.eventstore.cache_nodes.feeder import Feeder
    from photon.eventstore.cache_nodes.node_client import Asked, NodeClient
    from photon.eventstore.cache_nodes.wire import NodeCounts

PREVIOUS_SECONDS = 900.0  # by then records of the previous ring's nodes are mostly too old to matter


@dataclass(frozen=True, slots=True)
class _Node:
    address: str
    feeder: Feeder
    asker: NodeClient


@dataclass(frozen=True, slots=True)
class _View:
    """The nodes at one moment. Replaced as one reference, since the reader's thread uses it too."""

    ring: HashRing = field(default_factory=lambda: HashRing(()))
    nodes: Mapping[str, _Node] = field(default_factory=dict)
    previous: HashRing | None = None
    previous_until: float = 0.0


class FedCache:
    """The primary reader's cache: the nodes, or this process's own cache while there are no nodes."""

    def __init__(self, own: CacheEventStore, nodes: CacheNodes) -> None:
        self._own = own
        self._nodes = nodes

    def put(self, identity: str, file: LogFile, offset: int, data: bytes, hashes: U64, starts: I64) -> None:
        cache = self._nodes if len(self._nodes) else self._own
        cache.put(identity, file, offset, data, hashes, starts)


@dataclass(frozen=True, slots=True)
class NodeState:
    name: str
    address: str
    resting: bool  # it failed; until it answers again it gets one request per rest period
    fed_bytes: int
    waiting_bytes: int
    dropped_bytes: int
    error: str
    counts: NodeCounts | None  # ``None``: it does not answer


class CacheNodes:
    """A join's cache nodes, if any. Call ``put`` on the reader's thread, everything else on one event loop."""

    def __init__(self, rule: bytes, monotonic: Callable[[], float], to: Towards | None = None) -> None:
        """``rule``: see wire.source_of. ``to``: ``None`` means plain text."""
        self._rule = rule
        self._monotonic = monotonic
        self._to = to
        self._view = _View()
        self._ending: set[asyncio.Task[None]] = set()
        self.held_bytes = self.evictions = 0  # of all nodes, at the last call of ``states``

    def __len__(self) -> int:
        return len(self._view.ring)

    def set_nodes(self, addresses: Mapping[str, str]) -> bool:
        """Sets the nodes, name -> host:port. Returns True if they differ from before.

        Nodes that stay keep their feeds.
        """
        view = self._view
        if {name: node.address for name, node in view.nodes.items()} == addresses:
            return False
        nodes = {}
        for name, address in addresses.items():
            known = view.nodes.get(name)
            nodes[name] = known if known is not None and known.address == address else self._node(name, address)
        ring = HashRing(addresses)
        previous, until = view.previous, view.previous_until
        if ring != view.ring and len(view.ring):
            previous, until = view.ring, self._monotonic() + PREVIOUS_SECONDS
        self._view = _View(ring, nodes, previous, until)
        for name, node in view.nodes.items():
            if nodes.get(name) is not node:
                self._end(node)
        return True

    def _node(self, name: str, address: str) -> _Node:
        from photon.eventstore.cache_nodes.feeder import Feeder
        from photon.eventstore.cache_nodes.node_client import NodeClient
        from photon.eventstore.cache_nodes.wire import source_of

        source = source_of(self._rule)
        feeder = Feeder(address, source, self._to, name)
        return _Node(address, feeder, NodeClient(address, source, self._to, self._monotonic))

    def _end(self, node: _Node) -> None:
        node.feeder.close()
        task = asyncio.create_task(node.asker.close())
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def put(self, identity: str, file: LogFile, offset: int, data: bytes, hashes: U64, starts: I64) -> None:
        """Feeds a block to the nodes that own its keys; see CacheEventStore.put. May wait: see FeedQueue."""
        view = self._view
        if not len(view.ring):
            return
        from photon.eventstore.cache_nodes.feeder import split_by_owner

        for name, piece in split_by_owner(view.ring, identity, file, offset, data, hashes, starts):
            view.nodes[name].feeder.put(piece)

    def ask(self, hashes: U64) -> Asked:
        """Asks the owner of each key; after a recent change, the former owner too."""
        from photon.eventstore.cache_nodes.node_client import Asked

        view = self._view
        rows_of: dict[str, list[I64]] = {}
        if len(view.ring) and len(hashes):
            owners = view.ring.owners(hashes)
            for number in np.unique(owners).tolist():
                rows_of[view.ring.nodes[number]] = [np.flatnonzero(owners == number)]
            if view.previous is not None and self._monotonic() < view.previous_until:
                self._ask_previous(view, view.previous, hashes, owners, rows_of)
        questions = []
        for name, parts in rows_of.items():
            rows = np.concatenate(parts)
            asker = view.nodes[name].asker
            if asker.may_ask():
                questions.append((asker, hashes[rows], rows))
        return Asked(questions)

    def _ask_previous(
        self, view: _View, previous: HashRing, hashes: U64, owners: I64, rows_of: dict[str, list[I64]]
    ) -> None:
        before = previous.owners(hashes)
        for number in np.unique(before).tolist():
            name = previous.nodes[number]
            if name not in view.nodes:
                continue
            same = view.ring.nodes.index(name)
            rows = np.flatnonzero((before == number) & (owners != same))
            if len(rows):
                rows_of.setdefault(name, []).append(rows)

    async def states(self) -> list[NodeState]:
        view = self._view
        counts = await asyncio.gather(*(node.asker.counts() for node in view.nodes.values()))
        caches = [each.cache for each in counts if each is not None]
        self.held_bytes = sum(cache.bytes for cache in caches)
        self.evictions = sum(cache.evictions for cache in caches)
        return [
            NodeState(
                name,
                node.address,
                node.asker.pace.resting,
                node.feeder.fed_bytes,
                node.feeder.queue.bytes,
                node.feeder.queue.dropped_bytes,
                node.asker.error or node.feeder.error,
                counted,
            )
            for (name, node), counted in zip(view.nodes.items(), counts, strict=True)
        ]

    async def close(self) -> None:
        """Ends feeds and look-ups.

        Call it after the reader has ended, which might otherwise put pieces into closed queues.
        """
        view, self._view = self._view, _View()
        for node in view.nodes.values():
            self._end(node)
        await asyncio.gather(*self._ending)
        await asyncio.gather(*(asyncio.to_thread(node.feeder.join) for node in view.nodes.values()))


# (keys, as_of, records in caches) -> the answers; reads logs for the rest.
Answer = Callable[[Sequence[bytes], Sequence[int], Sequence[FoundRecords]], Awaitable[EventLookUps]]


class HedgedLookUps:
    """Looks keys up in cache nodes, without waiting for slow ones. Use it on one event loop."""

    def __init__(self, nodes: CacheNodes, answer: Answer) -> None:
        self._nodes = nodes
        self._answer = answer
        self.hedged = 0  # look-ups that did not wait for a node
        self._left: set[asyncio.Task[None]] = set()

    async def look_up(self, keys: Sequence[bytes], as_of: Sequence[int]) -> EventLookUps:
        asked = self._nodes.ask(hash_keys(keys))
        if await asked.complete(asked.hedge_s):
            return await self._answer(keys, as_of, asked.located())
        self.hedged += 1
        left = asyncio.create_task(asked.leave())
        self._left.add(left)
        left.add_done_callback(self._left.discard)
        return await self._race(keys, as_of, asked)

    async def _race(self, keys: Sequence[bytes], as_of: Sequence[int], asked: Asked) -> EventLookUps:
        early = asked.located()
        logs = asyncio.ensure_future(self._answer(keys, as_of, early))
        late = asyncio.ensure_future(asked.complete())
        running: set[asyncio.Future[EventLookUps]] = {logs}
        try:
            await asyncio.wait({logs, late}, return_when=asyncio.FIRST_COMPLETED)
            if not logs.done() and sum(map(len, located := asked.located())) > sum(map(len, early)):
                running.add(asyncio.ensure_future(self._answer(keys, as_of, located)))
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            return done.pop().result()
        finally:
            await end([late, *running])

"""A look-up over cache nodes and logs: the nodes are asked first, and the logs too once that takes long.

The nodes only ever save reading logs. Each answer comes from the logs, the file map and some hits (tiered.py) and is
right whatever the number of hits; the race only decides how soon it is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from photon.eventstore.api import EventLookUps
from photon.eventstore.cache_nodes.asking import Asked
from photon.eventstore.cache_nodes.nodes import CacheNodes
from photon.eventstore.found_records import FoundRecords
from photon.eventstore.index import hash_keys

Answer = Callable[[Sequence[bytes], Sequence[int], Sequence[FoundRecords]], Awaitable[EventLookUps]]
"""(keys, as_of, what caches have) -> the answers; reads logs for what is missing."""


class HedgedLookUps:
    """Use it on one event loop."""

    def __init__(self, nodes: CacheNodes, answer: Answer) -> None:
        self._nodes = nodes
        self._answer = answer
        self.hedged = 0
        """Look-ups that did not wait for a node."""
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
            late.cancel()
            for future in running:
                future.cancel()
            await asyncio.gather(late, *running, return_exceptions=True)

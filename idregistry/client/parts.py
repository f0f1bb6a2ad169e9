"""Calls to several shards at once: one that does not answer holds back its own ids only.

The others' answers are handed over a moment after the first; what is missing then is unknown. A shard that was
missing is *late*: the next calls hardly wait for it, but for a look now and then whether it is back. A call to one
shard alone has all the time its caller gave it, so whoever asks again for what is unknown learns it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

GRACE_S = 1.0
"""After the first answer the others are waited for so long. Shards answer at different distances."""
LATE_S = 0.05
"""The same for a late one, after all the others."""
LOOK_S = 2.0
"""A late one is waited for like the others once in so long."""

Call = tuple[int, Coroutine[Any, Any, bool]]
"""A shard and what to do there; whether it answered."""


class Parts:
    """Of one kind of call; remembers which shards are late. Lives on one event loop."""

    def __init__(self) -> None:
        self._late: set[int] = set()
        self._look_at = 0.0

    async def run(self, calls: Sequence[Call]) -> None:
        """Runs them all; those that take too long are cancelled. Raises what one of them raises."""
        tasks = [(shard, asyncio.ensure_future(call)) for shard, call in calls]
        try:
            await self._wait(tasks)
            for shard, task in tasks:
                if task.done() and task.result():
                    self._late.discard(shard)
                else:
                    self._late.add(shard)
        finally:
            for _, task in tasks:
                if not task.done():
                    task.cancel()
                elif not task.cancelled():
                    task.exception()  # of several the first was raised

    async def _wait(self, tasks: Sequence[tuple[int, asyncio.Future[bool]]]) -> None:
        now = asyncio.get_running_loop().time()
        looks = now >= self._look_at
        if looks:
            self._look_at = now + LOOK_S
        everyone = [task for _, task in tasks]
        prompt = [task for shard, task in tasks if looks or shard not in self._late] or everyone
        if len({shard for shard, _ in tasks}) == 1:
            await asyncio.wait(everyone)
            return
        await asyncio.wait(prompt, return_when=asyncio.FIRST_COMPLETED)
        if some := [task for task in prompt if not task.done()]:
            await asyncio.wait(some, timeout=GRACE_S)
        if some := [task for task in everyone if not task.done()]:
            await asyncio.wait(some, timeout=LATE_S)

"""Keeps the table of which chunk holds which times within its bound."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from photon.dispatcher.replay.coverage import rows_of_gone, too_many
from photon.dispatcher.replay.reading import Reads
from photon.dispatcher.state import Changes, State

PERIOD_S = 3600.0


class Tidying:
    """Drops what it holds of logs that are gone, when there is too much. ``ours``: whether it is this process's."""

    def __init__(self, state: State, reads: Reads, ours: Callable[[], bool]) -> None:
        self._state = state
        self._reads = reads
        self._ours = ours

    async def run(self) -> None:
        """Until cancelled. Raises StateError."""
        while True:
            if self._ours() and too_many(self._state.database):
                await self._tidy()
            await asyncio.sleep(PERIOD_S)

    async def _tidy(self) -> None:
        try:
            live = await self._reads.live()
        except OSError:
            return  # the follower says what is wrong with the directory
        self._state.commit(Changes(also=[*rows_of_gone(self._state.database, live)]))

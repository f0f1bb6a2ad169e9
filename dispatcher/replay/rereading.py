"""What a dispatcher reads again beside its logs' ends: requests to replay, and ids that the registry gave up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any

from photon.config.clock import Clock
from photon.dispatcher.asking import Asking
from photon.dispatcher.core import Core
from photon.dispatcher.replay.coverage import rows_of_gone, too_many
from photon.dispatcher.replay.guests import Guests, LineRules
from photon.dispatcher.replay.reading import Reads
from photon.dispatcher.replay.reopened import PERIOD_S, Reopened, Reopens
from photon.dispatcher.replay.replayer import Replayer
from photon.dispatcher.state import Changes, State

TIDYING_S = 3600.0


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
            await asyncio.sleep(TIDYING_S)

    async def _tidy(self) -> None:
        try:
            live = await self._reads.live()
        except OSError:
            return  # the follower says what is wrong with the directory
        self._state.commit(Changes(also=[*rows_of_gone(self._state.database, live)]))


@dataclass(frozen=True, slots=True)
class Sources:
    """Where it reads. ``registry`` None: nobody can give ids up."""

    reads: Reads
    registry: Reopens | None = None
    period_s: float = PERIOD_S


def is_ours(state: State) -> bool:
    """Whether it is this worker that reads again: of several that share a state the one that has lived longest.

    While they change over two may do the same for a moment, or none: nothing but time is lost.
    """
    if not state.owner:
        return True
    (oldest,) = state.database.execute("SELECT min(incarnation) FROM workers WHERE NOT fenced").fetchone()
    return bool(oldest == state.owner)


class Rereading:
    """Of one engine. ``wake``: tells the engine's loop that there is something to send."""

    def __init__(
        self,
        core: Core,
        state: State,
        asking: Asking,
        clock: Clock,
        rules: LineRules,
        wake: Callable[[], None],
        sources: Sources | None,
    ) -> None:
        """``sources`` None: nothing is read again."""
        self._replayer: Replayer | None = None
        self._reopened: Reopened | None = None
        self._tidying: Tidying | None = None
        if sources is None:
            return
        guests = Guests(core, clock, wake)
        ours = partial(is_ours, state)
        self._tidying = Tidying(state, sources.reads, ours)
        self._replayer = Replayer(core, state, asking, sources.reads, guests, clock, rules, ours)
        if sources.registry is not None:
            self._reopened = Reopened(
                state, sources.registry, sources.reads, guests, clock, rules, ours, period_s=sources.period_s
            )

    @property
    def listed(self) -> int:
        """Ids that the registry gave up, by the last reading of its list."""
        return self._reopened.listed if self._reopened is not None else 0

    @property
    def missing(self) -> int:
        """Of them, those that stand in no log here."""
        return self._reopened.missing if self._reopened is not None else 0

    def runs(self) -> list[Coroutine[Any, Any, None]]:
        """To be run side by side until cancelled. They raise StateError."""
        return [each.run() for each in (self._replayer, self._reopened, self._tidying) if each is not None]

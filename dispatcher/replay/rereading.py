"""Tasks that reread logs: for requested replays, and for ids that the registry gave up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from photon.config.clock import Clock
from photon.dispatcher.calls import RegistryLookUps
from photon.dispatcher.core import Core
from photon.dispatcher.replay.coverage import rows_of_gone, too_many
from photon.dispatcher.replay.reading import Reads
from photon.dispatcher.replay.redispatch import Redispatcher
from photon.dispatcher.replay.reopened import PERIOD_S, Reopened
from photon.dispatcher.replay.replayer import Replayer
from photon.dispatcher.state import Changes, State

if TYPE_CHECKING:
    from photon.idregistry.client.recovery import Recovery

TIDYING_S = 3600.0

Run = Callable[[], Coroutine[Any, Any, None]]


async def tidy(state: State, reads: Reads) -> None:
    """Drops coverage of logs that are gone when the table is too large, until cancelled. Raises StateError."""
    while True:
        if too_many(state.database):
            try:
                live = await reads.live()
                state.commit(Changes(also=[*rows_of_gone(state.database, live)]))
            except OSError:
                pass  # the follower reports the directory's problem
        await asyncio.sleep(TIDYING_S)


@dataclass(frozen=True, slots=True)
class Sources:
    """Sources for rereading. ``registry`` is ``None`` if no registry can give ids up."""

    reads: Reads
    registry: Recovery | None = None
    period_s: float = PERIOD_S


def rereading(
    core: Core,
    state: State,
    look_ups: RegistryLookUps,
    clock: Clock,
    wake: Callable[[], None],
    sources: Sources,
) -> tuple[list[Run], Reopened | None]:
    """Returns (tasks to run until cancelled, which may raise StateError; the reader of reopened ids).

    ``wake`` tells the engine's loop that there are events to send.
    """
    reads, rules, redispatcher = sources.reads, core.intake.rules, Redispatcher(core.intake, clock, wake)
    replayer = Replayer(core.counting, state, look_ups, reads, redispatcher, clock, rules)
    runs: list[Run] = [replayer.run, partial(tidy, state, reads)]
    if sources.registry is None:
        return runs, None
    reopened = Reopened(state, sources.registry, reads, redispatcher, clock, rules, period_s=sources.period_s)
    return [*runs, reopened.run], reopened

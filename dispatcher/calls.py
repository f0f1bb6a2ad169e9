"""Calls a dispatcher's joiners. ``flow`` chooses the joiner for each batch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from photon.batch.events import Events
from photon.batch.verdicts import Verdicts
from photon.config.clock import Clock
from photon.config.telemetry.spans import root
from photon.dispatcher.flow import Flow, Target
from photon.dispatcher.reporting import Troubles
from photon.idregistry.api import I64, Answer, Registry
from photon.joiner.api import UNKNOWN_REASON, JoinAnswers, Joiner

REGISTRY, JOINER = "registry", "joiner"  # names of possible sources of trouble in the log
GRACE = 1.5  # the joiner keeps its own time limit; this multiple of it ends a call without an answer


@dataclass(eq=False)
class Calls:
    """Calls joiners, which may be added and removed while batches are in flight.

    ``flow`` must have no targets yet. ``resized`` is called with the number of joiners when that changes.
    """

    joiners: Sequence[Joiner]
    flow: Flow
    troubles: Troubles
    clock: Clock
    timeout_s: float
    resized: Callable[[int], None]

    def __post_init__(self) -> None:
        self._joiners: dict[int, tuple[Joiner, str]] = {}
        self.asked = 0  # batches sent so far
        for number, joiner in enumerate(self.joiners, 1):
            self.add(joiner, str(number))

    def add(self, joiner: Joiner, name: str) -> Target:
        target = self.flow.add()
        self._joiners[target.number] = joiner, name
        self.resized(len(self._joiners))
        return target

    def remove(self, target: Target) -> None:
        """Removes a joiner: it gets no more batches. ``target.outstanding`` is 0 once its last batch is answered."""
        self.flow.remove(target)
        del self._joiners[target.number]
        self.resized(len(self._joiners))

    async def join(self, target: Target, events: Events) -> JoinAnswers | None:
        """Sends events to a joiner. Returns ``None`` if the call failed: the events' outcome is unknown."""
        self.asked += 1
        if target.number not in self._joiners:
            return None  # removed since it was chosen
        joiner, name = self._joiners[target.number]
        what = f"{JOINER} {name}"
        try:
            with root("dispatcher.batch", self.asked, joiner=name, events=len(events)) as traced:
                async with asyncio.timeout(self.timeout_s * GRACE):
                    answers = await joiner.join(events, timeout=self.timeout_s)
                if traced is not None:
                    traced.note(**answers.noted())
        except Exception as error:
            self.troubles.met(what, f"{type(error).__name__}: {error}", self.clock.monotonic())
            return None
        self._report(what, answers)
        return answers

    def _report(self, what: str, answers: JoinAnswers) -> None:
        now = self.clock.monotonic()
        reasons = answers.verdicts.reasons.values()
        if UNKNOWN_REASON in reasons:
            self.troubles.met(REGISTRY, "the registry does not answer; these events are retried", now)
        elif not answers.overloaded and len(answers.verdicts) and answers.useless:
            self.troubles.met(what, next(iter(reasons), "it returns no verdicts"), now)
        else:
            self.troubles.well(what, now)
            self.troubles.well(REGISTRY, now)


LOOK_UPS = "look-ups"  # their names in the log


@dataclass(eq=False)
class RegistryLookUps:
    """Looks events up in the registry. Returns ``None`` on failure instead of raising."""

    registry: Registry | None
    troubles: Troubles
    clock: Clock
    timeout_s: float

    def __post_init__(self) -> None:
        self.looked_up = 0

    async def look_up(self, digests: bytes, times: I64) -> Verdicts | None:
        """Looks events up; returns ``None`` if the registry does not answer now."""
        if self.registry is None or not len(times):
            return None
        self.looked_up += len(times)
        try:
            found = await self.registry.look_up(digests, times, timeout=self.timeout_s)
        except Exception as error:
            self.troubles.met(LOOK_UPS, f"{type(error).__name__}: {error}", self.clock.monotonic())
            return None
        if found.says(Answer.UNKNOWN):
            self.troubles.met(LOOK_UPS, "no replica answers", self.clock.monotonic())
        else:
            self.troubles.well(LOOK_UPS, self.clock.monotonic())
        return found

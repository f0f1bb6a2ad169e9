"""The joiners that a dispatcher has, and its calls to them. Which of them gets a batch, ``flow`` decides."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from photon.batch.events import Events
from photon.config.clock import Clock
from photon.dispatcher.flow import Flow, Target
from photon.dispatcher.reporting import Troubles
from photon.joiner.api import UNKNOWN_REASON, JoinAnswers, Joiner

REGISTRY, JOINER = "registry", "joiner"
"""What may be in trouble, as the log names it."""
GRACE = 1.5
"""The joiner keeps its own time; one that does not is given up after so many times that."""


class Calls:
    """Joiners may come and go while batches are on their way to them."""

    def __init__(
        self,
        joiners: Sequence[Joiner],
        flow: Flow,
        troubles: Troubles,
        clock: Clock,
        timeout_s: float,
        resized: Callable[[int], None],
    ) -> None:
        """``flow``: has no targets yet. ``resized``: is told how many joiners there are, when that changes."""
        self._flow = flow
        self._troubles = troubles
        self._clock = clock
        self._timeout_s = timeout_s
        self._resized = resized
        self._joiners: dict[int, tuple[Joiner, str]] = {}
        self.asked = 0
        """Batches sent so far."""
        for number, joiner in enumerate(joiners, 1):
            self.add(joiner, str(number))

    def add(self, joiner: Joiner, name: str) -> Target:
        target = self._flow.add()
        self._joiners[target.number] = joiner, name
        self._resized(len(self._joiners))
        return target

    def remove(self, target: Target) -> None:
        """It gets no more. ``target.outstanding`` is 0 once nothing is on its way there."""
        self._flow.remove(target)
        del self._joiners[target.number]
        self._resized(len(self._joiners))

    async def join(self, target: Target, events: Events) -> JoinAnswers | None:
        """None: the call itself failed, what became of the events is unknown."""
        self.asked += 1
        if target.number not in self._joiners:
            return None  # removed since it was chosen
        joiner, name = self._joiners[target.number]
        what = f"{JOINER} {name}"
        try:
            async with asyncio.timeout(self._timeout_s * GRACE):
                answers = await joiner.join(events, timeout=self._timeout_s)
        except Exception as error:
            self._troubles.met(what, f"{type(error).__name__}: {error}", self._clock.monotonic())
            return None
        self._report(what, answers)
        return answers

    def _report(self, what: str, answers: JoinAnswers) -> None:
        now = self._clock.monotonic()
        reasons = answers.verdicts.reasons.values()
        if UNKNOWN_REASON in reasons:
            self._troubles.met(REGISTRY, "registrations are not answered; these events are tried again", now)
        elif not answers.overloaded and len(answers.verdicts) and answers.useless:
            self._troubles.met(what, next(iter(reasons), "it gives no verdict"), now)
        else:
            self._troubles.well(what, now)
            self._troubles.well(REGISTRY, now)

"""Look-ups in the registry, and what the log hears of them."""

from __future__ import annotations

from photon.batch.verdicts import Verdicts
from photon.config.clock import Clock
from photon.dispatcher.reporting import Troubles
from photon.idregistry.api import I64, Answer, Registry

LOOK_UPS = "look-ups"
"""As the log names them."""


class Asking:
    """Asks the registry; never raises."""

    def __init__(self, registry: Registry | None, troubles: Troubles, clock: Clock, timeout_s: float) -> None:
        self._registry = registry
        self._troubles = troubles
        self._clock = clock
        self._timeout_s = timeout_s
        self.looked_up = 0

    async def look_up(self, digests: bytes, times: I64) -> Verdicts | None:
        """None: it cannot be asked now."""
        if self._registry is None or not len(times):
            return None
        self.looked_up += len(times)
        try:
            found = await self._registry.look_up(digests, times, timeout=self._timeout_s)
        except Exception as error:
            self._troubles.met(LOOK_UPS, f"{type(error).__name__}: {error}", self._clock.monotonic())
            return None
        if found.says(Answer.UNKNOWN):
            self._troubles.met(LOOK_UPS, "no replica answers", self._clock.monotonic())
        else:
            self._troubles.well(LOOK_UPS, self._clock.monotonic())
        return found

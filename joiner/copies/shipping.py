"""Runs a slot's shipper: reads what is due in a thread, asks the keeper, says what the slot may show (rule 14)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from photon.config.clock import Clock
from photon.config.errors import PhotonError
from photon.config.structured import get_logger
from photon.idregistry.witness import Witness
from photon.joiner.copies.api import CopyOf, Keeper
from photon.joiner.copies.local import LocalOutput
from photon.joiner.copies.shipper import LocalFiles, Open, Ship, Shipper, Verify

PERIOD_S = 0.25
"""From one look at what became durable to the next."""
ASK_S = 20.0
"""A request of some MiB over a slow line."""
OPEN_S = 2.0
"""A start that needs nothing of its copy waits so long for the keeper."""

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Copying:
    """``[output] copies = 2``: who keeps the copy of a slot's output, and how long the slot waits for it."""

    keeper: Keeper
    wait_s: float = 60.0
    required: bool = False
    """Never show what the copy does not have."""


@dataclass(frozen=True, slots=True)
class CopyStats:
    """For metrics."""

    behind_bytes: int
    """Durable in the slot and not in the copy, as far as is known."""
    fallback: bool
    """What the copy does not have is shown: an alarm."""
    trouble: str


class CopyShipping:
    """Of one open slot. On the event loop of its shell."""

    def __init__(
        self,
        shipper: Shipper,
        copying: Copying,
        of: CopyOf,
        output: LocalOutput,
        local: Callable[[], LocalFiles],
        shown: Callable[[], Witness],
        clock: Clock,
        *,
        in_thread: Callable[..., Awaitable[Any]] = asyncio.to_thread,
    ) -> None:
        """``local``: the slot's durable files; ``shown``: what the slot has published."""
        self._shipper = shipper
        self._keeper = copying.keeper
        self._of = of
        self._output = output
        self._local = local
        self._shown = shown
        self._clock = clock
        self._in_thread = in_thread
        self._said = (False, "")

    @property
    def ended(self) -> str:
        """Why the process must end; empty when it need not."""
        return self._shipper.ended

    @property
    def held(self) -> Witness:
        """What the copy is known to hold; empty: nothing is known."""
        return self._shipper.ends or ()

    def bound(self, whole: Witness, end: Witness) -> Witness:
        """Up to where the witness may go. ``whole``: is durable here; ``end``: it has now."""
        return self._shipper.bound(self._clock.monotonic(), self._local(), whole, end)

    def stats(self) -> CopyStats:
        shipper = self._shipper
        return CopyStats(shipper.behind(self._local()), shipper.fallback, shipper.trouble)

    async def step(self) -> bool:
        """Does what is due; False: there was nothing. What goes wrong on the way is tried again."""
        shipper = self._shipper
        step = shipper.next(self._clock.monotonic(), self._local(), self._shown())
        try:
            match step:
                case Open():
                    answer = await self._keeper.open(self._of, shipper.incarnation, timeout=ASK_S)
                    shipper.answered(answer, self._clock.monotonic())
                case Verify(ends):
                    same = await self._in_thread(self._output.begins_with, ends, self._local())
                    shipper.verified(same, self._clock.monotonic())
                case Ship():
                    await self._ship(step)
        except (PhotonError, OSError) as error:  # of reading; what was written and synced is not in doubt
            shipper.failed(str(error), self._clock.monotonic())
        self._tell()
        return step is not None

    async def _ship(self, step: Ship) -> None:
        shipper = self._shipper
        extension, expected = await self._in_thread(
            self._output.extension, step, shipper.incarnation, shipper.limits.request_bytes
        )
        answer = await self._keeper.extend(self._of, extension, timeout=ASK_S)
        shipper.answered(answer, self._clock.monotonic(), expected=expected)

    def _tell(self) -> None:
        """Once for each change."""
        now = (self._shipper.fallback, self._shipper.trouble)
        if now == self._said:
            return
        fields = {"slot": self._of.slot, "behind_bytes": self._shipper.behind(self._local()), "why": now[1]}
        if now[0] and not self._said[0]:
            log.error("no copy of the output is kept: what is durable here alone is shown to readers", **fields)
        elif self._said[0] and not now[0]:
            log.info("the copy of the output has caught up", **fields)
        elif now[1]:
            log.error("the output is not copied", **fields)
        self._said = now

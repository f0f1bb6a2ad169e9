"""Samples a pipeline and journals its watermarks next to its continuous verifier. One process per pipeline."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from photon.config.clock import NS_PER_S, Clock
from photon.config.disk import Disk
from photon.config.errors import PhotonError
from photon.config.metrics.readings import Readings
from photon.config.settings import Settings
from photon.config.stopping import until
from photon.config.structured import get_logger
from photon.outputs.cursor import Cursor
from photon.outputs.watermarks import JOURNAL, Journal, Late, Pair, pairs_of
from photon.verifier.watermark import Asked, Sample, SlotShown, Watermarks

PERIOD_S = 1.0  # the sampling interval

log = get_logger(__name__)


def within_ns(settings: Settings, join: str) -> int | None:
    """Returns the longest time from a line's event time, by any clock, until it is in its log; ``None`` if nothing is
    promised.
    """
    within = settings.join[join].written_within
    return None if within is None else int((within + settings.clock.uncertainty) * NS_PER_S)


class WatermarkKeeper:
    """Keeps a pipeline's watermarks.

    ``undecided``: reads the dispatcher's state at one moment, ``None`` until it has reported; ``slots``: asks each
    slot that may still publish; ``cursor``: finds the end of the published output, and the retired slots.
    ``within_ns``: as in ``Watermarks``. ``timed``: false if events have no event time, so that there never is a
    watermark.
    """

    def __init__(
        self,
        disk: Disk,
        clock: Clock,
        state: Path,
        within_ns: int | None,
        *,
        undecided: Callable[[], AbstractContextManager[Asked | None]],
        slots: Callable[[], Awaitable[Sequence[SlotShown]]],
        cursor: Callable[[], tuple[Cursor, Collection[str]]],
        timed: bool = True,
    ) -> None:
        self._clock, self._within_ns = clock, within_ns
        self._journal = Journal(disk, state)
        self._undecided, self._slots, self._cursor = undecided, slots, cursor
        self.watermarks = Watermarks(within_ns)
        self._timed = timed
        self._said = ""

    def open(self) -> None:
        """Opens the journal. Call it once no other process keeps these watermarks; then ``close`` at the end, after
        the last ``published``. Raises OSError."""
        entries = self._journal.begin()
        late = [each for each in entries if isinstance(each, Late)]
        self.watermarks = Watermarks(self._within_ns, pairs_of(entries), late)

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            await self.pass_()
            await until(stop, PERIOD_S)

    def close(self) -> None:
        self._journal.close()

    async def pass_(self) -> None:
        """Takes one sample, and journals its pair. A failure is reported once, and delays the watermarks."""
        said, pair = "", None
        try:
            pair = await self._sample()
        except (PhotonError, OSError) as error:
            said = " ".join(str(error).split())
            pair = self.watermarks.held(self._clock.now_ns(), said)
        try:
            if pair is not None and _differs(pair, self.watermarks.last):
                self._journal.add(pair)
                self.watermarks.journaled(pair)
        except OSError as error:
            said = f"{error.filename or JOURNAL}: {error.strerror or error}"
        if said and said != self._said:
            log.warning("no watermark", why=said)
        self._said = said

    async def _sample(self) -> Pair | None:
        if not self._timed:
            return None
        with self._undecided() as asked:
            at_ns = self._clock.now_ns()
            if asked is None:
                return self.watermarks.held(at_ns, "its dispatcher has not reported yet")
            slots = await self._slots()
            # No pause until the pair is journaled: lines published meanwhile are compared with it.
            return self.watermarks.take(Sample(at_ns, asked, slots, *self._cursor()))

    # -- what it says ------------------------------------------------------------------------------------------------
    def details(self) -> dict[str, Any]:
        last = self.watermarks.last
        if last is None:
            return {}
        return {"watermark": {"line": last.encode().decode(), "late_records": self.watermarks.late_records}}

    def read(self, into: Readings) -> None:
        """Adds the watermarks' metrics to ``into``."""
        last, now_ns = self.watermarks.last, self._clock.now_ns()
        into.put("photon_watermark_late_records_total", self.watermarks.late_records)
        if last is None:
            return
        for kind, time_ns in (("exact", last.exact_ns), ("percentile", last.percentile_ns)):
            if time_ns is not None:
                into.put("photon_watermark_lag_seconds", (now_ns - time_ns) / NS_PER_S, kind=kind)
        into.put("photon_watermark_waiting", last.waiting)

    # -- what is published -------------------------------------------------------------------------------------------
    def published(self, file: str, offsets: Sequence[int], times_ns: Sequence[int]) -> None:
        """Handles published lines of an output file, which may come again after a crash."""
        times = np.array(times_ns, np.int64)
        late = self.watermarks.published(file, offsets, times, self._clock.monotonic())
        if late is not None:
            self._journal.add(late)
            self.watermarks.count(late)
            log.warning(
                "records came after the watermark said that there were no more: were their lines written later than "
                "written_within says, or was an input read again?",
                file=file,
                records=late.records,
                oldest_ns=late.oldest_ns,
            )


@dataclass(frozen=True, slots=True)
class OnlyTimes:
    """Passes on only the event times of a verifier's findings. Implements ``verifier.Findings``."""

    cleared: Callable[[str, Sequence[int], Sequence[int]], None]

    def read(self, file: str, offsets: Sequence[int], ids: Sequence[bytes], digests: bytes) -> None:
        return None

    def unreadable(self, file: str, offset: int, line: bytes) -> None:
        return None

    def refused(self, file: str, offset: int, event_id: bytes, token: int) -> None:
        return None


def _differs(pair: Pair, last: Pair | None) -> bool:
    if last is None:
        return True
    return (pair.exact_ns, pair.percentile_ns, pair.waiting, pair.held_by, pair.cursor) != (
        last.exact_ns, last.percentile_ns, last.waiting, last.held_by, last.cursor,
    )  # fmt: skip

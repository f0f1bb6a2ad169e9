"""Follows the event store's reports of newly arrived primary events, and retries the foreign events that wait for
them.

Theory of operation. The event store remembers missed keys, and reports those that have arrived
(``eventstore.awaited_keys``). Events in memory (``Waiting.arrived``) and rows of the retry store
(``RetryLoader.arrived``) that wait for them are then tried. After a restart of either process the dispatcher does not
know which reports it missed. It then asks for all awaited keys once, some thousands at a time: keys that exist count
as arrived, and the store remembers the others. An attempt in flight may have asked the store's previous process,
whose memory is gone: if it found nothing, it is repeated once.

An arrival only adds a try: patience, head starts and the registry's rules still apply. If a report is lost, the event
is retried by its back-off.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from photon.config.clock import Clock
from photon.config.stopping import end
from photon.dispatcher.retry_loader import RetryLoader
from photon.dispatcher.state import State
from photon.dispatcher.waiting import Waiting
from photon.eventstore.api import ArrivalNotices, KeyArrivals

WAIT_S = 5.0  # how long one request to the store waits for arrivals
GATHER_S = 0.004  # pause after an answer with news: each request costs the same, however much it returns
AGAIN_S = 0.5  # pause after a store that cannot answer
SEEK_KEYS = 4000  # number sought at a time
SEEK_REST = 0.5  # pause relative to the time spent seeking, as the loop and the event store have other work
TO_SEEK_MAX = 1_000_000  # limit of keys of events in memory still to be sought; others wait for their back-off


@dataclass(eq=False)
class Arrivals:
    """Retries one dispatcher's events when their primary events arrive. Calls ``moved`` when some can be tried."""

    store: ArrivalNotices
    waiting: Waiting
    state: State
    retries: RetryLoader
    clock: Clock
    moved: Callable[[], None]

    def __post_init__(self) -> None:
        self._to_seek: deque[Sequence[bytes]] = deque()
        self._keys_to_seek = 0
        # Rows of the retry store after this one are still to be sought; ``None`` means none.
        self._row: int | None = None
        self._round = 0
        self._more = asyncio.Event()

    async def run(self) -> None:
        seeking = asyncio.create_task(self._seek_all())
        try:
            await self._follow()
        finally:
            await end([seeking])

    async def _follow(self) -> None:
        epoch = number = 0
        while True:
            began = self.clock.monotonic()
            news = await self.store.arrived(epoch, number, WAIT_S)
            if news is None:
                self.waiting.followed = False
                await asyncio.sleep(AGAIN_S)
                continue
            epoch, number = news.epoch, news.next
            self._heard(news)
            if news.keys or news.lost:
                await asyncio.sleep(GATHER_S)
            elif self.clock.monotonic() - began < WAIT_S / 2:  # it is ending, or overloaded
                await asyncio.sleep(AGAIN_S)

    def _heard(self, news: KeyArrivals) -> None:
        if news.lost:
            self._to_seek.clear()
            self._keys_to_seek = 0
            self._row = 0
            self._round += 1
            self.waiting.recent.lose()
            self.seek(self.waiting.room.keys())
        self._arrived(news.keys)
        self.waiting.followed = not self.seeking

    def _arrived(self, keys: Sequence[bytes]) -> None:
        if keys:
            self.waiting.arrived(keys)
            self.retries.arrived(keys)
            self.moved()

    # -- seeking ---------------------------------------------------------------------------------------------------
    @property
    def seeking(self) -> bool:
        return self._row is not None or bool(self._to_seek)

    def seek(self, keys: Iterable[bytes]) -> None:
        """Queues awaited keys that the event store's current process was never asked for."""
        known = list(dict.fromkeys(keys))[: TO_SEEK_MAX - self._keys_to_seek]
        self._to_seek += [known[at : at + SEEK_KEYS] for at in range(0, len(known), SEEK_KEYS)]
        self._keys_to_seek += len(known)
        self._more.set()

    async def _seek_all(self) -> None:
        while True:
            await self._more.wait()
            began, of_round = self.clock.monotonic(), self._round
            keys, done = self._next()
            if keys:
                rows = await self.store.seek(keys)
                if rows is None:
                    await asyncio.sleep(AGAIN_S)
                    continue
                self._arrived([keys[row] for row in rows])
            if of_round == self._round:  # else everything must be sought again
                done()
            if not self.seeking:
                self._more.clear()
                self.waiting.followed = True
            await asyncio.sleep((self.clock.monotonic() - began) * SEEK_REST)

    def _next(self) -> tuple[Sequence[bytes], Callable[[], None]]:
        """Returns keys to seek, and a function to call after seeking them."""
        if self._to_seek:
            return self._to_seek[0], self._sought_first
        rows = [] if self._row is None else self.state.keys_behind(self._row, SEEK_KEYS)
        return list(dict.fromkeys(key for _, key in rows)), lambda: self._sought_rows(rows[-1][0] if rows else None)

    def _sought_first(self) -> None:
        self._keys_to_seek -= len(self._to_seek.popleft())

    def _sought_rows(self, row: int | None) -> None:
        self._row = row

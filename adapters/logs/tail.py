"""Schedules a follower's scans: woken by notification if available, else by polling.

With notification a scan examines only changes; the whole directory is scanned rarely, as a safety net (writes through
mmap and changes on other machines are not notified). Without it each scan examines all files, as often as a bounded
share of the time allows.
"""

from __future__ import annotations

import asyncio
import select
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from photon.adapters.logs.api import Block, Changes, LogPosition
from photon.adapters.logs.follower import Follower
from photon.adapters.logs.problems import Problem, ProblemKind
from photon.adapters.logs.watching import Watcher

if TYPE_CHECKING:
    from photon.adapters.logs.lag import Lag

SCAN_S = 0.02  # least time between two scans
SCAN_SHARE = 0.1  # greatest share of the time for scans of the whole directory,
SCAN_MOST_S = 2.0  # but they are no further apart than this
CHANGED_S = 0.005  # least time between two checks of changes: frequent changes are examined together
CHANGED_SHARE = 0.25  # greatest share of the time for examining changes
# A thread that waits reads for at most this share of the time, as others of its process have work to do,
READ_SHARE = 0.2
READ_PAUSE_MOST_S = 0.02  # but pauses no longer than this.
IDLE_S = 1.0  # with notification: interval of polling the directory even without a wake-up
# With notification: time between two looks at links without a target, which cannot be watched;
DANGLING_S = 0.5
DANGLING_SHARE = 0.05  # but these take at most this share of the time
WHOLE_S = 30.0  # with notification: time between two scans of the whole directory
WHOLE_SHARE = 0.005
OTHERS_S = 2.0  # interval of looks at files of logs that other processes read


class Tail:
    """A follower, and the time of its next scan. One caller at a time."""

    def __init__(
        self,
        follower: Follower,
        watcher: Watcher | None,
        monotonic: Callable[[], float],
        *,
        report: Callable[[str], None] = lambda line: None,
        scan_s: float = SCAN_S,
        idle_s: float = IDLE_S,
        gather_s: float = 0.0,
    ) -> None:
        """``gather_s``: minimum time between two scans, so that changes are batched. A change after a quiet time is
        seen at once.

        The caller closes the follower; ``close`` closes the watcher. ``report`` receives the watcher's failure."""
        self.follower = follower
        self._watcher = watcher
        self._monotonic = monotonic
        self._report = report
        self._scan_s = max(scan_s, gather_s)
        self._changed_s = max(CHANGED_S, gather_s)
        self._idle_s = idle_s
        self._notified = False
        self._begun = float("-inf")  # of the last scan
        self._soon_at = self._idle_at = self._whole_at = self._dangling_at = self._others_at = float("-inf")
        self._listening = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake: Callable[[], None] = lambda: None

    @property
    def native(self) -> bool:
        """True if the kernel notifies this process of changes."""
        return self._watcher is not None

    # -- when ------------------------------------------------------------------------------------------------------
    def next_at(self) -> float:
        """Returns the time of the next scan, as known now."""
        return self._soon_at if self._notified else self._idle_at

    def due(self, now: float) -> bool:
        """True if a scan is due."""
        return now >= self.next_at()

    def scan(self) -> None:
        """Scans now. Sees everything written before the call, by notification or by examining all files."""
        begun = self._begun = self._monotonic()
        whole = self._look(begun)
        if begun >= self._others_at:
            self._others_at = begun + OTHERS_S
            self.follower.look_at_others()
        ended = self._monotonic()
        took = ended - begun
        self._notified = False
        if self._watcher is None or self.follower.restless:
            self._idle_at = self._soon_at = ended + min(max(self._scan_s, took / SCAN_SHARE), SCAN_MOST_S)
        else:
            share = SCAN_SHARE if whole else CHANGED_SHARE
            self._soon_at = ended + min(max(self._changed_s, took / share), SCAN_MOST_S)
            self._idle_at = max(ended + self._idle_s, self._soon_at)
        self._listen()

    def _look(self, now: float) -> bool:
        """Scans. Returns True if it scanned the whole directory."""
        watcher = self._watcher
        if watcher is None:
            self.follower.scan()
            return True
        changed = watcher.changed()
        if changed is not None and now < self._whole_at:
            if dangling := self.follower.dangling if now >= self._dangling_at else set():
                changed = Changes(changed.paths | dangling, changed.deleted)
            whole = self.follower.scan(*changed) if changed.paths or self.follower.restless else False
            if dangling:
                self._dangling_at = now + max(DANGLING_S, (self._monotonic() - now) / DANGLING_SHARE)
        else:
            watcher.begin()
            self.follower.scan()
            watcher.end()
            whole = True
            self._whole_at = now + max(WHOLE_S, (self._monotonic() - now) / WHOLE_SHARE)
        if watcher.failed:
            self._report(watcher.failed)
            self.close()
        return whole

    # -- being woken -----------------------------------------------------------------------------------------------
    def attach(self, loop: asyncio.AbstractEventLoop, wake: Callable[[], None]) -> None:
        """Makes the loop call ``wake`` as soon as something has changed, at most once before the next scan."""
        self._loop, self._wake = loop, wake
        self._listen()

    def detach(self) -> None:
        """Stops the calls that ``attach`` requested."""
        if self._loop is not None and self._watcher is not None and self._listening:
            self._loop.remove_reader(self._watcher.fileno())
        self._loop, self._listening = None, False

    def _listen(self) -> None:
        if self._loop is not None and self._watcher is not None and not self._listening:
            self._loop.add_reader(self._watcher.fileno(), self._readable)
            self._listening = True

    def _readable(self) -> None:
        assert self._loop is not None
        assert self._watcher is not None
        self._loop.remove_reader(self._watcher.fileno())  # it stays readable until the next scan
        self._listening = False
        self._notified = True
        self._wake()

    def wait(self, stop: threading.Event, bell: int) -> None:
        """Blocks a thread until a scan is due, ``stop`` is set, or the eventfd ``bell`` is rung."""
        if self._watcher is None:
            stop.wait(max(self._idle_at - self._monotonic(), 0.0))
            return
        now = self._monotonic()
        pause = min((now - self._begun) / READ_SHARE, READ_PAUSE_MOST_S)
        if stop.wait(max(self._soon_at - now, pause)):
            return
        if (left := self._idle_at - self._monotonic()) > 0:
            poll = select.poll()
            poll.register(self._watcher.fileno(), select.POLLIN)
            poll.register(bell, select.POLLIN)
            poll.poll(left * 1000)

    def close(self) -> None:
        """Stops notification, if there is any. From now on the directory is polled."""
        self.detach()
        if self._watcher is not None:
            self._watcher.close()
            self._watcher = None

    # -- forwards to the follower -----------------------------------------------------------------------------
    def poll(self, max_bytes: int, *, final: bool = False) -> list[Block]:
        return self.follower.poll(max_bytes, final=final)

    def caught_up(self) -> bool:
        return self.follower.caught_up()

    def positions(self) -> list[LogPosition]:
        return self.follower.positions()

    def path_of(self, identity: str) -> Path | None:
        return self.follower.path_of(identity)

    def backlog(self) -> tuple[int, int]:
        return self.follower.backlog()

    def unread(self, kinds: Sequence[ProblemKind]) -> list[Problem]:
        return self.follower.unread(kinds)

    def lag(self) -> Lag:
        return self.follower.lag()

"""Polls a deployment for commands, once or repeatedly."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

    from photon.cli.heads import Deployed
    from photon.fleet.look import Look

T = TypeVar("T")


class Client(Protocol):
    async def close(self) -> None: ...


C = TypeVar("C", bound=Client)


def through(make: Callable[[], C], what: Callable[[C], Awaitable[T]]) -> T:
    """Creates a client on its own event loop, awaits ``what`` with it, and closes it."""

    async def done() -> T:
        client = make()
        try:
            return await what(client)
        finally:
            await client.close()

    return asyncio.run(done())


@contextmanager
def asking(at: Deployed) -> Iterator[tuple[list[str], Callable[[], Look]]]:
    """Yields the names of the chosen datacentres (default: all), and a function that asks all their processes, with
    the operator's certificate. Raises UsageError."""
    from photon.fleet.access import pipelines_named
    from photon.fleet.look import Asker

    names = pipelines_named(at.settings, at.datacentre)
    asker = Asker(at.settings, names, at.tls)
    with asyncio.Runner() as runner:
        try:
            yield names, lambda: runner.run(asker.look())
        finally:
            runner.run(asker.close())


def waited(look: Callable[[], T], is_so: Callable[[T], object], timeout_s: float, pause_s: float) -> T:
    """Calls ``look`` until ``is_so`` holds or the time is over. Returns the last result."""
    until_s = time.monotonic() + timeout_s
    while not is_so(found := look()) and time.monotonic() < until_s:
        time.sleep(pause_s)
    return found


class Progress:
    """Shows progress on standard error: in place on a terminal, elsewhere one line per step."""

    def __init__(self, *, passing: bool = False, after_s: float = 0.0, every_s: float = 0.0) -> None:
        """``passing``: show only on a terminal, and erase at the end.

        ``after_s``: delay of the first line; ``every_s``: interval between lines.
        """
        self._passing, self._every_s = passing, every_s
        self._due_s, self._step, self._open = time.monotonic() + after_s, "", False

    def tell(self, line: str, step: str = "") -> None:
        """Shows ``line``. On a terminal it replaces the previous line of the same step."""
        now_s, live = time.monotonic(), sys.stderr.isatty()
        if now_s < self._due_s or (self._passing and not live) or (not live and step and step == self._step):
            return
        if live:
            below = "\n" if self._open and step != self._step else ""
            sys.stderr.write(f"{below}\r\x1b[K{line}")
            sys.stderr.flush()
        else:
            sys.stderr.write(f"{line}\n")
        self._due_s, self._step, self._open = now_s + self._every_s, step, live

    def end(self) -> None:
        if self._open:
            sys.stderr.write("\r\x1b[K" if self._passing else "\n")
            self._open = False


class LiveView:
    """Shows a table, updated in place on a terminal. Uses standard error, so that standard output stays free for
    results."""

    def __init__(self) -> None:
        self._live: Live | None = None

    @cached_property
    def console(self) -> Console:
        from rich.console import Console

        return Console(stderr=True)

    def draw(self, table: Callable[[], RenderableType]) -> bool:
        """Draws the table. Call it a few times per second. Returns False if standard error is not a terminal."""
        if not sys.stderr.isatty():
            return False
        from rich.live import Live

        if self._live is None:
            self._live = Live(console=self.console, transient=True, auto_refresh=False)
            self._live.start()
        self._live.update(table(), refresh=True)
        return True

    def close(self) -> None:
        """Erases the table from the terminal."""
        if self._live is not None:
            self._live.stop()
            self._live = None


def again(show: Callable[[], T], every_s: float) -> T | None:
    """Calls ``show`` until Ctrl-C, SIGTERM, or the end of the output's reader. Returns its last result; `None` if it
    never returned."""
    shown: T | None = None
    with ExitStack() as stack:
        for number in (signal.SIGINT, signal.SIGTERM):
            stack.callback(signal.signal, number, signal.signal(number, signal.default_int_handler))
        try:
            while True:
                begun = time.monotonic()
                shown = show()
                time.sleep(max(every_s - (time.monotonic() - begun), 0.1))
        except KeyboardInterrupt:
            pass
        except BrokenPipeError:  # the output's reader is gone
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return shown

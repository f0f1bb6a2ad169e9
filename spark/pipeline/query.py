"""A join on Spark in its own thread, with the method names of PySpark's streaming query."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

from photon.spark.pipeline.run import Outcome, Progress

# Joins until the event is set, and reports each batch.
Run = Callable[[asyncio.Event, Callable[[Progress], None]], Coroutine[Any, Any, Outcome]]


class JoinQuery:
    """A running join. It ends by itself if ``once`` is set, after an error, or when its Spark session ends. If the
    program ends, the join is killed, which loses nothing."""

    def __init__(self, name: str, run: Run, fail: Callable[[BaseException], object] = lambda error: None) -> None:
        """``fail``: receives the error that ends the join, in the join's thread."""
        self.name, self._run, self._fail = name, run, fail
        self._loop = asyncio.new_event_loop()
        self._stop = asyncio.Event()
        self._progress: Progress | None = None
        self._outcome: Outcome | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
                self._outcome = runner.run(self._run(self._stop, self._tell))
        except BaseException as error:  # any error must reach waiting callers
            self._error = error
            self._fail(error)

    def _tell(self, progress: Progress) -> None:
        self._progress = progress

    @property
    def isActive(self) -> bool:  # noqa: N802
        """True until the query has ended."""
        return self._thread.is_alive()

    @property
    def lastProgress(self) -> dict[str, Any] | None:  # noqa: N802
        """The newest batch of this run, or ``None`` before the first: ``name``, ``batchId``, ``timestamp`` (ISO 8601,
        end of the batch), ``numInputRows`` (events read), ``durationMs`` (``addBatch``: tasks; ``triggerExecution``:
        in all), ``counts`` (events by verdict, named as in ``photon spark join -o json``), ``waiting`` (events
        waiting now), ``lost`` (logs that were gone before they were read, one line each)."""
        return None if self._progress is None else {"name": self.name, **self._progress}

    @property
    def outcome(self) -> Outcome | None:
        """Counts since the slot began; ``None`` until the query has ended without an error."""
        return self._outcome

    def exception(self) -> BaseException | None:
        """The error that ended the query: a PhotonError or OSError of one line; ``None`` if there is none."""
        return self._error

    def awaitTermination(self, timeout: float | None = None) -> bool | None:  # noqa: N802
        """Waits for the query to end, and raises its error. With a ``timeout`` in seconds, returns True if it has
        ended."""
        self._thread.join(timeout)
        if not self.isActive and self._error is not None:
            raise self._error
        return None if timeout is None else not self.isActive

    def stop(self) -> None:
        """Ends the query after the current batch, and waits until it has ended. Does not raise its error."""
        self.ask_to_stop()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def ask_to_stop(self) -> None:
        """Like ``stop``, but without waiting, for signal handlers."""
        with suppress(RuntimeError):  # its loop is closed, so it has ended
            self._loop.call_soon_threadsafe(self._stop.set)

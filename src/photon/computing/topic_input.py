"""Reads a topic as the logs of a source: runs its relay next to the state, one pass at a time.

A pass runs in its own thread, so that no owner waits for a broker. Files are read only between passes, and bytes that
a killed process left are made durable first, so all bytes before a committed position are durable.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from photon.adapters.logs.api import LogPosition
from photon.config.clock import NS_PER_S, Clock, utc
from photon.config.disk import RealDisk
from photon.config.errors import UsageError
from photon.outputs.log.copier import Copier, whole_ns
from photon.outputs.topic_relay import TopicUnreachable

PASS_S = 0.25  # seconds of copying before files are read again, once a broker has answered
LATE_NS = 5 * NS_PER_S  # a topic copied up to a time longer ago than this is behind


class TopicFiles:
    """The files of one topic. For one caller at a time."""

    def __init__(
        self, directory: Path, opened: Callable[[], Copier] | None, clock: Clock, tell: Callable[[str], None]
    ) -> None:
        """``opened``: opens the relay into the directory; ``None`` for a replay, whose original run has the relay.
        ``tell``: receives one line when the topic cannot be read, and when it can be read again."""
        self._directory, self._opened, self._clock, self._tell = directory, opened, clock, tell
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="relay")
        self._relay: Copier | None = None
        self._running: Future[bool] | None = None
        self._unreachable = ""

    def passed(self, *, wait: bool) -> bool | None:
        """Returns ``None`` while a pass is running: files must not be read then. Otherwise returns True if the last
        pass copied the whole topic. ``wait``: waits for the pass to end. Raises the errors of opening and running a
        Copier, and with ``wait`` also TopicUnreachable."""
        if self._opened is None:
            return True
        if self._running is None:
            self.go_on()
        running = self._running
        assert running is not None
        if not wait and not running.done():
            return None
        self._running = None
        try:
            whole = running.result()
        except TopicUnreachable as error:
            if wait:
                raise
            if not self._unreachable:
                self._tell(f"{error}; its watermark stops until it can be read")
            self._unreachable = str(error)
            return False
        if self._unreachable:
            self._tell("the topic can be read again")
            self._unreachable = ""
        return whole

    def go_on(self) -> None:
        """Begins the next pass. Call it once files have been read."""
        if self._opened is not None and self._running is None:
            self._running = self._thread.submit(self._pass, self._opened)

    @property
    def whole_ns(self) -> int:
        """The time up to which the files have all messages; 0 if unknown."""
        return whole_ns(self._directory)

    @property
    def held_by(self) -> str:
        """Describes what holds ``whole_ns`` back, for display; empty if nothing does."""
        if self._unreachable or self._clock.now_ns() - (copied_ns := self.whole_ns) < LATE_NS:
            return self._unreachable
        return f"the topic is copied up to {utc(copied_ns)}" if copied_ns else "the topic is not copied yet"

    def close(self) -> None:
        """Waits for a running pass to end, and closes the relay."""
        self._thread.shutdown()
        if self._relay is not None:
            self._relay.close()

    def _pass(self, opened: Callable[[], Copier]) -> bool:
        if self._relay is None:
            self._relay = opened()
        times = list[float]()  # of each block

        def is_over() -> bool:
            times.append(self._clock.monotonic())
            return times[-1] - times[0] > PASS_S

        return self._relay.pass_on(self._clock.now_ns(), is_over)


def check_files(directory: Path, topic: str, positions: Sequence[LogPosition], *, copies: bool) -> None:
    """Raises UsageError if files lack bytes that were already read, since a new copy would be counted again. Finished
    files may have been moved away. ``copies``: False if another run copies the topic, which must have begun;
    otherwise bytes not read yet are made durable. Raises OSError."""
    begun = (directory / f".{topic}.offsets").exists()
    if not begun and not copies:
        raise UsageError(
            f"{directory}: topic {topic} is not copied yet; a replay reads the files that photon compute run copies: "
            "run that first"
        )
    paths = {directory / each.path: each.offset for each in positions}
    short = [path for path, offset in paths.items() if path.exists() and path.stat().st_size < offset]
    if short or (positions and not begun):
        raise UsageError(
            f"{min(short, default=directory)}: lacks messages of topic {topic} that were read; restore a copy as old "
            "as the state, or begin with another stream or --state"
        )
    if begun and copies:
        disk = RealDisk()
        for path in directory.glob(f"{topic}-*.log"):
            disk.rewrite(path, paths.get(path, 0))
        disk.sync_dir(directory)

"""Standard output as a sink that can be told to stop in the middle of a block, and signals that tell it."""

from __future__ import annotations

import os
import select
import signal
import stat
import time
from types import FrameType

LINE_GRACE_S = 1.0
"""A line that was begun is ended, if the other side takes it so soon."""
WRITE_BYTES = 1 << 20
_NEWLINE = ord("\n")


class Signals:
    """SIGTERM and SIGINT ask to stop; a second one ends the process as usual."""

    def __init__(self, output: int) -> None:
        """``output``: the descriptor whose other side may go away while we wait."""
        self.asked = False
        self._wake, self._woken = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self._wake, select.POLLIN)
        self._poll.register(output, 0)
        self._output = output
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._handle)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        os.write(self._woken, b"x")
        signal.signal(number, signal.SIG_DFL)

    @property
    def descriptor(self) -> int:
        """Readable when asked to stop."""
        return self._wake

    def wait(self, seconds: float) -> None:
        """Until then, or until asked to stop. Raises BrokenPipeError when nobody reads the output any more."""
        for descriptor, _ in self._poll.poll(seconds * 1000):
            if descriptor == self._output:
                raise BrokenPipeError


class OutputSink:
    """Writes to a descriptor. To a pipe it never writes more than fits in, so that a stop is heard at once."""

    def __init__(self, descriptor: int, signals: Signals) -> None:
        self._descriptor = descriptor
        self._signals = signals
        self._is_file = stat.S_ISREG(os.fstat(descriptor).st_mode)
        self._piece = WRITE_BYTES if self._is_file else select.PIPE_BUF
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLOUT)
        self._poll_or_stop = select.poll()
        self._poll_or_stop.register(descriptor, select.POLLOUT)
        self._poll_or_stop.register(signals.descriptor, select.POLLIN)

    def write(self, data: bytes) -> int:
        """How many bytes went out: all of them unless asked to stop; then, if they are taken, to a line's end."""
        view, done, end, deadline = memoryview(data), 0, len(data), None
        while done < end:
            if self._signals.asked and deadline is None:
                if done == 0 or data[done - 1] == _NEWLINE:
                    return done
                end = data.index(b"\n", done) + 1
                deadline = time.monotonic() + LINE_GRACE_S
            if self._writable(deadline):
                done += os.write(self._descriptor, view[done : min(done + self._piece, end)])
            elif deadline is not None and time.monotonic() >= deadline:
                break
        return done

    def _writable(self, deadline: float | None) -> bool:
        """False: asked to stop first, or it is too late."""
        if self._is_file:
            return True
        if deadline is None:
            ready = self._poll_or_stop.poll()
        else:
            ready = self._poll.poll(max(deadline - time.monotonic(), 0) * 1000)
        return any(descriptor == self._descriptor for descriptor, _ in ready)

    def flush(self) -> None:
        """A file is made durable; what is in a pipe is the other side's."""
        if self._is_file:
            os.fsync(self._descriptor)

"""Standard output as a sink that can stop in the middle of a block, and the signals that stop it."""

from __future__ import annotations

import os
import select
import signal
import stat
import time
from types import FrameType

LINE_GRACE_S = 1.0  # how long the reader may take to read the rest of an unfinished line
WRITE_BYTES = 1 << 20
_NEWLINE = ord("\n")


class Signals:
    """SIGTERM and SIGINT request a stop; a second signal kills the process as usual."""

    def __init__(self, output: int) -> None:
        """``output``: descriptor whose reader may go away during ``wait``."""
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
        """A descriptor that becomes readable once a stop is requested."""
        return self._wake

    def wait(self, seconds: float) -> None:
        """Waits ``seconds``, or until a stop is requested. Raises BrokenPipeError if the output's reader is gone."""
        for descriptor, _ in self._poll.poll(seconds * 1000):
            if descriptor == self._output:
                raise BrokenPipeError


class OutputSink:
    """Writes to a descriptor. Never blocks in a write to a pipe, so a stop request takes effect immediately."""

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
        """Writes ``data``. If a stop is requested, writes only up to the end of the current line, or less if the
        reader does not take it. Returns the number of bytes written."""
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
        """Waits until the output can be written. Returns False if a stop is requested first, or the time is over."""
        if self._is_file:
            return True
        if deadline is None:
            ready = self._poll_or_stop.poll()
        else:
            ready = self._poll.poll(max(deadline - time.monotonic(), 0) * 1000)
        return any(descriptor == self._descriptor for descriptor, _ in ready)

    def flush(self) -> None:
        """Syncs a file to disk; does nothing for a pipe."""
        if self._is_file:
            os.fsync(self._descriptor)

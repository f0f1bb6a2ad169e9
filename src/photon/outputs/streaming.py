"""Writes a reader's blocks to a sink, and keeps the saved cursor in step with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from photon.outputs.cursor import Cursor
from photon.outputs.reader import OutputBlock, Reader


class Sink(Protocol):
    def write(self, data: bytes) -> int:
        """Writes the data. Returns the number of bytes written, which is less than all if asked to stop meanwhile.

        Raises BrokenPipeError, OSError.
        """
        ...

    def flush(self) -> None:
        """Makes the written data as durable as the sink can."""
        ...


class StopSignal(Protocol):
    @property
    def asked(self) -> bool: ...

    def wait(self, seconds: float) -> None:
        """Waits; returns early if asked to stop. Raises BrokenPipeError once the sink has no reader."""
        ...


@dataclass(frozen=True, slots=True)
class StreamTerms:
    """Limits of a stream. Times in seconds."""

    follow: bool = False  # continue after the current end
    limit: int | None = None  # maximum number of lines
    with_cursor: bool = False  # a line with the cursor first, and after each block of lines
    poll_s: float = 0.2
    save_s: float = 1.0  # interval of saving the cursor while lines arrive; also saved when there are no more


class Stream:
    def __init__(
        self,
        reader: Reader,
        cursor: Cursor,
        sink: Sink,
        stop: StopSignal,
        terms: StreamTerms,
        *,
        save: Callable[[Cursor], None],
        monotonic: Callable[[], float],
        render: Callable[[OutputBlock], bytes] | None = None,
        tell: Callable[[dict[str, int]], None] = lambda held_back: None,
        watermark: Callable[[Cursor], bytes] = lambda cursor: b"",
    ) -> None:
        """``reader`` begins at ``cursor``. ``save`` stores a cursor durably; ``render`` converts the lines; ``tell``
        receives each file where reading stopped, once. ``watermark``: returns the watermark's line for a reader at a
        cursor, if it is new.
        """
        self._reader = reader
        self.cursor = cursor
        self._sink = sink
        self._stop = stop
        self._terms = terms
        self._save_cursor = save
        self._monotonic = monotonic
        self._render = render
        self._tell = tell
        self._watermark = watermark
        self._told: set[str] = set()
        self._saved = cursor
        self._saved_at = monotonic()
        self.lines = 0  # passed on so far; counted only with a limit

    def run(self) -> None:
        """Runs until everything is written, the limit is reached, or a stop is requested.

        The saved cursor is never beyond the sink's data. Raises BrokenPipeError (nothing more is saved then),
        CursorLost, OutputMissing, PublishedDamaged, OSError.
        """
        if self._terms.with_cursor:
            self._sink.write(self.cursor.encode() + b"\n")
        try:
            while not self._stop.asked and self._pass_on() and self._terms.follow:
                self._save()
                self._stop.wait(self._terms.poll_s)
        except BrokenPipeError:
            raise  # the pipe's content is lost, so it must be repeated
        except Exception:
            self._save()
            raise
        self._save()

    def _pass_on(self) -> bool:
        """Writes everything that is published now. Returns False once the limit is reached."""
        for block in self._reader.read():
            whole = self._block(block)
            if not whole or self.lines == self._terms.limit or self._stop.asked:
                return False
            if self._monotonic() - self._saved_at >= self._terms.save_s:
                self._save()
        news = {name: lines for name, lines in self._reader.held_back.items() if name not in self._told}
        if news:
            self._told.update(news)
            self._tell(news)
        if line := self._watermark(self.cursor):
            self._sink.write(line)
        return self.lines != self._terms.limit

    def _block(self, block: OutputBlock) -> bool:
        """Writes a block. Returns False if it was written only in part."""
        size = len(block.data)
        if self._terms.limit is not None:
            size = self._within(block.data, self._terms.limit)
        part = block if size == len(block.data) else OutputBlock(block.place, block.name, block.number, block.start,
                                                           block.data[:size])  # fmt: skip
        after = self.cursor.moved(part.place, part.end(), block.output)
        out = part.data if self._render is None else self._render(part)
        if self._terms.with_cursor:
            out = b"%b%b\n" % (out, after.encode())
        written = self._sink.write(out)
        if written == len(out):
            self.cursor = after
            return size == len(block.data)
        if self._render is None:  # a truncated line is repeated
            whole = out.rfind(b"\n", 0, min(written, size)) + 1
            if whole:
                self.cursor = self.cursor.moved(part.place, part.end(whole), block.output)
        return False

    def _within(self, data: bytes, limit: int) -> int:
        """Returns the number of bytes of these lines within the limit, and counts those lines."""
        count = data.count(b"\n")
        if self.lines + count <= limit:
            self.lines += count
            return len(data)
        size = 0
        for _ in range(limit - self.lines):
            size = data.index(b"\n", size) + 1
        self.lines = limit
        return size

    def _save(self) -> None:
        self._saved_at = self._monotonic()
        if self.cursor != self._saved:
            self._sink.flush()
            self._save_cursor(self.cursor)
            self._saved = self.cursor

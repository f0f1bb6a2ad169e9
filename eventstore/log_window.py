"""The bytes of one log around the places that are looked at, read forwards: neighbours share one read."""

from __future__ import annotations

from photon.adapters.logs.framed import Lines
from photon.eventstore.log_files import LogBytes


class LogWindow:
    """``data`` holds the log's bytes from ``begin`` on. Places are asked for in ascending order."""

    def __init__(self, source: LogBytes, lines: Lines | None = None) -> None:
        """``lines``: marks line ends that end no record. Places are then records' begins."""
        self._source = source
        self._lines = lines
        self._raw = b""
        self.begin = 0
        self.data = b""
        self.bytes_read = 0
        """From the file, uncompressed."""
        self._at_end = False  # what was mapped was there before, so growth does not matter

    @property
    def end(self) -> int:
        """Offset behind the last byte that is here."""
        return self.begin + len(self.data)

    def cover(self, begin: int, stop: int) -> None:
        """Makes ``data`` hold the bytes from ``begin`` to ``stop``, or to the log's end. Raises OSError.

        What lies before ``begin`` may go.
        """
        if not self.begin <= begin <= self.end:
            self.begin, self.data, self._raw = begin, b"", b""
            self._at_end = False
        end = self.end
        if stop <= end or self._at_end:
            return
        more = self._source.read(end, stop - end)
        self._at_end = len(more) < stop - end
        self.bytes_read += len(more)
        self._raw = self._raw[begin - self.begin :] + more
        self.data = self._raw if self._lines is None else self._lines.marked(self._raw, inside=False)
        self.begin = begin

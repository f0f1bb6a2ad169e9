"""Finds the first and last event time in an output file without parsing its records. Includes the registry's event
times where they differ, since readers choose files by either. Pure.
"""

from __future__ import annotations

_MEMBER = b'"event_time_ns":'
_REGISTERED = b'"registered_ns":'  # present if the registry has the event under another time
_DIGITS_MAX = 20  # of an int64 with its sign


class EventTimes:
    """Takes the bytes of a file piece by piece."""

    def __init__(self) -> None:
        self._first, self._last = 1 << 63, -1 << 63
        self._lines = self._timed = 0
        self._rest = b""

    def span(self) -> tuple[int | None, int | None]:
        """The first and last time; (None, None) if a line has no event time, since no range then covers all lines."""
        whole = self._lines and self._timed == self._lines and not self._rest
        return (self._first, self._last) if whole else (None, None)

    def add(self, data: bytes) -> None:
        """Adds a piece. Bytes after its last line end are handled with the next piece."""
        lines = self._rest + data
        end = lines.rfind(b"\n") + 1
        lines, self._rest = lines[:end], lines[end:]
        times = []
        at = lines.find(_MEMBER)
        while at >= 0:
            # The first match in a line is the line's own: only texts precede it, and their quotes are escaped.
            begin = at + len(_MEMBER)
            stop = lines.find(b",", begin, begin + _DIGITS_MAX + 1)
            if stop > 0 and (number := lines[begin:stop]).removeprefix(b"-").isdigit():
                times.append(int(number))
                self._timed += 1
            if stop > 0 and lines.startswith(_REGISTERED, stop + 1):
                begin = stop + 1 + len(_REGISTERED)
                number = lines[begin : lines.find(b",", begin, begin + _DIGITS_MAX + 1)]
                times += [int(number)] if number.removeprefix(b"-").isdigit() else []
            at = lines.find(_MEMBER, lines.find(b"\n", begin))
        if times:
            self._first, self._last = min(self._first, *times), max(self._last, *times)
        self._lines += lines.count(b"\n")

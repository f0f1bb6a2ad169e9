"""Which of Zeek's headers holds at a place of a log: a scan over the bytes before it, remembered every SCAN_BYTES."""

from __future__ import annotations

from copy import copy

from photon.adapters.logs.zeek_framing import HeaderScan
from photon.eventstore.log_files import LogBytes

SCAN_BYTES = 1 << 20


class HeaderIndex:
    """Of one log. One caller at a time."""

    def __init__(self) -> None:
        self._marks = [HeaderScan()]  # the scan's state at 0, SCAN_BYTES, 2 * SCAN_BYTES, …

    def at(self, source: LogBytes, offset: int) -> bytes:
        """The header in force at a record's begin. Raises OSError."""
        scan = copy(self._marks[min(offset // SCAN_BYTES, len(self._marks) - 1)])
        while scan.at < offset:
            data = source.read(scan.at, min(SCAN_BYTES - scan.at % SCAN_BYTES, offset - scan.at))
            if not data:
                break
            scan.feed(data)
            if scan.at == len(self._marks) * SCAN_BYTES:
                self._marks.append(copy(scan))
        return scan.header

"""Keeps primary records whose key is unknown because the adapter failed on them.

Such a record might have any key, so while there is one, no missing key counts as absent. They are made durable before
the read position moves past them, and are retried with back-off: a service that the adapter calls may recover, or a
new version of the adapter may read them. Keys found go into the file map as usual.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from photon.adapters.contract import Adapter, LogFile
from photon.config.back_off import BackOff
from photon.config.clock import Clock
from photon.config.disk import Disk
from photon.config.versioned_file import sealed, unsealed
from photon.eventstore.block_keys import BlockKeys, block_keys

FILE_NAME = "keyless-records"
MAGIC = b"PHKR 1 "
KEPT_MAX = 1000  # records that can be retried; further ones are only counted, and the file map must be rebuilt
AGAIN = BackOff(first=1.0, most=60.0)
_REASON_CHARS_MAX = 500


class KeylessRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    identity: str
    path: str
    header: str  # base64; of the log
    offset: int
    record: str  # base64
    reason: str
    since_ns: int

    @property
    def file(self) -> LogFile:
        return LogFile(self.path, base64.b64decode(self.header))

    def found(self, adapter: Adapter) -> BlockKeys:
        return block_keys(adapter, base64.b64decode(self.record) + b"\n", self.file)

    def __str__(self) -> str:
        return f"{self.path}, offset {self.offset}: {self.reason}"


class _Kept(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    records: list[KeylessRecord] = []
    more: int = 0


@dataclass(eq=False)
class KeylessRecords:
    """The records whose key is unknown.

    Change it on one thread; ``listed`` and ``count`` may be read on any.

    ``state``: the file map's directory. ``fresh``: the map is new, so everything is read again. Raises OSError.
    """

    state: Path
    clock: Clock
    disk: Disk
    report: Callable[[str], None] = lambda line: None
    fresh: bool = False
    _kept: _Kept = field(default_factory=_Kept, init=False)

    def __post_init__(self) -> None:
        self._file = self.state / FILE_NAME
        self._tries = 0
        self._due = self.clock.monotonic()
        if self.disk.exists(self._file):
            if self.fresh:
                self.disk.remove(self._file)
            else:
                self._load()

    @property
    def listed(self) -> tuple[KeylessRecord, ...]:
        return tuple(self._kept.records)

    @property
    def count(self) -> int:
        return len(self._kept.records) + self._kept.more

    def add(self, identity: str, file: LogFile, at: int, data: bytes, offset: int, reason: str) -> None:
        """Adds the record at ``data[at]``, whose offset in its log is ``offset``."""
        kept = self._kept
        if any(each.identity == identity and each.offset == offset for each in kept.records):
            return  # read again after a crash
        if len(kept.records) >= KEPT_MAX:
            self._store(_Kept(kept.records, kept.more + 1))
            return
        header, record = (base64.b64encode(each).decode() for each in (file.header, data[at : data.index(b"\n", at)]))
        reason = reason[:_REASON_CHARS_MAX]
        made = KeylessRecord(identity, file.path, header, offset, record, reason, self.clock.now_ns())
        self._store(_Kept([*kept.records, made], kept.more))
        self._tries, self._due = 1, self.clock.monotonic() + AGAIN.first
        self.report(f"{made}; its key is unknown, and until it is known no event is declared unmatched")

    def again(self, adapter: Adapter, take: Callable[[KeylessRecord, BlockKeys], None], *, now: bool = False) -> None:
        """Asks the adapter again for keys that are due (with ``now``, for all). ``take`` must make the answers
        durable.

        Raises the errors of ``take``.
        """
        if not self._kept.records or (not now and self.clock.monotonic() < self._due):
            return
        left = []
        for each in self._kept.records:
            found = each.found(adapter)
            if found.failed:
                left.append(each)
            else:
                take(each, found)
        if len(left) < len(self._kept.records):
            self._store(_Kept(left, self._kept.more))
            self.report("unknown keys of primary records are now known")
        self._due = self.clock.monotonic() + AGAIN.delay(self._tries)
        self._tries += 1

    def _store(self, kept: _Kept) -> None:
        self.disk.replace(self._file, sealed(MAGIC, msgspec.json.encode(kept)))
        self._kept = kept

    def _load(self) -> None:
        raw = unsealed(MAGIC, self.disk.read(self._file))
        if raw is None:
            self._kept = _Kept(more=1)
            self.report(
                f"{self._file}: is damaged or of another version, so keys of some primary records are unknown "
                "and no event is declared unmatched; remove it together with the file map, which is then rebuilt"
            )
            return
        self._kept = msgspec.json.decode(raw, type=_Kept)

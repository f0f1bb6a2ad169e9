"""The primary reader: reads all primary logs once, sequentially, and feeds the cache and the file map from them.

The keys of a whole block are found at once (key_finding/), and its bytes go to the cache; a record is parsed only
when requested. The reader is a function of the follower's blocks, the clock and the keys found; engine.py runs its
thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from photon.adapters.containment import Fault, Guard
from photon.adapters.contract import Adapter, LogFile
from photon.adapters.logs.api import Block
from photon.adapters.logs.follower import Follower
from photon.adapters.logs.problems import UNREAD, ProblemKind
from photon.adapters.logs.tail import Tail
from photon.config.clock import NEVER_NS, Clock
from photon.config.errors import PhotonError
from photon.eventstore.api import ALL_BUT_ENDS_NS
from photon.eventstore.block_keys import BlockKeys, InlineKeyFinder, KeyFinder
from photon.eventstore.file_map import FileMap, MappedBlock
from photon.eventstore.index import I64, U64
from photon.eventstore.keyless import KeylessRecord, KeylessRecords
from photon.eventstore.tiered import NOTHING_READ_NS

POLL_BYTES = 4 << 20  # requested from the follower at a time
COMMIT_SECONDS = 5.0  # longest interval of committing to the file map: a crash re-reads no more than this
COMMIT_BYTES = 512 << 20
# Problems that leave a log unread for now; with any of them, no miss may become ABSENT.
HOLDING = (ProblemKind.UNREADABLE, ProblemKind.LINK)
NAMED = 3  # unread logs that a message names


class BlockCache(Protocol):
    """Caches fed by the reader (CacheEventStore, CacheNodes)."""

    def put(self, identity: str, file: LogFile, offset: int, data: bytes, hashes: U64, starts: I64) -> None: ...


class PrimaryLogsIncomplete(PhotonError):
    """Some primary logs could not be read, so no foreign event may be declared unmatched. One line."""


@dataclass(eq=False)
class PrimaryReader:
    """Reads the primary logs. Call ``step`` repeatedly on one thread; properties may be read on any.

    ``once``: the logs are complete; no readable record at all is an error unless allowed.

    ``report`` receives the places of the first bad records. ``finder``: ``None`` means that keys are found in this
    thread. ``arrived`` receives the keys of each block added to the map, as in ``MappedBlock``.
    """

    source: Follower | Tail
    adapter: Adapter
    cache: BlockCache
    file_map: FileMap
    clock: Clock
    once: bool = False
    may_be_empty: bool = True
    report: Callable[[str], None] = lambda line: None
    finder: KeyFinder | None = None
    arrived: Callable[[Sequence[bytes], U64, I64], None] = lambda keys, hashes, order: None
    # Called with blocks before they are worked on; its exception ends the reading.
    begun: Callable[[Sequence[Block]], None] = lambda blocks: None
    keyless: KeylessRecords | None = None
    # For logs made from other data: the time up to which they are complete.
    written_ns: Callable[[], int] | None = None

    def __post_init__(self) -> None:
        self._finder = self.finder or InlineKeyFinder(self.adapter)
        self._named_bad = 0
        self._dirty_bytes = 0
        self._dirty = False
        self._committed = self.clock.monotonic()
        self.scanned_ns = NOTHING_READ_NS  # the time before the last scan
        self._scanned_at = self.clock.monotonic()
        # See Progress.read_past_ns; and the same time in monotonic seconds.
        self.read_past = (NOTHING_READ_NS, self.clock.monotonic())
        self.backlog = (0, 0)  # (bytes on disk read, bytes on disk known)
        self.done = False  # ``once``: everything was read and committed
        self.unended = ""  # ``once``: the unfinished last lines

    @property
    def read_past_ns(self) -> int:
        return self.read_past[0]

    def step(self) -> bool:
        """Reads the next blocks; scans first if all were read. Returns False if there is nothing to read now.

        Raises PrimaryLogsIncomplete (``once``), OSError and FileMapError from the map.
        """
        if self.done:
            return False
        if self.source.caught_up():
            self.scanned_ns, self._scanned_at = self.clock.now_ns(), self.clock.monotonic()
            if self.written_ns is not None and (written := self.written_ns()) < self.scanned_ns:
                self._scanned_at -= (self.scanned_ns - written) / 1e9 if written > 0 else 0.0
                self.scanned_ns = written
            self.source.scan()
        if self.keyless is not None:
            self.keyless.again(self.adapter, self._take_key)
        blocks = self.source.poll(POLL_BYTES)
        self._take(blocks, everything=self.source.caught_up())
        self.backlog = self.source.backlog()
        if self.source.caught_up():
            if self.once:
                self._finish()
            elif not (self.source.unread(HOLDING) or self._unknown()):
                self.file_map.all_read()
                self.read_past = self.scanned_ns, self._scanned_at
        self._commit_when_due()
        return bool(blocks)

    def _take(self, blocks: Sequence[Block], *, everything: bool) -> None:
        """Gives ``blocks`` to the key finder, and stores the finished ones. ``everything``: waits for all."""
        self.begun(blocks)
        for block in blocks:
            self._finder.give(block)
        for block, found in self._finder.found(everything=everything):
            if found.bad > len(found.failed) and self._named_bad < NAMED:
                self._name_bad(block)
            if self.keyless is not None:
                for at, reason in found.failed:
                    self.keyless.add(block.identity, block.file, at, block.data, block.offset + at, reason)
            starts = found.starts[found.order]
            # Before the map, so that everything in the map is in the cache; records only in the cache do not count.
            hashes = found.hashes
            if found.times is not None:
                hashes, starts = found.version_hashes(found.starts)
            self.cache.put(block.identity, block.file, block.offset, block.data, hashes, starts)
            self.file_map.add(
                MappedBlock(
                    identity=block.identity,
                    file=block.file,
                    begin=block.offset,
                    end=block.end,
                    keys=found.keys,
                    starts=found.starts + block.offset,
                    hashes=found.hashes,
                    order=found.order,
                    bad=found.bad + len(block.oversized),
                    proof=block.proof,
                    times=found.times,
                )
            )
            self.arrived(found.keys, found.hashes, found.order)
            self._dirty_bytes += block.end - block.offset
            self._dirty = True

    def _unknown(self) -> int:
        return 0 if self.keyless is None else self.keyless.count

    def _take_key(self, record: KeylessRecord, found: BlockKeys) -> None:
        """Adds a record read earlier to the map, now that its key is known."""
        log = next((each for each in self.file_map.logs() if each.identity == record.identity), None)
        if log is None or not len(found.keys):
            return
        starts = found.starts + record.offset
        block = (log.identity, log.file, log.end, log.end, found.keys, starts, found.hashes, found.order)
        self.file_map.add(MappedBlock(*block, bad=-1, proof=log.proof, times=found.times))
        self.commit()
        self.arrived(found.keys, found.hashes, found.order)

    def _name_bad(self, block: Block) -> None:
        """Reports the place of a block's first bad record, and why it is bad."""
        at = 0
        guard = Guard(self.adapter)
        for line in block.data.split(b"\n")[:-1]:
            record = line.removesuffix(b"\r")
            (key,) = guard.each([record], lambda given: self.adapter.primary_key(given, block.file))
            if isinstance(key, Fault):
                self.report(f"{block.file.path}, offset {block.offset + at}: not a primary record: {key.reason}")
                self._named_bad += 1
                return
            at += len(line) + 1

    def _finish(self) -> None:
        while blocks := self.source.poll(POLL_BYTES, final=True):
            self._take(blocks, everything=True)
        if self.keyless is not None:
            self.keyless.again(self.adapter, self._take_key, now=True)
        self.commit()
        if unread := self.source.unread(UNREAD):
            named = ", ".join(map(str, unread[:NAMED])) + (", …" if len(unread) > NAMED else "")
            raise PrimaryLogsIncomplete(
                f"{len(unread)} of the primary logs could not be read, so no event can be declared unmatched: "
                f"{named}; "
                "make them readable, or leave them out with primary_files, and run again"
            )
        waiting = self.source.unread((ProblemKind.UNENDED,))
        self.unended = "; ".join(map(str, waiting[:NAMED])) + (", …" if len(waiting) > NAMED else "")
        if (
            not (self.may_be_empty or waiting or self._unknown())
            and not (totals := self.file_map.totals(exact=False)).events
        ):
            raise PrimaryLogsIncomplete(
                f"no primary record is readable ({totals.bad_records} unreadable), so every foreign event would "
                "be declared unmatched permanently; correct the logs or the configuration, or use --keep-pending"
            )
        self.backlog = self.source.backlog()
        self.file_map.all_read()
        self.done = True
        self.read_past = ALL_BUT_ENDS_NS if waiting or self._unknown() else NEVER_NS, self.clock.monotonic()

    def _commit_when_due(self) -> None:
        due = self._dirty_bytes >= COMMIT_BYTES or self.clock.monotonic() - self._committed >= COMMIT_SECONDS
        if self._dirty and due:
            self.commit()

    def commit(self) -> None:
        """Makes the records read durable in the map."""
        self.file_map.commit()
        self._dirty_bytes = 0
        self._dirty = False
        self._committed = self.clock.monotonic()

"""EventStoreEngine: one join's event store in this process: follower, primary reader, cache, file map, look-ups.

One thread reads the primary logs. Look-ups run in a small pool, so the event loop never waits for a disk. Old logs
are read for look-ups in other threads (log_reads.py), so a look-up that needs no log never waits for one.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import Adapter
from photon.adapters.logs.api import Block
from photon.adapters.logs.elsewhere import elsewhere
from photon.adapters.logs.follower import Follower
from photon.adapters.logs.identity import log_name
from photon.adapters.logs.problems import LogDirectoryError, Problem
from photon.adapters.logs.tail import Tail
from photon.adapters.logs.unended_lines import RestRule
from photon.adapters.logs.watching import Watch, Watcher, open_watcher
from photon.config.clock import NS_PER_S, Clock
from photon.config.disk import Disk
from photon.config.errors import UsageError
from photon.config.stopping import until
from photon.config.telemetry.spans import span
from photon.config.tls import Towards
from photon.eventstore.api import (
    SET_MAX,
    Details,
    EventLookUps,
    EventStoreFailed,
    Forgotten,
    KeyArrivals,
    LookUpCode,
    Progress,
    UnavailableLog,
)
from photon.eventstore.awaited_keys import AWAITED_MAX, AwaitedKeys
from photon.eventstore.block_keys import InlineKeyFinder, KeyFinder
from photon.eventstore.cache_nodes.nodes import CacheNodes, FedCache, HedgedLookUps
from photon.eventstore.embedded_file_map import EmbeddedFileMap
from photon.eventstore.file_map import (
    PLACES_PER_KEY_MAX,
    SPARSE_BYTES,
    SPARSE_MICROS,
    FileMap,
    FileMapBusy,
    FileMapError,
    FileMapUnavailable,
    HBaseTable,
    MapKind,
    MapSettings,
    RowsLost,
    opened_or_rebuilt,
)
from photon.eventstore.found_records import FoundRecords, ReadResults
from photon.eventstore.index import I64, U64, hash_keys
from photon.eventstore.key_finding.process_finder import ProcessKeyFinder, can_use_process
from photon.eventstore.keyless import KeylessRecords
from photon.eventstore.log_reads import LogReads
from photon.eventstore.logs_store import LogsEventStore
from photon.eventstore.primary_reader import PrimaryLogsIncomplete, PrimaryReader
from photon.eventstore.segments import CACHE_BYTES_MAX, CacheEventStore
from photon.eventstore.shared_keys import SharedKeys, check_rule
from photon.eventstore.tiered import NOTHING_READ_NS, LookUp, TieredEventStore
from photon.eventstore.unavailable import PATHS_SECONDS, PublishedSources, UnavailableLogs
from photon.eventstore.whole_sets import WholeSets
from photon.outputs.log.copier import whole_ns

LOOK_UP_THREADS = 2
MAP_AGAIN_SECONDS = 1.0  # interval of retries of an unreachable file map, after its own patience
WAITERS_MAX = 16  # requests waiting for arrivals; further ones are answered at once
# Amount that one process reads in 3 s, and two in 2 s, including half a second to start the second.
KEY_PROCESS_BYTES = 512 << 20
SOURCES_SECONDS = 3.0  # longest wait for the reader's thread if an operator asks for the progress of each source


BUSY_SECONDS = 10.0  # longest wait for a map that another process has open
BUSY_PAUSE_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class EventStoreConfig:
    join: str
    directory: Path  # primary logs
    state: Path  # the file map's directory
    patterns: tuple[str, ...] = ("**/*",)
    max_record: int = 1 << 20
    kind: MapKind = MapKind.DENSE
    window_micros: int = SPARSE_MICROS
    window_bytes: int = SPARSE_BYTES
    cache_bytes: int = CACHE_BYTES_MAX
    watch: Watch = Watch.AUTO  # how to notice changes of the logs
    gather_s: float = 0.0  # least time between two looks at changed logs
    # ``once``: an unfinished last line waits until its file was not written to for this time; 0 means that it does
    # not wait.
    last_line_after_s: float = 0.0
    hbase: HBaseTable | None = None  # the file map's table; ``None`` if the map is only in ``state``
    # A log whose file is gone is given up at once: its keys are ABSENT. Otherwise it waits for ``forget``.
    forget_missing: bool = False
    # The logs are made from another join's output; ``outputs.log.copier`` notes there up to which time they are
    # complete.
    relayed: bool = False
    once: bool = False
    # ``once``: having no primary record at all is not an error. Otherwise no key is called ABSENT then, and the
    # reader fails.
    may_be_empty: bool = True
    sought_keys: int = AWAITED_MAX  # number of remembered keys that were not found; not with ``once``
    # ``once``: if more than this is unread, a second process finds keys, too, for maps that only need their hashes.
    key_process_bytes: int = KEY_PROCESS_BYTES

    def map_settings(self, adapter: Adapter) -> MapSettings:
        source = f"{self.join}\n{self.directory.absolute()}\n{self.patterns}\n{self.max_record}\n".encode()
        last = adapter.primary_duplicates == "last"
        most = SET_MAX + 1 if adapter.matching.whole_sets else PLACES_PER_KEY_MAX
        timed = adapter.matching.match == "latest"
        if timed and isinstance(adapter, ConfiguredAdapter):
            source += msgspec.json.encode(adapter.primary_config.time) + b"\n"
        rule = source + adapter.rule()
        return MapSettings(rule, self.kind, self.window_micros, self.window_bytes, last, most, timed)


class EventStoreEngine:
    """Implements api.EventStore. Call ``start`` first and ``close`` last."""

    def __init__(
        self,
        config: EventStoreConfig,
        adapter: Adapter,
        clock: Clock,
        disk: Disk,
        report: Callable[[str], None] | None = None,
        *,
        to_caches: Towards | None = None,
        begun: Callable[[Sequence[Block]], None] = lambda blocks: None,
    ) -> None:
        """Opens map and logs. ``report`` receives one-line problems, from any thread; ``to_caches``: TLS towards
        cache nodes; ``None`` means plain text. ``nodes.set_nodes`` sets the nodes. ``begun``: called on the reader's
        thread with blocks before they are processed; a UsageError from it ends the reading.

        Raises FileMapBusy, LogDirectoryError, UsageError, OSError.
        """
        self.config = config
        tell = self._tell = report or (lambda line: None)
        check_rule(adapter.primary_duplicates, config.kind, hbase=config.hbase is not None)
        map_settings = config.map_settings(adapter)
        self._timed = map_settings.timed
        self._map, rebuilt = open_map(config.state, map_settings, log_name, disk, clock, config.hbase)
        if rebuilt:
            tell(f"the file map is rebuilt and all primary logs are read again: {rebuilt}")
        self._adapter = adapter
        self._begun = begun
        self._clock = clock
        self._cache = CacheEventStore(adapter, config.cache_bytes)
        # Cache nodes; while there are none the cache in this process is fed.
        self.nodes = CacheNodes(map_settings.rule, clock.monotonic, to_caches)
        self._hedged = HedgedLookUps(self.nodes, self._answer)
        epoch = int.from_bytes(os.urandom(8)) | 1
        whole_sets = adapter.matching.whole_sets  # these joins never wait for a single record
        once = config.once or whole_sets
        self._awaited = None if once else AwaitedKeys(epoch, clock.monotonic, config.sought_keys)
        self._waiters: dict[asyncio.Event, asyncio.AbstractEventLoop] = {}  # for arrivals
        self._hung_up = False
        try:
            self._unavailable = UnavailableLogs(
                config.state, clock, disk, report=tell, forget_missing=config.forget_missing, once=config.once
            )
            self._keyless = KeylessRecords(config.state, clock, disk, tell, fresh=bool(rebuilt))
            self._open_logs()
        except BaseException:
            self._map.close()
            raise
        self._logs = LogsEventStore(
            config.directory,
            adapter,
            lambda identity: self._sources.path_of(identity),
            record_bytes_max=config.max_record,
            troubles=self._unavailable,
        )
        self._reads = LogReads(self._logs)
        self._shared = SharedKeys(adapter.primary_duplicates, tell)
        self._tiers = (WholeSets if whole_sets else TieredEventStore)(
            self._cache,
            self._map,
            self._logs,
            log_name,
            lambda: self._reader.read_past_ns,
            lambda: self._unavailable.given_up,
            self._shared,
            lambda: self._unavailable.gone,
        )
        self._pool = ThreadPoolExecutor(LOOK_UP_THREADS, thread_name_prefix="look-up")
        # A separate thread: those of the look-ups may wait long for an unreachable map.
        self._telling = ThreadPoolExecutor(1, thread_name_prefix="progress")
        self._thread = threading.Thread(target=self._read, name=f"primary-reader-{config.join}", daemon=True)
        self._stop = threading.Event()
        self._bell = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)  # ends the reader's pause: scan now, or stop
        self.failure = ""  # Why the reader ended early; one line. Set before ``ended``.
        self.hopeless = False  # a restart would fail again until logs or adapter are corrected
        self.ended = threading.Event()  # the reader has ended: done, stopped or failed
        self._owed = ""  # why the map did not accept the records read
        self._duplicates: int | None = None  # exact, once everything was read
        self._last = Progress(read_past_ns=NOTHING_READ_NS)
        self._closed = False

    def _open_logs(self) -> None:
        """Opens follower, reader and watcher at the map's positions."""
        config, tell = self.config, self._tell
        watcher = open_watcher(config.directory, config.watch, tell)
        self._follower = _follower(config, self._adapter, self._map, tell, watcher, self._clock)
        self._tail = Tail(self._follower, watcher, self._clock.monotonic, report=tell, gather_s=config.gather_s)
        self._finder = self._key_finder()
        self._reader = PrimaryReader(
            self._tail,
            self._adapter,
            FedCache(self._cache, self.nodes),
            self._map,
            self._clock,
            once=config.once,
            may_be_empty=config.may_be_empty,
            report=tell,
            finder=self._finder,
            arrived=self._arrived,
            begun=self._begun,
            keyless=self._keyless,
            written_ns=_written_ns(config),
        )
        self._sources = PublishedSources(
            self._follower, self._unavailable, self._clock.monotonic, lambda: self._reader.scanned_ns
        )

    def _key_finder(self) -> KeyFinder:
        """Returns the key finder: one with a second process if much must be read before any look-up."""
        config, adapter = self.config, self._adapter
        keyless = config.kind is MapKind.DENSE and config.hbase is None and not self._timed
        if config.once and keyless and can_use_process(adapter):
            return ProcessKeyFinder(adapter, self._much_is_unread, self._tell)
        return InlineKeyFinder(adapter)

    def _much_is_unread(self) -> bool:
        read, known = self._tail.backlog()
        return known - read >= self.config.key_process_bytes and (os.cpu_count() or 1) > 1

    def start(self) -> None:
        self._thread.start()

    # -- the reader's thread ---------------------------------------------------------------------------------------
    def _read(self) -> None:
        try:
            while not self._stop.is_set() and not self._reader.done:
                self._step()
            self._end_reading()
        except (PrimaryLogsIncomplete, UsageError) as err:
            self.hopeless = True
            self.failure = str(err)
        except FileMapError as err:
            self.failure = str(err)
        except OSError as err:
            self.failure = f"{err.filename or self.config.state}: {err.strerror or err}"
        except BaseException as err:
            self.failure = f"reading the primary logs failed: {err!r}"
            raise
        finally:
            self._finder.close()
            self.ended.set()
            self._watch()
            self._tail.close()
            self._follower.close()

    def _step(self) -> None:
        """Reads on. If the map lost rows, rereads from its positions; if the map is unreachable, waits."""
        try:
            self._map.tend()
            if self._owed:
                self._reader.commit()
                self._owed = ""
            self._reader.step()
        except RowsLost as lost:
            self._tell(str(lost))
            self._finder.close()
            self._tail.close()
            self._follower.close()
            self._open_logs()
        except FileMapUnavailable as away:
            if not self._owed:
                self._tell(f"waiting for the unreachable file map: {away}")
            self._owed = str(away)
            self._stop.wait(MAP_AGAIN_SECONDS)
        else:
            self._sources.note()
            if self._tail.caught_up() and not self._reader.done:
                self._tail.wait(self._stop, self._bell)
                with contextlib.suppress(BlockingIOError):  # nobody rang
                    os.eventfd_read(self._bell)

    def _end_reading(self) -> None:
        """Commits the records read. If the map is unreachable, the next start reads them again."""
        try:
            self._reader.commit()
            if self._reader.done:
                self._duplicates = self._map.totals(exact=True).duplicates
        except (RowsLost, FileMapUnavailable) as err:
            self._tell(f"some records read are not in the file map: {err}")

    def _watch(self) -> None:
        """Watches for logs that vanish or return after everything was read (``once``), as look-ups continue."""
        while not (self._over() or self._stop.wait(PATHS_SECONDS)):
            if self._unavailable.any:
                self._tail.scan()
            self._sources.look()

    # -- api.EventStore --------------------------------------------------------------------------------------------
    async def look_up(
        self, keys: Sequence[bytes], as_of: Sequence[int], times: Sequence[int] | None = None
    ) -> EventLookUps:
        """See api.EventStore. UNAVAILABLE for all keys once the reader has failed, or the engine is closed."""
        with span("eventstore.look_up", keys=len(keys)) as traced:
            if self._timed != (times is not None):  # this process and the caller have different settings
                found = EventLookUps.unavailable(len(keys))
            elif len(self.nodes) and times is None and not self._over():  # nodes know no times
                found = await self._hedged.look_up(keys, as_of)
            else:
                found = await self._answer(keys, as_of, (), times)
            if traced is not None:
                traced.note(**{code.name.lower(): found.codes.count(code) for code in LookUpCode})
        return found

    async def _answer(
        self,
        keys: Sequence[bytes],
        as_of: Sequence[int],
        elsewhere: Sequence[FoundRecords],
        times: Sequence[int] | None = None,
    ) -> EventLookUps:
        """Answers a look-up. ``elsewhere``: records from cache nodes."""
        if self._over():
            return EventLookUps.unavailable(len(keys))
        run = asyncio.get_running_loop().run_in_executor
        mark = self._awaited.mark() if self._awaited is not None else 0
        begun = await run(self._pool, self._begin, keys, as_of, elsewhere, times, mark)
        if isinstance(begun, EventLookUps):
            return begun
        reads = await self._reads.read(begun.wanted)
        if self._over():  # ended since: the pool accepts no more work
            return EventLookUps.unavailable(len(keys))
        found = self._tiers.end(begun, reads)  # no thread needed
        if missed := self._to_be_awaited(begun, found):
            await run(self._pool, self._missed, missed, mark)
        return found

    def _over(self) -> bool:
        return self._closed or bool(self.failure)

    def _begin(
        self,
        keys: Sequence[bytes],
        as_of: Sequence[int],
        elsewhere: Sequence[FoundRecords],
        times: Sequence[int] | None,
        mark: int,
    ) -> EventLookUps | LookUp:
        """Begins a look-up; returns its final answers if no log has to be read."""
        try:
            begun = self._tiers.begin(keys, as_of, elsewhere, times)
        except FileMapError:  # the reader's thread gets it, too, and reports it
            return EventLookUps.unavailable(len(keys))
        if len(begun.wanted):
            return begun
        found = self._tiers.end(begun, ReadResults(0))
        if missed := self._to_be_awaited(begun, found):
            self._missed(missed, mark)
        return found

    # -- api.ArrivalNotices ----------------------------------------------------------------------------------
    def _to_be_awaited(self, begun: LookUp, found: EventLookUps) -> list[bytes]:
        """Returns the missed keys to remember, because events wait for them."""
        if self._awaited is None:
            return []
        codes = np.frombuffer(found.codes, np.uint8)
        # A caller without an as-of time keeps waiting after ABSENT, too.
        waits = (codes == LookUpCode.NOT_YET) | ((codes == LookUpCode.ABSENT) & (begun.as_of == NOTHING_READ_NS))
        return [begun.keys[row] for row in waits.nonzero()[0].tolist()]

    def _missed(self, keys: Sequence[bytes], mark: int) -> None:
        if self._awaited is None:
            return
        come = self._awaited.missed(keys, mark)
        if self._awaited.forgot(mark):
            with contextlib.suppress(FileMapError):  # the reader's thread gets it, too, and reports it
                there = self._there(keys)
                self._awaited.come([keys[row] for row in there])
                come |= bool(there)
        if come:
            self._wake()

    def _there(self, keys: Sequence[bytes]) -> list[int]:
        rows: list[int] = np.unique(self._map.places(keys, hash_keys(keys)).rows).tolist()
        return rows

    def _arrived(self, keys: Sequence[bytes], hashes: U64, order: I64) -> None:
        if self._awaited is not None and self._awaited.read(keys, hashes, order):
            self._wake()

    def _wake(self) -> None:
        """Wakes requests that wait for arrivals. Thread-safe."""
        for waiter, loop in tuple(self._waiters.items()):
            with contextlib.suppress(RuntimeError):  # its loop is closed
                loop.call_soon_threadsafe(waiter.set)

    async def arrived(self, epoch: int, number: int, wait_s: float) -> KeyArrivals | None:
        if self._awaited is None:
            return None
        waiter = asyncio.Event()
        self._waiters[waiter] = asyncio.get_running_loop()
        try:
            came = self._awaited.since(epoch, number)
            at_once = self._hung_up or self._over() or len(self._waiters) > WAITERS_MAX
            if not (came.keys or came.lost or at_once):
                await until(waiter, wait_s)
                came = self._awaited.since(epoch, number)
        finally:
            del self._waiters[waiter]
        return came

    async def seek(self, keys: Sequence[bytes]) -> list[int] | None:
        if self._awaited is None or self._over():
            return None
        return await asyncio.get_running_loop().run_in_executor(self._pool, self._seek, keys, self._awaited.mark())

    def _seek(self, keys: Sequence[bytes], mark: int) -> list[int] | None:
        try:
            there = self._there(keys)
        except FileMapError:
            return None
        known = set(there)
        self._missed([key for row, key in enumerate(keys) if row not in known], mark)
        return there

    def hang_up(self) -> None:
        """Answers all requests that wait for arrivals, as the process ends."""
        self._hung_up = True
        self._wake()

    async def progress(self) -> Progress:
        """See api.EventStore. Duplicates are exact if ``ended`` and everything was read (``once``)."""
        if self._closed:
            return self._last
        os.eventfd_write(self._bell, 1)  # makes the next answer newer, even at rest
        self._last = await asyncio.get_running_loop().run_in_executor(self._telling, self._progress)
        return self._last

    def _progress(self) -> Progress:
        reader = self._reader
        read_past_ns, read_past_at = reader.read_past
        totals = self._map.totals()
        counts = self._cache.counts()
        read, known = reader.backlog
        missing_logs, missing_keys = self._unavailable.counts()
        missing_logs += len({each.identity for each in self._keyless.listed})
        missing_keys += self._keyless.count
        reads = self._logs.counts()
        return Progress(
            read_past_ns=read_past_ns,
            read_past_age_ns=max(0, int((self._clock.monotonic() - read_past_at) * NS_PER_S)),
            now_ns=self._clock.now_ns(),
            events=totals.events,
            bytes_read=read,
            bytes_known=known,
            duplicates=totals.duplicates if self._duplicates is None else self._duplicates,
            bad_records=totals.bad_records,
            cache_hits=counts.hits,
            cache_misses=counts.misses,
            cache_bytes=counts.bytes + self.nodes.held_bytes,
            cache_evictions=counts.evictions + self.nodes.evictions,
            files=totals.logs,
            missing_logs=missing_logs,
            missing_keys=missing_keys,
            log_reads=reads.places,
            log_bytes=reads.bytes,
            unended=reader.unended,
            **({} if self._awaited is None else self._awaited.counts()._asdict()),
            ambiguous=self._shared.ambiguous,
            ambiguous_example=self._shared.example,
        )

    async def details(self) -> Details:
        progress = await self.progress()
        sources = await asyncio.to_thread(self._sources.progress, 0.0 if self._over() else SOURCES_SECONDS)
        keyless = [
            UnavailableLog(each.path, each.identity, f"offset {each.offset}: {each.reason}", 1, each.since_ns, True)
            for each in self._keyless.listed
        ]
        return Details(progress, sources, (*self._unavailable.listed(), *keyless))

    async def forget(self, logs: Sequence[str], *, apply: bool) -> Forgotten:
        """See api.OperatedStore. Raises OSError if the list cannot be made durable."""
        return await asyncio.to_thread(self._unavailable.forget, logs, self._map.logs(), apply=apply)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self.hang_up()
        self._stop.set()
        os.eventfd_write(self._bell, 1)
        self._map.interrupt()
        await asyncio.to_thread(self._finish)
        await self.nodes.close()

    def _finish(self) -> None:
        if self._thread.is_alive():
            self._thread.join()
        os.close(self._bell)
        self._reads.close()
        self._pool.shutdown(wait=True)
        self._telling.shutdown(wait=True)
        self._logs.close()
        self._tail.close()
        self._follower.close()
        self._map.close()


async def open_engine(
    config: EventStoreConfig,
    adapter: Adapter,
    clock: Clock,
    disk: Disk,
    report: Callable[[str], None],
    *,
    to_caches: Towards | None = None,
    begun: Callable[[Sequence[Block]], None] = lambda blocks: None,
) -> EventStoreEngine:
    """Opens the engine. Waits for an orphaned predecessor to finish its commit. Raises EventStoreFailed."""
    deadline = clock.monotonic() + BUSY_SECONDS
    try:
        while True:
            try:
                return EventStoreEngine(config, adapter, clock, disk, report, to_caches=to_caches, begun=begun)
            except FileMapBusy:
                if clock.monotonic() > deadline:
                    raise
            await asyncio.sleep(BUSY_PAUSE_SECONDS)
    except (FileMapError, LogDirectoryError) as err:
        raise EventStoreFailed(f"join {config.join}: {err}") from None
    except OSError as err:
        raise EventStoreFailed(f"join {config.join}: {err.filename or config.state}: {err.strerror or err}") from None


def _written_ns(config: EventStoreConfig) -> Callable[[], int] | None:
    """Returns the parameter ``written_ns`` of PrimaryReader."""
    if config.relayed:
        return lambda: whole_ns(config.directory)
    there = elsewhere(config.directory)
    return None if there is None else there.whole_ns


def _follower(
    config: EventStoreConfig,
    adapter: Adapter,
    file_map: FileMap,
    tell: Callable[[str], None],
    watcher: Watcher | None,
    clock: Clock,
) -> Follower:
    def report(problem: Problem) -> None:
        tell(str(problem))

    rest = RestRule(config.last_line_after_s, clock.now_ns)

    return Follower(
        config.directory,
        patterns=config.patterns,
        has_header=adapter.primary_has_header,
        framing=adapter.primary_framing,
        links=adapter.primary_links,
        max_record=config.max_record,
        positions=file_map.positions(),
        report=report,
        enter=(lambda path: None) if watcher is None else watcher.enter,
        rest=rest,
    )


def open_map(
    directory: Path,
    settings: MapSettings,
    log_name: Callable[[str], str],
    disk: Disk,
    clock: Clock,
    table: HBaseTable | None,
) -> tuple[FileMap, str]:
    """Opens the map; also returns why it had to be rebuilt (empty if not). ``table``: ``None`` means a map on this
    machine.

    Raises FileMapBusy, OSError; UsageError if happybase is missing. Does not contact HBase yet.
    """
    if table is None:
        return opened_or_rebuilt(
            lambda: EmbeddedFileMap(directory, settings, log_name, disk), directory, EmbeddedFileMap.FILES, disk
        )
    from photon.eventstore.hbase.connection import ThriftHBase
    from photon.eventstore.hbase_file_map import HBaseFileMap

    hbase = ThriftHBase(table.thrift, clock)

    def opened() -> HBaseFileMap:
        return HBaseFileMap(directory, settings, log_name, disk, hbase, table.table, clock=clock)

    try:
        # A new map draws its own *life*: rows that an earlier map left in the table are not seen, and expire.
        return opened_or_rebuilt(opened, directory, HBaseFileMap.FILES, disk)
    except BaseException:
        hbase.close()
        raise

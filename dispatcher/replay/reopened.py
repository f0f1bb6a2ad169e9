"""Dispatches ids that the registry gave up (protocol rule 14): in every datacentre that still has the log.

The registry's list of reopened ids is read periodically, from the beginning each time: the list itself is the durable
record of the work, so a crash loses nothing. The state remembers only when an id was first seen there, which is when
its patience begins. An id leaves the list once it is registered with its new generation. Its event is found by
digest: first in chunks that may hold its registered event time, then once in all chunks, as a log here may give the
id another time. An id that is in no log here stays on the list and is searched for again, at growing intervals. It is
reported if no dispatcher of this datacentre has found it: its input may be lost, or exist only in another datacentre.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from photon.batch.columns import RowIndexes
from photon.batch.events import Events
from photon.config.back_off import BackOff
from photon.config.clock import Clock
from photon.config.structured import get_logger
from photon.dispatcher.events import Stretch
from photon.dispatcher.intake import LineRules
from photon.dispatcher.open_events import rows_of
from photon.dispatcher.replay.coverage import MAX_NS, MIN_NS, chunks_between, holding, read_up_to
from photon.dispatcher.replay.reading import Reads
from photon.dispatcher.replay.redispatch import Redispatcher
from photon.dispatcher.state import Changes, State
from photon.idregistry.api import DIGEST_BYTES, U64
from photon.idregistry.core.outcomes import Refusal
from photon.idregistry.core.scans import EntryPage
from photon.joiner.api import ForeignEvent
from photon.joiner.verdicts import tag_of

if TYPE_CHECKING:
    from photon.idregistry.client.recovery import Recovery

PERIOD_S = 5.0  # time between two readings of the list
SHARD_S = 0.02  # minimum of that time per shard
ASK_S = 5.0
PAGE_IDS = 4096
WANTED_MAX = 20_000  # most ids, of all shards, searched for at once: each chunk is read once for all of them
# Delay before an id that was not found is searched for again, doubled each time.
MISSING = BackOff(first=10.0, most=600.0)
# Most ids that were not found, and ids of one reading of the list: beyond it work is repeated, but nothing is lost.
REMEMBERED_MAX = 100_000


class Id(NamedTuple):
    """An id on the list. ``tag``: ``line_tag`` of the line that was registered before."""

    digest: bytes
    generation: int
    event_time_ns: int
    tag: int

    @property
    def name(self) -> tuple[bytes, int]:
        return self.digest, self.generation


@dataclass(slots=True)
class _Missing:
    """When to search again for an id that was not found; monotonic seconds."""

    next_s: float
    tries: int


@dataclass(eq=False)
class Reopened:
    """Dispatches ids that the registry gave up. One object per dispatcher; ``run`` it until cancelled."""

    state: State
    registry: Recovery
    reads: Reads
    redispatcher: Redispatcher
    clock: Clock
    rules: LineRules
    period_s: float = PERIOD_S

    def __post_init__(self) -> None:
        self._log = get_logger("photon.dispatcher")
        self._sent: dict[tuple[bytes, int], Stretch] = {}
        self._missing: dict[tuple[bytes, int], _Missing] = {}
        self._cursors: dict[int, bytes] = {}  # where an interrupted reading resumes
        self._told = 0
        self.listed = 0  # ids on the list, at its last complete reading
        self.missing = 0  # of these, ids that are in no log here

    async def run(self) -> None:
        """Runs until cancelled. Raises StateError."""
        while True:
            shards = await self.registry.shards(timeout=ASK_S)
            await self._read_list(shards)
            await asyncio.sleep(max(self.period_s, SHARD_S * len(shards)))

    # -- the list --------------------------------------------------------------------------------------------------
    async def _read_list(self, shards: Sequence[int]) -> None:
        self._count_done()
        whole = bool(shards)
        seen: set[tuple[bytes, int]] = set()
        listed = missing = 0
        ids: list[Id] = []
        for shard in shards:
            cursor = self._cursors.pop(shard, b"")
            whole = whole and not cursor
            while True:
                if len(ids) >= WANTED_MAX:
                    missing += await self._take(ids)
                    ids.clear()
                if not self.redispatcher.room():
                    self._cursors[shard], whole = cursor, False
                    break
                page = await self.registry.scan_reopened(shard, cursor=cursor, limit=PAGE_IDS, timeout=ASK_S)
                if isinstance(page, Refusal):
                    whole = False
                    break
                found = list(_ids(page))
                listed += len(found)
                ids += found
                if len(seen) < REMEMBERED_MAX:
                    seen.update(each.name for each in found)
                cursor = page.cursor
                if not cursor:
                    break
        if ids:
            missing += await self._take(ids)
        if whole:
            self._whole(seen, listed, missing and len(self.state.missing_everywhere() & seen))

    def _whole(self, seen: set[tuple[bytes, int]], listed: int, missing: int) -> None:
        self.listed, self.missing = listed, missing
        if listed <= REMEMBERED_MAX:
            self._missing = {name: each for name, each in self._missing.items() if name in seen}
            rows = self.state.database.execute("SELECT digest, generation FROM reopened LIMIT ?", (REMEMBERED_MAX,))
            done = [row for row in rows.fetchall() if (row[0], row[1]) not in seen]
            if done:
                delete = "DELETE FROM reopened WHERE digest = ? AND generation = ?"
                self.state.commit(Changes(also=[(delete, row) for row in done]))
        if missing != self._told:
            self._told = missing
            if missing:
                self._log.warning(
                    "reopened ids are in no log here; their input is lost, or only in another datacentre",
                    ids=missing,
                )
            else:
                self._log.info("all reopened ids were found")

    # -- some of its ids -------------------------------------------------------------------------------------------
    async def _take(self, ids: Sequence[Id]) -> int:
        """Sends the listed ids that are not in flight. Returns how many of ``ids`` are in no log here."""
        self._count_done()
        now = self.clock.monotonic()
        wanted = [each for each in ids if each.name not in self._sent and self._is_due(each, now)]
        if wanted:
            since = self._since(wanted)
            found = await self._find({each.digest: each for each in wanted})
            self._note(wanted, found)
            by_start: dict[int, list[ForeignEvent]] = {}
            for each in wanted:
                event = found.get(each.digest)
                if event is not None:
                    by_start.setdefault(since[each.name], []).append(event)
            for first_read_ns, events in by_start.items():
                stretch = self.redispatcher.send(Events.of(events), first_read_ns)
                self._sent.update(((event.digest, event.generation), stretch) for event in events)
        return sum(each.name in self._missing for each in ids)

    def _count_done(self) -> None:
        """Forgets ids that now have a verdict, and counts them."""
        done = {id(stretch): stretch for stretch in self._sent.values() if not stretch.left}
        if not done:
            return
        cells: Counter[int] = Counter()
        for stretch in done.values():
            cells.update(stretch.cells)
        self.state.commit(Changes(cells=cells))
        self._sent = {name: stretch for name, stretch in self._sent.items() if stretch.left}

    def _is_due(self, each: Id, now: float) -> bool:
        known = self._missing.get(each.name)
        return known is None or known.next_s <= now

    def _since(self, wanted: Sequence[Id]) -> Mapping[tuple[bytes, int], int]:
        """Returns when each id was first seen on the list, wall clock in ns; notes new ones as seen now."""
        db = self.state.database
        known = {}
        for each in wanted:
            row = db.execute("SELECT seen_ns FROM reopened WHERE digest = ? AND generation = ?", each.name).fetchone()
            if row is not None:
                known[each.name] = row[0]
        new = [each for each in wanted if each.name not in known]
        if new:
            now_ns = self.clock.now_ns()
            insert = "INSERT OR IGNORE INTO reopened (digest, generation, event_time_ns, seen_ns) VALUES (?, ?, ?, ?)"
            self.state.commit(Changes(also=[(insert, (*each.name, each.event_time_ns, now_ns)) for each in new]))
            known.update((each.name, now_ns) for each in new)
        return known

    def _note(self, wanted: Sequence[Id], found: Mapping[bytes, ForeignEvent]) -> None:
        now = self.clock.monotonic()
        update = "UPDATE reopened SET missing = ? WHERE digest = ? AND generation = ? AND missing <> ?1"
        gone = [(each.digest not in found, *each.name) for each in wanted]
        self.state.commit(Changes(also=[(update, row) for row in gone]))
        for each in wanted:
            if each.digest in found:
                self._missing.pop(each.name, None)
                continue
            known = self._missing.get(each.name)
            tries = known.tries + 1 if known else 1
            if known or len(self._missing) < REMEMBERED_MAX:
                self._missing[each.name] = _Missing(now + MISSING.delay(tries), tries)

    async def _find(self, wanted: Mapping[bytes, Id]) -> Mapping[bytes, ForeignEvent]:
        """Returns the event of each digest that is in a log here.

        If several lines have an id, prefers the line registered before.
        """
        times = np.array([each.event_time_ns for each in wanted.values()], np.int64)
        positions = read_up_to(self.state.database)
        if any(self._looks_everywhere(each) for each in wanted.values()):
            chunks = chunks_between(self.state.database, positions, MIN_NS, MAX_NS)
        else:
            some = chunks_between(self.state.database, positions, int(times.min()), int(times.max()) + 1)
            chunks = holding(some, times)
        found: dict[bytes, ForeignEvent] = {}
        sure: set[bytes] = set()
        looked = np.unique(np.frombuffer(b"".join(wanted), "<u8")[::2])
        for chunk in chunks:
            begun = self.clock.monotonic()
            try:
                blocks = await self.reads.blocks(chunk)
            except OSError as error:
                self._log.warning("a log cannot be read again", log=chunk.identity, error=str(error))
                continue
            for block in blocks or ():
                events = self.rules.events(block)
                for event in events.take(_rows_of(events.digests, looked, wanted)).rows():
                    each = wanted[event.digest]
                    if event.digest in sure:
                        continue
                    found[event.digest] = event
                    if tag_of(event) == each.tag:
                        sure.add(event.digest)
                await asyncio.sleep(0)
            if len(sure) == len(wanted):
                break
            await asyncio.sleep(self.clock.monotonic() - begun)  # half of the time is left to fresh events
        await self.reads.rest()
        return {digest: self._ready(event, wanted[digest]) for digest, event in found.items()}

    def _looks_everywhere(self, each: Id) -> bool:
        """True once per process, at the second try: then all logs are read again."""
        known = self._missing.get(each.name)
        return known is not None and known.tries == 1

    def _ready(self, event: ForeignEvent, each: Id) -> ForeignEvent:
        return event._replace(generation=each.generation)


def _ids(page: EntryPage) -> Iterator[Id]:
    columns = (page.generations.tolist(), page.times.tolist(), page.tags.tolist())
    for at, (generation, time, tag) in enumerate(zip(*columns, strict=True)):
        yield Id(page.digests[DIGEST_BYTES * at : DIGEST_BYTES * (at + 1)], generation, time, tag)


def _rows_of(digests: bytes, looked: U64, wanted: Mapping[bytes, Id]) -> RowIndexes:
    """Returns the rows of ``digests`` that are wanted. ``looked``: the first words of the wanted digests, sorted."""
    words = np.frombuffer(digests, "<u8")[::2]
    at = np.minimum(np.searchsorted(looked, words), len(looked) - 1)
    rows = np.flatnonzero(looked[at] == words).tolist()
    return rows_of([row for row in rows if digests[DIGEST_BYTES * row : DIGEST_BYTES * (row + 1)] in wanted])

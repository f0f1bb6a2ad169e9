"""Runs one computation over an interval of keys: calls user code serially for each key, with atomic effects.

Rows that changed since the last commit are *dirty*; they override the store's. When a call of user code for a key
ends, its effect becomes a dirty row. A call that fails has no effect: its records are run again one by one, and the
first one that fails is set aside in the key's row with all after it.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import takewhile, zip_longest
from operator import ne
from typing import Any, NamedTuple

from photon.computing import row as rows
from photon.computing.entries import changed_type
from photon.computing.errors import Misused
from photon.computing.guarding import Guard, failed, reason_of
from photon.computing.intervals import hash_of
from photon.computing.model import Context, Production, Record, Timer, unfit
from photon.computing.row import Body, Kept, Taken
from photon.computing.standing import Pieces, number_of
from photon.computing.store import Due, Row, Store
from photon.computing.topology import KeyOf, Part, errors_of
from photon.computing.wire import ENDED_NS, NEVER_NS

NOWHERE = ""  # the key under which records without a key are set aside
LAST = (ENDED_NS, "")
CHUNK_BYTES = 4 << 20  # of records set aside: a retry writes all of a key's again, and a row's size is limited
_decode, _encode = rows.decode, rows.encode


class Fault(NamedTuple):
    """A failure of a computation on one key.

    The key's input, including later records, is set aside until it is retried, unless ``end`` says otherwise.
    """

    computation: str
    key: str
    reason: str
    end: str = "put aside, to be retried"

    @property
    def line(self) -> str:
        what = f"key {self.key!r}" if self.key else "a record without key"
        return f"computation {self.computation}, {what}: {self.reason}; {self.end}"


class Tally:
    """A stage's counters, for metrics."""

    __slots__ = ("late", "past", "records", "timers")

    def __init__(self) -> None:
        self.records = self.late = self.timers = self.past = 0


def cost(row: Row) -> int:
    """Returns the memory that a cached row takes, in bytes."""
    return 300 + len(row.key) + len(row.data or b"")


class _OfKey:
    """The entries of the current key. Reads changes of this call first, then uncommitted ones, then the store."""

    def __init__(self, computation: str, store: Store, dirty: dict[tuple[str, str], Row]) -> None:
        self._computation, self._store, self._dirty = computation, store, dirty
        self._key = ""
        self._changed: dict[str, bytes | None] = {}  # by name of the row
        self._since: dict[str, set[str]] = {}  # key -> names that have changed since the last commit
        self._read: dict[tuple[str, str], bytes | None] = {}  # values in the store

    def begin(self, key: str) -> dict[str, bytes | None]:
        """Begins a call for a key. Returns the dict of its changes, still empty."""
        self._key = key
        self._changed = {}
        return self._changed

    def keep(self, key: str, changed: dict[str, bytes | None]) -> None:
        """Makes the changes of a successful call dirty rows."""
        if changed:
            self._since.setdefault(key, set()).update(changed)
            for name, data in changed.items():
                self._dirty[name, key] = Row(name, key, data)

    def clear(self) -> None:
        """Forgets the changes. Call it once they are committed."""
        self._since.clear()
        self._read.clear()

    def get(self, part: str, entry: str) -> bytes | None:
        name = f"{self._computation}/{part}{entry}"
        if name in self._changed:
            return self._changed[name]
        place = name, self._key
        if place in self._dirty:
            return self._dirty[place].data
        if place not in self._read:
            row = self._store.load(name, [self._key]).get(self._key)
            self._read[place] = None if row is None else row.data
        return self._read[place]

    def put(self, part: str, entry: str, data: bytes | None) -> None:
        self._changed[f"{self._computation}/{part}{entry}"] = data

    def scan(self, part: str) -> Iterator[tuple[str, bytes]]:
        prefix = f"{self._computation}/{part}"
        stored = {row.computation: row.data for row in self._store.parts(prefix, self._key)}
        dirty = {name: self._dirty[name, self._key].data for name in self._since.get(self._key, ())}
        found = {**stored, **dirty, **self._changed}
        for name in sorted(found):
            data = found[name]
            if data is not None and name.startswith(prefix):
                yield name[len(prefix) :], data


class Stage:
    def __init__(
        self,
        part: Part,
        store: Store,
        guard: Guard,
        state_bytes: int,
        timers_of_key: int,
        published: Collection[str],
    ) -> None:
        self.part = part
        self.name = part.name
        self.low_ns = NEVER_NS  # its watermark, up to which timers were called
        self.floors: Pieces = ()  # minimum watermark of some keys: so that a merge does not set any key back
        self._held_ns: int | None = None  # watermark of the key being retried, until its records have run
        self.waiting = 0
        # True if keys may have timers before its watermark, so that productions may be missing up to there. Unknown
        # at first.
        self.behind = True
        self.dirty: dict[str, Row] = {}
        self.cache: dict[str, Row] = {}
        self.cached = 0  # bytes of memory
        self.made: list[Production] = []
        self.faults: list[Fault] = []
        self.tally = Tally()
        self.aside: dict[str, int] = {}  # key -> number
        for name, key, count in store.aside():
            if rows.computation_of(name) == part.name:
                self.aside[key] = self.aside.get(key, 0) + count
        # Of records set aside, and entries of the state, changed since the last commit
        self.chunks: dict[tuple[str, str], Row] = {}
        self._store = store
        self._guard = guard
        self._state_bytes = state_bytes
        self._timers_of_key = timers_of_key
        self._context = Context(frozenset(part.outputs), frozenset(published))
        errors = errors_of(part.name)
        self._errors = errors if errors in published and errors not in part.outputs else ""
        self._context._entries = self._entries = _OfKey(part.name, store, self.chunks)
        # Timers in dirty rows, of the watermark and of the wall clock; may contain outdated ones.
        self._heaps: tuple[list[Due], list[Due]] = ([], [])
        self._stored_ns = [NEVER_NS, NEVER_NS]  # no committed row has a timer before it

    # -- records
    def keys_of(self, key_of: KeyOf, records: Sequence[Record]) -> list[str]:
        """Returns the records' keys; NOWHERE for those without one."""
        keys: list[str] = []
        guard = self._guard
        while len(keys) < len(records):
            try:
                with guard:
                    for record in records[len(keys) :] if keys else records:
                        guard.count += 1
                        key = key_of(record)
                        if type(key) is not str or not key:
                            raise Misused(f"its key is {key!r}, which must be a non-empty str")
                        if not key.isascii():
                            key.encode()
                        keys.append(key)
            except failed() as error:
                if len(keys) < len(records):
                    self._tell(NOWHERE, self._reason(error))
                    keys.append(NOWHERE)
        return keys

    def run(self, groups: dict[str, list[Taken]], now_ns: int) -> None:
        """Runs records grouped by key, in order within each key."""
        self._context.now_ns = now_ns
        for key, records in groups.items():
            low_ns = self._low_of(key)
            self.tally.records += len(records)
            for record, _ in records if low_ns > NEVER_NS else ():
                if record.time_ns < low_ns:
                    self.tally.late += 1
        self._each(list(groups.items()), NEVER_NS, NEVER_NS)

    # -- timers
    def due(self, until_ns: int, wall: bool, most: int) -> tuple[list[str], int, int]:
        """Returns at most ``most`` keys with timers up to ``until_ns``, earliest first; the time up to which to call
        their timers; and the time up to which no key is missing. If there are more, both times may be before
        ``until_ns``, and a later call returns the rest."""
        if until_ns < self._stored_ns[wall] and not self._heaps[wall]:
            return [], until_ns, until_ns
        found = self._found(until_ns, wall, most + 1)
        complete_ns = until_ns
        if len(found) > most:
            complete_ns = found[most].time_ns - 1
            until_ns = max(complete_ns, found[0].time_ns)
            found = found[:most]
        return list(dict.fromkeys(each.key for each in found if each.time_ns <= until_ns)), until_ns, complete_ns

    def _found(self, until_ns: int, wall: bool, most: int) -> list[Due]:
        found: list[Due] = []
        if until_ns >= self._stored_ns[wall]:
            stored = self._store.due(self.name, wall, until_ns, most + len(self.dirty))
            found = [each for each in stored if each.key not in self.dirty]
        heap = self._heaps[wall]
        fresh: set[Due] = set()
        while heap and heap[0].time_ns <= until_ns and len(fresh) < most:
            due = heapq.heappop(heap)
            row = self.dirty.get(due.key)
            if row is not None and (row.wall_ns if wall else row.event_ns) == due.time_ns:
                fresh.add(due)
        for due in fresh:
            heapq.heappush(heap, due)  # put back until they are called
        return sorted((*found, *fresh))

    def fire(self, keys: Sequence[str], low_ns: int, waiting: int, now_ns: int) -> None:
        """Sets the watermark and calls the timers of these keys up to it."""
        self.low_ns, self.waiting = low_ns, waiting
        if self.floors and max(floor_ns for _, _, floor_ns in self.floors) <= low_ns < ENDED_NS:
            self.floors = ()
        if keys:
            self._context.now_ns = now_ns
            self._each([(key, ()) for key in keys], low_ns, NEVER_NS)

    def fire_wall(self, keys: Sequence[str], until_ns: int, now_ns: int) -> None:
        """Calls the wall-clock timers of these keys up to ``until_ns``."""
        if keys:
            self._context.now_ns = now_ns
            self._each([(key, ()) for key in keys], NEVER_NS, until_ns)

    def passed(self, until_ns: int, wall: bool) -> None:
        """Notes that all timers up to this time were called."""
        if until_ns >= self._stored_ns[wall]:
            first = self._store.due(self.name, wall, ENDED_NS, 1)
            self._stored_ns[wall] = max(until_ns + 1, first[0].time_ns if first else ENDED_NS)

    # -- records set aside
    def retry(self, key: str, now_ns: int) -> None:
        """Continues where the key was blocked: calls the timers that were due then, runs its records under the
        watermark of that time, and calls its timers up to the current watermark."""
        row = self._row(key)
        if row is None or row.data is None:
            return
        body = self._body(row)
        held_ns = min(body.held_ns, self._low_of(key))  # may be earlier than the key's if the end of time was undone
        body.blocked, body.held_ns = "", 0
        records = self._taken_back(key, body)
        self._set(self._row_of(key, body))
        self._context.now_ns = now_ns
        self._held_ns = held_ns
        self._each([(key, ())], held_ns, NEVER_NS)
        self._each([(key, records)], NEVER_NS, NEVER_NS)
        self._held_ns = None
        self._each([(key, ())], self.low_ns, NEVER_NS)

    @property
    def keyless(self) -> int:
        """The number of records set aside for lack of a key; they may belong to any key."""
        return self.aside.get(NOWHERE, 1) - 1

    def nowhere(self) -> list[Taken]:
        """Removes and returns the records set aside for lack of a key."""
        row = self._row(NOWHERE)
        if row is None or row.data is None:
            return []
        records = self._taken_back(NOWHERE, self._body(row))
        self._set(self._row_of(NOWHERE, rows.empty()))
        return records

    def _taken_back(self, key: str, body: Body) -> list[Taken]:
        """Returns the set-aside records and clears them."""
        self.aside.pop(key, None)
        kept = body.kept
        for n in range(body.chunks):
            name = rows.chunk(self.name, n)
            row = self.chunks.get((name, key)) or self._store.load(name, [key]).get(key)
            if row is not None and row.data is not None:
                kept += _decode(row.data, name).kept
            self.chunks[name, key] = Row(name, key, None)
        body.kept, body.chunks = [], 0
        return [(Record(rows.value_of(each.value), each.time_ns, each.stream), each.value) for each in kept]

    # -- commit
    def committed(self) -> None:
        """Moves the dirty rows to the cache. Call it once they are in the store."""
        for row in self.dirty.values():
            self.forget(row.key)
            self.cache[row.key] = row
            self.cached += cost(row)
            for wall, at in ((0, row.event_ns), (1, row.wall_ns)):
                if at is not None and at < self._stored_ns[wall]:
                    self._stored_ns[wall] = at
        self.dirty.clear()
        self.chunks.clear()
        self._entries.clear()
        self._heaps = ([], [])

    def forget(self, key: str) -> int:
        """Evicts a row from the cache. Returns its size in bytes."""
        row = self.cache.pop(key, None)
        size = 0 if row is None else cost(row)
        self.cached -= size
        return size

    # -- one key
    def _each(self, groups: Sequence[tuple[str, Sequence[Taken]]], until_ns: int, wall_ns: int) -> None:
        self._load([key for key, _ in groups])
        at = 0
        while at < len(groups):
            ran: list[Callable[[], None]] = []
            failure: BaseException | None = None
            try:
                with self._guard:
                    for n in range(at, len(groups)):
                        ran.append(self._run(*groups[n], until_ns, wall_ns))  # noqa: PERF401 some, on failure
            except failed() as error:
                failure = error
            for keep in ran:
                keep()
            at += len(ran)
            if failure is not None and at < len(groups):
                self._one_by_one(*groups[at], until_ns, wall_ns, failure)
                at += 1

    def _one_by_one(
        self, key: str, records: Sequence[Taken], until_ns: int, wall_ns: int, error: BaseException
    ) -> None:
        if not records:
            self._one_timer_each(key, until_ns, wall_ns, error)
            return
        for n, record in enumerate(rows.fresh(records)):
            if len(records) > 1 or until_ns != NEVER_NS:
                try:
                    with self._guard:
                        keep = self._run(key, [record], NEVER_NS, NEVER_NS)
                    keep()
                    continue
                except failed() as again:
                    error = again
            self._block(key, records[n:], self._reason(error))
            return
        self._one_timer_each(key, until_ns, wall_ns, error)

    def _one_timer_each(self, key: str, until_ns: int, wall_ns: int, error: BaseException) -> None:
        called, first = -1, self.tally.timers
        try:
            while called < self.tally.timers:
                called = self.tally.timers
                if called > first + self._timers_of_key:
                    raise error
                with self._guard:
                    keep = self._run(key, (), until_ns, wall_ns, most=1)
                keep()
        except failed() as again:
            self._block(key, (), self._reason(again))

    def _run(
        self, key: str, records: Sequence[Taken], until_ns: int, wall_ns: int, most: int = 0
    ) -> Callable[[], None]:
        """Runs the records. Returns a function that keeps their effect; call it outside the guard, since the time
        limit may end this method at any line."""
        row = self.dirty.get(key) or self.cache.get(key)
        body = rows.empty() if row is None or row.data is None else _decode(row.data, self.name)
        if body.blocked or key == NOWHERE:
            return partial(self._keep_waiting, key, body, records)
        context, guard, process = self._context, self._guard, self.part.computation.process_record
        context.key = key
        changed = self._entries.begin(key)
        context.watermark_ns = low_ns = self._low_of(key)
        context.state = body.state
        context.events = events = dict.fromkeys(body.events)
        context.walls = walls = dict.fromkeys(body.walls)
        made: list[Production] = []
        context.produced = made
        context.past = past = called = 0
        for record, _ in records:
            guard.count += 1
            context._time_ns = record.time_ns
            process(context, record)
            if context.past:
                past += context.past
                context.past = 0
                called += self._call(events, low_ns, False)
        if events and until_ns != NEVER_NS:
            called += self._call(events, until_ns, False, most)
        if walls and wall_ns != NEVER_NS and not (most and called):
            called += self._call(walls, wall_ns, True, most)
            if context.past:
                called += self._call(events, low_ns, False)
        kept = self._row_of(key, body, context.state, events, walls)
        return partial(self._keep_effect, key, kept, changed, made, past + context.past, called)

    def _keep_effect(
        self,
        key: str,
        row: Row | None,
        changed: dict[str, bytes | None],
        made: list[Production],
        past: int,
        called: int,
    ) -> None:
        self._set(row)
        self._entries.keep(key, changed)
        self.made += made
        self.tally.past += past
        self.tally.timers += called

    def _keep_waiting(self, key: str, body: Body, records: Sequence[Taken]) -> None:
        if records:
            self._put_aside(key, body, records, body.blocked or "it has no key")
        if key == NOWHERE:
            for each in records:
                self._report(key, "it has no key", each)

    def _low_of(self, key: str) -> int:
        if self._held_ns is not None:
            return self._held_ns
        return max(self.low_ns, number_of(self.floors, hash_of(key))) if self.floors else self.low_ns

    def _call(self, timers: dict[tuple[int, str], None], until_ns: int, wall: bool, most: int = 0) -> int:
        """Calls timers up to ``until_ns``, in order, including timers that these calls set. Returns the number of
        calls."""
        context, guard, process = self._context, self._guard, self.part.computation.process_timer
        called, limit, first_ns = 0, len(timers) + self._timers_of_key, NEVER_NS
        while due := sorted(each for each in timers if each[0] <= until_ns):
            for each, following in zip_longest(due, due[1:], fillvalue=LAST):
                if each not in timers:
                    continue  # cancelled by an earlier timer
                if called >= limit:
                    if until_ns == ENDED_NS or each[0] <= first_ns:
                        raise Misused(f"{called} timers were called at once; it keeps setting timers in the past")
                    self.behind = True  # its time may be far behind, but advances
                    return called
                first_ns = each[0] if called == 0 else first_ns
                del timers[each]
                called += 1
                guard.count += 1
                context._time_ns = each[0]
                last = next(reversed(timers), None)
                process(context, Timer(each[1], each[0], 0 if wall else self.waiting, wall))
                if called == most:
                    return called
                if timers and any(new < following for new in takewhile(partial(ne, last), reversed(timers))):
                    break  # it set an earlier one
        return called

    def _row_of(
        self,
        key: str,
        body: Body,
        state: dict[Any, Any] | None = None,
        events: Iterable[tuple[int, str]] | None = None,
        walls: Iterable[tuple[int, str]] | None = None,
    ) -> Row | None:
        """Returns the key's row; ``None`` if it is unchanged. Raises Misused."""
        if state is not None:
            body.state, body.events, body.walls = state, list(events or ()), list(walls or ())
            if type(state) is not dict:
                raise Misused(f"its state must be a dict, not a {type(state).__name__}")
        data: bytes | None = _encode(body)
        if data == rows.EMPTY:
            data = None
        elif state is not None and len(data or b"") > self._state_bytes:
            raise Misused(f"its state and timers take {len(data or b'')} bytes; the limit is {self._state_bytes}")
        before = self.dirty.get(key) or self.cache.get(key)
        if before is not None and before.data == data:
            return None
        if state and (strange := changed_type(state)) is not None:
            raise Misused(
                f"its state has a {strange.__name__}, which would be read back as another type; use only None, "
                "bool, int, float, str, bytes, and lists and dicts of them"
            )
        event_ns = min(body.events)[0] if body.events and not body.blocked else None
        wall_ns = min(body.walls)[0] if body.walls and not body.blocked else None
        aside = len(body.kept) + bool(body.blocked)
        return Row(self.name, key, data, event_ns, wall_ns, aside)

    def _set(self, row: Row | None) -> None:
        if row is None:
            return
        before = self.dirty.get(row.key)
        self.dirty[row.key] = row
        if row.event_ns is not None and (before is None or before.event_ns != row.event_ns):
            heapq.heappush(self._heaps[0], Due(row.event_ns, row.key))
        if row.wall_ns is not None and (before is None or before.wall_ns != row.wall_ns):
            heapq.heappush(self._heaps[1], Due(row.wall_ns, row.key))

    def _block(self, key: str, records: Sequence[Taken], reason: str) -> None:
        self._tell(key, reason)
        self._report(key, reason, *records[:1])
        row = self._row(key)
        body = rows.empty() if row is None or row.data is None else self._body(row)
        body.held_ns = self._low_of(key)
        self._put_aside(key, body, records, reason)

    def _put_aside(self, key: str, body: Body, records: Sequence[Taken], reason: str) -> None:
        body.blocked = reason
        chunk, size = rows.empty(), 0
        for n, (each, value) in enumerate(records, 1):
            chunk.kept.append(Kept(each.stream, each.time_ns, value))
            size += len(value)
            if size >= CHUNK_BYTES or n == len(records):
                name = rows.chunk(self.name, body.chunks)
                self.chunks[name, key] = Row(name, key, _encode(chunk), aside=len(chunk.kept))
                body.chunks += 1
                chunk, size = rows.empty(), 0
        self._set(self._row_of(key, body))
        self.aside[key] = self.aside.get(key, 1) + len(records)

    def _tell(self, key: str, reason: str) -> None:
        self.faults.append(Fault(self.name, key, reason))

    def _report(self, key: str, reason: str, *failed: Taken) -> None:
        """Produces to the stream of errors: the record, if any, on which the code failed, with key and reason."""
        if not self._errors:
            return
        said: dict[str, Any] = {"key": key, "reason": reason}
        time_ns = self._context._time_ns
        for record, value in failed:
            said |= {"stream": record.stream, "record": rows.value_of(value)}
            time_ns = record.time_ns
        if why := unfit(data := rows.encode(said), published=True):
            data = rows.encode(said | {"record": f"left out, as it {why}"})
        self.made.append((self._errors, time_ns, data))

    def _reason(self, error: BaseException) -> str:
        return reason_of(error, self.part.computation, self._guard)

    # -- rows
    def _row(self, key: str) -> Row | None:
        self._load([key])
        return self.dirty.get(key) or self.cache.get(key)

    def _body(self, row: Row) -> Body:
        return _decode(row.data or rows.EMPTY, f"computation {self.name}, key {row.key!r}")

    def _load(self, keys: Sequence[str]) -> None:
        cache, dirty = self.cache, self.dirty
        missing = [key for key in keys if key not in dirty and key not in cache]
        if missing:
            found = self._store.load(self.name, missing)
            for key in missing:
                cache[key] = row = found.get(key) or Row(self.name, key, None)
                self.cached += cost(row)

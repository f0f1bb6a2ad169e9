"""Splits and merges of intervals, started by an operator (MillWheel 7.1).

The old owners are fenced first, their rows and metadata are copied to new stores, then the old stores are retired in
a transaction that compares the sequencer of the fence. That is the moment of change: before it nothing has happened,
and an old owner that returns makes the transaction fail; after it nobody can own the old interval. A merge has two
such moments, and the new store must not be opened before both. An interrupted merge is repeated; until then, one of
the old stores may be retired and the other not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from photon.computing import row as rows
from photon.computing import standing as standings
from photon.computing.errors import ComputingError, Retired
from photon.computing.intervals import Interval, hash_of
from photon.computing.stage import NOWHERE
from photon.computing.standing import Inherited, Standing
from photon.computing.store import Chunk, Commit, Row, Store
from photon.computing.topology import Topology
from photon.computing.wire import Watermark

ROWS_AT_ONCE = 5_000
OWNER = "moving"
NewStore = Callable[[Interval], Store]  # makes an empty store, even if an earlier attempt left data


def split(old: Store, at: int, ids: tuple[str, str], new_store: NewStore) -> tuple[Interval, Interval]:
    """Splits an interval at ``at``, the first hash of the second half. ``ids``: new ids for the halves. If it raises
    ComputingError or Fenced, nothing was changed."""
    interval = old.interval
    if not interval.low < at < interval.high:
        raise ComputingError(f"{at:#010x} cannot split the interval {interval.id}")
    halves = (Interval(interval.low, at, ids[0]), Interval(at, interval.high, ids[1]))
    sequencer = old.acquire(OWNER)
    for half in halves:
        store = new_store(half)
        standing = _halved(old, half, first=half is halves[0], successors=ids)
        chunks = list(old.chunks()) if half is halves[0] else []
        _fill(store, (row for row in old.scan() if _is_of(row, half, halves[0])), standing, chunks)
        store.close()
    old.retire(sequencer, ids)
    return halves


def merge(olds: tuple[Store, Store], new_id: str, new_store: NewStore, topology: Topology) -> Interval:
    """Merges two neighbours. Both must have read shared sources up to the same position. An interrupted merge may be
    repeated with the same id. If it raises ComputingError or Fenced, the new interval must not be used."""
    low, high = sorted(olds, key=lambda store: store.interval)
    if low.interval.high != high.interval.low:
        raise ComputingError(f"the intervals {low.interval.id} and {high.interval.id} are not neighbours")
    interval = Interval(low.interval.low, high.interval.high, new_id)
    retired = [old.successors() for old in (low, high)]
    if retired == [(new_id,), (new_id,)]:
        return interval  # already done
    for old, successors in zip((low, high), retired, strict=True):
        if successors not in ((), (new_id,)):
            raise Retired(old.interval.id, successors)
    fences = [old.acquire(OWNER, revive=True) for old in (low, high)]
    standing = _merged(low, high, interval, topology)
    store = new_store(interval)
    _fill(store, _of_both(low, high), standing, [chunk for old in (low, high) for chunk in old.chunks()])
    store.close()
    for old, sequencer in zip((low, high), fences, strict=True):
        old.retire(sequencer, (new_id,))
    return interval


def _fill(store: Store, rows: Iterator[Row], standing: Standing, chunks: Sequence[Chunk]) -> None:
    sequencer = store.acquire(OWNER)
    while some := list(islice(rows, ROWS_AT_ONCE)):
        store.commit(sequencer, Commit(some, standing=b""))
    store.commit(sequencer, Commit((), chunks, (), standing.encode()))


def _known(store: Store) -> Standing:
    return standings.decode(store.standing(), store.interval.id)


def _halved(old: Store, half: Interval, *, first: bool, successors: tuple[str, ...]) -> Standing:
    """Returns one half's part of the old owner's metadata. Both halves get its watermarks; the first half delivers
    its unacknowledged messages."""
    known, name = _known(old), old.interval.id
    known.cursors = {sender: _within(pieces, half) for sender, pieces in known.cursors.items()}
    known.floors = {name: _within(pieces, half) for name, pieces in known.floors.items()}
    known.heard[half.id] = known.heard.pop(name, {})
    known.ended.add(name)
    known.inherited = {**known.inherited, name: Inherited(known.number, successors, known.parents)} if first else {}
    known.shown = known.shown if first else {}
    known.number = 0
    known.parents = (name,)
    return known


def _is_of(row: Row, half: Interval, first: Interval) -> bool:
    return half is first if row.key == NOWHERE else hash_of(row.key) in half


def _of_both(low: Store, high: Store) -> Iterator[Row]:
    """Merges the rows of both stores: keys are distinct, except for records without a key."""
    nowhere: dict[str, Row] = {}
    for row in (row for old in (low, high) for row in old.scan()):
        if row.key != NOWHERE:
            yield row
            continue
        before = nowhere.get(row.computation)
        if before is not None:
            body, more = rows.decode(before.data or b"", NOWHERE), rows.decode(row.data or b"", NOWHERE)
            body.kept += more.kept
            body.chunks = max(body.chunks, more.chunks)
            row = row._replace(data=rows.encode(body), aside=before.aside + row.aside)
        nowhere[row.computation] = row
    yield from nowhere.values()


def _merged(low: Store, high: Store, interval: Interval, topology: Topology) -> Standing:
    one, other = _known(low), _known(high)
    names = (low.interval.id, high.interval.id)
    merged = Standing(parents=names)
    for source in one.sources | other.sources:
        shared = source not in topology.sources or topology.sources[source].shared
        at = {known.sources.get(source) for known in (one, other) if shared or source in known.sources}
        if len(at) > 1:
            raise ComputingError(
                f"{' and '.join(names)} have read {source} up to different positions: let both read up to its end, "
                "and merge them again"
            )
        merged.sources[source] = at.pop() or b""
    for sender in one.cursors | other.cursors:
        merged.cursors[sender] = (*one.taken(sender, low.interval), *other.taken(sender, high.interval))
    own = [known.heard.pop(name, {}) for known, name in zip((one, other), names, strict=True)]
    merged.heard = {
        sender: _least(one.heard.get(sender, {}), other.heard.get(sender, {})) for sender in one.heard | other.heard
    }
    merged.heard[names[0]] = other.heard.get(names[0], {})  # messages from one to the other may still be in flight
    merged.heard[names[1]] = one.heard.get(names[1], {})
    merged.heard[interval.id] = _least(*own)
    merged.ended = (one.ended & other.ended) - set(names)
    merged.lows = {name: min(one.lows[name], other.lows[name]) for name in one.lows.keys() & other.lows.keys()}
    merged.before = {
        name: min(one.before[name], other.before[name]) for name in one.before.keys() & other.before.keys()
    }
    for name in one.lows.keys() | other.lows.keys():
        floors = (*one.floors_of(name, low.interval), *other.floors_of(name, high.interval))
        if max(floor_ns for _, _, floor_ns in floors) > merged.reached(name):
            merged.floors[name] = floors
    merged.inherited = {**one.inherited, **other.inherited}
    merged.shown = {**one.shown, **other.shown}
    for known, name in zip((one, other), names, strict=True):
        merged.inherited[name] = Inherited(known.number, (interval.id,), known.parents)
    return merged


def _within(pieces: Iterable[tuple[int, int, int]], half: Interval) -> standings.Pieces:
    cut = ((max(low, half.low), min(high, half.high), number) for low, high, number in pieces)
    return tuple(piece for piece in cut if piece[0] < piece[1])


def _least(one: dict[str, Watermark], other: dict[str, Watermark]) -> dict[str, Watermark]:
    """Returns the lower watermarks; one known to only one side is unknown."""
    return {
        stream: Watermark(
            min(one[stream].exact_ns, other[stream].exact_ns),
            min(one[stream].percentile_ns, other[stream].percentile_ns),
            one[stream].waiting + other[stream].waiting,
        )
        for stream in one.keys() & other.keys()
    }

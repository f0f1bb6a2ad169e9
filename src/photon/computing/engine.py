"""Runs the computations of a topology for one interval of keys: see ``docs/computations.md``, Inside."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import msgspec

from photon.computing import standing as standings
from photon.computing.errors import ComputingError, TopologyError
from photon.computing.guarding import Guards, Unguarded
from photon.computing.intervals import Intervals, hash_of
from photon.computing.model import SECOND_NS, Production, Record
from photon.computing.outbox import Outbox
from photon.computing.row import Taken, fresh, taken_of, value_of
from photon.computing.stage import NOWHERE, Fault, Stage
from photon.computing.standing import ENDED, Inherited, least, number_of
from photon.computing.store import Commit, Store
from photon.computing.topology import KeyOf, Topology
from photon.computing.topology import Limits as Limits
from photon.computing.wire import ENDED_NS, NEVER_NS, PUBLISH, Ack, Input, Item, Message, Watermark

SEQUENCER_BITS = 40  # ids of weak productions have their owner's sequencer above this many bits


class Counts(NamedTuple):
    """Counters since the engine was made."""

    records: int = 0
    repeated: int = 0  # dropped, as they had been taken already
    late: int = 0  # records before their computation's watermark
    timers: int = 0
    past: int = 0  # timers that were set in the past
    produced: int = 0
    dropped: int = 0  # sent to computations that were removed, or without key and of an input that was removed
    aside: int = 0  # records and timers set aside now


class Engine:
    """Runs the computations for one interval of keys, which it owns. Not thread-safe. Unusable after any exception
    except one from ``change``: make another engine on the same store."""

    def __init__(
        self,
        topology: Topology,
        store: Store,
        intervals: Intervals,
        *,
        owner: str = "",
        limits: Limits | None = None,
        guards: Guards = Unguarded,
    ) -> None:
        """Acquires the store. ``limits`` replaces the topology's. Raises TopologyError, Retired, ComputingError."""
        topology.checked()
        self.held = ""  # why the last ``take`` was held back, for people; empty if it was not
        self._store, self._given, self._guards = store, limits, guards
        self._limits = limits = limits or topology.limits
        self._interval = store.interval
        self._sequencer = store.acquire(owner)
        self._standing = standings.decode(store.standing(), self.id)
        self._outbox = Outbox(self.id, store.chunks(), limits.message_items, limits.message_bytes)
        self._repeated = self._produced = self._dropped = 0
        self._changed = self._moved = self._more = False
        # Sender and owner of a message -> ids of weak productions.
        self._to_ack: dict[tuple[str, str], list[int]] = {}
        self._weak: dict[int, tuple[str, Item]] = {}  # id -> target, item: unacknowledged; they have no numbers yet
        self._weak_fresh: dict[str, list[Item]] = {}
        self._weak_last = self._sequencer << SEQUENCER_BITS
        self._weak_since_ns = 0
        self._weak_sent = False
        self._stages: list[Stage] = []
        self._tick = self._standing.number
        self._set(topology, intervals)
        self._note_committed()
        self.rewire(intervals)

    @property
    def id(self) -> str:
        return self._interval.id

    @property
    def version(self) -> int:
        return self._topology.version

    @property
    def committed(self) -> int:
        """The number of the last production in the store."""
        return self._number

    @property
    def published(self) -> Mapping[str, str]:
        """The directory of each published stream, as the topology names it."""
        return self._topology.published

    def shown(self, sender: str, directory: str) -> int:
        """Returns the number of the last production of ``sender`` known to be published in this directory; -1 if
        there is none."""
        return self._standing.shown.get(sender, {}).get(directory, -1)

    @property
    def inherits(self) -> bool:
        """True if messages from before a split or merge are still undelivered."""
        return bool(self._standing.inherited)

    # -- input
    def position(self, source: str) -> bytes | None:
        """Returns the position to continue from, including input taken since the last commit.

        ``None`` means the beginning.
        """
        return self._standing.sources.get(source)

    def has_ended(self, source: str) -> bool:
        """True if the source has declared its end."""
        own = self._standing.heard.get(self.id, {})
        return source in own and own[source].exact_ns == ENDED_NS

    def take(self, batch: Input, now_ns: int) -> bool:
        """Runs the computations on the batch. Returns False if it holds the batch back because skew, outbox or
        set-aside records are at their limit (see ``held``): offer the batch again later. A repeated batch is dropped,
        and returns True."""
        if batch.source not in self._topology.sources:
            raise ComputingError(f"the topology {self._topology.name} has no source {batch.source!r}")
        if batch.begin != self.position(batch.source):
            self._repeated += len(batch.records)
            return True
        caught_up = self._caught_up(now_ns)
        self.held = self._held(batch) if caught_up else "messages from before a merge have not all arrived"
        if self.held:
            return False
        self._standing.sources[batch.source] = batch.end
        self._changed = True
        if batch.records:
            shared, taken = self._topology.sources[batch.source].shared, taken_of(batch.records)
            for n, (stage, key_of) in enumerate(self._consumers.get(batch.source, ())):
                self._route_to(stage, key_of, fresh(taken) if n else taken, keep_own=shared)
        if batch.watermark is not None:
            self._hear(batch.source, batch.watermark)
        self._run(now_ns)
        return True

    def leave(self, source: str) -> None:
        """Notes that this owner reads nothing from an unshared source, so that nobody waits for its watermark."""
        self._changed |= self._standing.sources.pop(source, None) is not None
        self._hear(source, ENDED)

    def receive(self, message: Message, now_ns: int) -> bool:
        """Like ``take``, for a message from another owner. Returns False if the message is for another owner or a
        newer topology, or an earlier message is missing; the sender will then send it again."""
        if message.target != self.id or message.topology > self._topology.version:
            return False
        if not self._parents_ended(message):
            return False
        if not self._caught_up(now_ns) and message.sender in self._intervals.by_id:
            return False
        self._receive(message, now_ns)
        return True

    def _receive(self, message: Message, now_ns: int) -> None:
        standing, sender = self._standing, message.sender
        taken = standing.taken(sender, self._interval)
        newest = message.upto >= least(taken)  # otherwise the message is late, and so are its watermarks
        if message.weak and message.upto < standing.seen_from.get(sender, 0):
            return  # a late duplicate, whose items have since arrived with numbers
        to_ack = self._to_ack.setdefault((sender, message.owner), [])
        seen = standing.seen.get(sender, {})
        weak = message.weak
        self._changed |= bool(message.items) if weak else message.upto > least(taken)
        for item in message.items:
            stage = self._named.get(item.consumer)
            if stage is None:
                self._dropped += 1
            elif stage.part.computation.dedup and (
                item.id in seen if weak else item.number <= number_of(taken, hash_of(item.key)) or item.id in seen
            ):
                self._repeated += 1
            else:
                record = Record(value_of(item.value), item.time_ns, item.stream)
                self._groups.setdefault(item.consumer, {}).setdefault(item.key, []).append((record, item.value))
                self._changed = True
        if weak:
            standing.see(sender, message.upto, weak)
            to_ack += weak
        else:
            standing.take(sender, self._interval, message.upto)
        if sender not in standing.ended and newest:
            for stream, mark in message.watermarks.items():
                self._changed |= standing.hear(sender, stream, mark)
            if message.successors:
                standing.end(sender, message.successors)
                self._changed = True
        self._run(now_ns)

    def advance(self, now_ns: int) -> bool:
        """Calls wall-clock timers, and finishes the work of split or merged intervals. Returns True if there is more
        to do after a commit."""
        if not self._caught_up(now_ns):
            return False
        self._run(now_ns)
        return self._more

    def retry(self, now_ns: int) -> None:
        """Tries the set-aside records and timers again."""
        if not self._caught_up(now_ns):
            return
        for stage in self._stages:
            keyless = stage.nowhere()
            for key in list(stage.aside):
                stage.retry(key, now_ns)
            for each in keyless:
                key_of = stage.part.inputs.get(stream := each[0].stream)
                if key_of is not None:
                    self._route_to(stage, key_of, [each], keep_own=False)
                    continue
                self._dropped += 1
                stage.faults.append(Fault(stage.name, NOWHERE, f"its input stream {stream} was removed", "dropped"))
        self._changed = True
        self._run(now_ns)

    # -- commit
    @property
    def has_acknowledgements(self) -> bool:
        """True if others have acknowledged data that the store still keeps for them, and no weak production is
        pending."""
        return self._outbox.done and not self._weak

    @property
    def moved(self) -> bool:
        """True if watermarks for other owners have moved since the last commit."""
        return self._moved

    def ready(self, now_ns: int) -> bool:
        """True if it is time to commit: something changed, and no weak production is waiting for an acknowledgement.
        An owner with messages to acknowledge does not wait, since two owners would otherwise wait for each other."""
        waits = self._weak and not self._to_ack and abs(now_ns - self._weak_since_ns) < self._limits.straggler_ns
        return self._changed and not waits

    def commit(self) -> None:
        """Makes all input taken since the last commit durable. Raises Fenced, Retired, OSError."""
        standing = self._standing
        for target, item in self._weak.values():
            standing.number += 1
            self._outbox.add(target, msgspec.structs.replace(item, number=standing.number))
        if self._moved or self._weak_sent:
            standing.number += 1
            self._tick = standing.number
        standing.lows |= {s.name: (s.low_ns, s.waiting) for s in self._stages}
        standing.floors |= {s.name: s.floors for s in self._stages if s.floors or s.name in standing.floors}
        self._note_shown()
        added, done = self._outbox.changes()
        rows = [row for stage in self._stages for row in (*stage.dirty.values(), *stage.chunks.values())]
        self._store.commit(self._sequencer, Commit(rows, added, done, standing.encode()))
        for stage in self._stages:
            stage.committed()
        self._outbox.committed()
        self._changed = self._moved = False
        self._weak.clear()
        self._weak_fresh.clear()
        self._weak_sent = False
        self._note_committed()
        self._evict()

    # -- output
    def outgoing(self) -> list[Message]:
        """Returns committed productions and moved watermarks: one message at a time for each target, repeated after
        ``resend``. Targets: ids of intervals, and PUBLISH + stream."""
        out = self._outbox.messages(
            self.id,
            self._targets(others=self._sends),
            self._number,
            self._tick,
            self._marks_for,
            self._topology.version,
            parents=self._standing.parents,
        )
        for sender, left in list(self._standing.inherited.items()):
            out += self._last_of(sender, left)
        return out

    def weak(self) -> list[Message]:
        """Returns weak productions, to be sent once before the commit. Unacknowledged ones are sent again after it,
        like strong ones."""
        most, standing = self._limits.message_items, self._standing
        out = []
        for target, items in self._weak_fresh.items():
            for some in (tuple(items[at : at + most]) for at in range(0, len(items), most)):
                ids = tuple(item.id for item in some)
                version = self._topology.version
                out.append(Message(self.id, target, self._number, some, {}, ids, (), standing.parents, version))
        self._weak_fresh.clear()
        return out

    def acks(self) -> list[Ack]:
        """Returns acknowledgements for messages whose content is now committed."""
        if self._changed:
            return []
        out = [
            Ack(sender, self.id, least(self._standing.taken(sender, self._interval)), tuple(ids), owner)
            for (sender, owner), ids in sorted(self._to_ack.items())
        ]
        self._to_ack.clear()
        return out

    def acknowledged(self, ack: Ack) -> None:
        for each in ack.weak:
            self._weak.pop(each, None)
        self._outbox.acknowledged(ack)

    def awaits(self, target: str) -> bool:
        """True if a message sent to the target after a commit is unacknowledged, so that ``resend`` may be due."""
        return self._outbox.awaits(target)

    def resend(self, target: str) -> None:
        """Lets ``outgoing`` repeat the messages to this target. Call it if one was lost, or not answered in time."""
        self._outbox.resend(target)

    # -- changes while it runs
    def change(self, topology: Topology) -> None:
        """Commits, then switches to a topology with parts added or removed. If it raises TopologyError, nothing has
        changed."""
        topology.checked()
        if self._changed:
            self.commit()
        self._set(topology, self._intervals)

    def rewire(self, intervals: Intervals) -> None:
        """Adapts to splits or merges of other owners' intervals. Commits before and after, because no message may be
        sent to a new interval until messages to the old one are readdressed."""
        if self._changed:
            self.commit()
        self._intervals = intervals
        self._whole = len(intervals.all) == 1
        if self._outbox.rewire(intervals):
            self.commit()

    # -- reports
    def faults(self) -> list[Fault]:
        """Returns the faults since the last call."""
        found = [fault for stage in self._stages for fault in stage.faults]
        for stage in self._stages:
            stage.faults.clear()
        return found

    def watermarks(self) -> dict[str, Watermark]:
        """Returns each computation's watermark; it has processed all its input before that time."""
        return {stage.name: Watermark(stage.low_ns, stage.low_ns, stage.waiting) for stage in self._stages}

    def counts(self) -> Counts:
        tallies = [stage.tally for stage in self._stages]
        return Counts(
            sum(each.records for each in tallies),
            self._repeated,
            sum(each.late for each in tallies),
            sum(each.timers for each in tallies),
            sum(each.past for each in tallies),
            self._produced,
            self._dropped,
            sum(sum(stage.aside.values()) for stage in self._stages),
        )

    # -- inside
    def _set(self, topology: Topology, intervals: Intervals) -> None:
        limits = self._given or topology.limits
        for stream in self._outbox.unpublished() - topology.published.keys():
            raise TopologyError(f"the stream {stream!r} is not completely published yet; remove it later")
        if self._stages:
            self._note_shown()  # the directories used so far
        self._topology, self._intervals, self._limits = topology, intervals, limits
        self._sends = topology.sends
        self._stages = [
            Stage(
                part,
                self._store,
                self._guards(part.computation),
                limits.state_bytes,
                limits.timers_of_key,
                topology.published,
            )
            for part in topology.checked()
        ]
        self._named = {stage.name: stage for stage in self._stages}
        for stage in self._stages:
            stage.low_ns, stage.waiting = self._standing.lows.get(stage.name, (NEVER_NS, 0))
            stage.floors = self._standing.floors.get(stage.name, ())
        self._consumers: dict[str, list[tuple[Stage, KeyOf]]] = {}
        for stage in self._stages:
            for stream, key_of in stage.part.inputs.items():
                self._consumers.setdefault(stream, []).append((stage, key_of))
        self._groups: dict[str, dict[str, list[Taken]]] = {}
        self._whole = len(intervals.all) == 1

    def _held(self, batch: Input) -> str:
        limits = self._limits
        if self._outbox.bytes > limits.outbox_bytes:
            return f"{self._outbox.bytes} bytes of productions are not acknowledged yet"
        aside = sum(len(stage.aside) and sum(stage.aside.values()) for stage in self._stages)
        if aside > limits.aside:
            return f"{aside} records and timers are put aside; fix the computations that failed on them"
        if limits.skew_ns is None or not batch.records:
            return ""
        own = self._standing.heard.get(self.id, {})
        lows = {name: own[name].percentile_ns if name in own else NEVER_NS for name in self._topology.sources}
        low_ns = min(lows.values())
        newest_ns = max(record.time_ns for record in batch.records)
        if lows[batch.source] > low_ns and newest_ns > low_ns + limits.skew_ns:
            behind = ", ".join(name for name, at in lows.items() if at == low_ns)
            return f"{batch.source} is {(newest_ns - low_ns) / SECOND_NS:.0f} s ahead of {behind}"
        return ""

    def _caught_up(self, now_ns: int) -> bool:
        """True if no message from this interval's parents is missing. After a merge, it first delivers the parents'
        messages to each other."""
        box, ended = self._outbox, self._standing.ended
        if not self._standing.inherited or not box.has(self.id):
            return True
        for sender, left in sorted(self._standing.inherited.items(), key=lambda each: len(each[1].parents)):
            items = box.all_for(sender, self.id)
            if items and ended.issuperset(left.parents):
                self._receive(
                    Message(sender, self.id, left.last, items, successors=left.successors, owner=self.id), now_ns
                )
                box.acknowledged(Ack(sender, self.id, left.last))
        return not box.has(self.id)

    def _parents_ended(self, message: Message) -> bool:
        return self._standing.ended.issuperset(message.parents)

    def _hear(self, stream: str, mark: Watermark) -> None:
        if self._standing.hear(self.id, stream, mark):
            self._changed = self._moved = True

    def _run(self, now_ns: int) -> None:
        """Runs all pending work, producers before consumers."""
        limits = self._limits
        self._more = False
        for stage in self._stages:
            if groups := self._groups.pop(stage.name, None):
                if stage.behind and stage.low_ns > NEVER_NS:  # timers up to the watermark come before later records
                    stage.fire(list(groups), stage.low_ns, stage.waiting, now_ns)
                stage.run(groups, now_ns)
            low_ns, expected = self._low(stage, exact=stage.part.exact)
            waiting = expected + stage.keyless
            if low_ns > stage.low_ns or stage.behind:
                low_ns = max(low_ns, stage.low_ns)
                if low_ns < ENDED_NS:
                    self._standing.before[stage.name] = low_ns
                keys, until_ns, complete_ns = stage.due(low_ns, False, limits.timers_at_once)
                self._more |= complete_ns < low_ns
                self._changed |= bool(keys) or low_ns > stage.low_ns
                stage.behind = False
                stage.fire(keys, max(until_ns, stage.low_ns), waiting, now_ns)
                stage.passed(complete_ns, False)
                stage.behind |= complete_ns < stage.low_ns
            stage.waiting = waiting
            keys, until_ns, complete_ns = stage.due(now_ns, True, limits.timers_at_once)
            if keys:
                self._more |= complete_ns < now_ns
                stage.fire_wall(keys, until_ns, now_ns)
                stage.passed(complete_ns, True)
                self._changed = True
            if stage.made:
                made, stage.made = stage.made, []
                self._hand_out(made, weak=stage.part.computation.idempotent, now_ns=now_ns)
            self._more |= stage.behind
            if stage.part.outputs and not stage.behind:
                aside, exact_ns = sum(stage.aside.values()), self._low(stage, exact=True)[0]
                if aside and exact_ns < ENDED_NS:
                    exact_ns = NEVER_NS  # set-aside records may come with any time: so the watermark stays
                mark = Watermark(min(exact_ns, stage.low_ns), stage.low_ns, expected + aside)
                for stream in stage.part.outputs:
                    self._hear(stream, mark)

    def _low(self, stage: Stage, *, exact: bool) -> tuple[int, int]:
        low_ns, waiting = standings.ENDED.exact_ns, 0
        for stream in stage.part.inputs:
            of_stream = self._standing.low(stream, self._senders(stream), exact)
            low_ns, waiting = min(low_ns, of_stream[0]), waiting + of_stream[1]
        return low_ns, waiting

    def _senders(self, stream: str) -> Collection[str]:
        """Returns the possible senders of a stream's records."""
        source = self._topology.sources.get(stream)
        if source is not None and source.shared:
            return (self.id,)
        return {*self._intervals.by_id, *self._standing.heard} - self._standing.ended

    def _hand_out(self, made: Sequence[Production], *, weak: bool, now_ns: int) -> None:
        before = len(self._weak)
        self._produced += len(made)
        streams: dict[str, list[Production]] = {}
        for each in made:
            streams.setdefault(each[0], []).append(each)
        for stream, some in streams.items():
            if stream in self._topology.published:
                for _, time_ns, value in some:
                    self._send(PUBLISH + stream, "", "", time_ns, value, stream)
            for stage, key_of in self._consumers.get(stream, ()):
                taken = [(Record(value_of(value), time_ns, stream), value) for _, time_ns, value in some]
                self._route_to(stage, key_of, taken, keep_own=False, weak=weak)
        if self._weak and not before:
            self._weak_since_ns = now_ns

    def _route_to(
        self, stage: Stage, key_of: KeyOf, taken: Sequence[Taken], *, keep_own: bool, weak: bool = False
    ) -> None:
        """Groups records of this interval by key, and sends the others to their owners. With ``keep_own``, drops the
        others, as their owners read the same input."""
        keys = stage.keys_of(key_of, [record for record, _ in taken])
        groups = self._groups.setdefault(stage.name, {})
        whole, interval = self._whole, self._interval
        for key, each in zip(keys, taken, strict=True):
            if not whole:
                hashed = hash_of(key)
                if hashed not in interval and (key != NOWHERE or keep_own):
                    if not keep_own:
                        target = self._intervals.of(hashed).id
                        send = self._send_weak if weak else self._send
                        send(target, stage.name, key, each[0].time_ns, each[1], each[0].stream)
                    continue
            group = groups.get(key)
            if group is None:
                groups[key] = [each]
            else:
                group.append(each)

    def _send(self, target: str, consumer: str, key: str, time_ns: int, value: bytes, stream: str) -> None:
        self._standing.number += 1
        self._outbox.add(target, Item(self._standing.number, consumer, key, time_ns, value, stream))

    def _send_weak(self, target: str, consumer: str, key: str, time_ns: int, value: bytes, stream: str) -> None:
        self._weak_last += 1
        self._weak_sent = True
        item = Item(0, consumer, key, time_ns, value, stream, self._weak_last)
        self._weak[item.id] = (target, item)
        self._weak_fresh.setdefault(target, []).append(item)

    def _note_shown(self) -> None:
        for (sender, target), number in self._outbox.taken().items():
            directory = self._topology.published.get(target.removeprefix(PUBLISH))
            if directory is not None and target.startswith(PUBLISH):
                self._standing.shown.setdefault(sender, {})[directory] = number

    def _note_committed(self) -> None:
        """Updates the committed number and watermarks, so that messages may contain them."""
        self._number = self._standing.number
        self._marks = dict(self._standing.heard.get(self.id, {}))

    def _targets(self, *, others: bool) -> list[str]:
        """Returns the published streams, and, with ``others``, the owners of other intervals."""
        named = [each.id for each in self._intervals.all if each.id != self.id] if others else []
        return named + [PUBLISH + stream for stream in self._topology.published]

    def _marks_for(self, target: str) -> dict[str, Watermark]:
        if self._outbox.has(target, self._standing.inherited):
            return {}  # productions from before the split or merge are still in flight, under another name
        if target.startswith(PUBLISH):
            stream = target.removeprefix(PUBLISH)
            return {stream: self._marks[stream]} if stream in self._marks else {}
        return self._marks

    def _last_of(self, sender: str, left: Inherited) -> list[Message]:
        """Returns the remaining messages of a split or merged interval: undelivered items, then the notice of its
        end."""
        ended, box = self._standing.ended, self._outbox
        if sender not in ended and ended.issuperset(left.parents) and not box.has(self.id, (sender,)):
            self._standing.end(sender, ())
            self._changed = self._moved = True
        targets, end = self._targets(others=True), left.last + 1  # a later topology may send them something
        if sender in ended and all(box.has_acked(sender, target, end) for target in targets):
            del self._standing.inherited[sender]
            self._standing.shown.pop(sender, None)
            self._changed = self._moved = True
            return []
        version = self._topology.version
        return box.messages(
            sender,
            targets,
            end,
            end,
            lambda target: {},
            version,
            successors=left.successors,
            parents=left.parents,
        )

    def _evict(self) -> None:
        """Evicts rows from the cache: first rows without timers, then rows with the latest timers, so that rows
        needed soon stay."""
        size = sum(stage.cached for stage in self._stages)
        if size <= self._limits.cache_bytes:
            return
        rows = ((row, stage) for stage in self._stages for row in stage.cache.values())
        most = sum(len(stage.cache) for stage in self._stages) // 4 + 1  # a list of all would be large itself
        for row, stage in heapq.nsmallest(
            most, rows, key=lambda each: NEVER_NS if each[0].event_ns is None else -each[0].event_ns
        ):
            size -= stage.forget(row.key)
            if size <= self._limits.cache_bytes * 4 // 5:
                return

"""A seeded world of computations: owners of intervals that die at any step, others that do not know that they were
replaced, a network that loses, doubles and delays, a clock that steps, intervals that are split and merged.

What must come of it is known from the records alone (``check``): each is processed once, in the order of its key and
source; a timer is called once, not before all that is before it has come; what waits is counted.
"""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from photon.computing import SECOND_NS, Computation, Context, Record, Timer, Topology, windows
from photon.computing.engine import Engine, Limits
from photon.computing.errors import ComputingError, Fenced, Retired
from photon.computing.intervals import Interval, Intervals, even
from photon.computing.moving import merge, split
from photon.computing.store import Store, in_memory
from photon.computing.wire import (
    ENDED_NS,
    PUBLISH,
    Ack,
    Input,
    Message,
    Watermark,
    decode_ack,
    decode_message,
)
from tests.simulation.world.violation import Violation, of_seed

WINDOW_NS = 10 * SECOND_NS
GAP_NS = 3 * SECOND_NS
SHARED = ("east", "west")
OWN = "local"
STEPS = 260
ROUNDS_MAX = 400


class Killed(Exception):
    pass


@dataclass(frozen=True)
class Variant:
    """A removed rule: (class, name, replacement)."""

    patches: tuple[tuple[object, str, object], ...] = ()
    sampled_late: bool = False

    @contextmanager
    def applied(self) -> Iterator[None]:
        before = [(where, name, getattr(where, name)) for where, name, _ in self.patches]
        for where, name, instead in self.patches:
            setattr(where, name, instead)
        try:
            yield
        finally:
            for where, name, old in before:
                setattr(where, name, old)


def begin_of(time_ns: int) -> int:
    return time_ns - time_ns % WINDOW_NS


class Windows(Computation):
    """By the percentile: late events cause a correction."""

    name = "windows"

    def process_record(self, ctx: Context, record: Record) -> None:
        _in_order(ctx, record)
        begin = begin_of(record.time_ns)
        end = begin + WINDOW_NS
        if ctx.is_late(end):
            ctx.produce("counts", [ctx.key, begin, 1, -1], end)
            return
        counts = ctx.state.setdefault("counts", {})
        counts[begin] = counts.get(begin, 0) + 1
        ctx.set_timer("end", end)

    def process_timer(self, ctx: Context, timer: Timer) -> None:
        if timer.time_ns > ctx.watermark_ns:
            raise Violation(f"a timer was called early: {timer}")
        begin = timer.time_ns - WINDOW_NS
        ctx.produce("counts", [ctx.key, begin, ctx.state["counts"].pop(begin), timer.waiting])


class Exact(Windows):
    """By the exact watermark: nothing is late."""

    name = "exact"
    stream = "finals"

    def process_record(self, ctx: Context, record: Record) -> None:
        begin = begin_of(record.time_ns)
        if ctx.is_late(begin + WINDOW_NS):
            raise Violation(f"late for the exact watermark: {record}")
        counts = ctx.state.setdefault("counts", {})
        counts[begin] = counts.get(begin, 0) + 1
        ctx.set_timer("end", begin + WINDOW_NS)

    def process_timer(self, ctx: Context, timer: Timer) -> None:
        begin = timer.time_ns - WINDOW_NS
        ctx.produce(self.stream, [ctx.key, begin, ctx.state["counts"].pop(begin)])


class Bills(Exact):
    """Nothing is late, even for a key that is being repaired."""

    name = "bills"
    stream = "bills"

    def __init__(self, world: World) -> None:
        self._world = world

    def process_record(self, ctx: Context, record: Record) -> None:
        if record.value["id"] in self._world.poison:
            raise ValueError("poison")
        super().process_record(ctx, record)


class Totals(Computation):
    """Totals over the windows of all keys, one after the other."""

    name = "totals"

    def process_record(self, ctx: Context, record: Record) -> None:
        if ctx.is_late(record.time_ns + 1):
            raise Violation(f"a window came late, without a late record: {record}")
        ctx.state["n"] = ctx.state.get("n", 0) + record.value[2]
        ctx.set_timer("total", record.time_ns + 1)

    def process_timer(self, ctx: Context, timer: Timer) -> None:
        ctx.produce("sums", [int(ctx.key), ctx.state.pop("n")])


class Echo(Computation):
    """Fails for some keys until it is fixed."""

    name = "echo"

    def __init__(self, world: World) -> None:
        self._world = world

    def process_record(self, ctx: Context, record: Record) -> None:
        _in_order(ctx, record)
        if record.value["id"] in self._world.poison:
            raise ValueError("poison")
        ctx.produce("echoes", record.value)
        if "woken" not in ctx.state:
            ctx.state["woken"] = False
            ctx.set_wall_timer("wake", ctx.now_ns + 5 * SECOND_NS)

    def process_timer(self, ctx: Context, timer: Timer) -> None:
        if ctx.now_ns < timer.time_ns:
            raise Violation(f"a wall timer was called early: {timer}")
        if ctx.state["woken"]:
            raise Violation(f"a wall timer was called twice: {ctx.key}")
        ctx.state["woken"] = True
        ctx.produce("woken", ctx.key)


class WeakEcho(Echo):
    idempotent = True


class Ledger(Computation):
    name = "ledger"

    def __init__(self, world: World) -> None:
        self._world = world
        self.idempotent = world.weak

    def process_record(self, ctx: Context, record: Record) -> None:
        if self._world.weak and ctx.state:
            return  # it comes from a weak production, which contains it twice
        ctx.state["n"] = ctx.state.get("n", 0) + 1
        ctx.produce("ledger", [record.value["id"], ctx.state["n"]])


def _in_order(ctx: Context, record: Record) -> None:
    last = ctx.state.setdefault("last", {})
    if record.value["number"] <= last.get(record.stream, -1):
        raise Violation(f"out of order for its key, or twice: {record}")
    last[record.stream] = record.value["number"]


@dataclass
class Process:
    engine: Engine
    table: Intervals
    old_inputs: list[Input] = field(default_factory=list)


class World:
    def __init__(self, seed: int, variant: Variant) -> None:
        self.random = random.Random(seed)
        self.variant = variant
        self.seed = seed
        self.story: list[str] = []
        self.counts: Counter[str] = Counter()
        self.now_ns = 1_000 * SECOND_NS
        draw = self.random
        self.sources = {name: self._records(name) for name in (*SHARED, OWN)}
        ids = [each.value["id"] for records in self.sources.values() for each in records]
        self.poison = set(draw.sample(ids, 2)) if draw.random() < 0.4 else set()
        self.stragglers = {each for each in ids if draw.random() < self.straggling}
        self.table = even(draw.choice((1, 2, 2, 3)))
        self.names = len(self.table.all)
        self.stores = {each.id: in_memory(each) for each in self.table.all}
        self.processes: dict[str, Process] = {}
        self.zombies: list[Process] = []
        self.network: list[Message | Ack] = []
        self.published: dict[str, list[Any]] = defaultdict(list)
        self.cursors: dict[tuple[str, str], int] = defaultdict(int)
        self.ended: dict[str, set[str]] = defaultdict(set)
        self.merging: tuple[str, str, str] | None = None
        self.loss = draw.choice((0.0, 0.1, 0.3))
        self.weak = draw.random() < 0.3
        self.chaos = draw.choice((0.0, 0.02, 0.06))
        self.limits = Limits(
            cache_bytes=draw.choice((1_000, 1 << 20)),
            message_items=draw.choice((1, 3, 100)),
            timers_at_once=draw.choice((1, 2, 1000)),
            outbox_bytes=draw.choice((2_000, 1 << 20)),
            skew_ns=draw.choice((None, 20 * SECOND_NS)),
        )

    def _records(self, source: str) -> list[Record]:
        draw = self.random
        self.straggling = draw.choice((0.0, 0.0, 0.1))
        out, at = [], 0
        for number in range(draw.randrange(10, 40)):
            at += draw.randrange(0, 4 * SECOND_NS)
            time_ns = max(0, at - draw.randrange(0, 8 * SECOND_NS))
            value = {"id": f"{source}-{number}", "number": number, "user": f"u{draw.randrange(6)}"}
            out.append(Record(value, time_ns, source))
        return out

    # -- what is true
    def topology(self) -> Topology:
        topology = Topology("world")
        for name in SHARED:
            topology.source(name)
        topology.source(OWN, shared=False)
        by_user = {name: lambda record: str(record.value["user"]) for name in (*SHARED, OWN)}
        topology.add(Windows(), by_user, ["counts"])
        topology.add(Exact(), by_user, ["finals"], watermark="exact")
        topology.add(Bills(self), by_user, ["bills"], watermark="exact")
        topology.add(Totals(), {"finals": lambda record: str(record.value[1])}, ["sums"])
        topology.add(WeakEcho(self) if self.weak else Echo(self), by_user, ["echoes", "woken"])
        topology.add(Ledger(self), {"echoes": lambda record: str(record.value["id"])}, ["ledger"])
        for stream in ("counts", "finals", "bills", "sums", "ledger", "woken"):
            topology.publish(stream, stream)
        return topology

    def watermark(self, source: str, position: int) -> Watermark:
        left = self.sources[source][position:]
        exact_ns = min((each.time_ns for each in left), default=ENDED_NS)
        usual = (each.time_ns for each in left if each.value["id"] not in self.stragglers)
        percentile_ns = min(usual, default=ENDED_NS)
        return Watermark(exact_ns, percentile_ns, sum(each.time_ns < percentile_ns for each in left))

    # -- steps
    def tell(self, what: str, kind: str = "") -> None:
        self.counts[kind or what] += 1
        self.story.append(what)

    def run(self) -> None:
        draw = self.random
        for _ in range(STEPS):
            if draw.random() < self.chaos:
                self._fault()
            else:
                self._step()
        self._come_to_rest()
        self.check()

    def _step(self) -> None:
        draw = self.random
        what = draw.random()
        if what < 0.35 and self.network:
            self._deliver(self.network.pop(draw.randrange(len(self.network))))
            return
        if what < 0.4:
            self.now_ns += draw.randrange(0, 3 * SECOND_NS)
            return
        name = draw.choice(self.table.all).id
        process = self.processes.get(name) or self._start(name)
        if self.zombies and draw.random() < 0.2:
            process = draw.choice(self.zombies)
        if process is not None:
            self._act(process, draw.choice(("read", "read", "read", "advance", "commit", "commit", "send", "rewire")))

    def _start(self, name: str) -> Process | None:
        try:
            engine = Engine(self.topology(), self.stores[name], self.table, limits=self.limits)
        except Retired:
            return None
        process = self.processes[name] = Process(engine, self.table)
        if name != self.table.all[0].id:
            engine.leave(OWN)
        return process

    def _act(self, process: Process, what: str) -> None:
        engine = process.engine
        try:
            if what == "read":
                self._read(process)
            elif what == "advance":
                engine.advance(self.now_ns)
            elif what == "commit" and engine.ready(self.now_ns):
                engine.commit()
            elif what == "send":
                self.network += [*engine.weak(), *engine.acks()]
                self.network += engine.outgoing()
                if self.random.random() < 0.3:
                    for target in [*process.table.by_id, *(PUBLISH + each for each in self.topology().published)]:
                        engine.resend(target)
            elif what == "rewire" and process.table is not self.table:
                process.table = self.table
                engine.rewire(self.table)
        except (Fenced, Retired) as gone:
            self.tell(f"{engine.id}: {type(gone).__name__}", "fenced")
            self._lose(process)

    def _lose(self, process: Process) -> None:
        if process in self.zombies:
            self.zombies.remove(process)
        if self.processes.get(process.engine.id) is process:
            del self.processes[process.engine.id]

    def _read(self, process: Process) -> None:
        draw, engine = self.random, process.engine
        shared = [*SHARED, OWN] if engine.id == process.table.all[0].id else [*SHARED]
        source = draw.choice(shared)
        if process.old_inputs and draw.random() < 0.1:
            engine.take(draw.choice(process.old_inputs), self.now_ns)
            return
        at = int(engine.position(source) or b"0")
        records = self.sources[source]
        end = min(len(records), at + draw.randrange(0, 5))
        sampled = draw.randrange(at, end + 1)
        if self.variant.sampled_late:
            sampled = min(len(records), end + draw.randrange(0, 5))
        begin = engine.position(source)
        batch = Input(source, begin, str(end).encode(), records[at:end], self.watermark(source, sampled))
        if not engine.take(batch, self.now_ns):
            self.tell(f"held: {engine.held}", "held")
        if end > at:
            process.old_inputs = [*process.old_inputs[-5:], batch]

    def _deliver(self, what: Message | Ack) -> None:
        draw = self.random
        if self.loss and draw.random() < self.loss:
            fate = draw.randrange(3)
            if fate == 0:
                return
            self.network.append(what)
            if fate == 1:
                return
        if isinstance(what, Ack):
            for process in self._of(what.to):
                process.engine.acknowledged(decode_ack(what.encode()))
            return
        what = decode_message(what.encode())
        if what.target.startswith(PUBLISH):
            self._publish(what)
            return
        for process in self._of(what.target):
            process.engine.receive(what, self.now_ns)

    def _of(self, name: str) -> list[Process]:
        """The processes that have this interval, or believe they do."""
        found = [self.processes[name]] if name in self.processes else []
        return found + [each for each in self.zombies if each.engine.id == name and self.random.random() < 0.5]

    def _publish(self, message: Message) -> None:
        if not self.ended[message.target].issuperset(message.parents):
            return
        if message.successors:
            self.ended[message.target].add(message.sender)
        way = (message.sender, message.target)
        for item in message.items:
            if item.number > self.cursors[way]:
                self.published[message.target.removeprefix(PUBLISH)].append(item.decoded())
        self.cursors[way] = max(self.cursors[way], message.upto)
        self.network.append(Ack(message.sender, message.target, message.upto, owner=message.owner))

    # -- faults
    def _fault(self) -> None:
        draw = self.random
        what = draw.choice(("kill", "kill", "zombie", "zombie", "clock", "split", "merge", "merge"))
        if what == "clock":
            self.now_ns += draw.randrange(-60 * SECOND_NS, 60 * SECOND_NS)
            self.tell("the clock steps", "clock")
        elif what in ("kill", "zombie") and self.processes:
            name = draw.choice(sorted(self.processes))
            process = self.processes.pop(name)
            if what == "zombie":
                self.zombies.append(process)
            self.tell(f"{what} {name}", what)
        elif what == "split" and len(self.table.all) < 4 and self.merging is None:
            self._split(draw.choice(self.table.all))
        elif what == "merge":
            self._merge()

    def _split(self, old: Interval) -> None:
        new = (self._name(), self._name())
        self._replaced(old.id)
        at = self.random.randrange(old.low + 1, old.high)
        try:
            first, second = split(self.stores[old.id], at, new, self._new_store)
        except Killed:
            self.tell(f"the split of {old.id} was broken off", "broken off")
            return
        except Retired:
            return
        self.table = Intervals([*(each for each in self.table.all if each != old), first, second])
        self.tell(f"split {old.id} into {new}", "split")

    def _merge(self) -> None:
        if self.merging is None:
            if len(self.table.all) < 2:
                return
            n = self.random.randrange(len(self.table.all) - 1)
            self.merging = (self.table.all[n].id, self.table.all[n + 1].id, self._name())
        one, other, new = self.merging
        self._replaced(one)
        self._replaced(other)
        try:
            stores = (self.stores[one], self.stores[other])
            merged = merge(
                (self._killable(stores[0]), self._killable(stores[1])), new, self._new_store, self.topology()
            )
        except Killed:
            self.tell(f"the merge of {one} and {other} was broken off", "broken off")
            return
        except Retired:
            self.merging = None  # it has been split meanwhile
            return
        except ComputingError as error:
            if "positions" not in str(error):
                raise
            self.counts["merges refused"] += 1
            self.merging = None
            return
        self.merging = None
        self.table = Intervals([*(each for each in self.table.all if each.id not in (one, other)), merged])
        self.tell(f"merged {one} and {other} into {new}", "merged")

    def _killable(self, store: Store) -> Store:
        return _Killable(store, self) if self.random.random() < 0.3 else store

    def _new_store(self, interval: Interval) -> Store:
        if self.random.random() < 0.15 and self.chaos:
            raise Killed()
        store = self.stores[interval.id] = in_memory(interval)
        return store

    def _replaced(self, name: str) -> None:
        if name in self.processes:
            self.zombies.append(self.processes.pop(name))

    def _name(self) -> str:
        self.names += 1
        return f"n{self.names}"

    # -- the end
    def _come_to_rest(self) -> None:
        self.loss = self.chaos = 0.0
        self.poison = set()
        self.limits = Limits()
        while self.merging is not None:
            self._merge()
        for process in [*self.zombies, *self.processes.values()]:
            if self.random.random() < 0.5:
                self._lose(process)
        quiet = 0
        self.now_ns += 10_000 * SECOND_NS  # the clock may have been far ahead when a timer was set
        for _ in range(ROUNDS_MAX):
            self.now_ns += 10 * SECOND_NS
            for process in list(self.zombies):
                self._act(process, "commit")
                self._lose(process)
            busy = bool(self.network)
            for each in self.table.all:
                process = self.processes.get(each.id) or self._start(each.id)
                assert process is not None
                engine = process.engine
                engine.retry(self.now_ns)
                for what in ("commit", "rewire"):
                    self._act(process, what)
                for source in (*SHARED, OWN):
                    begin, end = engine.position(source), len(self.sources[source])
                    if source == OWN and each is not self.table.all[0]:
                        continue
                    at = int(begin or b"0")
                    mark = self.watermark(source, min(at + 8, end))
                    engine.take(
                        Input(source, begin, str(min(at + 8, end)).encode(), self.sources[source][at : at + 8], mark),
                        self.now_ns,
                    )
                    busy |= at < end
                busy |= engine.advance(self.now_ns)
                self.network += engine.weak() if self.random.random() < 0.5 else []
                engine.commit()
                for target in [*self.table.by_id, *(PUBLISH + name for name in self.topology().published)]:
                    engine.resend(target)
                messages = engine.outgoing()
                self.network += [*engine.acks(), *messages]
                busy |= bool(messages)
            if not busy:
                quiet += 1
                if quiet > 2:
                    return
            waiting, self.network = self.network, []
            for what in waiting:
                self._deliver(what)
        raise Violation(
            f"it does not come to rest: {self.network[:3]} {[p.engine.watermarks() for p in self.processes.values()]}"
        )

    def check(self) -> None:
        for process in self.processes.values():
            if faults := process.engine.faults():
                told = [fault.line for fault in faults if "poison" not in fault.line]
                if told:
                    raise Violation(told[0])
        everything = [record for records in self.sources.values() for record in records]
        truth = Counter((str(each.value["user"]), begin_of(each.time_ns)) for each in everything)
        _same("the ledger", Counter((each.value["id"], 1) for each in everything), self._counter("ledger"))
        counted: Counter[tuple[str, int]] = Counter()
        ends: Counter[tuple[str, int]] = Counter()
        for user, begin, n, waiting in self.published["counts"]:
            counted[user, begin] += n
            if waiting >= 0:
                ends[user, begin] += 1
            if waiting == 0 and n != truth[user, begin]:
                raise Violation(f"the window {user}, {begin} was called final with {n} of {truth[user, begin]}")
        _same("windows and corrections", truth, counted)
        if twice := [each for each, n in ends.items() if n > 1]:
            raise Violation(f"a window ended twice: {twice}")
        _same("final windows", Counter((u, b, n) for (u, b), n in truth.items()), self._counter("finals"))
        _same("bills", Counter((u, b, n) for (u, b), n in truth.items()), self._counter("bills"))
        sums: Counter[int] = Counter()
        for (_, begin), n in truth.items():
            sums[begin] += n
        _same("sums", Counter(sums.items()), self._counter("sums"))
        _same(
            "wall timers", Counter({str(each.value["user"]) for each in everything}), Counter(self.published["woken"])
        )

    def _counter(self, stream: str) -> Counter[Any]:
        return Counter(tuple(each) for each in self.published[stream])


class Seen(Computation):
    """State by entry: how often each record came, and a list of them."""

    outputs = ("seen",)

    def process_record(self, ctx: Context, record: Record) -> None:
        times, order = ctx.map_of("times"), ctx.list_of("order", str)
        times[record.value["id"]] = times.get(record.value["id"], 0) + 1
        order.append(record.value["id"])
        if len(order) > 2:
            order.pop_first()
        ctx.produce("seen", [ctx.key, record.value["id"], times[record.value["id"]], len(times), list(order)])


class SessionsWorld(World):
    """With sessions, which late records make longer, or one; and with state by entry."""

    def topology(self) -> Topology:
        topology = super().topology()
        visits = windows.Windows(
            "visits", windows.session(GAP_NS), {"ids": windows.collect(lambda record: record.value["id"])},
            lateness_ns=3600 * SECOND_NS,
        )  # fmt: skip
        topology.add(visits, {name: lambda record: str(record.value["user"]) for name in (*SHARED, OWN)})
        topology.add(Seen(), {name: lambda record: str(record.value["user"]) for name in (*SHARED, OWN)})
        for stream in (*visits.outputs[:2], "seen"):
            topology.publish(stream, stream)
        return topology

    def watermark(self, source: str, position: int) -> Watermark:
        """Many records are late by the percentile, and none so late that no window takes it."""
        exact_ns, percentile_ns, _ = super().watermark(source, position)
        if exact_ns < ENDED_NS:
            newest_ns = max(each.time_ns for each in self.sources[source])
            percentile_ns = min(percentile_ns, newest_ns) + 2 * GAP_NS
        waiting = sum(each.time_ns < percentile_ns for each in self.sources[source][position:])
        return Watermark(exact_ns, percentile_ns, waiting)

    def check(self) -> None:
        """Sessions that were said and not replaced are those that the records make."""
        super().check()
        everything = [record for records in self.sources.values() for record in records]
        self._check_seen(everything)
        truth: dict[tuple[str, int, int], list[str]] = {}
        for each in sorted(everything, key=lambda record: (record.value["user"], record.time_ns)):
            user, begin, end, ids = str(each.value["user"]), each.time_ns, each.time_ns + GAP_NS, [each.value["id"]]
            last = next(reversed(truth), None)
            if last is not None and last[0] == user and begin < last[2]:
                begin, ids = last[1], truth.pop(last) + ids
            truth[user, begin, end] = ids
        stand: Counter[tuple[str, int, int]] = Counter()
        largest: dict[tuple[str, int, int], list[str]] = {}
        for value in (*self.published["visits"], *self.published["visits.corrections"]):
            where = (value["key"], value["from_ns"], value["to_ns"])
            stand[where] += 1
            stand.subtract((value["key"], begin, end) for begin, end in value.get("replaces", ()))
            largest[where] = max(largest.get(where, []), sorted(value["ids"]), key=len)
        _same("sessions", Counter(truth.keys()), +stand)
        if wrong := [each for each, n in stand.items() if n < 0 or (n and largest[each] != sorted(truth[each]))]:
            raise Violation(f"sessions: replaced what was not said, or hold other records: {wrong[:4]}")

    def _check_seen(self, everything: list[Record]) -> None:
        users = Counter(str(each.value["user"]) for each in everything)
        seen = self.published["seen"]
        _same(
            "seen",
            Counter((each.value["id"], 1) for each in everything),
            Counter((each[1], each[2]) for each in seen),
        )
        sizes = Counter((user, size) for user, _, _, size, _ in seen)
        _same("map sizes", Counter((user, n) for user, most in users.items() for n in range(1, most + 1)), sizes)
        before = dict[str, list[str]]()
        for user, own, _, _, order in sorted(seen, key=lambda each: each[3]):
            if order != [*before.get(user, []), own][-2:]:
                raise Violation(f"the list of {user} is {order} after {before.get(user)} and {own}")
            before[user] = order


class _Killable(Store):
    """Dies before it is retired."""

    def __init__(self, store: Store, world: World) -> None:
        self.__dict__ = store.__dict__

    def retire(self, sequencer: int, successors: tuple[str, ...]) -> None:
        raise Killed()


def _same(what: str, truth: Counter[Any], found: Counter[Any]) -> None:
    lost, extra = truth - found, found - truth
    if lost:
        raise Violation(f"{what}: lost {dict(list(lost.items())[:4])}, extra {dict(list(extra.items())[:4])}")
    if extra:
        raise Violation(f"{what}: twice or wrong {dict(list(extra.items())[:4])}")


def run_seed(seed: int, variant: Variant = Variant(), kind: type[World] = World) -> World:
    world = kind(seed, variant)
    with variant.applied(), of_seed(seed):
        world.run()
    return world

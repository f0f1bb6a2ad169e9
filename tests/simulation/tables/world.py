"""Clients, a store and an oracle in one simulated time, where any call of the store may meet any fault.

Clients are threads, of which one runs at a time: a call of the store, a wait, or a question to the oracle gives the
turn to the client that is next in simulated time, so a seed is a schedule. The running code is the product's.
"""

from __future__ import annotations

import heapq
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from photon.rows.memory import MemoryRows
from photon.tables.api import Cell, Mutation, Notification, Read, RowRead, StoreFailed
from photon.tables.cell import Commit, read_meta, start_of
from photon.tables.locks import RowLocks
from photon.tables.oracle import (
    Allocate,
    Answer,
    Confirm,
    MemoryOracle,
    OracleLeader,
    OracleMachine,
    Refuse,
    allocate,
)
from photon.tables.store import GROUPS, AtomicStore, Store, in_memory
from photon.tables.surroundings import Limits, Surroundings
from photon.tables.tables import Tables
from tests.simulation.world.violation import Violation

LIMITS = Limits(lock_age_s=1.0, grace_s=4.0, patience_s=8.0)


class Killed(BaseException):
    """The client's process is dead."""


class Task:
    """A client's thread."""

    def __init__(self, world: World, name: str, work: Callable[[], None]) -> None:
        self.world = world
        self.name = name
        self.dead = self.done = False
        self.go = threading.Semaphore(0)
        self.error: BaseException | None = None
        self._work = work
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self.go.acquire()
        try:
            if not self.dead:
                self._work()
        except Killed:
            pass
        except BaseException as error:
            self.error = error
        self.done = True
        self.world.baton.release()


@dataclass
class Faults:
    """Chances at a call of the store, drawn by seed."""

    kill: float = 0.0
    fail: float = 0.0
    lost: float = 0.0  # the answer to a mutation is lost; the mutation is done
    late: float = 0.0  # likewise, and the mutation is done some time later
    never: float = 0.0
    slow: float = 0.0  # a call takes seconds
    oracle: float = 0.0  # leader changes per second
    step: float = 0.0  # wall clock steps per second


@dataclass
class Variant:
    """The parts an ablation removes."""

    leader: type[OracleLeader] = OracleLeader
    ordered: bool = True  # the store keeps ``first_decides``
    notify_late: bool = False  # notifications come with the commit
    grace: bool = True
    patched: list[tuple[Any, str, Any]] = field(default_factory=list)  # object, attribute, replacement value


class World:
    in_file = False  # the clients commit in one step, in a file

    def __init__(self, seed: int, variant: Variant | None = None) -> None:
        self.random = Random(seed)
        self.variant = variant or Variant()
        self.now = 0.0
        self.baton = threading.Semaphore(0)
        self.events: list[tuple[float, int, Task | Callable[[], None]]] = []
        self.count = 0
        self.tasks: list[Task] = []
        self.current: Task | None = None
        self.claims: dict[tuple[str, str], bytes] = {}
        self.rows = MemoryRows(GROUPS)
        self.truth = Store(self.rows)
        # Start timestamp -> cells and commit timestamps, in order of execution.
        self.installed: dict[int, dict[Cell, int]] = {}
        self.story: list[str] = []
        self.counts: Counter[str] = Counter()
        self.stormy = True
        self.violation: Violation | None = None
        draw = self.random.random
        some = lambda most: draw() * most if draw() < 0.6 else 0.0  # noqa: E731
        self.faults = Faults(
            kill=some(0.01), fail=some(0.03), lost=some(0.06), late=some(0.1), never=some(0.04), slow=some(0.04),
            oracle=some(1.0), step=some(0.5),
        )  # fmt: skip
        self.oracle = OracleGroup(self)

    def say(self, what: str) -> None:
        who = self.current.name if self.current else "world"
        self.story.append(f"{self.now:9.4f} {who}: {what}")

    # -- time --------------------------------------------------------------------------------------------------------
    def later(self, delay: float, what: Task | Callable[[], None]) -> None:
        self.count += 1
        heapq.heappush(self.events, (self.now + delay, self.count, what))

    def spawn(self, name: str, work: Callable[[], None], delay: float = 0.0) -> Task:
        task = Task(self, name, work)
        self.tasks.append(task)
        self.later(delay, task)
        return task

    def wait(self, seconds: float) -> None:
        """Wait of the running client."""
        task = self.current
        assert task is not None
        if task.dead:
            raise Killed
        self.later(seconds, task)
        self.park()

    def park(self) -> None:
        """Waits until somebody puts this client on the list again."""
        task = self.current
        assert task is not None
        self.baton.release()
        task.go.acquire()
        if task.dead:
            raise Killed

    def run(self, until: Callable[[], bool], seconds: float) -> None:
        """Runs until the condition holds; raises what a client raised, and Violation if it takes longer."""
        end = self.now + seconds
        while not until():
            if not self.events:
                raise Violation("nothing happens any more")
            self.now, _, what = heapq.heappop(self.events)
            if self.now > end:
                raise Violation(f"does not come to rest: {[task.name for task in self.tasks if not task.done]}")
            if not isinstance(what, Task):
                what()
                continue
            if not what.done:
                self.current = what
                what.go.release()
                self.baton.acquire()
                self.current = None
                if self.violation is not None:
                    raise self.violation
                if what.error is not None:
                    raise what.error

    def close(self) -> None:
        """Leaves no thread behind."""
        for task in self.tasks:
            while not task.done:
                task.dead = True
                self.current = task
                task.go.release()
                self.baton.acquire()

    def kill(self, task: Task) -> None:
        task.dead = True
        self.say(f"kill {task.name}")
        self.counts["killed"] += 1

    # -- a client's process ------------------------------------------------------------------------------------------
    def tables(self, name: str) -> Tables:
        clock = ClientClock(self)
        file = SimulatedFile(self, name) if self.in_file else None
        around = Surroundings(
            file or SimulatedStore(self, name), file or ClientOracle(self), clock, self.wait, self.random.random,
            Tokens(self, name), limits=LIMITS,
        )  # fmt: skip
        return Tables(around.store, around.oracle, around)


def thread_locks() -> RowLocks:
    """The threads of one process; without notes in the simulated store."""
    return Surroundings(in_memory(), MemoryOracle()).locks


class ClientClock:
    """Wall clocks differ, and step; monotonic clocks do not."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.off_s = world.random.uniform(-1, 1) if world.random.random() < 0.5 else 0.0

    def now_ns(self) -> int:
        world = self.world
        if world.stormy and world.random.random() < world.faults.step * 0.02:
            self.off_s = world.random.choice((-100.0, -3.0, 3.0, 100.0, 0.0))
            world.say(f"clock steps to {self.off_s:+}")
        return int((1_000_000 + world.now + self.off_s) * 1e9)

    def monotonic(self) -> float:
        return self.world.now


class Tokens:
    """Deaths of some processes are noticed at once, those of others never."""

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.token = name

    def dead(self, token: str) -> bool:
        return hash_of(token) % 2 == 0 and any(task.name == token and task.dead for task in self.world.tasks)


def hash_of(text: str) -> int:
    return sum(text.encode())


class SimulatedStore:
    """The faults that a client's calls of the store meet."""

    round_trips = 0

    def __init__(self, world: World, name: str) -> None:
        self.world = world
        self.name = name
        self._notify: dict[tuple[Cell, int], int] = {}
        self._trouble_until = 0.0

    def _trouble(self) -> None:
        """A lost message means a bad connection: the next calls may be slow as well."""
        if self.world.random.random() < 0.7:
            self._trouble_until = self.world.now + self.world.random.uniform(0.5, 8.0)

    def _travel(self) -> None:
        world = self.world
        random, faults = world.random, world.faults
        task = world.current
        assert task is not None
        if world.stormy and random.random() < faults.kill and task.name.startswith("client"):
            world.kill(task)
        if world.stormy and random.random() < (0.5 if world.now < self._trouble_until else faults.slow):
            world.wait(random.uniform(0.5, 6.0))
        else:
            world.wait(random.uniform(0.0005, 0.01))

    def _call(self, what: str) -> None:
        self._travel()
        if self.world.stormy and self.world.random.random() < self.world.faults.fail:
            self.world.say(f"{what} fails")
            raise StoreFailed("simulated")

    def read(self, reads: Sequence[Read]) -> list[RowRead]:
        self._call("read")
        found = []
        for at, read in enumerate(reads):
            if at and self.world.random.random() < 0.3:
                self._travel()
            found += self.world.truth.read([read])
        if self.world.random.random() < 0.3:
            self._travel()
        return found

    def mutate(self, mutations: Sequence[Mutation], *, first_decides: bool = False) -> list[bool | None]:
        world = self.world
        answers: dict[int, bool | None] = {}
        order = list(range(len(mutations)))
        if not (first_decides and world.variant.ordered):
            world.random.shuffle(order)
            first_decides = False
        for at in order:
            self._travel()
            answers[at] = self._one(mutations[at])
            if first_decides and at == 0 and not answers[0]:
                answers |= dict.fromkeys(order[1:], False)
                break
        if world.random.random() < 0.3:
            self._travel()
        return [answers[at] for at in range(len(mutations))]

    def decide(self, mutations: Sequence[Mutation]) -> bool | None:
        """The others begin after the answer, some only when the client has continued, or not if it is dead then."""
        world, task = self.world, self.world.current
        if not world.variant.ordered or world.random.random() < 0.3:
            return self.mutate(mutations, first_decides=True)[0]
        self._travel()
        done = self._one(mutations[0])
        for mutation in mutations[1:] if done else ():

            def begun(mutation: Mutation = mutation) -> None:
                if task is None or not task.dead:
                    world.say(f"afterwards: {_shown(mutation)}")
                    self._one(mutation)

            world.later(world.random.choice((0.001, 0.02, 0.3, 2.0)), begun)
        return done

    def flush(self) -> None: ...

    def _one(self, mutation: Mutation) -> bool | None:
        world = self.world
        if world.variant.notify_late:
            mutation = self._notified_late(mutation)
        drawn = world.random.random() if world.stormy else 1.0
        faults = world.faults
        if drawn < faults.never:
            world.say(f"{_shown(mutation)} never comes")
            return None
        drawn -= faults.never
        if drawn < faults.late:
            delay = world.random.choice((0.005, 0.05, 1.5, 4.0))
            self._trouble()
            world.say(f"{_shown(mutation)} comes {delay} s later")
            world.later(delay, lambda: self.apply(mutation) and None)
            world.counts["late"] += 1
            return None
        done = self.apply(mutation)
        if drawn - faults.late < faults.lost:
            world.say(f"{_shown(mutation)} answer lost ({done})")
            self._trouble()
            return None
        return done

    def _notified_late(self, mutation: Mutation) -> Mutation:
        """As in Fluo: with the commit, by the committing client."""
        if mutation.notify:
            self._notify[mutation.cell, mutation.notify] = mutation.notify
            return mutation._replace(notify=0)
        if mutation.version is not None:
            start = start_of(mutation.version)
            return mutation._replace(notify=self._notify.pop((mutation.cell, start), 0))
        return mutation

    def apply(self, mutation: Mutation) -> bool:
        world = self.world
        (done,) = world.truth.mutate([mutation])
        world.say(f"{_shown(mutation)}: {done}")
        if not done and mutation.meta.startswith(b"L"):
            (now,) = world.truth.read([Read(*mutation.cell[:2], (mutation.cell.column,), 0)])
            before, after = read_meta(mutation.expected), read_meta(now[mutation.cell.column].meta)
            if isinstance(before, Commit) and isinstance(after, Commit) and before[:2] == after[:2]:
                world.say("a slow prewrite meets a mark")
                world.counts["fenced"] += 1
        if done and mutation.version is not None:
            start = start_of(mutation.version)
            world.installed.setdefault(start, {})[mutation.cell] = mutation.commit
        return bool(done)

    def scan(
        self, table: str, begin: str, end: str | None, columns: Sequence[str] | None, upto: int, limit: int
    ) -> list[tuple[str, RowRead]]:
        self._call("scan")
        found = []
        for row, _ in self.world.truth.scan(table, begin, end, columns, upto, limit):
            found += self.world.truth.scan(table, row, row + "\0", columns, upto, 1)
            if self.world.random.random() < 0.2:
                self._travel()
        return found

    def versions(self, cell: Cell, after: int) -> list[tuple[int, bytes]]:
        self._call("versions")
        return self.world.truth.versions(cell, after)

    def dirty(self, table: str, begin: str, limit: int) -> list[Notification]:
        self._call("dirty")
        return self.world.truth.dirty(table, begin, limit)

    def notify(self, notifications: Sequence[Notification]) -> None:
        self._call("notify")
        self.world.truth.notify(notifications)

    def forget(self, notifications: Sequence[Notification]) -> None:
        self._call("forget")
        self.world.truth.forget(notifications)

    def collect(self, table: str, safe_point: int, begin: str, limit: int) -> tuple[int, str | None]:
        self._call("collect")
        return self.world.truth.collect(table, safe_point, begin, limit)

    def tables(self) -> list[str]:
        self._call("tables")
        return self.world.truth.tables()

    def claims(self, table: str, rows: Sequence[str]) -> list[bytes | None]:
        self._call("claims")
        return [self.world.claims.get((table, row)) for row in rows]

    def claim(self, table: str, rows: Sequence[str], claim: bytes) -> None:
        self._call("claim")
        self.world.claims.update(((table, row), claim) for row in rows)

    def unclaim(self, table: str, rows: Sequence[str]) -> None:
        self._call("unclaim")
        for row in rows:
            self.world.claims.pop((table, row), None)

    def close(self) -> None: ...


class SimulatedFile(SimulatedStore, AtomicStore):
    """A file: commits are one step, whose answer may be lost, or which may be done later or never."""

    def __init__(self, world: World, name: str) -> None:
        AtomicStore.__init__(self, world.rows, range_size=5)
        SimulatedStore.__init__(self, world, name)

    def timestamp(self) -> int:
        self._call("timestamp")
        found = AtomicStore.timestamp(self)
        self.world.say(f"takes {found}")
        if found <= self.world.counts["received"]:
            self.world.violation = Violation(f"oracle: {found} after {self.world.counts['received']}")
        self.world.counts["received"] = found
        return found

    def commit(self, mutations: Callable[[int, bytes | None], Sequence[Mutation]]) -> bool | None:
        world = self.world
        self._travel()
        drawn = world.random.random() if world.stormy else 1.0
        if drawn < world.faults.never:
            world.say("a step never comes")
            return None
        drawn -= world.faults.never
        if drawn < world.faults.late:
            world.say("a step comes later")
            self._trouble()
            world.later(world.random.choice((0.005, 0.05, 1.5, 4.0)), lambda: self._done(mutations) and None)
            return None
        done = self._done(mutations)
        if drawn - world.faults.late < world.faults.lost:
            world.say(f"a step's answer is lost ({done})")
            self._trouble()
            return None
        return done

    def _done(self, mutations: Callable[[int, bytes | None], Sequence[Mutation]]) -> bool | None:
        world, made = self.world, list[Mutation]()

        def noted(timestamp: int, state: bytes | None) -> Sequence[Mutation]:
            made[:] = mutations(timestamp, state)
            return made

        done = AtomicStore.commit(self, noted)
        for mutation in made:
            world.say(f"{_shown(mutation)}: {done}")
            if done and mutation.version is not None:
                world.installed.setdefault(start_of(mutation.version), {})[mutation.cell] = mutation.commit
                world.counts["received"] = max(world.counts["received"], mutation.commit)
        return done


def _shown(mutation: Mutation) -> str:
    before, after = ((meta or b"absent").split(b"\n")[0].decode() for meta in (mutation.expected, mutation.meta))
    return f"{'/'.join(mutation.cell)}: {before} -> {after}"


# -- the oracle ------------------------------------------------------------------------------------------------------
class OracleGroup:
    """A log that one replica at a time may write; earlier leaders do not learn at once that they are deposed."""

    REPLICAS = 3

    def __init__(self, world: World) -> None:
        self.world = world
        self.log: list[bytes] = []
        self.leads = 0
        self.leaders = [world.variant.leader(range_size=20) for _ in range(self.REPLICAS)]
        self.believes = [True, False, False]
        self.waiting: dict[int, Callable[[int | None], None]] = {}
        self.tickets = 0
        world.later(0.5, self._change)

    def _change(self) -> None:
        """Another replica leads from now on."""
        world = self.world
        if world.stormy and world.random.random() < world.faults.oracle * 0.5:
            old, self.leads = self.leads, world.random.randrange(self.REPLICAS)
            if old != self.leads:
                world.say(f"oracle {old} is deposed by {self.leads}")
                world.counts["deposed"] += 1
            self._act(self.leads, self.leaders[self.leads].failed())  # what it had it does not know to be its own
            self.believes[self.leads] = True
            world.later(world.random.choice((0.01, 0.3, 2.0)), lambda: self._learns(old))
        world.later(0.5, self._change)

    def _learns(self, replica: int) -> None:
        if replica != self.leads:
            self.believes[replica] = False
            self._act(replica, self.leaders[replica].failed())

    def ask(self, replica: int, done: Callable[[int | None], None]) -> None:
        if not self.believes[replica]:
            return done(None)
        self.tickets += 1
        self.waiting[self.tickets] = done
        self._act(replica, self.leaders[replica].requested(self.tickets, 1))
        return None

    def _act(self, replica: int, actions: Sequence[Any]) -> None:
        for action in actions:
            if isinstance(action, Answer):
                self.waiting.pop(action.ticket)(action.first)
            elif isinstance(action, Refuse):
                self.waiting.pop(action.ticket)(None)
            else:
                delay = self.world.random.uniform(0.0005, 0.01)
                self.world.later(delay, lambda action=action: self._round(replica, action))  # type: ignore[misc]

    def _round(self, replica: int, action: Allocate | Confirm) -> None:
        leader = self.leaders[replica]
        if replica != self.leads:
            self._act(replica, leader.failed())
        elif isinstance(action, Allocate):
            self.log.append(allocate(action.timestamps))
            *_, got = self._applied()
            self._act(replica, leader.allocated(got))
        else:
            self._act(replica, leader.confirmed(self.machine().end))

    def machine(self) -> OracleMachine:
        machine = OracleMachine()
        for index, command in enumerate(self.log):
            machine.apply(index, command)
        return machine

    def _applied(self) -> list[Any]:
        machine = OracleMachine()
        return [machine.apply(index, command) for index, command in enumerate(self.log)]


class ClientOracle:
    """Asks one replica after the other that claims to lead."""

    round_trips = 0

    received = 0  # the highest that any client of a world has received

    def __init__(self, world: World) -> None:
        self.world = world
        self.replica = 0

    def timestamp(self) -> int:
        world, group = self.world, self.world.oracle
        world.wait(world.random.uniform(0.0005, 0.005))
        seen = world.counts["received"]
        for _ in range(6):
            answer: list[int | None] = []
            task = world.current
            assert task is not None

            def done(got: int | None, answer: list[int | None] = answer, task: Task = task) -> None:
                answer.append(got)
                world.later(world.random.uniform(0.0005, 0.005), task)

            group.ask(self.replica, done)
            world.park()
            if answer and answer[0] is not None:
                if answer[0] <= seen:
                    world.violation = Violation(f"oracle: {answer[0]} after {seen}")
                    raise Killed
                world.counts["received"] = max(world.counts["received"], answer[0])
                return answer[0]
            self.replica = world.random.randrange(OracleGroup.REPLICAS)
            world.wait(0.02)
        raise StoreFailed("simulated: nobody leads")

    def close(self) -> None: ...

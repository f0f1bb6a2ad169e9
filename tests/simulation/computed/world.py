"""Computations over what the simulated datacentres publish, with their simulated watermarks.

Production code: injector, owner, engine, publisher, split and merge, the journals of watermarks. Simulated: the disk
that is published on, clocks, what carries messages; the store is its twin in memory, held to the same contract.

A ``Site`` is a machine where a topology runs, with a process for each interval of keys and one that journals. It
reads and changes nothing of the world: several watch one schedule of the join, each with faults of its own.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from functools import lru_cache, partial
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import msgspec
import orjson

from photon.computing import injector, journal, publisher
from photon.computing import owner as owners
from photon.computing.engine import Engine, Limits
from photon.computing.errors import ComputingError, Fenced, Retired
from photon.computing.injector import Injector
from photon.computing.intervals import Interval, Intervals, even
from photon.computing.journal import STATUS_SUFFIX, PublishedWatermark, Status, read_status, streams_said
from photon.computing.links import QUEUE_MAX, Frame, Links
from photon.computing.moving import merge, split
from photon.computing.owner import Owner
from photon.computing.publisher import Publisher
from photon.computing.store import Commit, Store, in_memory
from photon.computing.wire import Message, decode_ack, decode_message
from photon.config.disk import AppendFile
from photon.config.errors import UsageError
from photon.outputs.identity import IDENTITY_NAME
from photon.outputs.output_places import EMBEDDED_STATE, OutputPlace
from photon.outputs.reader import Reader
from photon.outputs.replayed import REPLAYED_NAME
from photon.outputs.watermarks import JOURNAL, Pair, pairs_of
from photon.verifier.watermark import Watermarks
from photon.verifier.watermark_keeper import Journal
from tests.simulation.computed.computations import JOINED, STREAMS, Joined, Shown, findings, made
from tests.simulation.world.disk import PowerOff
from tests.simulation.world.faulty_disk import FaultyDisk
from tests.simulation.world.joined import JoinedWorld
from tests.simulation.world.process import ProcessDisk, ProcessFile
from tests.simulation.world.truth import EPOCH_NS
from tests.simulation.world.watermarks import WITHIN_NS, Sampler, records_of
from tests.simulation.world.world import Patch, Variant, World
from tests.simulation.world.world import run_seed as run_world

SITES = 8  # one schedule of the join costs as much as about ten of these
STATE, PUBLISHED = Path("/state"), Path("/published")
ROUNDS_MAX = 600
INTERVALS_MAX = 4

ACTING: ContextVar[Life | None] = ContextVar("acting", default=None)


# -- what is read ----------------------------------------------------------------------------------------------------
class Outputs:
    """The datacentres' outputs as one disk to read from: /NAME/out and /NAME/state. ``far``: while a datacentre is
    away its files cannot be read."""

    def __init__(self, world: World, *, far: bool) -> None:
        self._world, self._far = world, far
        self._samplers = {each.place.name: each for each in world.watermarks.samplers}
        self._known: dict[str, tuple[float, dict[str, tuple[Any, Path]]]] = {}

    @property
    def places(self) -> dict[str, OutputPlace]:
        return {name: OutputPlace(Path(f"/{name}/out"), Path(f"/{name}/state")) for name in self._samplers}

    def names(self, directory: Path) -> list[str]:
        name = directory.parts[1]
        self._reached(name)
        return sorted(self._states(name)) if directory.name == "slots" else []

    def exists(self, path: Path) -> bool:
        if path.name in (IDENTITY_NAME, REPLAYED_NAME):
            return False  # a deployment's output has neither
        return self._do("exists", path)

    def size(self, path: Path) -> int:
        return self._do("size", path)

    def read(self, path: Path, offset: int = 0, length: int | None = None) -> bytes:
        return self._do("read", path, offset, length)

    def _reached(self, name: str) -> Sampler:
        sampler = self._samplers[name]
        if self._far and sampler.place.down:
            raise OSError(f"simulated: {name} cannot be reached")
        return sampler

    def _do(self, what: str, path: Path, *args: Any) -> Any:
        name, slot, there = _parted(path)
        sampler = self._reached(name)
        disk: Any  # it takes strings: paths would be a tenth of a seed's time
        if not slot:
            disk = sampler.place.disks[f"{name}-watermarks"]
        else:
            disk, state = self._states(name)[slot]
            there = there if there.startswith("/") else f"{state}/{there}"
        return getattr(disk, what)(there, *args)

    def _states(self, name: str) -> dict[str, tuple[Any, Path]]:
        """Slot -> disk and state directory, as of this moment."""
        at, found = self._known.get(name, (-1.0, {}))
        if at != self._world.loop.now:
            found = {slot_of(path): (disk, path) for disk, path in self._samplers[name].states()}
            self._known[name] = self._world.loop.now, found
        return found


@lru_cache(4096)
def _parted(path: Path) -> tuple[str, str, str]:
    """Datacentre, slot, and the path on the slot's disk relative to its state directory. No slot: the journal."""
    _, name, root, kind, *rest = path.parts
    if kind == JOURNAL.parent.name:
        return name, "", f"/{JOURNAL}"
    if root == "out":
        slot = rest[-1].rpartition("-")[0]
        return name, slot, "/".join((f"/{slot}/out", kind, *rest))
    return name, rest[0], "/".join(rest[1:])


def slot_of(state: Path) -> str:
    """/SLOT/slot, or /slots/SLOT."""
    return state.parts[2] if state.parts[1] == "slots" else state.parts[1]


class Verified:
    """The journal of a datacentre's watermarks: in production form, on a disk of its own, by a verifier that is
    started again now and then."""

    def __init__(self, sampler: Sampler, random: Random) -> None:
        self._sampler, self._random = sampler, random
        self._disk = sampler.place.disks[f"{sampler.place.name}-watermarks"] = FaultyDisk(random)
        self._journal: Journal | None = None

    def keep(self, pair: Pair) -> bool:
        """``False`` means that it was not said."""
        try:
            if self._journal is None or self._random.random() < 0.05:
                self._journal = Journal(self._disk, Path("/"))
                self._sampler.watermarks = Watermarks(WITHIN_NS, pairs_of(self._journal.begin()))
            self._journal.add(pair)
        except OSError:  # the power went
            self._journal = None
            return False
        return True


# -- processes -------------------------------------------------------------------------------------------------------
class Life:
    """One life of a process."""

    def __init__(self, site: Site, name: str) -> None:
        self.site, self.name = site, name
        self.alive = True
        # Another process has taken one of its locks, as on a file server it has not reached for long: it stops
        # writing.
        self.outlocked = False
        self.asleep_until = 0.0
        self.inbox: deque[Frame] = deque()
        self.disk: Any = LifeDisk(site.disk, self)

    def end(self, why: str) -> None:
        if self.alive:
            self.alive = False
            self.site.tell(f"{self.name} is no more: {why}", "ended")

    def may_end(self, where: str) -> None:
        site = self.site
        if site.world.faults and site.random.random() < site.crashes:
            self.end(f"killed {where}")
        if not self.alive:
            raise PowerOff

    def act(self, do: Callable[[], object]) -> None:
        """Runs one step, however it ends."""
        token = ACTING.set(self)
        try:
            do()
        except PowerOff:
            pass
        except (Fenced, Retired) as gone:
            self.site.counts["fenced"] += 1
            self.end(str(gone))
        except UsageError as refused:
            replaced = self in self.site.zombies  # its successor has published more than it knows
            self._failed(refused, replaced or "another process publishes there" in str(refused))
        except OSError as error:
            self._failed(error, "simulated" in str(error))
        except Exception as error:
            self._failed(error, False)
        finally:
            ACTING.reset(token)

    def _failed(self, error: Exception, expected: bool) -> None:
        if not expected:
            self.site.violated(f"{type(error).__name__}: {error}", error)
        self.end(str(error))


class OwnerLife(Life):
    """Owner of an interval, assembled as in ``photon.assembly.computing``."""

    owner: Owner

    def __init__(self, site: Site, interval: Interval, *, once: bool) -> None:
        super().__init__(site, interval.id)
        self._interval, self._once = interval, once

    def begin(self) -> None:
        site, store = self.site, self.site.stores[self.name]
        kept: Any = KilledStore(store, self)
        engine = Engine(made(weak=site.weak), kept, site.table, owner=self.name, limits=site.limits)
        reads: Any = site.outputs
        source = Injector(reads, JOINED, site.outputs.places, site.kinds, engine.position(JOINED))
        self.owner = Owner(
            self.name, engine, [source], {stream: PUBLISHED / stream for stream in STREAMS},
            disk=self.disk, clock=site, links=SimulatedLinks(self), state="state",
            once=self._once, tell=site.violated,
        )  # fmt: skip

    def step(self) -> None:
        self.owner.step()
        if self._once or self.site.random.random() < 0.5:
            self.say()

    def drain(self) -> None:
        self.owner.drain()
        self.say()

    def say(self) -> None:
        owner, disk = self.owner, self.disk
        status = Status(topology="world", interval=self.name, pid=0, at_ns=0, published=owner.published)
        path = STATE / f"{self.name}{STATUS_SUFFIX}"
        new = path.with_suffix(".new")
        if disk.exists(new):
            disk.remove(new)
        file = disk.append(new)
        file.write(msgspec.json.encode(status))
        file.close()
        disk.rename(new, path)


class Parent(Life):
    """Journals the watermarks of the published streams, as the owners report them."""

    def __init__(self, site: Site) -> None:
        super().__init__(site, "the parent")
        self._journals: dict[str, PublishedWatermark] = {}

    def step(self) -> None:
        site = self.site
        for stream, marks in streams_said(read_status(self.disk, STATE), site.table.by_id).items():
            if stream not in self._journals:
                self._journals[stream] = PublishedWatermark(self.disk, PUBLISHED / stream)
            self._journals[stream].say(marks, site.now_ns())
            if (last := self._journals[stream]._last).at_ns:
                site.said.setdefault(stream, []).append(last)


class LifeDisk(ProcessDisk):
    """The machine's disk as one process sees it."""

    def __init__(self, disk: FaultyDisk, life: Life) -> None:
        self._disk, self._life = disk, life

    def append(self, path: Path) -> AppendFile:
        file: AppendFile = ProcessFile(self, self.guarded(self._disk.append, path))
        return file

    def guarded(self, method: Callable[..., Any], *args: Any) -> Any:
        life = self._life
        if not life.alive:
            raise PowerOff
        if life.outlocked:
            raise OSError("simulated: another process has its lock")
        try:
            return method(*args)
        except PowerOff:
            self._disk.crash_after(None)
            life.end("killed in the middle of a write")
            raise


class KilledStore:
    """A store whose process may die around a commit; the commit is there completely or not at all."""

    def __init__(self, store: Store, life: Life) -> None:
        self._store, self._life = store, life

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def commit(self, sequencer: int, commit: Commit) -> None:
        self._life.may_end("before a commit")
        self._store.commit(sequencer, commit)
        self._life.may_end("after a commit")


class SimulatedLinks(Links):
    def __init__(self, life: Life) -> None:
        self._life = life

    def send(self, interval: str, frame: Frame) -> None:
        self._life.may_end("before it sends")
        self._life.site.send(interval, frame)

    def received(self, interval: str) -> Iterator[Frame]:
        inbox = self._life.inbox
        for _ in range(len(inbox)):
            yield inbox.popleft()


def lock(path: Path) -> int | None:
    """Replaces flock: a lock whose holder does not answer is taken from it."""
    life = ACTING.get()
    assert life is not None
    locks = life.site.locks
    holder = locks.get(path)
    if holder is not None and holder is not life and holder.alive:
        if holder not in life.site.zombies:
            return None
        holder.outlocked = True
    locks[path] = life
    return -1


# -- a machine -------------------------------------------------------------------------------------------------------
class Site:
    """Also the clock of its processes: it steps, and advances a little while they compute."""

    def __init__(self, world: World, number: int) -> None:
        self.world, self.number = world, number
        self.random = draw = Random(f"{world.seed} computing {number}")
        self.counts: Counter[str] = Counter()
        self.disk = FaultyDisk(draw)
        self.disk.make_dir(STATE)
        self.outputs = Outputs(world, far=draw.random() < 0.5)
        self.kinds = draw.choice((("joined",), ("joined", "unmatched")))
        self.table = even(draw.choice((1, 2, 2, 3)))
        self.stores = {each.id: in_memory(each) for each in self.table.all}
        self.lives: dict[str, OwnerLife] = {}
        self.zombies: list[Life] = []
        self.locks: dict[Path, Life] = {}
        self.parent = Parent(self)
        self.network: list[tuple[float, str, Frame]] = []
        self.said: dict[str, list[Pair]] = {}
        self.names = 0
        self.merging: tuple[str, str, str] | None = None
        self.down_until: dict[str, float] = {}
        self.skew_s = self.ahead_s = 0.0
        self.weak = draw.random() < 0.3
        self.chaos = draw.choice((0.0, 0.03, 0.1))
        self.crashes = draw.choice((0.0, 0.002, 0.02))
        self.loss = draw.choice((0.0, 0.1, 0.3))
        self.limits = Limits(
            cache_bytes=draw.choice((1_000, 1 << 20)),
            message_items=draw.choice((1, 3, 100)),
            timers_at_once=draw.choice((1, 2, 1000)),
            outbox_bytes=draw.choice((2_000, 1 << 20)),
        )

    def tell(self, what: str, kind: str) -> None:
        self.counts[kind] += 1
        self.world.say(f"site {self.number}: {what}")

    def violated(self, what: str, error: BaseException | None = None) -> None:
        self.world.violated(f"site {self.number}: {what}", error)

    # -- clock
    def now_ns(self) -> int:
        return EPOCH_NS + int((self.world.loop.now + self.skew_s + self.ahead_s) * 1e9)

    def monotonic(self) -> float:
        self.ahead_s += self.random.uniform(0.0, 0.01)
        return self.world.loop.now + self.ahead_s

    # -- messages
    def send(self, interval: str, frame: Frame) -> None:
        draw, now = self.random, self.world.loop.now + self.ahead_s
        copies = draw.choice((0, 0, 2)) if draw.random() < self.loss else 1
        data = frame.encode()
        for _ in range(copies):
            due = now + (draw.choice((0.1, 1.0, 8.0)) if draw.random() < self.loss else 0.0)
            came = decode_message(data) if isinstance(frame, Message) else decode_ack(data)
            self.network.append((due, interval, came))

    def _deliver(self, *, all_now: bool = False) -> None:
        now = self.world.loop.now + self.ahead_s
        left = []
        for due, interval, frame in self.network:
            if due > now and not all_now:
                left.append((due, interval, frame))
                continue
            for life in (self.lives.get(interval), *self.zombies):
                if life is not None and life.name == interval and len(life.inbox) < QUEUE_MAX:
                    life.inbox.append(frame)
        self.network = left

    # -- as time goes on
    def begin(self) -> None:
        self.world.loop.later(self.random.uniform(0.0, 1.0), self._turn)

    def _turn(self) -> None:
        draw = self.random
        if self.world.faults and draw.random() < self.chaos:
            self._fault()
        self._deliver()
        name = draw.choice(self.table.all).id
        if self.zombies and draw.random() < 0.3:
            self._step(draw.choice(self.zombies))
        elif (life := self.lives.get(name)) is None:
            self._start(name)
        else:
            self._step(life)
        if draw.random() < 0.2:
            self._journal()
        self.world.loop.later(draw.uniform(0.05, 0.5), self._turn)

    def _start(self, name: str, *, once: bool = False) -> OwnerLife | None:
        if self.down_until.get(name, 0.0) > self.world.loop.now:
            return None
        life = OwnerLife(self, self.table.by_id[name], once=once)
        life.act(life.begin)
        if life.alive:
            self.lives[name] = life
        return life if life.alive else None

    def _step(self, life: Life) -> None:
        if life.asleep_until > self.world.loop.now:
            return
        assert isinstance(life, OwnerLife)
        life.act(life.step)
        if not life.alive:
            self._gone(life)

    def _gone(self, life: Life) -> None:
        if life in self.zombies:
            self.zombies.remove(life)
        if self.lives.get(life.name) is life:
            del self.lives[life.name]
            self.down_until[life.name] = self.world.loop.now + self.random.choice((0.0, 0.5, 3.0))

    def _journal(self) -> None:
        self.parent.act(self.parent.step)
        if not self.parent.alive:
            self.parent = Parent(self)

    # -- faults
    def _fault(self) -> None:
        draw = self.random
        faults: list[Callable[[], object]] = [
            self._kill, self._kill, self._zombie, self._zombie, self._pause, self._step_clock, self._crash_in_a_write,
            self._fail_a_sync, self._fill, self._cut_power, self._kill_parent, self._split, self._merge, self._merge,
        ]  # fmt: skip
        draw.choice(faults)()

    def _some(self) -> OwnerLife | None:
        return self.lives[self.random.choice(sorted(self.lives))] if self.lives else None

    def _kill(self) -> None:
        if (life := self._some()) is not None:
            life.end("kill -9")
            self._gone(life)

    def _zombie(self) -> None:
        if (life := self._some()) is not None:
            self._replaced(life, "zombie")

    def _replaced(self, life: OwnerLife, kind: str) -> None:
        """It is taken for dead; it may only be asleep for a while."""
        self._gone(life)
        self.zombies.append(life)
        life.asleep_until = self.world.loop.now + self.random.choice((0.0, 1.0, 5.0))
        self.tell(f"{life.name} is taken for dead", kind)

    def _pause(self) -> None:
        if (life := self._some()) is not None:
            life.asleep_until = self.world.loop.now + self.random.choice((1.0, 5.0))

    def _step_clock(self) -> None:
        self.skew_s = self.random.uniform(-60.0, 60.0)
        self.tell(f"the clock is wrong by {self.skew_s:.1f} s", "clock")

    def _crash_in_a_write(self) -> None:
        self.disk.crash_after(self.random.randint(1, 12))

    def _fail_a_sync(self) -> None:
        self.disk.fail_sync_after(self.random.randint(1, 4))

    def _fill(self) -> None:
        """The disk is full for a while."""
        self.disk.room = self.random.randrange(2000)
        self.world.loop.later(self.random.uniform(0.5, 3.0), self._empty)

    def _empty(self) -> None:
        self.disk.room = None

    def _cut_power(self) -> None:
        self.tell("power cut", "power")
        for life in [*self.lives.values(), *self.zombies, self.parent]:
            life.end("power cut")
            self._gone(life)
        self.parent = Parent(self)
        self.disk.power_cut()

    def _kill_parent(self) -> None:
        self.parent = Parent(self)

    # -- intervals that change
    def _split(self) -> None:
        if len(self.table.all) >= INTERVALS_MAX or self.merging is not None:
            return
        old = self.random.choice(self.table.all)
        new = (self._name(), self._name())
        if (life := self.lives.get(old.id)) is not None:
            self._replaced(life, "replaced")
        at = self.random.randrange(old.low + 1, old.high)
        first, second = split(self.stores[old.id], at, new, self._new_store)
        self._changed({old.id}, [first, second])
        self.tell(f"{old.id} is split into {new}", "split")

    def _merge(self) -> None:
        """An interrupted merge is redone."""
        if self.merging is None:
            if len(self.table.all) < 2:
                return
            n = self.random.randrange(len(self.table.all) - 1)
            self.merging = (self.table.all[n].id, self.table.all[n + 1].id, self._name())
        one, other, new = self.merging
        for name in (one, other):
            if (life := self.lives.get(name)) is not None:
                self._replaced(life, "replaced")
        stores = [KilledBeforeItIsRetired(self.stores[name], self) for name in (one, other)]
        try:
            merged = merge((stores[0], stores[1]), new, self._new_store, made(weak=self.weak))
        except BrokenOff:
            self.tell(f"the merge of {one} and {other} is broken off", "broken off")
            return
        except ComputingError as error:
            if "positions" not in str(error):
                raise
            self.tell(str(error), "merges refused")
            self.merging = None
            return
        self.merging = None
        self._changed({one, other}, [merged])
        self.tell(f"{one} and {other} are merged into {new}", "merged")

    def _changed(self, gone: set[str], new: Sequence[Interval]) -> None:
        """The other processes are restarted or told."""
        self.table = Intervals([*(each for each in self.table.all if each.id not in gone), *new])
        for life in list(self.lives.values()):
            if self.random.random() < 0.5:
                life.end("the intervals have changed")
            else:
                life.act(partial(life.owner.engine.rewire, self.table))
            if not life.alive:
                self._gone(life)

    def _new_store(self, interval: Interval) -> Store:
        store = self.stores[interval.id] = in_memory(interval)
        return store

    def _name(self) -> str:
        self.names += 1
        return f"n{self.names}"

    # -- the end
    def finish(self) -> None:
        """No more is published: everything is computed to the end, by processes that start from the kept state."""
        shown = self.published()
        self.counts["in time"] += len(shown["finals"])
        self.counts["final"] += sum(not each.value[3] for each in shown["windows"])
        self.counts["waiting"] += sum(each.value[3] > 0 for each in shown["windows"])
        self.counts["late"] += len(shown["lates"])
        self.loss = 0.0
        self.disk.room = None
        self.disk.crash_after(None)
        self.disk.fail_sync_after(0)
        while self.merging is not None:
            self._merge()
        for life in self.lives.values():
            life.end("at the end")
        self.lives.clear()
        self.down_until.clear()
        self.limits = Limits()
        self.ahead_s += 120.0  # the most a clock was wrong by when a timer was set
        quiet = 0
        for _ in range(ROUNDS_MAX):
            self._deliver(all_now=True)
            self.ahead_s += 5.0 if quiet else 0.5
            for name in self.table.by_id:
                if name not in self.lives:
                    self._start(name, once=True)
            for life in [*self.zombies, *self.lives.values()]:
                life.asleep_until = 0.0
                self._step(life)
            if self.world.violation is not None:
                return
            if len(self.lives) == len(self.table.all) and all(each.owner.ended for each in self.lives.values()):
                quiet += 1
                if quiet > 3:  # timers of the wall clock were called, too
                    break
        else:
            told = {name: life.owner.engine.watermarks() for name, life in self.lives.items()}
            self.violated(f"lost: it does not come to its end: {self.network[:2]}, {told}")
        for each in self.lives.values():
            each.act(each.drain)
        self._journal()

    def published(self) -> dict[str, list[Shown]]:
        """As its readers see it."""
        found: dict[str, list[Shown]] = {}
        for stream in STREAMS:
            disk: Any = self.disk
            lines = found.setdefault(stream, [])
            for block in Reader(disk, _place(PUBLISHED / stream)).read():
                at = block.start
                for line in block.data.splitlines(keepends=True):
                    record = orjson.loads(line)
                    position = block.end(at - block.start)
                    lines.append(Shown(block.place, position, record["event_time_ns"], record["foreign"]))
                    at += len(line)
        return found


class BrokenOff(Exception):
    pass


class KilledBeforeItIsRetired(Store):
    def __init__(self, store: Store, site: Site) -> None:
        self.__dict__ = store.__dict__
        object.__setattr__(self, "_site", site)

    def retire(self, sequencer: int, successors: tuple[str, ...]) -> None:
        site: Site = self.__dict__["_site"]
        if site.world.faults and site.random.random() < 0.2:
            raise BrokenOff
        super().retire(sequencer, successors)


def _place(directory: Path) -> OutputPlace:
    return OutputPlace(directory, directory / EMBEDDED_STATE)


# -- the world -------------------------------------------------------------------------------------------------------
PATCHES: tuple[Patch, ...] = (
    (injector, "BLOCK_BYTES", 400),
    (publisher, "lock_file", lock),
    (owners, "Publisher", partial(Publisher, roll_bytes=1500)),
    (journal, "OutputPlace", SimpleNamespace(of_join=_place)),
)


class ComputingWorld(World):
    """Over two datacentres. A lost slot's published output may be given up, and computations over it are not taken
    back, so no slot is lost here."""

    watching: Sequence[int] = range(SITES)  # the machines that watch

    def __init__(self, *args: Any, **settings: Any) -> None:
        super().__init__(*args, **settings)
        self.patches = (*self.patches, *PATCHES)
        for sampler in self.watermarks.samplers:
            sampler.keep = Verified(sampler, Random(f"{self.seed} {sampler.place.name}")).keep
        self.sites = [Site(self, number) for number in self.watching]
        self.checks.append(computed)

    def _draw(self) -> None:
        super()._draw()
        self.apart = self.loses_slots = False

    def _begin(self) -> None:
        super()._begin()
        for site in self.sites:
            site.begin()


class EverythingWorld(ComputingWorld, JoinedWorld):
    """Over all parts of the joined world: slots that are adopted and handed back, shards that change."""


def computed(world: ComputingWorld) -> Iterator[str]:
    """Broken promises."""
    for site in world.sites:
        site.finish()
        if world.violation is None:
            joined, streams = _joined(world, site.kinds), site.published()
            for finding in findings(joined, streams, site.said):
                yield f"site {site.number}: {finding}"


def _joined(world: World, kinds: Sequence[str]) -> Joined:
    times: dict[str, int] = {}
    late: set[str] = set()
    unforeseen: set[str] = set()
    for sampler in world.watermarks.samplers:
        for _, number, log, offset, record in records_of(sampler.place):
            if log.kind not in kinds:
                continue
            event_id, time_ns = record["event_id"], record["event_time_ns"]
            times[event_id] = time_ns
            for pair in sampler.pairs:
                if pair.cursor.positions.get(log, (0, 0)) > (number, offset):
                    break
                if pair.exact_ns is not None and time_ns < pair.exact_ns:
                    late.add(event_id)
                if pair.percentile_ns is not None and time_ns < pair.percentile_ns and not pair.waiting:
                    unforeseen.add(event_id)
    return Joined(times, frozenset(late), frozenset(unforeseen))


def run_seed(
    seed: int, variant: Variant | None = None, *, story: bool = False, kind: type[ComputingWorld] = ComputingWorld
) -> ComputingWorld:
    """Runs one schedule; raises Violation, with the seed in it."""
    return run_world(seed, variant, story=story, kind=kind)


def run_site(seed: int, variant: Variant) -> None:
    """One machine over a schedule of the join: if a rule is missing, one machine shows it, and eight cost more than
    the join. Raises Violation."""
    of_the_join, number = divmod(seed, SITES)
    run_seed(of_the_join, variant, kind=type("OneSite", (ComputingWorld,), {"watching": (number,)}))

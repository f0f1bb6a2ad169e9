"""``photon compute run``: a topology loaded from its file, its inputs and outputs, and the process that runs it.

The state directory has ``intervals.json`` (the keys of each owner: ``photon.computing.table``), and for each interval
its store, its status and its lock. The holder of ``run.lock`` runs all of it, and makes its splits and merges.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from photon.adapters.containment import Watched
from photon.assembly.computing_hbase import Place as HBasePlace
from photon.assembly.computing_hbase import Shared, machine_id, read_place, write_place
from photon.computing import standing
from photon.computing.engine import Engine
from photon.computing.errors import ComputingError
from photon.computing.injector import Injector, Said, furthest, position_of
from photon.computing.intervals import Interval, Intervals
from photon.computing.journal import PublishedWatermark, Status, read_status, streams_said, write_status
from photon.computing.links import Links
from photon.computing.owner import Owner
from photon.computing.store import Commit, Store, in_file
from photon.computing.table import NAME as TABLE_NAME
from photon.computing.table import SPARK_NAME, Table
from photon.computing.topology import Source, Topology
from photon.config.clock import Clock, SystemClock
from photon.config.disk import Disk, RealDisk
from photon.config.errors import UsageError
from photon.config.file_lock import lock_file
from photon.config.loader import load
from photon.config.python_file import load_python
from photon.config.tls import OPERATOR
from photon.fleet.access import output_here, tls_of
from photon.fleet.watermarks import VerifierTail
from photon.outputs.output_places import KINDS, OutputPlace

POLL_S, POLL_MOST_S = 0.02, 0.1
"""Pause between two looks at published lengths while idle: it doubles from the first to the second."""
SAY_S = 1.0
LEFT_S = 20.0
"""Time that processes with a killed parent may take to end."""


def load_topology(file: Path) -> Topology:
    """The topology in a Python file: ``topology``, or the only one. Raises UsageError, with the line of the file."""
    module = load_python(file, "computations")
    found = [each for each in vars(module).values() if isinstance(each, Topology)]
    chosen = getattr(module, "topology", found[0] if len(found) == 1 else None)
    if not isinstance(chosen, Topology):
        raise UsageError(f"{file}: has no `topology`; name the photon.computing.Topology to run so")
    chosen.checked()
    return chosen


def places_of(source: Source, base: Path) -> tuple[dict[str, OutputPlace], tuple[str, ...]]:
    """The places to read a source from, by name, and the kinds of records. Raises UsageError."""
    named = source.options.get("deployment")
    if not isinstance(named, str):
        raise UsageError(f"the stream {source.stream} is read nowhere: make it with Topology.joined")
    kinds = tuple(source.options.get("kinds", ("joined",)))
    if unknown := set(kinds) - set(KINDS):
        raise UsageError(
            f"the stream {source.stream}: no kind {', '.join(sorted(unknown))}; there are {', '.join(KINDS)}"
        )
    path = base / named
    if path.suffix != ".toml":
        return {"output": OutputPlace.of_join(path)}, kinds
    settings = load(path, environment=os.environ)
    joins = sorted({each.join for each in settings.datacentre.values()})
    join = source.options.get("join", joins[0] if len(joins) == 1 else None)
    if join not in joins:
        raise UsageError(f"{path}: its joins are {', '.join(joins) or 'none'}; name one: Topology.joined(…, join=…)")
    found = [name for name, each in settings.datacentre.items() if each.join == join]
    return {name: output_here(settings, path.parent, name) for name in found}, kinds


def said_elsewhere(
    source: Source, base: Path, places: Mapping[str, OutputPlace], kinds: Sequence[str], tell: Callable[[str], None]
) -> dict[str, Said]:
    """The watermarks of places with a state on another machine: asks their verifiers with the operator's certificate.
    ``tell`` is called for a silent one. Raises UsageError."""
    path = base / str(source.options["deployment"])
    apart = [name for name, place in places.items() if not place.state.is_dir()]
    if path.suffix != ".toml" or not apart:
        return {}
    settings = load(path, environment=os.environ)
    tls = tls_of(settings, path.parent, OPERATOR)
    return {name: VerifierTail(settings, name, tls, kinds, tell).moved for name in apart}


class Busy(UsageError):
    """Another process runs it."""


@dataclass
class Site:
    topology: Topology
    base: Path
    """The directory that paths in the topology are relative to."""
    state: Path
    disk: Disk = field(default_factory=RealDisk)
    clock: Clock = field(default_factory=SystemClock)

    load: Callable[[], Topology] | None = None
    """Reloads a changed topology. `None` if it comes from a program."""

    @cached_property
    def table(self) -> Table:
        return Table(self.disk, self.state, self.topology.name)

    def intervals(self, processes: int = 1) -> Intervals:
        """The state's intervals; a new state gets ``processes`` of them. Raises UsageError."""
        self.table.make(processes, None if self.shared is None else self.shared.intervals)
        return self.table.look().intervals

    def adopt(self) -> None:
        """Call at a start: other processes run the same topology, or follow to it."""
        self.topology.version = self.table.adopt(self.topology.shape)

    @cached_property
    def id(self) -> str:
        return self.table.look().id

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Held to run it, or to change it while nobody runs it. Raises Busy, and UsageError for a state on Spark."""
        self.disk.make_dir(self.state)
        if self.disk.exists(self.state / SPARK_NAME):
            raise UsageError(f"{self.state}: is a state of photon compute run --on spark; name another --state")
        with self._held("run.lock", 0.0):
            yield

    @contextmanager
    def locked(self, interval: str, wait_s: float = 0.0) -> Iterator[None]:
        """Owns the interval meanwhile. Raises Busy if another process does."""
        with self._held(f"{interval}.lock", wait_s):
            yield

    @contextmanager
    def _held(self, name: str, wait_s: float) -> Iterator[None]:
        until = self.clock.monotonic() + wait_s
        while (held := lock_file(self.state / name)) is None:
            if self.clock.monotonic() >= until:
                raise Busy(f"{self.state}: another process runs {self.topology.name} there; stop it first")
            time.sleep(POLL_S)
        try:
            yield
        finally:
            os.close(held)

    def runs(self, once: bool, run: Callable[[bool], bool]) -> None:
        """Calls ``run`` with True if what is published now is all of the input; ``run`` returns True if it reached
        the end. Then all timers are called, and watermarks return to where they were, for later input. First
        completes an interrupted ``once`` run, with what it had read. Only for the holder of ``alone``."""
        before = self.table.look().closing
        if before == "reopening" or (not before and self.shared is not None):
            self._reopen()  # an interval that was taken over may be at the end of the other machine's run
        for closing in (*([True] if self.table.look().closing else []), once):
            if closing and not self.table.look().closing:
                self.table.close("closing", self._ends())
            if not run(closing):
                break
            if closing:
                self.table.close("reopening")
                self._reopen()

    def _ends(self) -> dict[str, bytes]:
        """The current published end of each source: the same for all owners, whenever each of them gets there.
        Otherwise an owner would read on, with a later watermark, and what another one reads of it in the next run
        would be late."""
        places = {stream: places_of(source, self.base)[0] for stream, source in self.topology.sources.items()}
        return {
            stream: position_of({name: place.end(self.disk) for name, place in named.items()})
            for stream, named in places.items()
        }

    def _reopen(self) -> None:
        by_id = self.table.look().intervals.by_id
        for name in self.here():
            with self.locked(name, LEFT_S):
                store = self.store(by_id[name])
                known = standing.decode(store.standing(), name)
                if known.is_at_end:
                    known.reopen()
                    store.commit(store.acquire("reopening"), Commit(standing=known.encode()))
                store.close()
        self.table.close("")

    def follow(self, version: int, shape: str) -> None:
        """Reloads the topology at this version. Raises UsageError, TopologyError, and keeps the old one."""
        if self.load is None:
            raise UsageError(f"{self.topology.name} cannot be changed while it runs: it is run by a program")
        topology = self.load()
        if topology.shape != shape:
            raise UsageError(f"the file of {self.topology.name} has been changed again: photon compute reload")
        topology.version = version
        self.topology = topology

    @property
    def published(self) -> dict[str, Path]:
        """Stream -> directory."""
        return {stream: self.base / to for stream, to in self.topology.published.items()}

    @cached_property
    def shared(self) -> Shared | None:
        """The shared state in HBase. `None` if all state is in the directory."""
        place = read_place(self.disk, self.state)
        return None if place is None else Shared(place, self.topology.name)

    def store(self, interval: Interval) -> Store:
        if self.shared is None:
            return in_file(self.state / f"{interval.id}.db", interval)
        for stream, directory in self.published.items():
            self.shared.check_directory(self.disk, interval.id, stream, directory)
        return self.shared.store(interval)

    def here(self) -> list[str]:
        """The intervals of this machine. Raises UsageError if it has none."""
        names = list(self.intervals().by_id)
        if self.shared is None:
            return names
        given = self.shared.given(names)
        machine = self.shared.place.machine
        here = [each for each in names if each in given and given[each].machine == machine]
        if not here:
            said = ", ".join(
                f"{each} to {given[each].name}" if each in given else f"{each} to none" for each in names
            )
            raise UsageError(
                f"{self.state}: no interval of {self.topology.name} is given to this machine any more ({said}): "
                "photon compute init --intervals takes some over"
            )
        if len(here) < len(names) and self.topology.sends:
            raise UsageError(
                f"{self.topology.name}: a computation reads what another one produces, whose owners speak to one "
                "another on one machine: give all intervals to it, or publish that stream and read it by another "
                "topology"
            )
        return here

    def close(self) -> None:
        """Closes connections; they are reopened when needed."""
        shared: Shared | None = self.__dict__.pop("shared", None)
        if shared is not None:
            shared.close()

    def refuse_shared(self, what: str, instead: str) -> None:
        """Raises UsageError if the state is in HBase: ``what`` cannot be done there."""
        if read_place(self.disk, self.state) is not None:
            raise UsageError(f"{self.state}: the state of {self.topology.name} is in HBase: {what}; {instead}")


def keep_in_hbase(
    site: Site, thrift: Sequence[str], table: str, processes: int, intervals: Sequence[str], *, durable: bool
) -> tuple[list[str], bool]:
    """``photon compute init``: keeps the state of this topology in HBase, and gives this machine these intervals; if
    none are named, all unassigned ones. Returns its intervals, and True if HBase's table was made. Raises UsageError,
    ComputingError."""
    before = read_place(site.disk, site.state)
    if before is None and (site.state / TABLE_NAME).exists():
        raise UsageError(f"{site.state}: has a state in SQLite; name another one with --state")
    place = HBasePlace(
        thrift=list(thrift), table=table, durable=durable, machine=before.machine if before else machine_id()
    )
    shared = Shared(place, site.topology.name)
    try:
        made = shared.rows.create()
        if before is not None and (site.state / TABLE_NAME).exists() and shared.id != site.id:
            raise UsageError(
                f"HBase at {', '.join(thrift)}, table {table}, does not have the intervals of this state: name those "
                f"of {', '.join(before.thrift)}, table {before.table}, or another --state"
            )
        site.disk.make_dir(site.state)
        write_place(site.disk, site.state, place)
        names = list(site.intervals(processes).by_id)
        if unknown := set(intervals) - set(names):
            raise UsageError(f"--intervals {','.join(sorted(unknown))}: {site.topology.name} has {', '.join(names)}")
        given = shared.given(names)
        taken = list(intervals) or [each for each in names if each not in given]
        shared.give(taken, f"{os.uname().nodename}:{site.state.resolve()}")
        return site.here(), made
    finally:
        shared.close()
        site.close()


class Running:
    def __init__(
        self,
        site: Site,
        only: Sequence[str] = (),
        *,
        once: bool = False,
        wait_s: float = 0.0,
        locked: bool = False,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        """``only``: the intervals to run; empty for all. ``wait_s``: how long to wait for others that are about to
        end; ``locked``: they are locked already. Raises UsageError, and what an engine or a publisher raises."""
        self.site = site
        self._tell = tell
        self._here = list(only) or site.here()
        self._whole = not only
        """True if these are all intervals of this machine."""
        self._once = once
        self._closing = ExitStack()
        self._counted: dict[str, tuple[float, int]] = {}
        self._journals: dict[str, PublishedWatermark] = {}
        self._said_s = -SAY_S
        self._behind: list[Owner] = []
        """Owners that do not run the site's topology yet."""
        self._refused = ""
        """Why they do not, as reported."""
        self._closing.callback(site.close)
        try:
            for each in () if locked else self._here:
                self._closing.enter_context(site.locked(each, wait_s))
            self._intervals = site.intervals()  # a lock's holder may have split or merged it
            if unknown := set(self._here) - set(self._intervals.by_id):
                raise UsageError(f"{site.state}: has no interval {', '.join(sorted(unknown))}")
            self._links = Links(site.state, self._here, self._intervals.by_id)
            self._closing.callback(self._links.close)
            self._owners = [self._owner(self._intervals.by_id[each]) for each in self._here]
        except BaseException:
            self._closing.close()
            raise

    def _owner(self, interval: Interval) -> Owner:
        site = self.site
        store = site.store(interval)
        self._closing.callback(store.close)
        engine = Engine(
            site.topology, store, self._intervals, owner=f"{os.uname().nodename}:{os.getpid()}", guards=Watched
        )
        injectors = self._injectors(interval, engine)
        owner = Owner(
            interval.id, engine, injectors, site.published,
            disk=site.disk, clock=site.clock, links=self._links, state=site.id, where=str(site.state),
            once=self._once, tell=self._tell,
        )  # fmt: skip
        self._closing.callback(owner.close)
        if self._once:
            owner.upto = site.table.look().ends
        return owner

    def _injectors(self, interval: Interval, engine: Engine, known: Sequence[Injector] = ()) -> list[Injector]:
        """Injectors of all that this owner reads. ``known``: those that it has."""
        site, kept = self.site, {each.stream: each for each in known}
        found = []
        for stream, source in site.topology.sources.items():
            if source.shared or interval == self._intervals.all[0]:
                places, kinds = places_of(source, site.base)
                before = kept.get(stream)
                if before is not None and before.reads(places, kinds):
                    found.append(before)
                else:
                    said = said_elsewhere(source, site.base, places, kinds, self._tell)
                    found.append(Injector(site.disk, stream, places, kinds, engine.position(stream), said))
            else:
                engine.leave(stream)
        return found

    def run(self, stop: threading.Event, look: Callable[[list[Status]], None] = lambda _: None) -> bool:
        """Runs until ``stop``; with ``once`` until all is done; if these are all intervals, until one is to be split
        or merged. Then commits and publishes what was taken. Returns True at the end. ``look`` gets the state once a
        second. Raises what ends an owner."""
        goes_on, pause_s = True, POLL_S
        while goes_on and not stop.is_set():
            busy = [owner.step() for owner in self._owners]
            done = self._once and all(owner.ended for owner in self._owners)
            if done or self.site.clock.monotonic() - self._said_s >= SAY_S:
                look(self.say(journal=self._whole))
                goes_on = self._follow()
            if done and self._whole:
                break
            if any(busy):
                pause_s = POLL_S
            else:
                heard = self._links.arrived.wait(pause_s)
                self._links.arrived.clear()
                pause_s = POLL_S if heard else min(2 * pause_s, POLL_MOST_S)
        for owner in self._owners:
            owner.drain()
        look(self.say(journal=self._whole))
        return goes_on

    def _follow(self) -> bool:
        """Takes up a change. False means that a split or a merge waits for this process to end."""
        known = self.site.table.look()
        if known.intervals.all != self._intervals.all:
            if gone := [each for each in self._here if each not in known.intervals.by_id]:
                raise ComputingError(f"the keys of {', '.join(gone)} have another owner now")
            self._intervals = known.intervals
            self._links.rewire(known.intervals.by_id)
            for owner in self._owners:
                owner.rewire(known.intervals)
        try:
            if known.version not in (0, self.site.topology.version):
                self.site.follow(known.version, known.shape)
                self._behind = list(self._owners)
            for owner in list(self._behind):
                interval = self._intervals.by_id[owner.interval]
                injectors = self._injectors(interval, owner.engine, owner.injectors)
                owner.change(self.site.topology, injectors, self.site.published)
                self._behind.remove(owner)
        except UsageError as error:  # tried again in a second
            if self._refused != str(error):
                self._refused = str(error)
                self._tell(f"not changed yet: {error}")
        return known.move is None or not self._whole

    def level(self, within_s: float) -> None:
        """Lets each owner here read up to the furthest position of any of them, in each shared input. Raises
        ComputingError if that takes too long, and what ``run`` raises."""
        shared = [stream for stream, source in self.site.topology.sources.items() if source.shared]
        upto = {stream: furthest(owner.engine.position(stream) for owner in self._owners) for stream in shared}
        for owner in self._owners:
            owner.upto = upto
        until = self.site.clock.monotonic() + within_s
        while any(len({owner.engine.position(each) for owner in self._owners}) > 1 for each in shared):
            busy = [owner.step() for owner in self._owners]
            if not any(busy):
                time.sleep(POLL_S)
            if self.site.clock.monotonic() >= until:
                held = "".join(f": {owner.engine.held}" for owner in self._owners if owner.engine.held)
                raise ComputingError(f"{' and '.join(self._here)} have not read up to the same position{held}")
        for owner in self._owners:
            owner.engine.commit()

    def say(self, *, journal: bool) -> list[Status]:
        """Writes the status of each owner; with ``journal`` also the watermarks of published streams. Raises Fenced
        if an interval was given to another machine: an owner with nothing to commit learns of it here."""
        self._said_s = self.site.clock.monotonic()
        if self.site.shared is not None:
            self.site.shared.check_given(self._here)
        found = [self._status(owner) for owner in self._owners]
        for each in found:
            write_status(self.site.disk, self.site.state, each)
            if self.site.shared is not None:
                self.site.shared.say(each)
        if journal:
            self.journal(found)
        return found

    def journal(self, found: Sequence[Status]) -> None:
        say_watermarks(self.site, self._intervals, found, self._journals)

    def _status(self, owner: Owner) -> Status:
        counts = owner.engine.counts()
        before_s, before = self._counted.get(owner.interval, (self._said_s - SAY_S, 0))
        passed = max(self._said_s - before_s, 1e-3)
        self._counted[owner.interval] = (self._said_s, counts.records)
        exact = any(part.exact for part in self.site.topology.parts.values())
        return Status(
            topology=self.site.topology.name,
            interval=owner.interval,
            pid=os.getpid(),
            at_ns=self.site.clock.now_ns(),
            ended=self._once and owner.ended,
            counts=counts._asdict(),
            records_per_s=round((counts.records - before) / passed, 1),
            published_records=owner.published_records,
            watermarks=owner.engine.watermarks(),
            published=owner.published,
            sources={each.stream: each.mark() for each in owner.injectors},
            exact=exact,
            held_by={each.stream: each.held_by(exact=exact) for each in owner.injectors},
            held=owner.engine.held,
            faults=owner.faults,
            topology_version=owner.engine.version,
        )

    def close(self) -> None:
        for each in self._journals.values():
            each.close()
        self._closing.close()


def say_watermarks(
    site: Site, intervals: Intervals, found: Sequence[Status], journals: dict[str, PublishedWatermark]
) -> None:
    """Journals the watermark of each published stream: the lowest of all owners. ``journals``: the open ones. Of
    several machines, the one with the first interval does it."""
    if site.shared is not None:
        if intervals.all[0].id not in (each.interval for each in found):
            return
        found = site.shared.statuses(list(intervals.by_id))
    for stream, marks in streams_said(found, intervals.by_id).items():
        directory = site.published.get(stream)
        if directory is None:
            continue
        if stream not in journals:
            journals[stream] = PublishedWatermark(site.disk, directory)
        journals[stream].say(marks, site.clock.now_ns())


def default_state(file: Path, topology: Topology) -> Path:
    return file.parent / ".photon-compute" / topology.name


def statuses(state: Path) -> list[Status]:
    """The status of all owners, on other machines too. Raises UsageError if there is no state."""
    disk = RealDisk()
    if disk.exists(state / SPARK_NAME):
        return read_status(disk, state)
    known = Table(disk, state).look()
    place = read_place(disk, state)
    if place is None:
        return read_status(disk, state)
    shared = Shared(place, known.topology)
    try:
        return shared.statuses(list(known.intervals.by_id))
    finally:
        shared.close()

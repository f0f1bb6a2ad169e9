"""``photon compute run``: a topology from its file, where it reads and writes, and the process that runs it.

The state directory has ``intervals.json`` (which keys each owner has, fixed when it is made), and for each interval
its store, its status and its lock.
"""

from __future__ import annotations

import importlib.util
import os
import secrets
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import cast

import msgspec

from photon.adapters.containment import Guard
from photon.adapters.contract import Adapter
from photon.assembly.computing_hbase import Place as HBasePlace
from photon.assembly.computing_hbase import Shared, machine_id, read_place, write_place
from photon.computing import guarding, standing
from photon.computing.engine import Engine
from photon.computing.injector import Injector
from photon.computing.intervals import Interval, Intervals, even
from photon.computing.journal import PublishedWatermark, Status, read_status, streams_said, write_status
from photon.computing.links import Links
from photon.computing.model import Computation
from photon.computing.owner import Owner
from photon.computing.sqlite_store import SqliteStore
from photon.computing.store import Store
from photon.computing.topology import Source, Topology
from photon.config.clock import Clock, SystemClock
from photon.config.disk import Disk, RealDisk
from photon.config.errors import DECODE_ERRORS, UsageError
from photon.config.file_lock import lock_file
from photon.config.loader import load
from photon.fleet.access import output_of
from photon.outputs.output_places import KINDS, OutputPlace

POLL_S = 0.02
"""So often published lengths are looked at while there is nothing to do."""
SAY_S = 1.0
LEFT_S = 20.0
"""So long processes whose parent was killed may take to end."""
INTERVALS_NAME = "intervals.json"


class _Intervals(msgspec.Struct, frozen=True):
    photon_computing: int
    topology: str
    intervals: list[tuple[int, int, str]]
    id: str
    """Of this state, for what it publishes."""


def load_topology(file: Path) -> Topology:
    """The one of a Python file, ``topology`` or the only one. Raises UsageError, with the line of the file."""
    if not file.is_file():
        raise UsageError(f"{file}: no such file; it is a Python file with a photon.computing.Topology")
    name = f"computations_{file.stem}"  # it may be called photon.py
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise UsageError(f"{file}: no Python file; its name ends in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.path.insert(0, str(file.resolve().parent))
    try:
        spec.loader.exec_module(module)
    except UsageError:
        raise
    except (Exception, SystemExit) as error:
        lines = [at.lineno for at in traceback.extract_tb(error.__traceback__) if at.filename == str(file)]
        line = error.lineno if isinstance(error, SyntaxError) else lines[-1] if lines else None
        where = "" if line is None else f", line {line}"
        raise UsageError(f"{file}{where}: {type(error).__name__}: {error}") from None
    found = [each for each in vars(module).values() if isinstance(each, Topology)]
    chosen = getattr(module, "topology", found[0] if len(found) == 1 else None)
    if not isinstance(chosen, Topology):
        raise UsageError(f"{file}: has no `topology`; it is the photon.computing.Topology that is to run")
    chosen.checked()
    return chosen


def places_of(source: Source, base: Path) -> tuple[dict[str, OutputPlace], tuple[str, ...]]:
    """Where a source is read, by name, and which kinds of records. Raises UsageError."""
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
    return {name: output_of(settings, path.parent, name) for name in found}, kinds


@dataclass
class Site:
    """Where a topology runs."""

    topology: Topology
    base: Path
    """What paths in the topology are relative to."""
    state: Path
    disk: Disk = field(default_factory=RealDisk)
    clock: Clock = field(default_factory=SystemClock)

    def intervals(self, processes: int = 1) -> Intervals:
        """Those of the state; a new one is made for so many processes. Raises UsageError."""
        return Intervals(Interval(*each) for each in self._known(processes).intervals)

    @cached_property
    def id(self) -> str:
        """Of the state."""
        return self._known().id

    def _known(self, processes: int = 1) -> _Intervals:
        path = self.state / INTERVALS_NAME
        if not path.exists():
            made = even(processes)
            ranges = [(each.low, each.high, each.id) for each in made.all]
            new = msgspec.json.encode(_Intervals(1, self.topology.name, ranges, secrets.token_hex(8))) + b"\n"
            self.disk.make_dir(self.state)
            self.disk.replace(path, new if self.shared is None else self.shared.intervals(new))
        known = _decoded(path)
        if known.topology != self.topology.name:
            raise UsageError(
                f"{self.state}: is the state of {known.topology}, not of {self.topology.name}; give it another one"
            )
        return known

    @property
    def published(self) -> dict[str, Path]:
        """Stream -> directory."""
        return {stream: self.base / to for stream, to in self.topology.published.items()}

    @cached_property
    def shared(self) -> Shared | None:
        """What is in HBase; None: all is in the state."""
        place = read_place(self.disk, self.state)
        return None if place is None else Shared(place, self.topology.name)

    def store(self, interval: Interval) -> Store:
        if self.shared is None:
            return SqliteStore(self.state / f"{interval.id}.db", interval)
        for stream, directory in self.published.items():
            self.shared.check_directory(self.disk, interval.id, stream, directory)
        return self.shared.store(interval)

    def here(self) -> list[str]:
        """The intervals of this machine. Raises UsageError where it has none."""
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
        if "shared" in self.__dict__ and self.shared is not None:
            self.shared.close()


def keep_in_hbase(
    site: Site, thrift: Sequence[str], table: str, processes: int, intervals: Sequence[str], *, durable: bool
) -> tuple[list[str], bool]:
    """``photon compute init``: the state of this topology is in HBase, and this machine has these intervals of it;
    none: all that nobody has. Which it has now, and whether HBase's table was made. Raises UsageError,
    ComputingError."""
    before = read_place(site.disk, site.state)
    if before is None and (site.state / INTERVALS_NAME).exists():
        raise UsageError(f"{site.state}: has a state in SQLite; name another one with --state")
    place = HBasePlace(
        thrift=list(thrift), table=table, durable=durable, machine=before.machine if before else machine_id()
    )
    shared = Shared(place, site.topology.name)
    try:
        made = shared.rows.create()
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


def guard_of(computation: Computation) -> guarding.Guard:
    """As of an adapter, of which it asks for the time limit only."""
    return cast("guarding.Guard", Guard(cast("Adapter", computation)))


class Running:
    """Owners of intervals, in this process."""

    def __init__(
        self,
        site: Site,
        only: Sequence[str] = (),
        *,
        once: bool = False,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        """``only``: which intervals; empty: all. Raises UsageError, and what an engine or a publisher raises."""
        self.site = site
        self._intervals = site.intervals()
        self._here = list(only) or site.here()
        self._whole = not only
        """They are all that there are on this machine."""
        if unknown := set(self._here) - set(self._intervals.by_id):
            raise UsageError(f"{site.state}: has no interval {', '.join(sorted(unknown))}")
        self._once = once
        self._closing = ExitStack()
        self._counted: dict[str, tuple[float, int]] = {}
        self._journals: dict[str, PublishedWatermark] = {}
        self._said_s = -SAY_S
        self._closing.callback(site.close)
        try:
            for each in self._here:
                self._lock(each, LEFT_S if only else 0.0)
            self._links = Links(site.state, self._here, self._intervals.by_id)
            self._closing.callback(self._links.close)
            self._owners = [self._owner(self._intervals.by_id[each], tell) for each in self._here]
        except BaseException:
            self._closing.close()
            raise

    def _lock(self, interval: str, wait_s: float) -> None:
        until = self.site.clock.monotonic() + wait_s
        while (held := lock_file(self.site.state / f"{interval}.lock")) is None:
            if self.site.clock.monotonic() >= until:
                break
            time.sleep(POLL_S)
        if held is None:
            raise UsageError(
                f"{self.site.state}: another process runs {self.site.topology.name} there; stop it first"
            )
        self._closing.callback(os.close, held)

    def _owner(self, interval: Interval, tell: Callable[[str], None]) -> Owner:
        site = self.site
        store = site.store(interval)
        self._closing.callback(store.close)
        engine = Engine(
            site.topology, store, self._intervals, owner=f"{os.uname().nodename}:{os.getpid()}", guards=guard_of
        )
        committed = standing.decode(store.standing(), interval.id).number  # those before it write nothing any more
        injectors = []
        for stream, source in site.topology.sources.items():
            if source.shared or interval == self._intervals.all[0]:
                places, kinds = places_of(source, site.base)
                injectors.append(Injector(site.disk, stream, places, kinds, engine.position(stream)))
            else:
                engine.leave(stream)
        owner = Owner(
            interval.id, engine, injectors, site.published,
            disk=site.disk, clock=site.clock, links=self._links, state=site.id,
            committed=committed, once=self._once, tell=tell,
        )  # fmt: skip
        self._closing.callback(owner.close)
        return owner

    def run(self, stop: threading.Event, look: Callable[[list[Status]], None] = lambda _: None) -> None:
        """Until ``stop``, or with ``once`` until all is done; then what was taken is committed and published.
        ``look`` hears once a second how it stands. Raises what ends an owner."""
        while not stop.is_set():
            busy = [owner.step() for owner in self._owners]
            done = self._once and all(owner.ended for owner in self._owners)
            if done or self.site.clock.monotonic() - self._said_s >= SAY_S:
                look(self.say(journal=self._whole))
            if done and self._whole:
                break
            if not any(busy):
                self._links.arrived.wait(POLL_S)
                self._links.arrived.clear()
        for owner in self._owners:
            owner.drain()
        look(self.say(journal=self._whole))

    def say(self, *, journal: bool) -> list[Status]:
        """Writes the status of each owner; with ``journal`` also the watermarks of what is published. Raises Fenced
        where an interval was given to another machine: who has nothing to commit learns of it here."""
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
            held_by={each.stream: each.held_by(exact=exact) for each in owner.injectors},
            held=owner.engine.held,
            faults=owner.faults,
        )

    def close(self) -> None:
        self._closing.close()


def say_watermarks(
    site: Site, intervals: Intervals, found: Sequence[Status], journals: dict[str, PublishedWatermark]
) -> None:
    """Journals the watermark of each published stream: the least of all owners. ``journals``: those that are open. Of
    several machines the one that has the first interval does."""
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
    """Of all owners, those on other machines too. Raises UsageError where there is no state."""
    disk = RealDisk()
    if not (state / INTERVALS_NAME).exists():
        raise UsageError(f"{state}: no state of computations; photon compute run makes one")
    place = read_place(disk, state)
    if place is None:
        return read_status(disk, state)
    known = _decoded(state / INTERVALS_NAME)
    shared = Shared(place, known.topology)
    try:
        return shared.statuses([name for _, _, name in known.intervals])
    finally:
        shared.close()


def _decoded(path: Path) -> _Intervals:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Intervals)
    except DECODE_ERRORS as bad:
        raise UsageError(f"{path}: unreadable ({bad}); put it back") from None

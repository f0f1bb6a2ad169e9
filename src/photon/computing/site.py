"""The state of a topology on one machine, and its locks. The state directory has ``intervals.json`` (the keys of each
owner: ``photon.computing.table``), and for each interval its store, its status and its lock. Processes that run the
topology hold ``run.lock`` shared; one that runs it alone, or changes it while it is stopped, holds it exclusively.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from photon.adapters.logs.api import LogPosition
from photon.computing import standing
from photon.computing.injector import Injector, Reading, Said, position_of
from photon.computing.intervals import Interval, Intervals
from photon.computing.journal import Status, read_status
from photon.computing.log_input import LogInjector, LogPlace, logs_of
from photon.computing.replay import Replay, current, replay_of
from photon.computing.shared import Place, Shared, machine_id, read_place, write_place
from photon.computing.store import Commit, Store, in_file
from photon.computing.table import NAME as TABLE_NAME
from photon.computing.table import SPARK_NAME, Table
from photon.computing.topology import Source, Topology
from photon.config.clock import Clock, SystemClock
from photon.config.disk import Disk, RealDisk
from photon.config.errors import UsageError
from photon.config.file_lock import lock_file
from photon.outputs.kafka_topic import open_relay
from photon.outputs.log.copier import Copier
from photon.outputs.output_places import OutputPlace
from photon.outputs.replayed import replayed

FREE_S = 1.0  # time that a command may hold a state to check that it is not running
LEFT_S = 20.0  # time that processes with a killed parent may take to end


@dataclass(frozen=True, slots=True)
class Reads:
    """Published output that is read as a source."""

    places: Mapping[str, OutputPlace]
    kinds: tuple[str, ...]  # kinds of records
    # Watermarks of places with a state on another machine; calls its argument for a silent one.
    said: Callable[[Callable[[str], None]], Mapping[str, Said]]

    @property
    def place(self) -> object:
        """A value that is equal for readers of the same data; see ``Reading.place``."""
        return (dict(self.places), self.kinds)


class Busy(UsageError):
    """Another process runs the topology."""


@dataclass
class Site:
    topology: Topology
    base: Path  # the directory that paths in the topology are relative to
    state: Path
    # Finds where a source is read; paths in it are relative to the first directory, and files of topics are in the
    # second one. Raises UsageError.
    reads: Callable[[Source, Path, Path], Reads | LogPlace]
    disk: Disk = field(default_factory=RealDisk)
    clock: Clock = field(default_factory=SystemClock)
    load: Callable[[], Topology] | None = None  # reloads a changed topology. `None` if it comes from a program.
    accept_lost_offsets: bool = False  # continues after messages that topics lost before they were read
    relays: bool = True  # false: nothing is copied from topics, so that their files do not grow

    @cached_property
    def table(self) -> Table:
        return Table(self.disk, self.state, self.topology.name)

    @cached_property
    def replay(self) -> Replay:
        return replay_of(self.disk, self.state)

    def intervals(self, processes: int = 1) -> Intervals:
        """Returns the state's intervals; a new state gets ``processes`` of them. Raises UsageError."""
        self.table.make(processes, None if self.shared is None else self.shared.intervals)
        return self.table.look().intervals

    def adopt(self) -> None:
        """Makes this topology the current one. Call it at a start; other running processes follow."""
        self.topology.version = self.table.adopt(self.topology.shape)
        for to in self.topology.published.values():
            self.replay.retire(self.base / to)

    @cached_property
    def id(self) -> str:
        return self.table.look().id

    def alone(self) -> AbstractContextManager[None]:
        """Locks the state, to run the topology alone or to change it while it is stopped. Raises Busy, and UsageError
        for a state on Spark."""
        self._check()
        return self._held("run.lock")

    @contextmanager
    def together(self) -> Iterator[None]:
        """Shares the state's lock with other processes that run the topology. Raises like ``alone``, and UsageError
        if a run with ``once`` was interrupted, since only ``runs`` can complete it."""
        self._check()
        with self._held("run.lock", FREE_S, shared=True):
            if self.disk.exists(self.table.path) and self.table.look().closing == "closing":
                raise UsageError(f"{self.state}: a run with --once was interrupted; complete it: photon compute run "
                                 "FILE --once")  # fmt: skip
            yield

    def _check(self) -> None:
        self.disk.make_dir(self.state)
        if self.disk.exists(self.state / SPARK_NAME):
            raise UsageError(f"{self.state}: is the state of a photon compute run --on spark; name another --state")
        self.replay.check()

    def locked(self, interval: str, wait_s: float = 0.0) -> AbstractContextManager[None]:
        """Holds the interval's lock. Raises Busy if another process has it."""
        return self._held(f"{interval}.lock", wait_s)

    @contextmanager
    def _held(self, name: str, wait_s: float = 0.0, *, shared: bool = False) -> Iterator[None]:
        held = lock_file(self.state / name, shared=shared, wait_s=wait_s)
        if held is None:
            raise Busy(f"{self.state}: another process runs {self.topology.name} there; stop it first")
        try:
            yield
        finally:
            os.close(held)

    def runs(self, once: bool, run: Callable[[bool], bool], ends: Mapping[str, bytes] | None = None) -> None:
        """Calls ``run``, with True for a ``once`` run: the records published now are all of its input. ``run``
        returns True if it reached the end. Then all timers have been called, and watermarks return to their former
        values, for later input. An interrupted ``once`` run is completed first, with its own input. ``ends``: an
        earlier result of ``ends()``. The caller must hold ``alone``."""
        before = self.table.look().closing
        if before == "reopening" or (not before and self.shared is not None):
            self._reopen()  # an adopted interval may be at the end of the other machine's run
        for to_the_end in (*([True] if self.table.look().closing else []), once):
            if to_the_end and not self.table.look().closing:
                self.table.close("closing", self.ends() if ends is None else ends)
            if not run(to_the_end):
                break
            if to_the_end:
                self.table.close("reopening")
                self._reopen()

    def logs_read(self) -> dict[str, set[LogPosition]]:
        """Returns the position in each log of each source, by stream. Raises ComputingError."""
        first = self.intervals().all[0]
        with closing(self.store(first)) as store:
            sources = standing.decode(store.standing(), first.id).sources
        read = {name: sources[name] for name, source in self.topology.sources.items()
                if not source.shared and name in sources}  # fmt: skip
        return {name: set(logs_of(position)) for name, position in read.items()}

    def ends(self) -> dict[str, bytes]:
        """Returns the current published end of each source, which is the same for all owners. Otherwise one owner
        would read further, with a later watermark, and another's records in the next run would be late."""
        found = {stream: self._reads(source) for stream, source in self.topology.sources.items()}
        return {
            stream: position_of({name: place.end(self.disk) for name, place in reads.places.items()})
            for stream, reads in found.items()
            if isinstance(reads, Reads)  # not logs, which only one owner reads
        }

    def reading(
        self,
        source: Source,
        position: bytes | None,
        *,
        once: bool,
        tell: Callable[[str], None],
        known: Reading | None,
    ) -> Reading:
        """Opens a source; returns ``known`` if it reads the same data."""
        reads = self._reads(source)
        place = reads.place if isinstance(reads, Reads) else reads
        if known is not None and known.place == place:
            return known
        if isinstance(reads, LogPlace):
            opened = self._relay(reads)
            return LogInjector(source.stream, reads, position, clock=self.clock, once=once, tell=tell, opened=opened)
        for each in reads.places.values():
            if (over := replayed(self.disk, each.output, each.state)) is not None:
                tell(f"{source.stream}: {over}")
        return Injector(self.disk, source.stream, reads.places, reads.kinds, position, reads.said(tell))

    def _reads(self, source: Source) -> Reads | LogPlace:
        """Returns what a source reads. A replay reads the first run's files, which may go back further than the
        topic."""
        return self.reads(source, self.base, self.replay.first / "upstream" / source.stream)

    def _relay(self, place: LogPlace) -> Callable[[], Copier] | None:
        """Returns the function that opens a topic's relay; ``None`` for a replay, since the run in place has the
        relay."""
        address = place.topic
        if address is None or not self.relays or self.replay.name != self.replay.order[-1]:
            return None
        lost = self.accept_lost_offsets
        return lambda: open_relay(self.disk, address, place.kafka_client, place.directory, accept_lost=lost)

    def _reopen(self) -> None:
        by_id = self.table.look().intervals.by_id
        for name in self.here():
            with self.locked(name, LEFT_S), closing(self.store(by_id[name])) as store:
                reopen(store, name)
        self.table.close("")

    def follow(self, version: int, shape: str) -> None:
        """Reloads the topology at this version. If it raises UsageError or TopologyError, the old topology stays."""
        if self.load is None:
            raise UsageError(f"{self.topology.name} is run by a program, so it cannot be changed while it runs")
        topology = self.load()
        if topology.shape != shape:
            raise UsageError(f"the file of {self.topology.name} has changed again; run photon compute reload")
        topology.version = version
        self.topology = topology

    @property
    def published(self) -> dict[str, Path]:
        """Returns the directory of each published stream."""
        return {stream: self.replay.directory(self.base / to) for stream, to in self.topology.published.items()}

    @cached_property
    def shared(self) -> Shared | None:
        """The shared state in HBase; ``None`` if all state is in the directory."""
        place = read_place(self.disk, self.state)
        return None if place is None else Shared(place, self.topology.name)

    def store(self, interval: Interval) -> Store:
        if self.shared is None:
            return in_file(self.state / f"{interval.id}.db", interval)
        for stream, directory in self.published.items():
            self.shared.check_directory(self.disk, interval.id, stream, directory)
        return self.shared.store(interval)

    def here(self) -> list[str]:
        """Returns the intervals of this machine. Raises UsageError if it has none."""
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
                f"{self.state}: this machine has no interval of {self.topology.name} any more ({said}); take "
                "some over with photon compute init --intervals"
            )
        if len(here) < len(names) and self.topology.sends:
            raise UsageError(
                f"{self.topology.name}: a computation reads a log or another one's productions, which works on "
                "one machine only: give it all intervals, or publish that stream and read it in another topology"
            )
        return here

    def share(self, process: int, of: int) -> list[str]:
        """Returns the intervals that process number ``process`` (from 1) of ``of`` runs on this machine."""
        return self.here()[process - 1 :: of]

    def statuses(self) -> list[Status]:
        """Returns the last status of all owners, including those on other machines. Raises OSError, RowsFailed."""
        names = list(self.table.look().intervals.by_id)
        found = read_status(self.disk, self.state) if self.shared is None else self.shared.statuses(names)
        return [each for each in found if each.interval in names]

    def close(self) -> None:
        """Closes connections; they are reopened when needed."""
        shared: Shared | None = self.__dict__.pop("shared", None)
        if shared is not None:
            shared.close()

    def refuse_shared(self, what: str, instead: str) -> None:
        """Raises UsageError if the state is in HBase. ``what``: the operation that is not possible there;
        ``instead``: advice."""
        if read_place(self.disk, self.state) is not None:
            raise UsageError(f"{self.state}: the state of {self.topology.name} is in HBase: {what}; {instead}")


def reopen(store: Store, interval: str) -> None:
    """Resets an owner's watermarks from the end of time to their former values."""
    known = standing.decode(store.standing(), interval)
    if known.is_at_end:
        known.reopen()
        store.commit(store.acquire("reopening"), Commit(standing=known.encode()))


def keep_in_hbase(
    site: Site, thrift: Sequence[str], table: str, processes: int, intervals: Sequence[str], *, durable: bool
) -> tuple[list[str], bool]:
    """Implements ``photon compute init``: keeps this topology's state in HBase, and assigns ``intervals`` to this
    machine (default: all unassigned ones). Returns the machine's intervals, and True if the table was created in
    HBase. Raises UsageError, ComputingError."""
    before = read_place(site.disk, site.state)
    if before is None and (site.state / TABLE_NAME).exists():
        raise UsageError(f"{site.state}: already has a state in SQLite; name another directory with --state")
    place = Place(
        thrift=list(thrift), table=table, durable=durable, machine=before.machine if before else machine_id()
    )
    shared = Shared(place, site.topology.name)
    try:
        made = shared.rows.create()
        if before is not None and (site.state / TABLE_NAME).exists() and shared.id != site.id:
            raise UsageError(
                f"HBase at {', '.join(thrift)}, table {table}, does not have the intervals of this state; use "
                f"{', '.join(before.thrift)}, table {before.table}, or another --state"
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


def statuses(state: Path) -> list[Status]:
    """Returns the last status of all owners, including those on other machines. Raises UsageError if there is no
    state."""
    disk = RealDisk()
    state = current(disk, state)
    if not disk.exists(state / SPARK_NAME):
        known = Table(disk, state).look()
        if (place := read_place(disk, state)) is not None:
            with closing(Shared(place, known.topology)) as shared:
                return shared.statuses(list(known.intervals.by_id))
    return read_status(disk, state)

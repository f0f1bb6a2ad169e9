"""Two datacentres and a registry over three regions in one thread: a seeded schedule of faults, and the invariants.

Production code: dispatcher engine, state, exports; joiner engine, slot, verifier; the registry's client, routing,
servicer, batching, state machines; the wire formats and servicers of joiner and event store. Simulated: time,
threads, network, disks, clocks. Modelled, because they have their own simulations or tests: Raft (``registry``), the
event store (``store``), the log follower (``follower``).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, TypeVar

import structlog

from photon.adapters.contract import FIRST, Matching
from photon.config.back_off import BackOff
from photon.config.clock import NS_PER_S
from photon.dispatcher import retry
from photon.dispatcher.engine import DispatcherEngine, Options
from photon.dispatcher.limits import Limits
from photon.dispatcher.lookups import LookUpPolicy
from photon.dispatcher.partitions import all_of
from photon.dispatcher.replay import coverage, reopened
from photon.eventstore.awaited_keys import AwaitedKeys
from photon.idregistry.api import Digester
from photon.idregistry.client import grpc_client as registry_client
from photon.idregistry.replica import clocks as registry_clocks
from photon.idregistry.replica import server as registry_server
from photon.joiner import engine as joiner_engine
from photon.joiner.core import CoreLimits
from photon.joiner.engine import JoinerLimits
from photon.joiner.shell import ShellLimits
from photon.joiner.slot.output import OutputLimits
from photon.verifier.verifier import Verifier
from tests.simulation.world import check, clocks, settings, site_faults, state
from tests.simulation.world.backfill import Backfill
from tests.simulation.world.faulty_disk import FaultyDisk
from tests.simulation.world.history import History
from tests.simulation.world.loop import StandStill, VirtualLoop, bury
from tests.simulation.world.model_raft import PULSE_S, make_groups
from tests.simulation.world.network import Network
from tests.simulation.world.process import (
    DispatcherProcess,
    JoinerProcess,
    Process,
    Replica,
    SimulatedLock,
    Store,
    main,
)
from tests.simulation.world.retiring import LostSlot, Operator, lose_slot
from tests.simulation.world.speed import Speed
from tests.simulation.world.truth import RACES, PairAdapter, make_truth
from tests.simulation.world.violation import Violation, of_seed
from tests.simulation.world.watermarks import Sampler, WorldWatermarks

DATACENTRES = ("east", "west")
REGIONS = (*DATACENTRES, "north")
LOOK_S = 1.0  # interval at which the world is checked for rest after the last fault

Patch = tuple[object, str, Any]
_PATCHES: tuple[Patch, ...] = (
    *state.PATCHES,
    (coverage, "CHUNK_BYTES", 400),
    (retry, "TOO_NEW_CHECK_S", 12.0),
    (reopened, "MISSING", BackOff(first=2.0, most=600.0)),
    (joiner_engine, "SlotLock", SimulatedLock),
    (registry_client, "PROBE_SECONDS", 3.0),
    (registry_client, "TRY_SECONDS_MAX", 1.0),
    (registry_clocks, "ASK_SECONDS", 2.0),
    (registry_server, "CARETAKER_SECONDS", 4.0),
    (registry_server, "_STARTING_SECONDS", 0.3),
    (registry_server, "BOUNDARY_STEPS_MAX", 1 << 40),
)


@dataclass(frozen=True)
class Variant:
    """The parts that an ablation replaces. ``patches``: (module or class, name, value) during the run."""

    dispatcher: type[DispatcherEngine] = DispatcherEngine
    verifier: type[Verifier] = Verifier
    sought: type[AwaitedKeys] = AwaitedKeys
    sampler: type[Sampler] | None = None
    dispatchers: int = 1  # number in each datacentre
    sets: bool = False  # events are joined with all primary events of their keys
    lists: bool = False  # with ``sets``: each event names several keys
    patches: tuple[Patch, ...] = ()
    # Faults with weights, in place of all others: a broken rule then shows soon.
    faults: Sequence[tuple[site_faults.Fault, int]] = ()


@dataclass
class Place:
    """A region; a datacentre if it has joiners."""

    name: str
    region: str
    skew: float = 0.0
    leaps: tuple[float, ...] = (0.0,)  # possible errors of its clocks beyond any bound
    wrong: dict[str, float] = field(default_factory=dict)  # extra error in seconds of the clock of one process
    # Processes whose clock was ever wrong by more than S: times they gave then stay given.
    misled: set[str] = field(default_factory=set)
    rates: dict[str, float] = field(default_factory=dict)  # rates of the monotonic clocks of processes that drift
    down: bool = False
    joiners: list[str] = field(default_factory=list)
    slots: dict[str, str] = field(default_factory=dict)  # joiner -> its slot, if that does not have the joiner's name
    names: list[str] = field(default_factory=list)  # names of all its processes
    disks: dict[str, FaultyDisk] = field(default_factory=dict)
    images: dict[str, state.Images] = field(default_factory=dict)  # databases of its dispatchers
    # For an ablation: reopened ids that its dispatcher has seen, whether or not they were decided.
    seen_on_list: set[tuple[bytes, int]] = field(default_factory=set)
    mapped: list[int] = field(default_factory=list)  # number of lines of each primary log in the event store's map


class World:
    """A schedule. ``run`` raises Violation."""

    sampler: type[Sampler] = Sampler
    patches: tuple[Patch, ...] = ()
    expected_alarms: tuple[str, ...] = ()  # errors that report real faults
    faults_s = settings.FAULTS_S  # time until which faults happen
    backfill: Backfill | None = None
    history: History | None = None  # requests to the registry, if they are kept
    common_faults = site_faults.KINDS  # faults in any of these worlds, with weights

    def __init__(
        self, seed: int, variant: Variant | None = None, *, story: bool = False, races: bool = False
    ) -> None:
        """``races``: primary events come about when patience ends; half of these seeds are quiet days."""
        self.variant = variant or Variant()
        self.races = races
        self.quiet = races and seed % 2 == 0
        # Whole regions' clocks are wrong by a day or more, and leap; replicas compare theirs, and memory ends.
        self.apart = not races and seed % 5 == 4
        self.leapt_ahead: list[float] = []  # times at which clocks of a datacentre were set ahead
        self.rest_most_s = settings.REST_OF_SETS_APART_S if self.apart and self.variant.sets else settings.REST_S
        self.tells = seed % 2 == 1  # true if event stores announce arrivals. Their news may be lost.
        self.random = random = Random(seed)
        self.seed = seed
        self.story: list[str] | None = [] if story else None
        self.violation: Violation | None = None
        # Errors that production code logged: they break a promise, unless another one is found broken.
        self.alarms: list[str] = []
        self.loop = VirtualLoop(random, self._failed)
        self.network = Network(self)
        self.adapter = PairAdapter({})
        self.adapter.matching = Matching("all") if self.variant.sets else FIRST
        self.adapter.several_keys = self.variant.lists
        self.digester = Digester(b"key of the deployment", "clicks")
        self.faults = True
        self.over = False
        self.quiet_since = 0.0
        self.rested_at = 0.0
        self.locks: dict[str, Process] = {}
        self.processes: dict[str, Process] = {}
        self.lives: list[Process] = []
        self.lost: list[LostSlot] = []
        self.lose_slot: site_faults.Fault = lose_slot
        # Faults here in addition to ``common_faults``: (fault, weight).
        self.faults_here: list[tuple[site_faults.Fault, int]] = []
        self.unrests: list[Callable[[Any], str]] = [check.unrest]  # each returns the unfinished work; empty at rest
        # Each finds broken promises at rest; the first is the one to report.
        self.checks: list[Callable[[Any], Iterable[str]]] = [check.findings]
        self.moved: dict[str, str] = {}  # name that an address had -> name of the process there now
        self.away: set[str] = set()  # processes that were taken out of the deployment
        self.crash_in: tuple[str, ...] = ("joiner", "dispatcher")  # process kinds whose disks fail
        self.speed = Speed()
        # Last result of ``check.owners``: (leaders' machines, entries applied), its answer.
        self.owners: tuple[list[tuple[Any, int]], dict[bytes, check.Owner | None]] | None = None
        self.counts = dict.fromkeys(("ended", "cuts", "pauses"), 0)
        self.answers_take_s = 0.0  # maximum delay of event stores' answers to look-ups; 0: no longer than any other
        self._draw()
        self._place()
        self.watermarks = WorldWatermarks(self, self.variant.sampler or self.sampler)

    def restarted(self) -> None:
        """A joiner starts."""

    def _draw(self) -> None:
        """Draws the kind of seed."""
        random = self.random
        self.shards = random.choice((1, 2, 3))
        self.unavailable = random.choice((0.0, 0.0, 0.1))
        self.store_slowness = random.choice((1.0, 1.0, 5.0))
        self.commit_crashes = random.choice((0.0, 0.0, 0.02))
        self.loses_slots = random.random() < 0.4
        self.truth = make_truth(
            random,
            DATACENTRES,
            events=random.choice((10, 30, 60)),
            seconds=settings.GROWTH_S,
            patience=settings.WAITED_S,
            future=settings.UNCERTAINTY_S + 6.0,
            lists=self.variant.lists,
            **({"fates": RACES} if self.races else {}),
        )
        if self.quiet:
            self.unavailable = self.commit_crashes = 0.0
            self.store_slowness = 1.0
        self.dispatcher_limits = Limits(
            batch_events=random.choice((2, 10, 1000)),
            hold_s=random.choice((0.3, 2.0, 5.0)),
            window_bytes=random.choice((3000, 1 << 20)),
            left_events=random.choice((3, 1000)),
            hold_bytes=random.choice((1500, 1 << 19)),
            parse_records=random.choice((1, 1000)),
            gather_s=Random(f"{self.seed} gather").choice((0.0, 0.05, 1.0)),
        )
        if self.quiet:  # with room for only a few events, reading waits: patience would begin long after a line came
            self.dispatcher_limits = replace(self.dispatcher_limits, left_events=1000, window_bytes=1 << 20)
        # Dispatchers leave events to their home; otherwise each joins what it reads.
        self.shared = random.random() < 0.85
        self.head_start_s = random.choice((None, None, 0.0, 0.4))
        self.identical_copies = random.random() < 0.5
        self.dispatcher_options = Options(
            in_flight=random.choice((1, 4)),
            join_timeout_s=settings.JOIN_TIMEOUT_S,
            look_ups=random.choice(list(LookUpPolicy)),
            identical_copies=self.identical_copies,
            commit_s=random.choice((0.3, 0.8)),
            scan_s=0.4,
            measure_s=5.0,
            progress_s=0.6,
            idle_progress_s=0.6,
        )
        self.joiner_limits = JoinerLimits(
            core=CoreLimits(
                sync_output_after_s=random.choice((0.3, 2.0)), carry_over_behind_bytes=random.choice((500, 1 << 20))
            ),
            shell=ShellLimits(
                insert_timeout_s=settings.INSERT_TIMEOUT_S, tick_s=0.25, maintain_s=random.choice((1.5, 4.0))
            ),
            output=OutputLimits(
                roll_bytes=random.choice((400, 5000, 1 << 20)),
                roll_after_s=random.choice((5.0, 300.0)),
                compress=Random(f"{self.seed} form").random() < 0.5,
            ),
            segment_bytes=random.choice((500, 1 << 20)),
        )

    def _place(self) -> None:
        """Places the processes."""
        random = self.random
        self.places = {region: Place(region, region) for region in REGIONS}
        self.kinds: dict[str, tuple[type[Process], Place]] = {}
        half = settings.UNCERTAINTY_S / 2
        round_trip = random.choice((0.002, 0.03, 0.1))
        for at, one in enumerate(REGIONS):
            for other in REGIONS[at + 1 :]:
                self.network.round_trip[frozenset((one, other))] = round_trip * random.uniform(0.7, 1.3)
        for region, place in self.places.items():
            place.skew = random.choice((0.0, random.uniform(-half, half)))
            self._add(f"{region}-replica", Replica, place)
        self._place_more()
        self.replicas = [name for name, (kind, _) in self.kinds.items() if kind is Replica]
        if self.apart:
            self._part_clocks()
            self.unrests.append(clocks.objecting)

    def _place_more(self) -> None:
        """Services in the regions in addition to a replica each."""
        for name in DATACENTRES:
            place = self.places[name]
            place.mapped = [0] * len(self.truth.primary)
            self._add(f"{name}-store", Store, place)
            for number in range(self.random.choice((1, 2))):
                place.joiners.append(f"{name}-joiner{number}")
                self._add(place.joiners[-1], JoinerProcess, place)
            for partition in all_of(self.variant.dispatchers):
                dispatcher = partition.named(f"{name}-dispatcher")
                place.images[dispatcher] = state.Images()
                self._add(dispatcher, DispatcherProcess, place)
        if self.loses_slots:
            self._add("north-operator", Operator, self.places["north"])

    def _part_clocks(self) -> None:
        """One region's clocks may be ahead and another's behind: the median of all is right. Copying processes there
        may stamp events with them."""
        random = self.random
        ahead, behind, _ = random.sample(REGIONS, 3)
        for region, way in random.choice((((ahead, 1),), ((behind, -1),), ((ahead, 1), (behind, -1)))):
            place = self.places[region]
            place.leaps = (0.0, *(float(way * leap_s) for leap_s in settings.LEAPS_S))
            place.skew += random.choice(place.leaps)
            for log in self.truth.foreign:
                if region in log.arrivals and random.random() < 0.5:
                    self.truth.stamps[log.name, region] = way * random.choice(settings.LEAPS_S[:2])
        if self.truth.stamps:
            self.identical_copies = False
            self.dispatcher_options = replace(self.dispatcher_options, identical_copies=False)

    def set_clocks(self, place: Place, skew: float) -> None:
        """Sets the clocks of a region."""
        if skew > place.skew + settings.UNCERTAINTY_S and place.joiners:
            self.leapt_ahead.append(self.loop.now)
        place.skew = skew
        self.say(f"{place.name}: the clocks are wrong by {skew:.2f} s")

    def _add(self, name: str, kind: type[Process], place: Place) -> None:
        self.kinds[name] = (kind, place)
        place.names.append(name)
        if kind in (JoinerProcess, DispatcherProcess):
            place.disks[name] = self._disk()

    def _disk(self) -> FaultyDisk:
        return FaultyDisk(Random(self.random.getrandbits(64)))

    @property
    def datacentres(self) -> list[Place]:
        return [self.places[name] for name in DATACENTRES]

    @property
    def retention_ns(self) -> int | None:
        """Time for which the registry remembers; ``None`` means forever."""
        return settings.RETENTION_S * NS_PER_S if self.apart else None

    @property
    def rest_s(self) -> float:
        """Seconds from the last fault to rest."""
        return self.rested_at - self.quiet_since

    def region_of(self, name: str) -> str:
        return self.kinds[self.moved.get(name, name)][1].region

    # -- processes -------------------------------------------------------------------------------------------------
    def running(self, name: str) -> Process | None:
        """The process of this name, if it lives."""
        process = self.processes.get(name)
        return process if process is not None and process.alive else None

    def listening(self, name: str, method: str) -> Process | None:
        """The process that a connection reaches."""
        process = self.running(self.moved.get(name, name))
        return process if process is not None and method in process.handlers else None

    def boot(self, name: str) -> None:
        """Starts a process, unless it lives or its place is down."""
        if name not in self.kinds or name in self.away or self.running(name) is not None:
            return
        kind, place = self.kinds[name]
        if place.down:
            return
        self.say(f"{name} starts")
        process = self.processes[name] = kind(self, place, name)
        self.lives.append(process)
        self.loop.spawn(process, main(process))

    def ended(self, process: Process, why: str) -> None:
        """A process is gone; the supervisor starts another one after a while."""
        if not process.alive:
            return
        process.alive = False
        self.counts["ended"] += 1
        self.say(f"{process.name} is no more: {why}")
        self.loop.later(self.random.choice((0.1, 0.5, 3.0)), self.boot, process.name)

    # -- what went on ----------------------------------------------------------------------------------------------
    def say(self, what: str) -> None:
        if self.story is not None:
            self.story.append(f"{self.loop.now:9.3f} {what}")

    def violated(self, what: str, error: BaseException | None = None) -> None:
        """Ends the run: a promise is broken."""
        if self.violation is None and not self.over:
            self.violation = Violation(what)
            self.violation.__cause__ = error
            self.say(f"VIOLATION: {what}")
        self.loop.stop()

    def _failed(self, error: BaseException) -> None:
        if isinstance(error, StandStill):
            self.violated("the world stands still")
        else:
            self.violated(f"{type(error).__name__}: {error}", error)

    def logged(self, _: object, level: str, event: dict[str, Any]) -> str:
        """structlog's processor: production log lines go into the story, errors are alarms."""
        if level in ("error", "critical", "exception"):
            text = " ".join(f"{name}={value!r}" for name, value in event.items() if name != "exc_info")
            if event.get("event") not in self.expected_alarms:
                self.alarms.append(text)
            self.say(f"ALARM {text}")
        elif self.story is not None:
            self.say("  " + " ".join(f"{name}={value}" for name, value in event.items()))
        raise structlog.DropEvent

    # -- a run -----------------------------------------------------------------------------------------------------
    def run(self) -> None:
        """Raises Violation."""
        loop = self.loop
        began = time.process_time()
        with _patched((*_PATCHES, *self.patches, *self.variant.patches)), _logs_to(self):
            try:
                self._begin()
                for name in self.kinds:
                    loop.later(self.random.uniform(0.0, 0.5), self.boot, name)
                site_faults.plan(self)
                self.watermarks.begin()
                if self.apart:
                    clocks.look(self)
                loop.later(self.faults_s, self._quiet)
                loop.run_forever()
            finally:
                self.over = True
                bury(loop, list(self.lives))
                loop.close()
                self.speed = Speed(loop.steps, loop.now, time.process_time() - began)
                Speed.total += self.speed
        if self.violation is not None:
            raise self.violation

    # -- the registry's Raft groups --------------------------------------------------------------------------------
    def _begin(self) -> None:
        self.groups = make_groups(self, self.replicas, self.shards)
        self.loop.later(0.6, self._pulse)

    def shard_machines(self) -> list[Any]:
        """The leading replicas' machines."""
        leaders = [(group, group.leader) for number, group in self.groups.items() if number]
        return [group.members[leader].machine for group, leader in leaders if leader is not None]

    def new_leader(self) -> None:
        self.groups[self.random.choice(list(self.groups))].depose()

    def _pulse(self) -> None:
        for group in self.groups.values():
            group.pulse()
        self.loop.later(PULSE_S, self._pulse)

    def _quiet(self) -> None:
        self.say("faults end")
        site_faults.heal(self)
        self.quiet_since = self.loop.now
        self.loop.later(LOOK_S, self._look)

    def _look(self) -> None:
        unrest = next((why for look in self.unrests if (why := look(self))), "")
        if not unrest:
            self.rested_at = self.loop.now
            self.say("at rest")
            for finding in (found for look in self.checks for found in look(self)):
                self.violated(finding)
                return
            self.loop.stop()
        elif self.loop.now - self.quiet_since > self.rest_most_s:
            found = [*check.twice(self), *check.owned_without_record(self), f"not at rest: {unrest}"]
            self.violated(found[0])
        else:
            self.loop.later(LOOK_S, self._look)


@contextlib.contextmanager
def _patched(patches: tuple[Patch, ...]) -> Iterator[None]:
    before = [(where, name, where.__dict__[name]) for where, name, _ in patches]
    try:
        for where, name, value in patches:
            setattr(where, name, value)
        yield
    finally:
        for where, name, value in reversed(before):
            setattr(where, name, value)


@contextlib.contextmanager
def _logs_to(world: World) -> Iterator[None]:
    before = structlog.get_config()
    structlog.configure(processors=[world.logged], cache_logger_on_first_use=False)
    try:
        yield
    finally:
        structlog.configure(**before)


W = TypeVar("W", bound=World)


def run_seed(
    seed: int,
    variant: Variant | None = None,
    *,
    story: bool = False,
    races: bool = False,
    kind: type[W] = World,  # type: ignore[assignment]
) -> W:
    """Runs one schedule; raises Violation, with the seed in it, and with the story if requested."""
    world = kind(seed, variant, story=story, races=races)
    with of_seed(seed, world.story):
        world.run()
    return world

"""Simulated processes: the main loop of each kind, with production parts over simulated disks, network and clocks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, NoReturn

from photon.adapters.envelope import Envelope
from photon.config.disk import AppendFile
from photon.config.interval_clock import IntervalClock
from photon.config.stopping import until
from photon.dispatcher.engine import DispatcherEngine, Policy
from photon.dispatcher.engine import Surroundings as DispatcherSurroundings
from photon.dispatcher.exports import Exports
from photon.dispatcher.homes import HeadStart, Homes
from photon.dispatcher.replay.rereading import Sources
from photon.eventstore.client import EventStoreClient
from photon.eventstore.service import EventStoreService
from photon.idregistry.client.grpc_client import GrpcBackend
from photon.idregistry.client.routing import RoutedRegistry
from photon.idregistry.core import commands as c
from photon.idregistry.core.sharding import single_range
from photon.idregistry.raft.api import Group
from photon.idregistry.replica.clocks import ClockWatch, PeerClocks
from photon.idregistry.replica.server import Machines, RegistryReplica
from photon.idregistry.replica.service import RegistryServicer
from photon.joiner import engine as joiner_engine
from photon.joiner.client import JoinerClient
from photon.joiner.copies.shipping import Copying
from photon.joiner.engine import JoinerLimits, Surroundings
from photon.joiner.service import JoinerService
from photon.joiner.shell import Die
from photon.joiner.slot.slot import SlotPaths
from photon.joiner.verdicts import envelope_lines
from photon.verifier.recovery import SlotRecovery
from photon.verifier.verifier import VerifierLimits
from tests.simulation.world import settings
from tests.simulation.world.disk import PowerOff
from tests.simulation.world.faulty_disk import FaultyDisk
from tests.simulation.world.follower import SimulatedFollower, SimulatedReads
from tests.simulation.world.history import WatchedRegistry
from tests.simulation.world.loop import OWNER, Owner
from tests.simulation.world.model_raft import GroupEnd
from tests.simulation.world.network import Stub
from tests.simulation.world.state import SimulatedState, Undecided
from tests.simulation.world.store import StoreModel
from tests.simulation.world.truth import EPOCH_NS

if TYPE_CHECKING:
    from tests.simulation.world.truth import GrowingLog
    from tests.simulation.world.world import Place, World

JOIN = "clicks"
Handler = Callable[[Any, Any], Awaitable[Any]]


class Clock:
    """A process's clock: its datacentre's is off by a bounded time, which may change, and its own by any time now and
    then."""

    def __init__(self, world: World, place: Place, name: str) -> None:
        self._loop = world.loop
        self._place = place
        self._name = name
        self.rate = place.rates.get(name, 1.0)

    def now_ns(self) -> int:
        skew = self._place.skew + self._place.wrong.get(self._name, 0.0)
        return EPOCH_NS + int((self._loop.now + skew) * 1e9)

    def monotonic(self) -> float:
        return self._loop.now * self.rate


class Process(Owner):
    """One life of a process. ``handlers``: its handlers by method, once it listens."""

    def __init__(self, world: World, place: Place, name: str) -> None:
        super().__init__()
        self.world = world
        self.place = place
        self.name = name
        self.region = place.region
        self.clock = Clock(world, place, name)
        self.handlers: dict[str, Handler] = {}
        self.random = Random(world.random.getrandbits(64))

    def run(self) -> Coroutine[Any, Any, None]:
        """Main loop, from start to end."""
        raise NotImplementedError

    def listen(self, servicer: object, *methods: str) -> None:
        self.handlers.update((method, getattr(servicer, method)) for method in methods)

    async def stop(self) -> None:
        """As on SIGTERM: ends ``run`` in an orderly way, in its own time."""
        self.end("stopped")

    def end(self, why: str) -> NoReturn:
        """Ends this process from within, at once."""
        self.world.ended(self, why)
        raise PowerOff

    def stub(self, target: str) -> Stub:
        return Stub(self.world.network, self, target)

    def registry(self) -> RoutedRegistry:
        """The production client; its stubs lead to the simulated network."""
        near = sorted(self.world.replicas, key=lambda name: self.world.region_of(name) != self.region)
        backend = GrpcBackend(dict.fromkeys(near, "simulated"), self.clock)
        backend._channels._stub = self.stub  # type: ignore[method-assign]
        if (history := self.world.history) is not None:
            return WatchedRegistry(backend, self.clock, history)
        return RoutedRegistry(backend, self.clock)

    async def verify(self, disk: Any, paths: SlotPaths, registry: RoutedRegistry) -> None:
        """Clears written ids of a slot, and gives up ids that its predecessors own and never wrote."""
        world = self.world
        limits = VerifierLimits(period_s=settings.VERIFIER_PERIOD_S, clear_timeout_s=2.0)
        verifier = world.variant.verifier(disk, paths.state, paths.output, world.digester, registry, limits=limits)
        recovery = SlotRecovery(disk, paths.state, registry.recovery, limits=settings.RECOVERY)

        async def recover() -> None:
            while True:
                await recovery.run_once(self.clock.monotonic())
                await until(asyncio.Event(), settings.RECOVERY_LOOK_S)

        await asyncio.gather(verifier.run(asyncio.Event()), recover())


class ProcessDisk:
    """A disk as one process sees it: the process ends when the disk says so, and a dead one changes nothing."""

    def __init__(self, disk: FaultyDisk, process: Process) -> None:
        self._disk = disk
        self._process = process
        others = (each for each in process.world.lives if each.alive and each is not process)
        if all(each.place.disks.get(each.name) is not disk for each in others):
            disk.kill()  # files that its predecessor had open

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._disk, name)

        def call(*args: Any) -> Any:
            return self.guarded(method, *args)

        setattr(self, name, call)
        return call

    def append(self, path: Path) -> AppendFile:
        file: AppendFile = ProcessFile(self, self.guarded(self._disk.append, path))
        return file

    def guarded(self, method: Callable[..., Any], *args: Any) -> Any:
        if not self._process.alive:
            raise PowerOff
        try:
            return method(*args)
        except PowerOff:
            self._disk.crash_after(None)  # others may be on it
            self._process.world.ended(self._process, "killed in the middle of a write")
            raise


class ProcessFile:
    """An open file of a ``ProcessDisk``."""

    def __init__(self, disk: ProcessDisk, file: AppendFile) -> None:
        self._disk = disk
        self._file = file
        self.close = file.close

    @property
    def size(self) -> int:
        return self._file.size

    def write(self, *chunks: bytes) -> None:
        self._disk.guarded(self._file.write, *chunks)

    def sync(self) -> None:
        self._disk.guarded(self._file.sync)


# -- clients whose stubs lead to the simulated network ---------------------------------------------------------------
class SimulatedJoinerClient(JoinerClient):
    def __init__(self, stub: Stub) -> None:
        self._join = JOIN
        self._stub = stub
        self._tls = False
        self.error = ""


class SimulatedStoreClient(EventStoreClient):
    def __init__(self, stub: Stub, clock: Clock) -> None:
        self._join = JOIN
        self._monotonic, self._heard = clock.monotonic, clock.monotonic()
        self._stub = stub
        self._timeout = settings.STORE_TIMEOUT_S
        self._tls = False
        self._last = settings.NO_PROGRESS
        self.error = ""


# -- the kinds of processes ------------------------------------------------------------------------------------------
class Replica(Process):
    """A registry replica over modelled Raft groups."""

    watch: ClockWatch | None = None

    async def run(self) -> None:
        machines = Machines(range(1, self.world.shards + 1))
        by_group = machines.by_group()
        groups = {number: GroupEnd(group, self, by_group[number]) for number, group in self.world.groups.items()}
        await self.serve(machines, groups)

    async def serve(self, machines: Machines, groups: Mapping[int, Group], opener: Any = None) -> None:
        """Serves as long as it lives."""
        world = self.world
        if world.apart:
            self.watch = clocks = ClockWatch(
                IntervalClock(self.clock, settings.UNCERTAINTY_NS),
                [name for name in world.replicas if name != self.name],
            )
            peers = PeerClocks(self.name, clocks, dict.fromkeys(clocks.peers, "simulated"), None)
            peers._channels._stub = self.stub  # type: ignore[method-assign]
            peers.start()
        self.server = replica = RegistryReplica(
            name=self.name,
            groups=groups,
            machines=machines,
            set_up=c.SetUp(single_range(world.shards), {JOIN: b"rule"}),
            clock=self.clock,
            uncertainty_ns=settings.UNCERTAINTY_NS,
            retention_ns=world.retention_ns,
            clocks=self.watch,
            opener=opener,
        )
        replica.start()
        named = ("OpenSlot", "Insert", "Clear", "LookUp", "Describe", "ReadWitness", "ExtendWitness")
        named += ("RetireSlot", "ScanOwned", "ScanReopened", "Reopen", "ReadClock", "Reshard", "ListSlots", "JudgeBy")
        named += ("KeepSamples",)
        self.listen(RegistryServicer(replica), *named)
        assert replica.conflict is not None
        world.violated(f"{self.name}: {await replica.conflict}")


class Store(Process):
    """An event store: the model with the production servicer."""

    async def run(self) -> None:
        self.store = self.model()
        self.listen(EventStoreService({JOIN: self.store}), "LookUp", "Progress", "Arrived", "Seek")
        await self.store.read()

    def model(self) -> StoreModel:
        return StoreModel(self)


class JoinerProcess(Process):
    """One slot: engine, service, verifier, and recovery by token, which finds nothing as long as logs are sound."""

    # Like the real process: until its slot is open it answers that it has not started. Otherwise nobody answers until
    # then.
    listens_first = False

    def __init__(self, world: World, place: Place, name: str) -> None:
        super().__init__(world, place, name)
        self.engine: joiner_engine.JoinerEngine | None = None
        self.serving = False

    async def run(self) -> None:
        disk = ProcessDisk(self.place.disks[self.name], self)
        paths = SlotPaths(Path(f"/{self.name}/slot"), Path(f"/{self.name}/out"))
        registry = self.registry()
        engine = self.make_engine(
            self.place.slots.get(self.name, self.name), paths, registry, disk, self.die, self.world.joiner_limits
        )
        if self.listens_first:
            self.listen(JoinerService({JOIN: engine}), "Join")
        await engine.start()
        self.engine = engine
        self.serving = True
        self.listen(JoinerService({JOIN: engine}), "Join")
        await self.verify(disk, paths, registry)

    def make_engine(
        self,
        name: str,
        paths: SlotPaths,
        registry: RoutedRegistry,
        disk: Any,
        die: Die,
        limits: JoinerLimits,
        copying: Copying | None = None,
    ) -> joiner_engine.JoinerEngine:
        """The engine of a slot of this name."""
        around = Surroundings(
            registry,
            SimulatedStoreClient(self.stub(f"{self.place.name}-store"), self.clock),
            disk,
            self.clock,
            die,
            lambda: self.random.randbytes(16),
        )
        slot = joiner_engine.Slot(name, self.place.name)
        lines = envelope_lines(Envelope())
        self.world.restarted()
        return joiner_engine.JoinerEngine(
            slot, paths, around, self.world.adapter, lines, limits=limits, copying=copying
        )

    def die(self, reason: str) -> NoReturn:
        if "simulated" not in reason:
            self.world.violated(f"{self.name}: {reason}")
        self.end(reason)

    async def stop(self) -> None:
        self.handlers.clear()
        if self.serving and self.engine is not None:
            await self.engine.close()
        self.end("stopped")


class DispatcherProcess(Process):
    """A dispatcher: the production engine over a follower of the world's logs and a database in memory."""

    engine: DispatcherEngine | None = None
    undecided: Undecided

    @property
    def logs(self) -> list[GrowingLog]:
        """The foreign logs that it reads."""
        names = list(self.place.images)
        return self.world.truth.foreign[names.index(self.name) :: len(names)]

    async def run(self) -> None:
        world, place = self.world, self.place
        disk = ProcessDisk(place.disks[self.name], self)
        state = SimulatedState(self)
        try:
            exports = Exports(Path(f"/{self.name}/out"), disk, state, Path(f"/{self.name}/state"), warn=world.say)
            follower = SimulatedFollower(world, place, self.logs, state.positions(), self.random)
            store = SimulatedStoreClient(self.stub(f"{place.name}-store"), self.clock)

            registry = self.registry()

            async def commit_s() -> float | None:
                return (await registry.pulse(1.0)).commit_s

            given = DispatcherSurroundings(
                join="clicks",
                datacentre=place.name,
                adapter=world.adapter,
                digester=world.digester,
                joiners=[SimulatedJoinerClient(self.stub(name)) for name in place.joiners],
                progress=store.progress,
                registry=registry,
                envelope=Envelope(),
                clock=self.clock,
                random=self.random.random,
                homes=self._homes(),
                measure=commit_s,
                waking=store if world.tells and not world.variant.sets else None,
            )
            patience = settings.SETS if world.variant.sets else settings.PATIENCE
            self.engine = world.variant.dispatcher(
                given,
                Policy(patience, world.dispatcher_limits, world.dispatcher_options),
                follower,
                state,
                exports,
                sources=Sources(SimulatedReads(world, place), registry.recovery, settings.REOPENED_S),
            )
            await self.engine.run()
        finally:
            state.close()

    def _homes(self) -> Homes | None:
        world, place = self.world, self.place
        if not world.shared:
            return None
        return Homes(place.name, [each.name for each in world.datacentres], HeadStart(world.head_start_s))

    async def stop(self) -> None:
        if self.engine is not None:
            self.engine.stop()
        else:
            self.end("stopped")


class SimulatedLock:
    """In place of the slot's flock: two processes in one slot would be the world's own mistake."""

    def __init__(self, directory: Path) -> None:
        owner = OWNER.get()
        assert isinstance(owner, Process)
        self._process = owner
        self._name = str(directory)

    def take(self, *, wait_s: float = 0.0) -> None:
        locks = self._process.world.locks
        holder = locks.get(self._name)
        if holder is not None and holder is not self._process and holder.alive:
            raise joiner_engine.SlotRefused(f"{self._name}: locked")
        locks[self._name] = self._process
        try:
            self._process.place.disks[self._process.name].make_dir(Path(self._name))
        except PowerOff:
            self._process.place.disks[self._process.name].crash_after(None)
            self._process.end("killed as it makes its directory")

    def release(self) -> None:
        if self._process.world.locks.get(self._name) is self._process:
            del self._process.world.locks[self._name]


async def main(process: Process) -> None:
    """Runs a process from start to end; an exception that it may not raise breaks a promise."""
    world = process.world
    try:
        await process.run()
    except OSError as error:
        if "simulated" not in str(error):
            world.violated(f"{process.name} failed: {type(error).__name__}: {error}", error)
        world.ended(process, str(error))
    except Exception as error:
        world.violated(f"{process.name} failed: {type(error).__name__}: {error}", error)
    else:
        with suppress(PowerOff):
            process.end("ended")

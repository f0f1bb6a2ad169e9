"""pysyncobj as it comes, in the simulated world: its own journal, dump, messages and elections.

It is treated well: connections keep their order and lose nothing while they last (TCP), nothing is doubled, disks
never fail, bits do not rot, and the kernel writes every file back each ``WRITE_BACK_SECONDS`` though nobody asked.
"""

from __future__ import annotations

import gc
import shutil
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any
from unittest import mock

import pysyncobj.journal
import pysyncobj.pickle
import pysyncobj.syncobj as library
from pysyncobj.node import Node as LibraryNode

from tests.simulation.world.cluster import Cluster
from tests.simulation.world.raft import World
from tests.simulation.world.violation import Violation

TICK_SECONDS = 0.05
"""The library's default."""
WRITE_BACK_SECONDS = 1.0
RECONNECT_SECONDS = 0.1
SECONDS = 6.0


# --- schedules, the same for any world --------------------------------------------------------------------------
@dataclass(frozen=True)
class Event:
    """``what``: cut (``who`` from the others), kill, power (cut of ``who``) or pause."""

    at: float
    what: str
    who: tuple[str, ...]
    seconds: float = 0.0
    """How long, of a cut or pause."""


def draw(seed: int, names: Sequence[str], kinds: Sequence[str]) -> list[Event]:
    """A schedule of some of the kinds."""
    random = Random(seed)
    events = []
    at = random.uniform(0.8, 1.5)
    while at < SECONDS:
        what = random.choice(kinds)
        if what == "power":
            who = tuple(names) if random.random() < 0.5 else (random.choice(names),)
        else:
            who = (random.choice(names),)
        events.append(Event(at, what, who, random.uniform(0.3, 2.5)))
        at += random.expovariate(1 / 0.6)
    return events


def play(world: Cluster, events: Sequence[Event]) -> None:
    """Plans the events."""
    for event in events:
        world.later(event.at, lambda event=event: _happen(world, event))  # type: ignore[misc]


def _happen(world: Cluster, event: Event) -> None:
    world.tell(f"{event.what}: {' '.join(event.who)}")
    if event.what == "cut":
        cut = {(a, b) for a in world.names for b in world.names if (a in event.who) != (b in event.who)}
        world.cut |= cut
        world.later(event.seconds, lambda: world.cut.difference_update(cut))
        return
    for name in event.who:
        node = world.nodes[name]
        if event.what == "pause":
            node.paused_until = world.now + event.seconds
        elif node.up:
            node.crash(power=event.what == "power")


# --- the library -------------------------------------------------------------------------------------------------
class Table(library.SyncObj):  # type: ignore[misc]
    """What an application would write: a replicated list of numbers."""

    def __init__(self, world: StockWorld, name: str, transport: StockTransport, directory: Path) -> None:
        self._world = world
        self._name = name
        conf = library.SyncObjConf(
            autoTick=False,
            journalFile=str(directory / "journal"),
            fullDumpFile=str(directory / "dump"),
            useFork=False,  # as it is not to be forked in a test
            logCompactionMinEntries=world.compaction_entries,
            logCompactionMinTime=3600,
            logCompactionBatchSize=200,  # the state is small here: as many pieces as a bigger one has by default
            leaderFallbackTimeout=1.6,
        )
        others = [other for other in transport.nodes.values() if other.id != name]
        super().__init__(transport.nodes[name], others, conf, transport=transport)
        self.history: list[int] = []

    @library.replicated  # type: ignore[untyped-decorator]
    def put(self, number: int) -> int:
        index = int(self.raftLastApplied) + 1
        self._world.applied(self._name, index, number.to_bytes(8, "big"))
        self.history.append(number)
        return index


class _Node(LibraryNode):  # type: ignore[misc]
    """Sets of nodes have one order in every process: a string's hash would draw it anew."""

    def __hash__(self) -> int:
        return ord(self.id)


class _NoPoller:
    def poll(self, timeout: float) -> None:
        """There are no sockets: the world ticks a replica when a message arrives."""


class StockTransport:
    """The library's transport over the world's connections."""

    ready = True

    def __init__(self, world: StockWorld, name: str) -> None:
        self._world = world
        self._name = name
        self.nodes = {each: _Node(each) for each in world.names}
        self.on_message: Any = None
        self.on_connected: Any = None
        self.on_disconnected: Any = None

    def send(self, node: LibraryNode, message: Any) -> bool:
        return self._world.post(self._name, node.id, pysyncobj.pickle.dumps(message))

    def setOnMessageReceivedCallback(self, callback: Any) -> None:  # noqa: N802 - the library's names
        self.on_message = callback

    def setOnNodeConnectedCallback(self, callback: Any) -> None:  # noqa: N802
        self.on_connected = callback

    def setOnNodeDisconnectedCallback(self, callback: Any) -> None:  # noqa: N802
        self.on_disconnected = callback

    def setOnReadonlyNodeConnectedCallback(self, callback: Any) -> None:  # noqa: N802
        """There are none."""

    setOnReadonlyNodeDisconnectedCallback = setOnReadonlyNodeConnectedCallback  # noqa: N815

    def setOnUtilityMessageCallback(self, message: str, callback: Any) -> None:  # noqa: N802
        """Nobody sends any."""

    def destroy(self) -> None:
        self.on_message = self.on_connected = self.on_disconnected = None


class StockNode:
    """One machine: a directory of real files, and a replica that comes and goes."""

    def __init__(self, world: StockWorld, name: str) -> None:
        self.world = world
        self.name = name
        self.directory = world.directory / name
        self.written_back = world.directory / f"{name}.written-back"
        self.directory.mkdir()
        self.table: Table | None = None
        self.transport: StockTransport | None = None
        self.paused_until = 0.0
        self.life = 0
        self.write_back()

    @property
    def up(self) -> bool:
        return self.table is not None

    def write_back(self) -> None:
        shutil.rmtree(self.written_back, ignore_errors=True)
        shutil.copytree(self.directory, self.written_back)

    def boot(self) -> None:
        self.life += 1
        self.transport = StockTransport(self.world, self.name)
        self.table = Table(self.world, self.name, self.transport, self.directory)
        self.world.tell(f"{self.name} is up")
        self._tick(self.life)

    def crash(self, *, power: bool) -> None:
        assert self.table is not None
        self.world.tell(f"{self.name} is down ({'power cut' if power else 'killed'})")
        self.table._SyncObj__raftLog._destroy()
        self.table = self.transport = None
        self.world.crashes += 1
        if power:
            shutil.rmtree(self.directory)
            shutil.copytree(self.written_back, self.directory)
        self.world.later(self.world.random.uniform(0.01, 1.2), self._boot_if_down)

    def _boot_if_down(self) -> None:
        if not self.up:
            self.boot()

    def _tick(self, life: int) -> None:
        if self.life != life or self.table is None:
            return
        self.world.later(TICK_SECONDS, lambda: self._tick(life))
        self.guarded(lambda table: table.doTick())

    def guarded(self, act: Callable[[Table], object]) -> None:
        """The library logs what goes wrong in its tick, and goes on."""
        if self.table is not None and self.paused_until <= self.world.now:
            try:
                act(self.table)
            except Violation:
                raise
            except Exception as e:
                self.world.tell(f"{self.name}: {e!r}")


class StockWorld(World):
    """A group of stock replicas under the checks of our own world."""

    def __init__(self, seed: int, directory: Path, *, compaction_entries: int) -> None:
        super().__init__(seed)
        self.directory = directory
        self.compaction_entries = compaction_entries
        self._links: dict[tuple[str, str], float] = {}
        """Connections, and when what was sent last arrives."""
        self._asked_at, self._asked = -1.0, 0
        self.stock = {name: StockNode(self, name) for name in self.names}
        self.nodes = self.stock  # type: ignore[assignment]

    def library_now(self) -> float:
        """Time passes while it is asked for: the library has loops that end after so long."""
        if self._asked_at != self.now:
            self._asked_at, self._asked = self.now, 0
        self._asked += 1
        return self.now + self._asked * 2e-4

    def post(self, sender: str, receiver: str, data: bytes) -> bool:
        arrives = self._links.get((sender, receiver))
        if arrives is None:
            return False
        arrives = max(arrives, self.now + self.random.uniform(0.0002, 0.003))
        self._links[sender, receiver] = arrives
        life = (self.stock[sender].life, self.stock[receiver].life)
        self.later(arrives - self.now, lambda: self._arrives(sender, receiver, life, data))
        return True

    def _arrives(self, sender: str, receiver: str, life: tuple[int, int], data: bytes) -> None:
        node = self.stock[receiver]
        if (sender, receiver) not in self._links or life != (self.stock[sender].life, node.life):
            return
        if node.paused_until > self.now:  # it waits in the socket
            self.later(node.paused_until - self.now, lambda: self._arrives(sender, receiver, life, data))
            return
        transport = node.transport
        if transport is not None and transport.on_message is not None:
            message = pysyncobj.pickle.loads(data)
            node.guarded(lambda table: transport.on_message(transport.nodes[sender], message))
            node.guarded(lambda table: table.doTick())

    def connect(self) -> None:
        """Connections break when a side dies or the network is cut, and are made anew a little later."""
        for a in self.names:
            for b in self.names:
                if a == b:
                    continue
                fine = self.stock[a].up and self.stock[b].up and not {(a, b), (b, a)} & self.cut
                transport = self.stock[a].transport
                if fine and (a, b) not in self._links and transport is not None:
                    self._links[a, b] = self.now
                    transport.on_connected(transport.nodes[b])
                elif not fine and self._links.pop((a, b), None) is not None and transport is not None:
                    transport.on_disconnected(transport.nodes[b])
        self.later(RECONNECT_SECONDS, self.connect)

    def write_back(self) -> None:
        node = self.stock[self.random.choice(self.names)]
        node.write_back()
        self.later(WRITE_BACK_SECONDS / len(self.names), self.write_back)

    def propose_at_leaders(self) -> None:
        for node in self.stock.values():
            table = node.table
            if table is None or node.paused_until > self.now or not table._isLeader():
                continue
            self.proposed += 1
            number = self.proposed

            def done(index: int | None, error: int, number: int = number) -> None:
                if error == 0 and index is not None:
                    self.acknowledged[number.to_bytes(8, "big")] = index

            node.guarded(lambda table, number=number, done=done: table.put(number, callback=done))  # type: ignore[misc]

    def end(self) -> None:
        """Lets everything of the library go."""
        for node in self.stock.values():
            if node.table is not None:
                node.table._SyncObj__raftLog._destroy()
            node.table = node.transport = None
        self._events.clear()

    def check(self) -> None:
        histories = {node.name: node.table.history for node in self.stock.values() if node.table is not None}
        for name, history in histories.items():
            for command in self.acknowledged:
                number = int.from_bytes(command, "big")
                if number not in history:
                    raise Violation(f"acknowledged command {number} is lost at {name}")
            if len(set(history)) != len(history):
                raise Violation(f"a command was applied twice at {name}")
            if history != histories[self.names[0]]:
                raise Violation(f"the histories of {name} and {self.names[0]} differ")


@contextmanager
def _as_it_comes(world: StockWorld) -> Iterator[None]:
    """Takes back what the driver puts in place of the library's globals; time and chance are the world's."""
    with mock.patch.multiple(
        library,
        monotonicTime=world.library_now,
        pickle=pysyncobj.pickle,
        createJournal=pysyncobj.journal.createJournal,
        createPoller=lambda kind: _NoPoller(),
        PIPE_NOTIFIER_ENABLED=False,
        random=world.random,
    ):
        yield


def run(
    seed: int, directory: Path, events: Sequence[Event], *, compaction_entries: int, story: list[str] | None = None
) -> StockWorld:
    """One schedule of the stock library. Raises Violation."""
    world = StockWorld(seed, directory, compaction_entries=compaction_entries)
    world.story = story
    with _as_it_comes(world), warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)  # the library leaves files open
        violation = _violation(world, events)
        world.end()
        gc.collect()
    if violation:
        raise Violation(violation)
    return world


def _violation(world: StockWorld, events: Sequence[Event]) -> str:
    for node in world.stock.values():
        world.later(world.random.uniform(0, 0.2), node.boot)
    world.later(0.3, world.connect)
    world.later(0.3, world.write_back)
    play(world, events)

    def client() -> None:
        world.propose_at_leaders()
        if world.now < SECONDS:
            world.later(world.random.expovariate(1 / 0.02), client)

    world.later(0.5, client)
    try:
        world.run_until(SECONDS + 3.0)
        world.cut.clear()
        world.run_until(world.now + 15.0)
        world.check()
    except Violation as e:
        return str(e)
    return ""

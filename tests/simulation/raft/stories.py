"""Faults that form a story of several acts, which chance produces once in a hundred thousand schedules."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from weakref import WeakSet

from photon.idregistry.raft import codec
from photon.idregistry.raft.group import RaftGroup
from photon.idregistry.raft.identity import group_directory
from photon.idregistry.raft.segment_file import HEADER_BYTES
from photon.idregistry.raft.transport import GroupMessage, Hello
from tests.simulation.world.cluster import DIRECTORY, Cluster, Node
from tests.simulation.world.raft import GROUP

LOOK_SECONDS = 0.004
PATIENCE_SECONDS = 3.0  # an act that takes longer ends the story


def tell(acts: Callable[[Cluster], Iterator[Callable[[], bool]]]) -> Callable[[Cluster], None]:
    """A fault made from a generator that yields its wait conditions."""

    def fault(world: Cluster) -> None:
        story = acts(world)

        def wait(until: Callable[[], bool], end: float) -> None:
            if not world.stormy or world.now > end:
                story.close()
            elif until():
                go_on()
            else:
                world.later(LOOK_SECONDS, lambda: wait(until, end))

        def go_on() -> None:
            until = next(story, None)
            if until is not None:
                wait(until, world.now + PATIENCE_SECONDS)

        go_on()

    return fault


def group(node: Node) -> RaftGroup:
    assert node.host is not None
    return node.host._groups[GROUP]


def leaders(world: Cluster) -> list[Node]:
    return [node for node in world.nodes.values() if node.host is not None and group(node).state().is_leader]


def _isolate(world: Cluster, some: set[str]) -> None:
    """Isolates nodes from the others, in both directions; nothing else is cut."""
    world.cut.clear()
    world.cut |= {(a, b) for a in world.names for b in world.names if (a in some) != (b in some)}


Message = codec.Message
Deliver = Callable[[], None]


class Post:
    """Sees every message sent from now on, and may keep it: one story of a world has it."""

    def __init__(self, world: Cluster, keeps: Callable[[str, str, Message, Deliver], bool]) -> None:
        """``keeps(sender, receiver, message, deliver)``: True if the message must not be delivered by itself."""
        self._world = world
        self._keeps = keeps
        self._send = world.send
        world.send = self.send  # type: ignore[method-assign]

    def send(self, hello: Hello, peer: str, messages: Sequence[GroupMessage], *, after: float = 0.0) -> None:
        """Like the world's."""
        rest = [
            (number, data)
            for number, data in messages
            if not self._keeps(hello.name, peer, codec.decode(data), self._arrival(hello, peer, (number, data)))
        ]
        if rest or not messages:
            self._send(hello, peer, rest, after=after)

    def _arrival(self, hello: Hello, peer: str, message: GroupMessage) -> Deliver:
        def arrive() -> None:
            cut, self._world.cut = self._world.cut, set()  # it was on its way already
            try:
                self._world._arrive(hello, peer, [message])
            finally:
                self._world.cut = cut

        return arrive


def _begins(world: Cluster) -> Node | None:
    """The leader, if the story may begin: once per world."""
    leading = leaders(world)
    if len(leading) != 1 or world in _TOLD:
        return None
    _TOLD.add(world)
    return leading[0]


_TOLD: WeakSet[Cluster] = WeakSet()


def _hand_over(world: Cluster, leader: Node, to: Node) -> None:
    if leader.host is not None:
        leader.host.group(GROUP).transfer(to.name)
        world.pump_at(leader, world.now)


def _acknowledgement_of_an_older_term(world: Cluster) -> Iterator[Callable[[], bool]]:
    """Of five nodes, a leads and only b has its entries; b's acknowledgements are late. Another node leads meanwhile
    and takes the entries away from a; a leads again, and now the acknowledgements arrive. If they count, entries that
    two of five have are acknowledged."""
    a = _begins(world)
    if a is None:
        return
    b, c, d, e = world.random.sample([node for node in world.nodes.values() if node is not a], 4)
    late: list[tuple[int, Deliver]] = []

    def keeps(sender: str, receiver: str, message: Message, deliver: Deliver) -> bool:
        if (sender, receiver) == (b.name, a.name) and isinstance(message, codec.AppendAck) and message.accepted:
            late.append((message.next_index, deliver))
            return True
        return False

    Post(world, keeps)
    _isolate(world, {a.name, b.name})
    first = group(a).state().term
    yield lambda: any(node is not a for node in leaders(world))
    _isolate(world, {b.name})
    yield lambda: a.up and group(a)._journal.term_at(group(a)._journal.last) > first
    for node in leaders(world):
        if node is not a:
            _hand_over(world, node, a)
    yield lambda: a in leaders(world)
    _isolate(world, {a.name, c.name})
    yield lambda: a.up and group(a)._journal.last > max((next_index for next_index, _ in late), default=0)
    for _, deliver in late:
        deliver()
    now = world.now
    yield lambda: world.now > now + 0.05
    for node in (a, c):
        if node.up:
            node.crash(power=False)
    yield lambda: any(node in (b, d, e) for node in leaders(world))
    world.cut.clear()


def _vote_of_an_older_term(world: Cluster) -> Iterator[Callable[[], bool]]:
    """a stands, and its votes are late. It stands once more, nobody hears that, and now the votes arrive. If they
    count, a leads in a term in which the others elect somebody else."""
    leader = _begins(world)
    if leader is None:
        return
    a = world.random.choice([node for node in world.nodes.values() if node is not leader])
    late: list[tuple[int, Deliver]] = []
    again: list[int] = []

    def keeps(sender: str, receiver: str, message: Message, deliver: Deliver) -> bool:
        if isinstance(message, codec.Vote) and receiver == a.name and message.term == late_term(message.term):
            late.append((message.term, deliver))
            return True
        if isinstance(message, codec.RequestVote) and sender == a.name and late and message.term > late[0][0]:
            again.append(message.term)
            return True
        return False

    def late_term(term: int) -> int:
        return late[0][0] if late else term

    Post(world, keeps)
    _hand_over(world, leader, a)
    yield lambda: bool(again)
    _isolate(world, {a.name})
    for _, deliver in late:
        deliver()
    yield lambda: any(node is not a for node in leaders(world))
    world.cut.clear()


def _forgotten_vote(world: Cluster) -> Iterator[Callable[[], bool]]:
    """Of five nodes, a and b stand in one term. d votes for a, dies, comes back, and is asked by b."""
    leader = _begins(world)
    if leader is None:
        return
    asked: dict[int, dict[str, dict[str, Deliver]]] = defaultdict(lambda: defaultdict(dict))

    def keeps(sender: str, receiver: str, message: Message, deliver: Deliver) -> bool:
        if isinstance(message, codec.RequestVote) and not done:
            asked[message.term][sender][receiver] = deliver
            return True
        return False

    done: list[bool] = []
    Post(world, keeps)
    leader.crash(power=False)
    yield lambda: any(len(by_whom) > 1 for by_whom in asked.values())
    done.append(True)
    term = next(term for term, by_whom in asked.items() if len(by_whom) > 1)
    a, b = (world.nodes[name] for name in list(asked[term])[:2])
    c, d, _ = world.random.sample([node for node in world.nodes.values() if node not in (a, b)], 3)
    world.cut |= {(a.name, other) for other in world.names if other not in (c.name, d.name)}
    for voter in (c, d):
        asked[term][a.name][voter.name]()
    yield lambda: a in leaders(world)
    _isolate(world, {a.name, c.name})
    if d.up:
        d.crash(power=False)
    yield lambda: d.up
    for deliver in asked[term][b.name].values():
        deliver()
    now = world.now
    yield lambda: world.now > now + 0.1
    world.cut.clear()


def _rotten_snapshot(world: Cluster) -> Iterator[Callable[[], bool]]:
    """A follower is cut off long enough to need the leader's snapshot; its bits flip until all faults end."""
    leader = _begins(world)
    if leader is None or any(node.harmed for node in world.nodes.values()):
        return
    away = world.random.choice([node for node in world.nodes.values() if node is not leader])
    path = group_directory(DIRECTORY, GROUP) / "snapshot"
    _isolate(world, {away.name})
    last = group(away)._journal.last
    yield lambda: leader.up and group(leader)._journal.first > last and leader.disk.exists(path)
    leader.harmed = "each snapshot that it writes rots"
    rotten = b""

    def rots() -> bool:
        nonlocal rotten
        if leader.disk.exists(path) and leader.disk.read(path) != rotten:
            leader.disk.corrupt(path, world.random.randrange(leader.disk.size(path)))
            rotten = leader.disk.read(path)
            return True
        return False

    while leader.up:
        yield rots


def _rotten_tail(world: Cluster) -> Iterator[Callable[[], bool]]:
    """a and b have acknowledged entries that c lacks. A bit of b's last entry flips; b, then a restart, and c is
    back."""
    a = _begins(world)
    if a is None or any(node.harmed for node in world.nodes.values()):
        return
    b, c = world.random.sample([node for node in world.nodes.values() if node is not a], 2)
    _isolate(world, {c.name})
    now = world.now
    yield lambda: world.now > now + 0.5 and b.up and group(b)._journal._proven and not group(b)._journal._pending
    directory = group_directory(DIRECTORY, GROUP)
    path = directory / f"journal-{group(b)._journal._segment:016d}.log"
    size = b.disk.size(path)
    b.harmed = "a bit near its journal's end flipped"
    b.disk.corrupt(path, world.random.randrange(max(HEADER_BYTES, size - 300), size))
    b.crash(power=False)
    yield lambda: b.up or bool(b.broken)
    if a.up:
        a.crash(power=False)
    world.cut.clear()


acknowledgement_of_an_older_term = tell(_acknowledgement_of_an_older_term)
vote_of_an_older_term = tell(_vote_of_an_older_term)
forgotten_vote = tell(_forgotten_vote)
rotten_snapshot = tell(_rotten_snapshot)
rotten_tail = tell(_rotten_tail)

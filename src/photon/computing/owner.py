"""The loop around an engine: it reads, commits, then publishes, sends and acknowledges. A step takes at most about
0.1 s."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from photon.computing.engine import Engine
from photon.computing.errors import TopologyError
from photon.computing.injector import Reading
from photon.computing.intervals import Intervals
from photon.computing.links import Links
from photon.computing.publisher import Publisher, has_ended
from photon.computing.topology import Topology
from photon.computing.wire import ENDED_NS, NEVER_NS, PUBLISH, Ack, Input, Message, Watermark
from photon.config.clock import Clock
from photon.config.disk import Disk
from photon.outputs.output_places import EMBEDDED_STATE
from photon.outputs.watermarks import pairs_of, read_journal

TURN_S = 0.05  # Seconds of input between commits: bounds both latency and the work of a commit.
RESEND_S = 2.0
PARENTS_S = 0.2  # interval of checks whether a published stream's predecessors have ended
FAULTS_MAX = 100  # faults that are remembered, and reported in full


class _Source:
    """An injector, and the input from it that the engine has not taken yet."""

    def __init__(self, injector: Reading, *, ended: bool = False) -> None:
        self.injector = injector
        self.ended = ended
        self._reading: Iterator[Input] | None = None
        self._held: Input | None = None
        self._newest_ns = NEVER_NS  # newest time in the last batch

    def next(self, upto: bytes | None) -> Input | None:
        """Returns the next batch; ``None`` if there is none now, or none up to the position ``upto``."""
        if self._held is not None:
            held, self._held = self._held, None
            return held
        if self._reading is None:
            self._reading = self.injector.read(upto)
        found = next(self._reading, None)
        if found is None:
            self._reading = None
        elif found.records:
            self._newest_ns = max(record.time_ns for record in found.records)
        return found

    def give_back(self, batch: Input | None) -> None:
        self._held = batch

    def reached(self) -> tuple[int, int]:
        """Returns the source's progress: its watermark (without one, its newest event time), then its newest event
        time. The source with the least progress is read first."""
        low_ns = self.injector.mark().percentile_ns
        return (self._newest_ns if low_ns == NEVER_NS else low_ns, self._newest_ns)

    @property
    def holds(self) -> bool:
        return self._held is not None


class Owner:
    """The owner of one interval of keys. For one thread at a time."""

    def __init__(
        self,
        interval: str,
        engine: Engine,
        injectors: Sequence[Reading],
        publish: Mapping[str, Path],
        *,
        disk: Disk,
        clock: Clock,
        links: Links,
        state: str = "",
        where: str = "the state",
        since_ns: int = NEVER_NS,
        once: bool = False,
        tell: Callable[[str], None] = lambda line: None,
    ) -> None:
        """``publish``: stream -> directory; ``state``, ``where``, ``since_ns``: see Publisher; ``once``: stop at the
        end of the data that exists now, or existed when an interrupted run with ``once`` began; ``tell``: receives
        one line for each fault of a computation. After an error everything is closed, including ``injectors``."""
        self.interval, self.engine, self._publish, self._once = interval, engine, publish, once
        self._sources = [_Source(each, ended=once and engine.has_ended(each.stream)) for each in injectors]
        self.upto: Mapping[str, bytes] = {}  # source -> read no further than this position
        self._disk, self._clock, self._links, self._tell = disk, clock, links, tell
        self._state, self._where, self._since_ns = state, where, since_ns
        self._names: Mapping[str, str] = engine.published
        self._publishers: dict[tuple[str, Path, str], Publisher] = {}
        # Target -> when an item that it has not acknowledged was sent, monotonic seconds.
        self._sent: dict[str, float] = {}
        self.published: dict[str, Watermark] = {}  # stream -> the watermark of its visible part
        self.published_records = 0
        self.faults: list[str] = []
        self._told_ns: dict[str, int] = {}
        self._ended: set[tuple[Path, str]] = set()  # directory, sender: known to have ended there
        try:
            for stream in publish:
                self._publisher(stream, interval)
            engine.retry(clock.now_ns())
        except BaseException:
            self.close()
            raise

    @property
    def injectors(self) -> list[Reading]:
        return [each.injector for each in self._sources]

    def step(self) -> bool:
        """Does one round of work; True if there was any. Raises errors of injectors, publishers and the engine
        (PhotonError, OSError), after which the process must end."""
        now_ns = self._clock.now_ns()
        busy = self._hear(now_ns)
        busy |= self._read(now_ns)
        busy |= self.engine.advance(now_ns)
        self._send(self.engine.weak())
        if self.engine.ready(now_ns):
            self.engine.commit()
            busy = True
        self._acknowledge()
        self._repeat()  # so that unacknowledged items count as sent: see ``ended``
        busy |= self._send(self.engine.outgoing())
        self._look()
        return busy

    def drain(self) -> None:
        """Commits and publishes the input taken so far. Raises like ``step``."""
        now_ns = self._clock.now_ns()
        if self.engine.ready(now_ns):
            self.engine.commit()
        self._acknowledge()
        while self._send(self.engine.outgoing()):
            pass
        # Items up to here are published, so the next start does not send them
        if self.engine.has_acknowledgements:
            self.engine.commit()
        self._look()

    @property
    def ended(self) -> bool:
        """True if ``once`` is set and all data has been processed."""
        if not all(each.ended and not each.holds for each in self._sources):
            return False
        return all(mark.exact_ns == ENDED_NS for mark in self.engine.watermarks().values()) and not self._sent

    @property
    def rests(self) -> bool:
        """True if no item is in flight to another owner or a publisher, and no input is held back."""
        return not self._sent and not any(each.holds for each in self._sources)

    def close(self) -> None:
        with ExitStack() as closing:
            for close in [
                *(each.close for each in self.injectors),
                *(each.close for each in self._publishers.values()),
            ]:
                closing.callback(close)

    # -- changes while it runs
    def change(self, topology: Topology, injectors: Sequence[Reading], publish: Mapping[str, Path]) -> None:
        """Switches to another topology; injectors that the owner already has continue. If it raises TopologyError,
        nothing has changed."""
        self.drain()
        if self.engine.inherits:
            raise TopologyError("messages from before a split or merge are still in flight")
        before, self._publish = self._publish, publish
        self._names = topology.published
        try:
            for stream in publish:
                self._publisher(stream, self.interval)
            self.engine.change(topology)
        except BaseException:
            self._publish, self._names = before, self.engine.published
            raise
        for place in [place for place in self._publishers if publish.get(place[0]) != place[1]]:
            self._publishers.pop(place).close()
        for stream in [stream for stream, directory in before.items() if publish.get(stream) != directory]:
            self.published.pop(stream, None)
            self._told_ns.pop(stream, None)
        known = {each.injector.stream: each for each in self._sources}
        for gone in [each for each in self.injectors if each not in injectors]:
            gone.close()
        self._sources = [
            kept if (kept := known.get(each.stream)) is not None and kept.injector is each else _Source(each)
            for each in injectors
        ]

    def rewire(self, intervals: Intervals) -> None:
        """Adapts to splits or merges of other owners' intervals."""
        self.engine.rewire(intervals)
        for target in self._sent.keys() - intervals.by_id.keys():
            if not target.startswith(PUBLISH):
                del self._sent[target]

    # -- input
    def _read(self, now_ns: int) -> bool:
        """Reads input for a turn; only one batch if watermarks have moved by received messages, since other owners
        wait for these."""
        until, busy = self._clock.monotonic() + (0.0 if self.engine.moved else TURN_S), False
        left = [each for each in self._sources if not each.ended or each.holds]
        while left:
            source = min(left, key=_Source.reached)
            batch = source.next(self.upto.get(source.injector.stream))
            if batch is None and self._once:
                batch, source.ended = source.injector.complete(), True
            if batch is None or not self.engine.take(batch, now_ns):
                source.give_back(batch)
                left.remove(source)
                continue
            busy = True
            if source.ended:
                left.remove(source)
            if self._clock.monotonic() >= until:
                break
        return busy

    def _hear(self, now_ns: int) -> bool:
        busy = False
        for each in self._links.received(self.interval):
            if isinstance(each, Ack):
                self.engine.acknowledged(each)
                if not self.engine.awaits(each.target):  # otherwise a lost one would never be sent again
                    self._sent.pop(each.target, None)
            else:
                self.engine.receive(each, now_ns)  # messages that cannot be taken yet are sent again
            busy = True
        return busy

    # -- output
    def _acknowledge(self) -> None:
        for ack in self.engine.acks():
            self._links.send(ack.to, ack)

    def _send(self, messages: Sequence[Message]) -> bool:
        for each in messages:
            if each.target.startswith(PUBLISH):
                self._show(each, each.target.removeprefix(PUBLISH))
            else:
                self._links.send(each.target, each)
                self._sent.setdefault(each.target, self._clock.monotonic())
        return bool(messages)

    def _show(self, message: Message, stream: str) -> None:
        if stream in self._publish:  # otherwise it was removed and is empty
            if not all(self._has_ended(stream, parent) for parent in message.parents):
                self._sent.setdefault(message.target, self._clock.monotonic() - RESEND_S + PARENTS_S)
                return
            publisher = self._publisher(stream, message.sender)
            self.published_records += publisher.publish(message.items, self._said_ns(stream))
            if message.successors:
                publisher.end()
            if stream in message.watermarks:
                self.published[stream] = message.watermarks[stream]
        self.engine.acknowledged(Ack(message.sender, message.target, message.upto))

    def _said_ns(self, stream: str) -> int:
        """Returns the time before which no more records should come: declared by this owner, or told to readers
        before it began."""
        if stream not in self._told_ns:
            state = self._publish[stream] / EMBEDDED_STATE
            told = [pair.exact_ns for pair in pairs_of(read_journal(self._disk, state)) if pair.exact_ns is not None]
            self._told_ns[stream] = max(told, default=NEVER_NS)
        said_ns = self.published[stream].exact_ns if stream in self.published else NEVER_NS
        return max(self._told_ns[stream], NEVER_NS if said_ns == ENDED_NS else said_ns)

    def _has_ended(self, stream: str, sender: str) -> bool:
        """True if the sender has ended. Only then may the new owners of its keys publish."""
        place = (self._publish[stream], sender)
        if place not in self._ended and has_ended(self._disk, *place):
            self._ended.add(place)
        return place in self._ended

    def _publisher(self, stream: str, sender: str) -> Publisher:
        """Returns the sender's publisher for a stream. Call it before any item is committed, as a sender that never
        opened a stream has nothing to end."""
        place = (stream, self._publish[stream], sender)
        if place not in self._publishers:
            committed = self.engine.committed if sender == self.interval else None
            self._publishers[place] = Publisher(
                self._disk, *place[1:], state=self._state, where=self._where,
                committed=committed, shown=self.engine.shown(sender, self._names[stream]), since_ns=self._since_ns,
            )  # fmt: skip
        return self._publishers[place]

    def _repeat(self) -> None:
        now = self._clock.monotonic()
        for target in [each for each, since in self._sent.items() if now - since > RESEND_S]:
            del self._sent[target]
            self.engine.resend(target)

    def _look(self) -> None:
        for fault in self.engine.faults():
            if len(self.faults) < FAULTS_MAX:
                self._tell(fault.line)
                self.faults.append(fault.line)

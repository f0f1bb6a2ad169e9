"""One connection through the proxy: bytes from its two sides go in, actions come out. Pure.

The client's TCP connection ends at the proxy, so its ``connect()`` succeeds at once. The cost of opening a connection
over a distance is simulated afterwards: SYN, SYN-ACK and ACK travel like bytes before the proxy connects to the
target, and the client's bytes count as sent when the SYN-ACK arrives. First bytes arrive when they would in reality.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from photon.lab.wan.delay_line import SLACK_S, DelayLine, End
from photon.lab.wan.links import Fault, Link

# Bytes of memory on their way in one direction of one connection; above this, its sender is not read. Allows 100
# MiB/s at 300 ms one way.
IN_FLIGHT_MAX = 32 << 20
# The limit while nothing gets through, so that senders over a cut link keep their data in their own buffers.
HELD_MAX = 1 << 20
STEP_BYTES_MAX = 1 << 20  # bytes handed to a transport at once, so that it can report that it is full


class Side(enum.IntEnum):
    CLIENT = 0
    TARGET = 1

    @property
    def other(self) -> Side:
        return Side(1 - self)


@dataclass(frozen=True, slots=True)
class Connect:
    """Connect to the target now; report connected() or lost(TARGET)."""


@dataclass(frozen=True, slots=True)
class Write:
    side: Side
    chunks: list[bytes]


@dataclass(frozen=True, slots=True)
class Finish:
    """No more bytes will come for this side: FIN."""

    side: Side


@dataclass(frozen=True, slots=True)
class Abort:
    """End this side with a reset."""

    side: Side


@dataclass(frozen=True, slots=True)
class Close:
    """End this side cleanly, after the bytes written to it."""

    side: Side


Action = Connect | Write | Finish | Abort | Close


class _Phase(enum.Enum):
    SYN = enum.auto()
    SYN_ACK = enum.auto()
    ACK = enum.auto()
    CONNECTING = enum.auto()
    OPEN = enum.auto()
    DONE = enum.auto()


_AFTER = {_Phase.SYN: _Phase.SYN_ACK, _Phase.SYN_ACK: _Phase.ACK, _Phase.ACK: _Phase.CONNECTING}


class _Lane:
    __slots__ = ("blocked", "finished", "line", "link", "to")

    def __init__(self, link: Link, to: Side) -> None:
        self.link = link
        self.to = to
        self.line = DelayLine()
        self.blocked = False  # the receiver accepts no more for now
        self.finished = False  # FIN delivered

    def due_at(self) -> float | None:
        return self.line.due_at(self.link.delay_s) if self.link.passes and not self.blocked else None


class Tunnel:
    """A connection opened from ``forth.source``. Report events, then call step() until it returns nothing."""

    __slots__ = ("_gone", "_lanes", "_phase", "_since")

    def __init__(self, forth: Link, back: Link, now: float) -> None:
        """Begins when the client has connected. ``now``: monotonic seconds, here and below."""
        self._lanes = (_Lane(forth, Side.TARGET), _Lane(back, Side.CLIENT))  # by the sending side
        self._phase = _Phase.SYN
        self._since = now
        self._gone = [False, False]
        forth.connections += 1

    @property
    def done(self) -> bool:
        return self._phase is _Phase.DONE

    @property
    def held(self) -> int:
        return sum(lane.line.held for lane in self._lanes)

    def data(self, side: Side, data: bytes, now: float) -> None:
        self._lanes[side].line.push(data, now)

    def finished(self, side: Side, now: float) -> None:
        self._lanes[side].line.push(End.FINISHED, now)

    def connected(self) -> None:
        if self._phase is _Phase.CONNECTING:
            self._phase = _Phase.OPEN

    def lost(self, side: Side, now: float) -> None:
        """Notes that a side is gone, or that the target could not be reached."""
        if self.done:
            return
        self._gone[side] = True
        self._lanes[side].line.push(End.BROKEN, now)
        towards = self._lanes[side.other]
        towards.line.clear()
        towards.blocked = False  # further bytes are dropped
        if side is Side.TARGET:
            self._phase = _Phase.OPEN  # the target still has bytes for the client
        if all(self._gone) or self._phase in _AFTER:
            self._end()

    def blocked(self, side: Side, blocked: bool) -> None:
        self._lanes[side.other].blocked = blocked

    def reads(self, side: Side) -> bool:
        """True if there is room for more bytes from a side."""
        lane = self._lanes[side]
        flows = lane.link.passes and self._phase is _Phase.OPEN
        return lane.line.held < (IN_FLIGHT_MAX if flows else HELD_MAX)

    def wake_at(self) -> float | None:
        """The time by which step() must be called even if no event is reported; ``None`` means never."""
        if self._phase in _AFTER:
            link = self._handshake_link()
            return self._since + link.delay_s if link.passes else None
        if self._phase is not _Phase.OPEN:
            return None
        return min((due for lane in self._lanes if (due := lane.due_at()) is not None), default=None)

    def step(self, now: float) -> list[Action]:
        """Returns the actions to take now, in order; call it again until there are none."""
        if self.done:
            return []
        if self._lanes[Side.CLIENT].link.fault is Fault.RESET:
            return self._abort()
        if self._phase in _AFTER:
            return self._open(now)
        actions: list[Action] = []
        if self._phase is _Phase.OPEN:
            for lane in self._lanes:
                if not self.done:
                    self._deliver(lane, now, actions)
            if not self.done and all(lane.finished for lane in self._lanes):
                self._end()
                actions += [Close(Side.CLIENT), Close(Side.TARGET)]
        return actions

    def _handshake_link(self) -> Link:
        return self._lanes[Side.TARGET if self._phase is _Phase.SYN_ACK else Side.CLIENT].link

    def _open(self, now: float) -> list[Action]:
        while self._phase in _AFTER:
            link = self._handshake_link()
            if not link.passes and self._lanes[Side.CLIENT].line.ended:
                return self._abort()  # a connect() that timed out, whose SYN would not be sent again
            due = self._since + link.delay_s
            if not link.passes or due > now + SLACK_S:
                return []
            self._since = max(due, now)
            self._phase = _AFTER[self._phase]
            if self._phase is _Phase.ACK:
                self._lanes[Side.CLIENT].line.starts(self._since)
        return [Connect()]

    def _deliver(self, lane: _Lane, now: float, actions: list[Action]) -> None:
        if not lane.link.passes or lane.blocked:
            return
        taken = lane.line.take(now, lane.link.delay_s, STEP_BYTES_MAX)
        if self._gone[lane.to]:
            taken.chunks.clear()
        if taken.chunks:
            lane.link.delivered += taken.size
            actions.append(Write(lane.to, taken.chunks))
        if taken.end is End.FINISHED:
            lane.finished = True
            if not self._gone[lane.to]:
                actions.append(Finish(lane.to))
        elif taken.end is End.BROKEN:
            self._end()
            actions.append(Abort(lane.to))

    def _abort(self) -> list[Action]:
        sides = Side if self._phase is _Phase.OPEN else (Side.CLIENT,)
        self._end()
        return [Abort(side) for side in sides if not self._gone[side]]

    def _end(self) -> None:
        if not self.done:
            self._phase = _Phase.DONE
            self._lanes[Side.CLIENT].link.connections -= 1
            for lane in self._lanes:
                lane.line.clear()

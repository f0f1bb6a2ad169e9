"""Keeps productions for other owners and publishers until they are acknowledged. A message has everything that its
target has not acknowledged, oldest first. Only one message at a time is in flight to a target; it may be lost,
duplicated or delayed. The numbers of a sender grow; moved watermarks get a number too, so that an acknowledgement
tells whether they arrived. A sender whose interval was split or merged lives on in the outbox of a successor until
all its messages are delivered, and then announces its end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import msgspec

from photon.computing.intervals import Intervals, hash_of
from photon.computing.store import Chunk
from photon.computing.wire import PUBLISH, Ack, Item, Message, Watermark

Way = tuple[str, str]  # sender, target
LAST = (1 << 63) - 1
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Item]).decode


class Outbox:
    def __init__(self, me: str, chunks: Iterable[Chunk], message_items: int, message_bytes: int) -> None:
        self.bytes = 0
        self._me = me
        self._ways: dict[Way, deque[Item]] = {}
        self._fresh: dict[Way, list[Item]] = {}
        self._done: dict[Way, int] = {}
        self._in_flight: dict[Way, int] = {}
        self._acked: dict[Way, int] = {}
        self._taken: dict[Way, int] = {}
        self._message_items, self._message_bytes = message_items, message_bytes
        for chunk in chunks:
            items = _decode(chunk.data)
            self._ways.setdefault((chunk.sender, chunk.target), deque()).extend(items)
            self.bytes += sum(len(item.value) for item in items)

    def add(self, target: str, item: Item) -> None:
        way = (self._me, target)
        if (fresh := self._fresh.get(way)) is None:
            fresh = self._fresh[way] = []
        fresh.append(item)
        self.bytes += len(item.value)

    # -- commit
    def changes(self) -> tuple[list[Chunk], list[tuple[str, str, int]]]:
        """Returns the chunks that a commit adds, and the ones it removes: (sender, target, upto)."""
        added = [Chunk(*way, items[-1].number, _encode(items)) for way, items in self._fresh.items() if items]
        return added, [(*way, upto) for way, upto in self._done.items()]

    def committed(self) -> None:
        for way, items in self._fresh.items():
            self._ways.setdefault(way, deque()).extend(items)
        self._fresh.clear()
        self._done.clear()

    # -- messages
    def all_for(self, sender: str, target: str) -> tuple[Item, ...]:
        return tuple(self._ways.get((sender, target), ()))

    def has(self, target: str, senders: Collection[str] | None = None) -> bool:
        """True if an item from one of these senders (default: any) to the target is unacknowledged."""
        return any(
            items and (senders is None or sender in senders)
            for (sender, name), items in self._ways.items()
            if name == target
        )

    def unpublished(self) -> set[str]:
        """Returns the streams with items that a publisher has not acknowledged."""
        ways = [target for (_, target), items in self._ways.items() if items]
        return {target.removeprefix(PUBLISH) for target in ways if target.startswith(PUBLISH)}

    def messages(
        self,
        sender: str,
        targets: Iterable[str],
        number: int,
        tick: int,
        marks: Callable[[str], Mapping[str, Watermark]],
        topology: int,
        *,
        successors: tuple[str, ...] = (),
        parents: tuple[str, ...] = (),
    ) -> list[Message]:
        """Returns messages of one sender. ``number``: its last committed number; ``tick``: the number of its last
        watermarks or of its end, which is sent to targets that have not acknowledged it."""
        out: list[Message] = []
        named = (target for name, target in self._ways if name == sender)
        for target in dict.fromkeys((*targets, *named)):
            way = (sender, target)
            items = self._ways.get(way)
            if way in self._in_flight or not (items or self._acked.get(way, -1) < tick):
                continue
            some, whole = self._some(items or ())
            upto = number if whole else some[-1].number
            self._in_flight[way] = upto
            shown, ends = (marks(target), successors) if whole else ({}, ())
            owner = "" if sender == self._me else self._me
            out.append(Message(sender, target, upto, some, shown, (), ends, parents, topology, owner))
        return out

    def _some(self, items: Sequence[Item]) -> tuple[tuple[Item, ...], bool]:
        """Returns the first items that fit into a message, and True if all items do."""
        out: list[Item] = []
        size = 0
        for item in items:
            size += len(item.value) + len(item.key) + 32
            if out and (size > self._message_bytes or len(out) >= self._message_items):
                return tuple(out), False
            out.append(item)
        return tuple(out), True

    def acknowledged(self, ack: Ack) -> None:
        way = (ack.sender, ack.target)
        items = self._ways.get(way)
        while items and items[0].number <= ack.upto:
            item = items.popleft()
            self.bytes -= len(item.value)
            self._taken[way] = item.number
            self._done[way] = max(ack.upto, self._done.get(way, 0))
        self._acked[way] = max(ack.upto, self._acked.get(way, -1))
        if self._in_flight.get(way, ack.upto + 1) <= ack.upto:
            del self._in_flight[way]

    @property
    def done(self) -> bool:
        """True if the next commit will remove acknowledged items from the store."""
        return bool(self._done)

    def taken(self) -> dict[Way, int]:
        """Returns the number of the last item that each target has acknowledged since the last call."""
        found, self._taken = self._taken, {}
        return found

    def awaits(self, target: str) -> bool:
        """True if a message to the target is in flight."""
        return any(name == target for _, name in self._in_flight)

    def has_acked(self, sender: str, target: str, number: int) -> bool:
        return self._acked.get((sender, target), -1) >= number

    def resend(self, target: str) -> None:
        for way in [way for way in self._in_flight if way[1] == target]:
            del self._in_flight[way]

    # -- changed intervals of others
    def rewire(self, intervals: Intervals) -> bool:
        """Readdresses items for intervals that no longer exist to the new owners of their keys. Returns True if there
        were any."""
        old = [way for way in self._ways if not way[1].startswith(PUBLISH) and way[1] not in intervals.by_id]
        moved: dict[Way, list[Item]] = {}
        for way in old:
            for item in self._ways.pop(way):
                moved.setdefault((way[0], intervals.of(hash_of(item.key)).id), []).append(item)
            self._done[way] = LAST
        for way, items in moved.items():
            items += self._ways.pop(way, ())
            self._fresh[way] = sorted((*items, *self._fresh.get(way, ())), key=lambda item: item.number)
            self._done[way] = LAST
        return bool(moved)

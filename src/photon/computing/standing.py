"""What an owner knows but for its rows: positions, cursors, and watermarks. Committed with each batch."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from photon.computing.errors import ComputingError
from photon.computing.intervals import Interval
from photon.computing.wire import ENDED_NS, NEVER_NS, Watermark
from photon.config.versioned_file import decoded

Pieces = tuple[tuple[int, int, int], ...]
"""(low, high, number): what holds for keys with these hashes; of a cursor, what was taken of productions."""
NOTHING = Watermark()
ENDED = Watermark(ENDED_NS, ENDED_NS, 0)


class Inherited(msgspec.Struct, array_like=True, frozen=True):
    """Of an interval that was split or merged."""

    last: int  # its last number
    successors: tuple[str, ...]
    parents: tuple[str, ...]


class Standing(msgspec.Struct, array_like=True, tag_field="version", tag=1):
    number: int = 0  # the last one that was given to a production, or to watermarks that moved
    sources: dict[str, bytes] = {}  # source -> position behind what was taken
    cursors: dict[str, Pieces] = {}
    """Sender -> what was taken of it. Kept when it has ended, as its messages may be late."""
    heard: dict[str, dict[str, Watermark]] = {}  # sender, oneself too -> stream -> its watermark
    ended: set[str] = set()  # senders that send no more
    lows: dict[str, tuple[int, int]] = {}  # computation -> its watermark, and how many records may come before it
    inherited: dict[str, Inherited] = {}  # senders whose productions are still to be delivered from here
    seen: dict[str, dict[int, int]] = {}
    """Sender -> id of a weak production that was taken and may come again -> the sender's number when it was sent."""
    seen_from: dict[str, int] = {}
    """Sender -> weak messages that left at a lower number are not looked at: their ids are forgotten."""
    parents: tuple[str, ...] = ()  # the intervals that were split or merged into this one
    before: dict[str, int] = {}  # computation -> its watermark before the end of time was reached
    floors: dict[str, Pieces] = {}
    """Computation -> (low, high, watermark): that of keys with these hashes was ahead before a merge, and stays."""

    shown: dict[str, dict[str, int]] = {}  # sender -> directory -> last item that its publisher has acknowledged

    def encode(self) -> bytes:
        return msgspec.msgpack.encode(self)

    def taken(self, sender: str, interval: Interval) -> Pieces:
        return self.cursors.get(sender) or ((interval.low, interval.high, 0),)

    def take(self, sender: str, interval: Interval, upto: int) -> None:
        """All that ``sender`` has for this interval up to this number was taken."""
        pieces = [(low, high, max(number, upto)) for low, high, number in self.taken(sender, interval)]
        if len({number for _, _, number in pieces}) == 1:
            pieces = [(interval.low, interval.high, pieces[0][2])]
        self.cursors[sender] = tuple(pieces)

    def hear(self, sender: str, stream: str, watermark: Watermark) -> bool:
        """Whether it moved. It never goes back; ``waiting`` is that of the newest."""
        known = self.heard.setdefault(sender, {})
        before = known.get(stream, NOTHING)
        now = Watermark(
            max(before.exact_ns, watermark.exact_ns),
            max(before.percentile_ns, watermark.percentile_ns),
            watermark.waiting,
        )
        known[stream] = now
        return now != before

    def see(self, sender: str, number: int, ids: Iterable[int]) -> None:
        """Weak productions were taken. Those that left before ``number`` was committed do not come again once all
        up to ``number`` was taken: what was not acknowledged before that commit has a number below it."""
        seen = self.seen.setdefault(sender, {})
        if seen and number <= least(self.cursors.get(sender, ((0, 0, 0),))):
            for each in [each for each, then in seen.items() if then < number]:
                del seen[each]
            self.seen_from[sender] = number
        seen.update((each, number) for each in ids)

    @property
    def is_at_end(self) -> bool:
        """Whether anything is at the end of time."""
        heard = (mark.exact_ns for marks in self.heard.values() for mark in marks.values())
        return ENDED_NS in heard or any(low_ns == ENDED_NS for low_ns, _ in self.lows.values())

    def reached(self, computation: str) -> int:
        """Its watermark; at the end of time the one before that."""
        low_ns, _ = self.lows.get(computation, (NEVER_NS, 0))
        return low_ns if low_ns < ENDED_NS else self.before.get(computation, NEVER_NS)

    def floors_of(self, computation: str, interval: Interval) -> Pieces:
        own_ns = self.reached(computation)
        pieces = self.floors.get(computation) or ((interval.low, interval.high, NEVER_NS),)
        return tuple((low, high, max(floor_ns, own_ns)) for low, high, floor_ns in pieces)

    def reopen(self) -> None:
        """More comes after the end of time: watermarks are where they were before it, and who sends says its own."""
        self.lows = {
            name: (self.reached(name), 0 if low_ns == ENDED_NS else waiting)
            for name, (low_ns, waiting) in self.lows.items()
        }
        self.heard = {sender: {} for sender in self.heard}

    def end(self, sender: str, successors: Iterable[str]) -> None:
        """It sends no more; those that have its keys are waited for from now on."""
        self.ended.add(sender)
        self.seen.pop(sender, None)
        self.heard.pop(sender, None)
        for each in successors:
            if each not in self.ended:
                self.heard.setdefault(each, {})

    def low(self, stream: str, senders: Collection[str], exact: bool) -> tuple[int, int]:
        """The least watermark of a stream over all who may send it (MillWheel 4.5: expected, not only heard), and how
        many records before it may still come."""
        low_ns, waiting = ENDED_NS, 0
        for sender in senders:
            mark = self.heard.get(sender, {}).get(stream, NOTHING)
            low_ns = min(low_ns, mark.exact_ns if exact else mark.percentile_ns)
            waiting += 0 if exact else mark.waiting
        return low_ns, waiting


def number_of(pieces: Pieces, hashed: int) -> int:
    """What holds for this hash."""
    return next((number for low, high, number in pieces if low <= hashed < high), 0)


def least(pieces: Pieces) -> int:
    return min(number for _, _, number in pieces)


def decode(data: bytes, interval: str) -> Standing:
    """Raises ComputingError."""
    if not data:
        return Standing()
    try:
        return decoded(data, Standing, msgspec.msgpack.decode)
    except msgspec.MsgspecError as error:
        raise ComputingError(f"the state of the interval {interval} cannot be read: {error}") from None

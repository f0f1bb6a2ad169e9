"""An owner's state besides its rows: positions, cursors and watermarks. It is committed with each batch."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from photon.computing.errors import ComputingError
from photon.computing.intervals import Interval
from photon.computing.wire import ENDED_NS, NEVER_NS, Watermark
from photon.config.versioned_file import decoded

# (low, high, number): the value for keys with these hashes; in a cursor, the last production taken.
Pieces = tuple[tuple[int, int, int], ...]
NOTHING = Watermark()
ENDED = Watermark(ENDED_NS, ENDED_NS, 0)


class Inherited(msgspec.Struct, array_like=True, frozen=True):
    """The rest of an interval that was split or merged, kept until all its messages are delivered."""

    last: int  # its last number
    successors: tuple[str, ...]
    parents: tuple[str, ...]


class Standing(msgspec.Struct, array_like=True, tag_field="version", tag=1):
    number: int = 0  # the last number given to a production, or to moved watermarks
    sources: dict[str, bytes] = {}  # source -> position after the input taken
    # Sender -> the last number taken from it. Kept after its end, as its messages may be late.
    cursors: dict[str, Pieces] = {}
    heard: dict[str, dict[str, Watermark]] = {}  # sender (including oneself) -> stream -> its watermark
    ended: set[str] = (
        set()
    )  # senders that have ended Computation -> its watermark, and the number of records before it that may still come
    lows: dict[str, tuple[int, int]] = {}
    inherited: dict[str, Inherited] = {}  # senders whose productions must still be delivered from here
    # Sender -> id of a weak production that taken, may be repeated -> the sender's number when it was sent.
    seen: dict[str, dict[int, int]] = {}
    # Sender -> weak messages sent at a lower number are ignored: their ids are forgotten.
    seen_from: dict[str, int] = {}
    parents: tuple[str, ...] = ()  # the intervals that were split or merged into this one
    before: dict[str, int] = {}  # computation -> its watermark before the end of time was reached
    # Computation -> (low, high, watermark): before a merge, keys with these hashes were ahead, and keep that
    # watermark.
    floors: dict[str, Pieces] = {}

    shown: dict[str, dict[str, int]] = {}  # sender -> directory -> last item that its publisher has acknowledged

    def encode(self) -> bytes:
        return msgspec.msgpack.encode(self)

    def taken(self, sender: str, interval: Interval) -> Pieces:
        return self.cursors.get(sender) or ((interval.low, interval.high, 0),)

    def take(self, sender: str, interval: Interval, upto: int) -> None:
        """Notes that all messages from ``sender`` for this interval up to number ``upto`` were taken."""
        pieces = [(low, high, max(number, upto)) for low, high, number in self.taken(sender, interval)]
        if len({number for _, _, number in pieces}) == 1:
            pieces = [(interval.low, interval.high, pieces[0][2])]
        self.cursors[sender] = tuple(pieces)

    def hear(self, sender: str, stream: str, watermark: Watermark) -> bool:
        """Notes a sender's watermark. Returns True if it changed. A watermark never goes back; ``waiting`` is always
        the newest value."""
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
        """Notes weak productions that were taken. Forgets older ones once everything up to ``number`` was taken: they
        were sent before that commit, so they will not be repeated under their ids."""
        seen = self.seen.setdefault(sender, {})
        if seen and number <= least(self.cursors.get(sender, ((0, 0, 0),))):
            for each in [each for each, then in seen.items() if then < number]:
                del seen[each]
            self.seen_from[sender] = number
        seen.update((each, number) for each in ids)

    @property
    def is_at_end(self) -> bool:
        """True if a watermark is at the end of time."""
        heard = (mark.exact_ns for marks in self.heard.values() for mark in marks.values())
        return ENDED_NS in heard or any(low_ns == ENDED_NS for low_ns, _ in self.lows.values())

    def reached(self, computation: str) -> int:
        """Returns the computation's watermark; if that is the end of time, the previous one."""
        low_ns, _ = self.lows.get(computation, (NEVER_NS, 0))
        return low_ns if low_ns < ENDED_NS else self.before.get(computation, NEVER_NS)

    def floors_of(self, computation: str, interval: Interval) -> Pieces:
        own_ns = self.reached(computation)
        pieces = self.floors.get(computation) or ((interval.low, interval.high, NEVER_NS),)
        return tuple((low, high, max(floor_ns, own_ns)) for low, high, floor_ns in pieces)

    def reopen(self) -> None:
        """Undoes the end of time: watermarks return to their previous values, and senders announce theirs again."""
        self.lows = {
            name: (self.reached(name), 0 if low_ns == ENDED_NS else waiting)
            for name, (low_ns, waiting) in self.lows.items()
        }
        self.heard = {sender: {} for sender in self.heard}

    def end(self, sender: str, successors: Iterable[str]) -> None:
        """Notes that the sender has ended; the new owners of its keys now count as senders."""
        self.ended.add(sender)
        self.seen.pop(sender, None)
        self.heard.pop(sender, None)
        for each in successors:
            if each not in self.ended:
                self.heard.setdefault(each, {})

    def low(self, stream: str, senders: Collection[str], exact: bool) -> tuple[int, int]:
        """Returns the lowest watermark of a stream over all possible senders (MillWheel 4.5: all expected ones, even
        if silent), and the number of records before it that may still come."""
        low_ns, waiting = ENDED_NS, 0
        for sender in senders:
            mark = self.heard.get(sender, {}).get(stream, NOTHING)
            low_ns = min(low_ns, mark.exact_ns if exact else mark.percentile_ns)
            waiting += 0 if exact else mark.waiting
        return low_ns, waiting


def number_of(pieces: Pieces, hashed: int) -> int:
    """Returns the number for this hash; 0 if there is none."""
    return next((number for low, high, number in pieces if low <= hashed < high), 0)


def least(pieces: Pieces) -> int:
    return min(number for _, _, number in pieces)


def decode(data: bytes, interval: str) -> Standing:
    """Decodes a standing. Raises ComputingError."""
    if not data:
        return Standing()
    try:
        return decoded(data, Standing, msgspec.msgpack.decode)
    except msgspec.MsgspecError as error:
        raise ComputingError(f"the state of the interval {interval} cannot be read: {error}") from None

"""The world outside: two copies of logs that grow, and the verdict each event must get.

Lines of a log are the same in the same order in every datacentre, except for times that a copy may stamp again
(``Truth.stamps``); each copy gets them at its own moments.
"""

from __future__ import annotations

import enum
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.contract import Adapter, BadRecord, Filtered, ForeignHeader, Joined, LogFile
from photon.adapters.key_lists import keys_in, list_of_keys
from photon.idregistry.api import Kind
from tests.simulation.world.seeds import placeless

EPOCH_NS = 1_700_000_000_000_000_000
HOUR_S = 3600


class PairAdapter(Adapter):
    """Foreign ``id time key copy``; primary ``key what``, where what says how the pair ends."""

    def foreign_header(self, record: bytes, file: LogFile) -> ForeignHeader:
        fields = record.split(b" ")
        if len(fields) != 4:
            raise BadRecord("not four fields")
        return ForeignHeader(fields[2], int(fields[1]), fields[0])

    def primary_key(self, record: bytes, file: LogFile) -> bytes:
        return record.split(b" ")[0]

    def foreign_payload(self, record: bytes, file: LogFile) -> bytes | None:
        return b'"%b"' % record

    def primary_payload(self, record: bytes, file: LogFile) -> bytes | None:
        return b'"%b"' % record

    @placeless
    def join(self, foreign: bytes, foreign_file: LogFile, primary: bytes, primary_file: LogFile) -> Joined | Filtered:
        what = primary.split(b" ")[1]
        if what == b"filtered":
            return Filtered("by rule")
        if what == b"rejected":
            raise ValueError("no such thing")
        return super().join(foreign, foreign_file, primary, primary_file)


class KindsAdapter(PairAdapter):
    """The same with a configured key of two parts, ``q|12``, and with primary events that carry their time:
    ``key what@time``."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        side = {"format": "regex", "key": ["shop", "order"], "time": {"field": "t", "unit": "ns"}}
        foreign = r"(?P<id>\S+) (?P<t>\d+) (?P<shop>\w+)\|(?P<order>\d+) \S+$"
        primary = r"(?P<shop>\w+)\|?(?P<order>\d+) \w+@(?P<t>\d+)$"
        sides = {"primary": {**side, "pattern": primary}, "foreign": {**side, "pattern": foreign, "id": "id"}}
        self._configured = ConfiguredAdapter(sides)

    def foreign_header(self, record: bytes, file: LogFile) -> ForeignHeader:
        return self._configured.foreign_header(record, file)

    def primary_key(self, record: bytes, file: LogFile) -> bytes:
        return self._configured.primary_key(record, file)

    def primary_time(self, record: bytes, file: LogFile) -> int:
        return self._configured.primary_time(record, file)

    @placeless
    def join(self, foreign: bytes, foreign_file: LogFile, primary: bytes, primary_file: LogFile) -> Joined | Filtered:
        what = primary.partition(b"@")[0]  # as PairAdapter reads it
        made = super().join(foreign, foreign_file, what, primary_file)
        return (
            made if isinstance(made, Filtered) else Joined(made.foreign, self.primary_payload(primary, primary_file))
        )


@dataclass(frozen=True, slots=True)
class Line:
    """One line of a log. ``written``: seconds of the world, ``offset``: that of its first byte."""

    record: bytes
    offset: int
    written: float


@dataclass
class GrowingLog:
    """A log in all its copies. ``arrivals``: datacentre -> when each line is there, never decreasing."""

    name: str
    lines: list[Line]
    arrivals: dict[str, list[float]] = field(default_factory=dict)
    index_of: dict[int, int] = field(default_factory=dict)  # offset -> line
    end: int = 0

    def visible(self, datacentre: str, now: float) -> int:
        """Lines of a copy that are there now."""
        return bisect_right(self.arrivals[datacentre], now)

    @property
    def file(self) -> LogFile:
        return LogFile(self.name)

    def offset_at(self, line: int) -> int:
        return self.lines[line].offset if line < len(self.lines) else self.end


class Fate(enum.Enum):
    """How an event ends."""

    JOINED = (Kind.JOINED,)
    FILTERED = (Kind.FILTERED,)
    REJECTED = (Kind.REJECTED,)
    UNMATCHED = (Kind.UNMATCHED,)
    # Its primary event comes when patience ends: either verdict will do, if there is one.
    RACED = (Kind.JOINED, Kind.UNMATCHED)
    UNPAIRED = (Kind.UNMATCHED, Kind.UNMATCHED)  # its primary event is there in time and out of bounds


@dataclass
class Event:
    """A foreign event and the lines that carry its id: (log, offset) -> record. ``time_ns``: of the first one."""

    event_id: bytes
    key: bytes
    time_ns: int
    fate: Fate
    primary: tuple[str, int, bytes] | None = None  # log, offset, record
    lines: dict[tuple[str, int], bytes] = field(default_factory=dict)


def time_in(record: bytes) -> int:
    """Event time in a foreign line, ns."""
    return int(record.split(b" ")[1])


@dataclass
class Truth:
    """Everything a seed's world outside consists of."""

    events: dict[bytes, Event]
    foreign: list[GrowingLog]
    primary: list[GrowingLog]
    malformed: set[tuple[str, int]]  # (log, offset) of unreadable foreign lines
    # (foreign log, datacentre) -> seconds that the copying process there adds to event times.
    stamps: dict[tuple[str, str], int] = field(default_factory=dict)
    lists: bool = False

    def in_copy(self, log: str, datacentre: str, record: bytes) -> bytes:
        """A line of a foreign log as it appears there."""
        fields = record.split(b" ")
        if not (ahead_s := self.stamps.get((log, datacentre))) or len(fields) != 4:
            return record
        return b"%b %d %b %b" % (fields[0], int(fields[1]) + ahead_s * 1_000_000_000, *fields[2:])

    def first_primary(self, key: bytes) -> tuple[int, int] | None:
        """(log, line) of the winning record: the first in (log, offset) order."""
        return self._first.get(key)

    def primaries(self, key: bytes) -> list[tuple[int, int]]:
        """(log, line) of each record of a key, in (log, offset) order."""
        return self._all.get(key, [])

    def primaries_of(self, event: Event) -> list[tuple[int, int]]:
        """The same of each key that an event names."""
        return [at for key in (keys_in(event.key) if self.lists else (event.key,)) for at in self.primaries(key)]

    def __post_init__(self) -> None:
        self._all: dict[bytes, list[tuple[int, int]]] = {}
        for number, log in enumerate(self.primary):
            for at, line in enumerate(log.lines):
                self._all.setdefault(line.record.split(b" ")[0], []).append((number, at))
        self._first = {key: places[0] for key, places in self._all.items()}

    @property
    def last_arrival(self) -> float:
        """Time at which all copies are complete."""
        return max(times[-1] for log in self.foreign + self.primary for times in log.arrivals.values() if times)


# Time differences of an id's further lines: sent again, stamped on arrival, a clock set wrong.
RETIMED_S = (0, 1, 0, HOUR_S, 0, 26 * HOUR_S)
Fates = Sequence[tuple[Fate, int]]
_FATES: Fates = (
    (Fate.JOINED, 60),
    (Fate.UNMATCHED, 12),
    (Fate.RACED, 10),
    (Fate.FILTERED, 8),
    (Fate.REJECTED, 5),
)
# Where almost every primary event comes about when patience ends.
RACES: Fates = ((Fate.RACED, 80), (Fate.UNMATCHED, 20))
# Distance of primary events out of bounds: more than the differences of an id's lines and of copies' clocks.
FAR_NS = 500 * HOUR_S * 1_000_000_000
_WHAT = {Fate.FILTERED: b"filtered", Fate.REJECTED: b"rejected"}


def make_truth(
    random: Random,
    datacentres: Sequence[str],
    *,
    events: int,
    seconds: float,
    patience: float,
    future: float,
    fates: Fates = _FATES,
    timed: bool = False,
    lists: bool = False,
) -> Truth:
    """``patience``: seconds that a primary event is waited for at least; ``future``: how far ahead events are.
    ``timed``: keys have two parts, and primary events carry their time (``KindsAdapter``). ``lists``: events name
    three keys, of which one has no primary event."""
    key_form, end = (b"q|%d", b"@%d") if timed else (b"q%d", b"")
    foreign: list[list[tuple[float, bytes]]] = [[], []]
    primary: list[list[tuple[float, bytes]]] = [[] for _ in range(random.choice((1, 2)))]
    made: dict[bytes, Event] = {}
    for number in range(events):
        event_id, own = b"e%d" % number, key_form % number
        key = list_of_keys([own, b"none%d" % number, own + b"|2"]) if lists else own
        fate = random.choices([f for f, _ in fates], [weight for _, weight in fates])[0]
        at = random.uniform(0, seconds)
        time_ns = EPOCH_NS + int(at * 1e9) - random.choice((0, 0, HOUR_S, 26 * HOUR_S)) * 1_000_000_000
        if random.random() < 0.05:
            time_ns = EPOCH_NS + int((at + future * random.uniform(0.4, 1.0)) * 1e9)
        made[event_id] = Event(event_id, key, time_ns, fate)
        for copy in range(random.choice((1, 1, 1, 1, 1, 2, 3))):
            time = time_ns - RETIMED_S[number % len(RETIMED_S)] * 1_000_000_000 * (copy > 0)
            record = b"%b %d %b c%d" % (event_id, time, key, random.choice((0, copy)))
            foreign[random.randrange(2)].append((at + copy * random.choice((0.0, 0.1, 5.0)), record))
        if (came := _primary_moment(random, fate, at, patience)) is not None:
            log = random.randrange(len(primary))
            for repeat in range(random.choice((1, 1, 1, 2))):
                what = _WHAT.get(fate, b"ok") if not repeat else b"second"
                away_ns = FAR_NS if fate is Fate.UNPAIRED and not repeat else 0
                said = end % (time_ns - away_ns) if timed else b""
                named = own + b"|2" * (lists and bool(repeat))
                primary[log].append((came + repeat, b"%b %b%b" % (named, what, said)))
    for _ in range(random.choice((0, 1, 4))):
        foreign[random.randrange(2)].append((random.uniform(0, seconds), b"garbage %d" % random.randrange(10**6)))
    for number in range(random.choice((5, 30))):  # primary events that nobody names
        primary[number % len(primary)].append(
            (random.uniform(-5, seconds), b"other%d ok%b" % (number, end and end % 0))
        )
    logs = [_log(f"clicks-{n}.log", lines) for n, lines in enumerate(foreign)]
    primaries = [_log(f"queries-{n}.log", lines) for n, lines in enumerate(primary)]
    for datacentre in datacentres:
        lag = random.choice((0.0, 0.2, 2.0))
        for log in logs + primaries:
            _copy(random, log, datacentre, lag)
    return _assemble(made, logs, primaries, lists=lists)


def _primary_moment(random: Random, fate: Fate, at: float, patience: float) -> float | None:
    if fate is Fate.UNMATCHED:
        return None
    if fate is Fate.RACED:
        return at + patience * random.uniform(0.8, 1.6)
    return at + random.choice((-5.0, -1.0, 0.0, 0.5, patience * random.uniform(0.1, 0.5)))


def _log(name: str, lines: list[tuple[float, bytes]]) -> GrowingLog:
    log = GrowingLog(name, [])
    for written, record in sorted(lines, key=lambda each: each[0]):
        log.index_of[log.end] = len(log.lines)
        log.lines.append(Line(record, log.end, written))
        log.end += len(record) + 1
    log.index_of[log.end] = len(log.lines)
    return log


def _copy(random: Random, log: GrowingLog, datacentre: str, lag: float) -> None:
    arrivals: list[float] = []
    latest = 0.0
    for line in log.lines:
        latest = max(latest, line.written + random.uniform(0, lag))
        arrivals.append(latest)
    log.arrivals[datacentre] = arrivals


def _assemble(
    events: dict[bytes, Event], foreign: list[GrowingLog], primary: list[GrowingLog], *, lists: bool
) -> Truth:
    malformed = set()
    for log in foreign:
        for line in log.lines:
            event = events.get(line.record.split(b" ")[0])
            if event is None:
                malformed.add((log.name, line.offset))
            else:
                event.lines[log.name, line.offset] = line.record
    truth = Truth(events, foreign, primary, malformed, lists=lists)
    for event in events.values():
        if first := next(iter(truth.primaries_of(event)), None):
            log = primary[first[0]]
            event.primary = (log.name, log.lines[first[1]].offset, log.lines[first[1]].record)
    return truth

"""What users write against: a computation, and what it is given (MillWheel 4 and 5).

A computation runs for one key at a time. Its state is a dict of JSON-like values (None, bool, int, float, str, bytes,
lists and dicts of them); what it did to state, timers and streams takes effect as a whole or not at all. Times are
nanoseconds since 1970, UTC.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
import orjson

SECOND_NS = 1_000_000_000
MINUTE_NS = 60 * SECOND_NS
HOUR_NS = 60 * MINUTE_NS


def seconds(time_ns: int) -> int:
    """The begin of its second."""
    return time_ns - time_ns % SECOND_NS


def minutes(time_ns: int) -> int:
    """The begin of its minute."""
    return time_ns - time_ns % MINUTE_NS


def hours(time_ns: int) -> int:
    """The begin of its hour."""
    return time_ns - time_ns % HOUR_NS


class Record(NamedTuple):
    """One of a stream. ``process_record`` may change ``value``: other consumers, and a second try, have their own."""

    value: Any
    time_ns: int
    stream: str = ""


class Timer(NamedTuple):
    """One that has come due. ``waiting``: so many records before its time may still come; 0: it is final."""

    tag: str
    time_ns: int
    waiting: int = 0
    wall: bool = False


class Misused(Exception):
    """A computation asked for something that cannot be: a stream it has not, a time that is none."""


Timers = dict[tuple[int, str], None]  # (time, tag), in the order in which they were set
Production = tuple[str, int, bytes]
"""Stream, time, value as msgpack: what is done to the value later does not change it."""
PRODUCTION_BYTES_MAX = 1 << 20  # of one value, encoded: several must fit into a message
_encode, _decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder().decode
JSON_OPTIONS = orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS


def as_text(value: object) -> str:
    """What JSON has no form for: bytes as text, or as base64 as in other records. Raises TypeError."""
    if not isinstance(value, bytes):
        raise TypeError(type(value).__name__)
    try:
        return value.decode()
    except UnicodeDecodeError:
        from base64 import b64encode

        return b64encode(value).decode()


class Context:
    """What a computation may do for the key of now. Valid during the call only."""

    __slots__ = (
        "_outputs",
        "_published",
        "_time_ns",
        "events",
        "key",
        "now_ns",
        "past",
        "produced",
        "state",
        "walls",
        "watermark_ns",
    )

    def __init__(self, outputs: frozenset[str], published: frozenset[str]) -> None:
        self._outputs = outputs
        self._published = published
        self._time_ns = 0
        self.key = ""
        self.state: dict[str, Any] = {}  # of this computation and key; kept
        self.watermark_ns = 0  # all records before it have come, but for late ones
        self.now_ns = 0  # wall clock of the engine, not of the processor: the same for all that it does at once
        self.events: Timers = {}
        self.walls: Timers = {}
        self.produced: list[Production] = []
        self.past = 0

    def is_late(self, time_ns: int) -> bool:
        """Whether a timer for this time would be in the past: who set one for it was called already."""
        return time_ns <= self.watermark_ns

    def produce(self, stream: str, value: Any, time_ns: int | None = None) -> None:
        """Hands a JSON-like value to the consumers of a stream. ``time_ns``: by default that of the record or timer
        of now; before the watermark it is late for them."""
        if stream not in self._outputs:
            raise Misused(f"it has no output {stream!r}, only {', '.join(sorted(self._outputs)) or 'none'}")
        time_ns = self._time_ns if time_ns is None else time_ns
        if not _is_time(time_ns):
            raise Misused(f"the time of what it produces to {stream!r} is no int of nanoseconds: {time_ns!r}")
        data = _encode(value)
        if len(data) > PRODUCTION_BYTES_MAX:
            raise Misused(f"what it produces has {len(data)} bytes, more than {PRODUCTION_BYTES_MAX}")
        if stream in self._published:  # once it is committed it must be published, so it is tried before
            try:
                orjson.dumps(_decode(data), as_text, JSON_OPTIONS)
            except TypeError as error:
                raise Misused(f"JSON cannot say what it produces to {stream!r}: {error}") from None
        self.produced.append((stream, time_ns, data))

    def set_timer(self, tag: str, time_ns: int) -> None:
        """``process_timer`` is called once, when the low watermark reaches this time. One that is in the past is
        called at once, after the record of now, and counted. Setting the same (tag, time) again changes nothing."""
        if time_ns <= self.watermark_ns:
            self.past += 1
        self.events[_moment(tag, time_ns)] = None

    def set_wall_timer(self, tag: str, time_ns: int) -> None:
        """As ``set_timer``, by the wall clock."""
        self.walls[_moment(tag, time_ns)] = None

    def cancel_timer(self, tag: str, time_ns: int, *, wall: bool = False) -> bool:
        """Whether it was set."""
        timers = self.walls if wall else self.events
        if (time_ns, tag) not in timers:
            return False
        del timers[time_ns, tag]
        return True


def _is_time(time_ns: object) -> bool:
    """False for the ends of time, too."""
    return type(time_ns) is int and -(1 << 63) < time_ns < (1 << 63) - 1


def _moment(tag: str, time_ns: int) -> tuple[int, str]:
    if type(tag) is not str:
        raise Misused(f"the tag of a timer is a {type(tag).__name__}, not str")
    if not _is_time(time_ns):
        raise Misused(f"the time of the timer {tag!r} is no int of nanoseconds: {time_ns!r}")
    return (time_ns, tag)


class Computation:
    """Derive from it, and say how records and timers change the state of their key.

    What it raises, a call beyond the time limit, and state or productions that cannot be stored put the key aside
    with all that came for it, in order, until it is tried again; other keys go on.
    """

    name = ""  # By default the class's name, in lower case. State is kept under it.
    idempotent = False
    """For a record that comes again it changes nothing more and produces nothing more. Its productions may leave
    before its state is durable (weak productions, MillWheel 6.1.3); all that read them must be idempotent, too."""
    dedup = True  # off: a record may come twice after a crash
    time_limit_s = 10.0  # for one call; 0: no limit

    def process_record(self, ctx: Context, record: Record) -> None:
        raise NotImplementedError

    def process_timer(self, ctx: Context, timer: Timer) -> None:
        """Times of one key come in order."""


def name_of(computation: Computation) -> str:
    return computation.name or type(computation).__name__.lower()

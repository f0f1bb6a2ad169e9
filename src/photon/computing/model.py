"""The user's API: a computation, and the objects it receives (MillWheel 4 and 5).

A computation runs for one key at a time. Its state is a dict of JSON-like values (None, bool, int, float, str, bytes,
lists and dicts of them; others, such as tuples, are refused); its changes to state, timers and streams take effect
atomically. Times are nanoseconds since 1970, UTC.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar, overload

import msgspec
import orjson

from photon.computing.entries import Entries, EntryList, EntryMap, checked_part
from photon.computing.errors import Misused

V = TypeVar("V")
SECOND_NS = 1_000_000_000
MINUTE_NS = 60 * SECOND_NS
HOUR_NS = 60 * MINUTE_NS


def seconds(time_ns: int) -> int:
    """Rounds a time down to the second."""
    return time_ns - time_ns % SECOND_NS


def minutes(time_ns: int) -> int:
    """Rounds a time down to the minute."""
    return time_ns - time_ns % MINUTE_NS


def hours(time_ns: int) -> int:
    """Rounds a time down to the hour."""
    return time_ns - time_ns % HOUR_NS


class Record(NamedTuple):
    """A record of a stream.

    ``process_record`` may change ``value``, because other consumers and retries get their own copy.
    """

    value: Any
    time_ns: int
    stream: str = ""

    def to(self, kind: type[V]) -> V:
        """Converts the value to a ``msgspec.Struct`` or another type. Raises msgspec.ValidationError."""
        return msgspec.convert(self.value, kind)


class Timer(NamedTuple):
    """A timer that is due. ``waiting``: the number of records before its time that may still come; 0 means that none
    will."""

    tag: str
    time_ns: int
    waiting: int = 0
    wall: bool = False


Timers = dict[tuple[int, str], None]  # (time, tag), in the order in which they were set
Production = tuple[str, int, bytes]  # Stream, time, value as msgpack: later changes to the value have no effect.
PRODUCTION_BYTES_MAX = 1 << 20  # bytes of one encoded value: several must fit into a message
_encode, _decode = msgspec.msgpack.Encoder().encode, msgspec.msgpack.Decoder().decode
_JSON_OPTIONS = orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS


def as_text(value: object) -> str:
    """Converts a value without a JSON form: bytes as text, or as base64 as in other records. Raises TypeError."""
    if not isinstance(value, bytes):
        raise TypeError(type(value).__name__)
    try:
        return value.decode()
    except UnicodeDecodeError:
        from base64 import b64encode

        return b64encode(value).decode()


def line_of(fields: dict[str, Any]) -> bytes:
    """Returns the line of a published record. Raises TypeError."""
    return orjson.dumps(fields, as_text, _JSON_OPTIONS)


def unfit(data: bytes, *, published: bool) -> str:
    """Returns why an encoded value cannot be a production; empty if it can. Check it before the commit, since
    otherwise every later start would fail on it. Raises the errors of ``msgspec`` if the value cannot be decoded."""
    if len(data) > PRODUCTION_BYTES_MAX:
        return f"has {len(data)} bytes, more than {PRODUCTION_BYTES_MAX}"
    value = _decode(data)
    try:
        if published:
            line_of({"foreign": value})
    except TypeError as error:
        return f"cannot be written as JSON: {error}"
    return ""


class Context:
    """A computation's access to the current key: state, timers and outputs. Valid only during the call."""

    __slots__ = (
        "_entries",
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
        self._entries: Entries
        self._outputs = outputs
        self._published = published
        self._time_ns = 0
        self.key = ""
        self.state: dict[Any, Any] = {}  # persistent, for this computation and key
        self.watermark_ns = 0  # all records before it have arrived, except late ones
        self.now_ns = 0  # the engine's wall clock, not the processor's: the same for everything in one step
        self.events: Timers = {}
        self.walls: Timers = {}
        self.produced: list[Production] = []
        self.past = 0

    @overload
    def map_of(self, name: str) -> EntryMap[Any]: ...

    @overload
    def map_of(self, name: str, kind: type[V]) -> EntryMap[V]: ...

    def map_of(self, name: str, kind: Any = Any) -> EntryMap[Any]:
        """Returns a map in the state whose entries are read and written separately; use it for more than a few
        hundred entries. ``kind``: the type of its values, such as a ``msgspec.Struct``. After changing a value,
        assign it again."""
        return EntryMap(self._entries, checked_part(name), kind)

    @overload
    def list_of(self, name: str) -> EntryList[Any]: ...

    @overload
    def list_of(self, name: str, kind: type[V]) -> EntryList[V]: ...

    def list_of(self, name: str, kind: Any = Any) -> EntryList[Any]:
        """Like ``map_of``, but returns a list, with ``append`` and ``pop_first``. Maps and lists need distinct
        names."""
        return EntryList(self._entries, checked_part(name), kind)

    def is_late(self, time_ns: int) -> bool:
        """True if a timer for this time would be in the past: if one was set, it has been called."""
        return time_ns <= self.watermark_ns

    def produce(self, stream: str, value: Any, time_ns: int | None = None) -> None:
        """Sends a JSON-like value to the consumers of a stream. ``time_ns`` defaults to the time of the current
        record or timer; for consumers, a value with a time before the watermark is late."""
        if stream not in self._outputs:
            raise Misused(f"it has no output {stream!r}, only {', '.join(sorted(self._outputs)) or 'none'}")
        time_ns = self._time_ns if time_ns is None else time_ns
        if not _is_time(time_ns):
            raise Misused(f"the time of its production to {stream!r} must be an int of nanoseconds, not {time_ns!r}")
        data = _encode(value)
        if why := unfit(data, published=stream in self._published):
            raise Misused(f"its production to {stream!r} {why}")
        self.produced.append((stream, time_ns, data))

    def set_timer(self, tag: str, time_ns: int) -> None:
        """Sets a timer: ``process_timer`` is called once, when the low watermark reaches this time. A timer in the
        past is called right after the current record, and counted. Setting the same (tag, time) again has no
        effect."""
        if time_ns <= self.watermark_ns:
            self.past += 1
        self.events[_moment(tag, time_ns)] = None

    def set_wall_timer(self, tag: str, time_ns: int) -> None:
        """Like ``set_timer``, but for the wall clock."""
        self.walls[_moment(tag, time_ns)] = None

    def cancel_timer(self, tag: str, time_ns: int, *, wall: bool = False) -> bool:
        """Cancels a timer. Returns True if it was set."""
        timers = self.walls if wall else self.events
        if (time_ns, tag) not in timers:
            return False
        del timers[time_ns, tag]
        return True


def _is_time(time_ns: object) -> bool:
    """True for a valid time, which excludes both ends of time."""
    return type(time_ns) is int and -(1 << 63) < time_ns < (1 << 63) - 1


def _moment(tag: str, time_ns: int) -> tuple[int, str]:
    if type(tag) is not str:
        raise Misused(f"the tag of a timer must be a str, not {type(tag).__name__}")
    if not _is_time(time_ns):
        raise Misused(f"the time of the timer {tag!r} must be an int of nanoseconds, not {time_ns!r}")
    return (time_ns, tag)


class Computation:
    """The base class of computations. Override its methods to define how records and timers change their key's state.

    If a call raises, exceeds the time limit, or leaves state or productions that cannot be stored, the key is set
    aside with all its input, in order, until it is retried; other keys continue.
    """

    name = ""  # Default: the class's name in lower case. State is stored under it.
    outputs: tuple[str, ...] = ()  # streams other than those named by ``Topology.add``
    # True if a repeated record has no further effect. Productions may then leave before the
    # state is durable (weak productions, MillWheel 6.1.3); all their readers must be idempotent, too.
    idempotent = False
    dedup = True  # False means a record may come twice after a crash
    time_limit_s = 10.0  # for one call; 0: no limit

    def process_record(self, ctx: Context, record: Record) -> None:
        raise NotImplementedError

    def process_timer(self, ctx: Context, timer: Timer) -> None:
        """Called for a timer that is due; for each key in order of time."""


def name_of(computation: Computation) -> str:
    return computation.name or type(computation).__name__.lower()

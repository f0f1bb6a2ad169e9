"""Plain data that a query's driver and executors share, and the format of its rows."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path

import msgspec

from photon.computing.errors import ComputingError
from photon.computing.model import Computation
from photon.computing.topology import Topology
from photon.computing.wire import ENDED_NS, NEVER_NS
from photon.config.python_file import load_python
from photon.outputs.output_places import OutputPlace
from photon.spark.sources import OutputSource
from photon.spark.stream_watermarks import NS_PER_MS

SCHEMA = "to int, key string, items binary, watermark timestamp"
# In ``to``: for published streams; the batch's watermark; a fault of user code, as text; a change of the number of
# records put aside.
PUBLISHED, MARKER, FAULT, ASIDE = -1, -2, -3, -4
KEY_PREFIX, MARKER_PREFIX = "k", "0"  # prefixes of the column ``key``: markers sort before all keys
ENDED_MS = ENDED_NS // NS_PER_MS


class Reads(msgspec.Struct, frozen=True):
    """A place from which a stream of the topology is read."""

    stream: str
    place: str
    output: str
    state: str
    kinds: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.stream}/{self.place}"

    @property
    def output_place(self) -> OutputPlace:
        return OutputPlace(Path(self.output), Path(self.state))

    @property
    def source(self) -> OutputSource:
        return OutputSource(datacentre=self.name, output=self.output, state=self.state)


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    file: str  # the topology's
    text: bytes  # its content at the start of the run, so that executors need no access to it
    reads: list[Reads]
    exact: bool  # True to follow the exact watermark
    once: bool  # stop at the current end of the data, which is then the end of time
    records: int  # limit of a batch, shared equally by places
    markers: list[str]  # a key for each partition
    run: str  # an id of this run: keys set aside are tried again in the next one

    def encode(self) -> bytes:
        return msgspec.json.encode(self)


class Marker(msgspec.Struct, array_like=True, frozen=True):
    """A batch's marker. ``mark_ns``: the watermark after the batch's records; ``spark_ms``: Spark's own watermark."""

    mark_ns: int
    waiting: int
    spark_ms: int


class Standing(msgspec.Struct, array_like=True, frozen=True):
    """A computation's watermark after a batch, kept in Spark's state of each marker's key for the next batch."""

    low_ns: int = NEVER_NS
    waiting: int = 0
    aside: dict[int, int] = {}  # computation before it -> records and timers put aside


class Item(msgspec.Struct, array_like=True, frozen=True):
    """A record. ``value``: a line of JSON if the stream comes from outside the topology, otherwise msgpack."""

    time_ns: int
    stream: str
    value: bytes


pack = msgspec.msgpack.Encoder().encode
items_of = msgspec.msgpack.Decoder(list[Item]).decode
marker_of = msgspec.msgpack.Decoder(Marker).decode
standing_of = msgspec.msgpack.Decoder(Standing).decode
aside_of = msgspec.msgpack.Decoder(tuple[int, int]).decode  # of an ASIDE row: computation, change


def watermark_ns(time_ns: int | None) -> int:
    """Returns the watermark rounded down to milliseconds; NEVER_NS if it is unknown."""
    ms = (time_ns or 0) // NS_PER_MS
    if ms <= 0:
        return NEVER_NS
    return ENDED_NS if ms >= ENDED_MS else ms * NS_PER_MS


def wake_ms(time_ns: int, now_ms: int) -> int:
    """Returns when to wake a key whose next timer is at ``time_ns``: after ``now_ms``, as Spark refuses past
    times."""
    return max(min(-(-time_ns // NS_PER_MS), ENDED_MS), now_ms + 1)


def decoded(data: bytes) -> Plan:
    return msgspec.json.decode(data, type=Plan)


@lru_cache(maxsize=4)
def topology_of(file: str, text: bytes) -> Topology:
    """Loads the topology from ``text``, the file's content at the run's start. Raises UsageError, ComputingError."""
    path = Path(file)
    try:
        same = path.read_bytes() == text
    except OSError:
        same = False
    if not same:
        digest = blake2b(text, digest_size=8).hexdigest()
        directory = Path(tempfile.mkdtemp(prefix=f"photon-compute-{digest}-"))
        path = directory / path.name
        path.write_bytes(text)
        os.chmod(path, 0o600)
    module = load_python(path, "computations")
    found = [each for each in vars(module).values() if isinstance(each, Topology)]
    chosen = getattr(module, "topology", found[0] if found else None)
    if not isinstance(chosen, Topology):
        raise ComputingError(f"{file}: has no topology on this executor")
    return chosen


# -- refusals ------------------------------------------------------------------------------------------------------
def refusals(topology: Topology) -> Iterator[str]:
    """Yields the reasons why the topology cannot run on Spark, one line each."""
    parts = topology.checked()
    for part in parts:
        who, computation = f"computation {part.name}", part.computation
        if _calls(type(computation), "set_wall_timer"):
            both = "both kinds of timers" if _calls(type(computation), "set_timer") else "wall-clock timers"
            yield f"{who}: has {both}, but Spark supports only watermark timers"
        if computation.idempotent:
            yield f"{who}: has weak (idempotent) productions, but on Spark nothing is published before the commit"
        if not computation.dedup:
            yield f"{who}: has dedup = False, but on Spark repeated records are always dropped"
    if parts and len({part.exact for part in parts}) > 1:
        one, other = (next(p.name for p in parts if p.exact is exact) for exact in (True, False))
        yield (
            f"computation {one}: follows the exact watermark and {other} the percentile, but a Spark query has "
            "only one watermark: use two topologies"
        )
    if topology.limits.skew_ns is not None:
        yield f"topology {topology.name}: has skew_ns, which Spark does not support: it reads all sources equally"


def _calls(kind: type[Computation], name: str) -> bool:
    """True if the code of the class, or of its base classes, uses this method name."""
    functions = [each for base in kind.__mro__ if base not in (Computation, object) for each in vars(base).values()]
    codes = [code for each in functions if (code := getattr(getattr(each, "__func__", each), "__code__", None))]
    while codes:
        code = codes.pop()
        if name in code.co_names:
            return True
        codes += [each for each in code.co_consts if hasattr(each, "co_names")]
    return False


def number_of(topology: Topology) -> dict[str, int]:
    """Maps each computation to the number of its operator."""
    return {part.name: number for number, part in enumerate(topology.checked())}


def added(aside: Mapping[int, int], changes: Iterable[tuple[int, int]]) -> dict[int, int]:
    """Returns how many records each computation has set aside after these changes."""
    found = dict(aside)
    for number, change in changes:
        found[number] = found.get(number, 0) + change
    return found


def before(topology: Topology, number: int) -> frozenset[int]:
    """Returns the computations whose productions may reach this one, directly or indirectly."""
    parts, found = topology.checked(), set[int]()
    wanted = set(parts[number].inputs)
    for each in reversed(range(number)):  # producers come before consumers
        if not wanted.isdisjoint(parts[each].outputs):
            found.add(each)
            wanted.update(parts[each].inputs)
    return frozenset(found)


def consumers(topology: Topology, stream: str) -> Sequence[int]:
    numbers = number_of(topology)
    return [numbers[part.name] for part in topology.checked() if stream in part.inputs]

"""A graph of computations: named streams, each with one producer, and a key function for each consumer (MillWheel 4).
Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from hashlib import sha256
from typing import Any

from photon.computing.errors import TopologyError
from photon.computing.model import SECOND_NS, Computation, Record, name_of

KeyOf = Callable[[Record], str]
EXACT = "exact"
PERCENTILE = "99%"


@dataclass(frozen=True, slots=True)
class Source:
    """A stream from outside the topology. ``shared``: each interval's owner reads the whole stream and keeps its own
    keys; otherwise the owner of the first interval reads it and sends each record to its key's owner, and the others
    declare that they read nothing (``Engine.leave``). ``options``: for the injector."""

    stream: str
    shared: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Part:
    """A computation with its inputs and outputs."""

    name: str
    computation: Computation
    inputs: Mapping[str, KeyOf]
    outputs: tuple[str, ...]
    exact: bool  # True to follow the exact watermark of its sources


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on the growth of each process. Raises TopologyError."""

    cache_bytes: int = 256 << 20  # rows cached in memory; those with the latest timers are evicted first
    state_bytes: int = 1 << 20  # encoded size per key; a key with larger state is set aside
    outbox_bytes: int = 256 << 20  # unacknowledged productions: above this, no input is taken
    message_items: int = 10_000
    message_bytes: int = 4 << 20
    timers_at_once: int = 10_000  # keys of a computation whose timers are called between two commits
    # Timers of one key that are called between two commits, beyond those set before; more timers that are not later
    # than their predecessor are a fault.
    timers_of_key: int = 10_000
    aside: int = 100_000  # records and timers set aside: above it no input is taken
    # Input this far ahead of the watermark is held back while another source is behind it.
    skew_ns: int | None = None
    straggler_ns: int = SECOND_NS  # weak productions unacknowledged for this long are made durable like strong ones

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            least = 0 if each.name in ("straggler_ns", "skew_ns", "aside", "timers_of_key") else 1
            if (value is not None or each.default is not None) and (type(value) is not int or value < least):
                raise TopologyError(f"Limits: {each.name} must be an int of at least {least}, not {value!r}")


class Topology:
    """A graph of computations. Build it with its methods, then call ``checked``. ``Engine.change`` changes it at run
    time."""

    def __init__(self, name: str, version: int = 0, limits: Limits = Limits()) -> None:
        """``version``: must grow with each change if the intervals have several owners, as an owner accepts nothing
        from an owner with a newer version. ``photon compute`` increases it itself."""
        self.name = name
        self.version = version
        self.limits = limits
        self.sources: dict[str, Source] = {}
        self.parts: dict[str, Part] = {}
        self.published: dict[str, str] = {}  # stream -> directory; see ``publish``

    def source(self, stream: str, *, shared: bool = True, **options: Any) -> str:
        """Adds a stream from outside the topology, and returns its name. See ``Source``."""
        self._new(stream)
        self.sources[stream] = Source(stream, shared, options)
        return stream

    def joined(
        self, deployment: str, *, kinds: Iterable[str] = ("joined",), stream: str = "joined", join: str = ""
    ) -> str:
        """Adds the output of all datacentres of a deployment as a stream. ``deployment``: its settings file, or the
        directory of a ``photon join`` output or a published stream; ``join``: needed if the deployment has
        several."""
        options: dict[str, Any] = {"join": join} if join else {}
        return self.source(stream, deployment=deployment, kinds=tuple(kinds), **options)

    def log(
        self,
        directory: str,
        *,
        format: str,
        key: str,
        time: Mapping[str, Any],
        stream: str = "log",
        files: Iterable[str] = ("**/*",),
        within_ns: int | None = None,
        idle_after_ns: int | None = None,
        kafka_client: str | None = None,
        **settings: Any,
    ) -> str:
        """Adds the lines of all logs in a directory, ``s3://BUCKET/PREFIX`` or ``kafka://HOST:PORT/TOPIC``, as a
        stream of their fields.

        ``format``, ``key``, ``time``, ``settings``: as for a side of a join (docs/adapters.md#formats). A line
        without ``key`` is left out and reported. ``within_ns``: the longest delay of a line after its event time, on
        which the watermark relies; without it only ``--once`` calls timers. ``idle_after_ns``: logs that cannot be
        read hold the watermark back for this time; ``None`` means until they can be read. ``kafka_client``: a file
        with properties of Kafka's client (docs/kafka.md). Logs may be appended to, renamed and compressed; the lines
        of a rewritten log count again."""
        side = {"format": format, "key": key, "time": dict(time), **settings}
        bounds = {"within_ns": within_ns, "idle_after_ns": idle_after_ns}
        return self.source(stream, shared=False, log=directory, side=side, files=tuple(files),
                           kafka_client=kafka_client, **bounds)  # fmt: skip

    def add(
        self,
        computation: Computation,
        inputs: Mapping[str, KeyOf | str],
        outputs: Iterable[str] = (),
        watermark: str = PERCENTILE,
    ) -> None:
        """Adds a computation. ``inputs``: for each stream, a function that returns a record's key (a non-empty str),
        or the name of the key's field. ``watermark``: EXACT or PERCENTILE, the watermark of the sources that its
        timers follow. Raises TopologyError."""
        name = name_of(computation)
        if "/" in name:
            raise TopologyError(f"computation {name!r}: its name must not contain /")
        if name in self.parts:
            raise TopologyError(f"two computations are named {name!r}: give one of them another `name`")
        if watermark not in (EXACT, PERCENTILE):
            raise TopologyError(f"computation {name}: watermark is {watermark!r}, not {EXACT!r} or {PERCENTILE!r}")
        outputs = (*computation.outputs, *outputs)
        for stream in outputs:
            self._new(stream, f"computation {name}: ")
        if len(set(outputs)) < len(outputs):
            raise TopologyError(f"computation {name}: lists an output twice")
        keys = {stream: _field(key) if isinstance(key, str) else key for stream, key in inputs.items()}
        self.parts[name] = Part(name, computation, keys, outputs, watermark == EXACT)

    def remove(self, name: str) -> None:
        """Removes a computation; its state stays in the store in case it is added again. Raises TopologyError."""
        if name not in self.parts:
            raise TopologyError(f"there is no computation {name!r} to remove; there are {', '.join(self.parts)}")
        del self.parts[name]

    def publish(self, stream: str, directory: str) -> None:
        """Publishes a stream to files, from which ``photon read`` and Spark read each record exactly once. The stream
        ``COMPUTATION.errors`` has the records on which that computation's code failed, with key and reason."""
        if stream in self.published:
            raise TopologyError(f"the stream {stream!r} is published twice")
        self.published[stream] = directory

    def checked(self) -> tuple[Part, ...]:
        """Checks the topology. Returns its parts, producers before consumers. Raises TopologyError for an unknown
        stream, a cycle, or weak productions for a computation that would count them twice."""
        producer = {stream: part.name for part in self.parts.values() for stream in part.outputs}
        known = producer.keys() | self.sources.keys()
        for part in self.parts.values():
            if not part.inputs:
                raise TopologyError(f"computation {part.name} has no input")
            for stream in part.inputs:
                _known(stream, known, f"computation {part.name} reads")
        for stream in self.published:
            _known(stream, {**producer, **dict.fromkeys(map(errors_of, self.parts))}, "published is")
        self._check_weak(producer)
        left, order = dict(self.parts), list[Part]()
        while left:
            free = [p for p in left.values() if not any(producer.get(stream) in left for stream in p.inputs)]
            if not free:
                raise TopologyError(f"the computations {', '.join(left)} form a cycle")
            for part in free:
                order.append(part)
                del left[part.name]
        return tuple(order)

    def _check_weak(self, producer: Mapping[str, str]) -> None:
        for part in self.parts.values():
            for stream in part.inputs:
                source = self.parts.get(producer.get(stream, ""))
                if source is not None and source.computation.idempotent and not part.computation.idempotent:
                    raise TopologyError(
                        f"computation {part.name} reads {stream!r} of {source.name}, which has idempotent = True: "
                        f"after a crash its records may come twice. Remove it from {source.name}, or set it for "
                        f"{part.name}, too, if repeated records have no effect there"
                    )

    @property
    def shape(self) -> str:
        """A digest of the streams between computations, not of their code. Owners with equal shapes may exchange
        productions."""
        parts = sorted((each.name, sorted(each.inputs), each.outputs, each.exact) for each in self.parts.values())
        sources = sorted((each.stream, each.shared, sorted(each.options.items())) for each in self.sources.values())
        return sha256(repr((parts, sources, sorted(self.published.items()))).encode()).hexdigest()[:16]

    @property
    def sends(self) -> bool:
        """True if owners may have to send messages to owners of other intervals."""
        own = {name for name, source in self.sources.items() if source.shared}
        return any(stream not in own for part in self.parts.values() for stream in part.inputs)

    def _new(self, stream: str, who: str = "") -> None:
        if not stream or any(sign in stream for sign in "/:\0"):
            raise TopologyError(f"{who}a stream is named {stream!r}; its name must not be empty or contain / or :")
        if stream in self.sources or any(stream in part.outputs for part in self.parts.values()):
            raise TopologyError(f"{who}the stream {stream!r} already has a producer")


def errors_of(computation: str) -> str:
    return f"{computation}.errors"


def _field(name: str) -> KeyOf:
    return lambda record: str(record.value[name])


def _known(stream: str, known: Iterable[str], who: str) -> None:
    if stream not in known:
        raise TopologyError(f"{who} the stream {stream!r}, which has no producer; there are {', '.join(known)}")

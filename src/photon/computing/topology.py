"""A graph of computations: named streams with one producer each, and a key for each consumer (MillWheel 4). Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from photon.computing.errors import TopologyError
from photon.computing.model import Computation, Record, name_of

KeyOf = Callable[[Record], str]
EXACT = "exact"
PERCENTILE = "99%"


@dataclass(frozen=True, slots=True)
class Source:
    """A stream from outside. ``shared``: the owner of each interval reads all of it and keeps its own keys; otherwise
    that of the first reads it and sends each record to who has its key, and the others say so (``Engine.leave``).
    ``options`` are for whoever injects it."""

    stream: str
    shared: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Part:
    """A computation in its place."""

    name: str
    computation: Computation
    inputs: Mapping[str, KeyOf]
    outputs: tuple[str, ...]
    exact: bool
    """Which watermark of its sources it follows."""


class Topology:
    """Built up by calls, then ``checked``; parts may be added and taken out while it runs: ``Engine.change``."""

    def __init__(self, name: str, version: int = 0) -> None:
        """``version``: higher for each change of a topology whose intervals have several owners. Who has an older one
        takes nothing from who has a newer one."""
        self.name = name
        self.version = version
        self.sources: dict[str, Source] = {}
        self.parts: dict[str, Part] = {}
        self.published: dict[str, str] = {}
        """Stream -> where to; see ``publish``."""

    def source(self, stream: str, *, shared: bool = True, **options: Any) -> str:
        """A stream from outside; returns its name. See ``Source``."""
        self._new(stream)
        self.sources[stream] = Source(stream, shared, options)
        return stream

    def joined(self, deployment: str, *, kinds: Iterable[str] = ("joined",), stream: str = "joined") -> str:
        """What all datacentres of a deployment publish, as a stream; ``deployment``: its settings file."""
        return self.source(stream, deployment=deployment, kinds=tuple(kinds))

    def add(
        self,
        computation: Computation,
        inputs: Mapping[str, KeyOf],
        outputs: Iterable[str] = (),
        watermark: str = PERCENTILE,
    ) -> None:
        """``inputs``: stream -> the key of each of its records, a str that is not empty. ``watermark``: which of the
        sources' watermarks moves its timers, EXACT or PERCENTILE. Raises TopologyError."""
        name = name_of(computation)
        if name in self.parts:
            raise TopologyError(f"two computations are named {name!r}: give one of them another `name`")
        if watermark not in (EXACT, PERCENTILE):
            raise TopologyError(f"computation {name}: watermark is {watermark!r}, not {EXACT!r} or {PERCENTILE!r}")
        outputs = tuple(outputs)
        for stream in outputs:
            self._new(stream, f"computation {name}: ")
        if len(set(outputs)) < len(outputs):
            raise TopologyError(f"computation {name}: an output is named twice")
        self.parts[name] = Part(name, computation, dict(inputs), outputs, watermark == EXACT)

    def remove(self, name: str) -> None:
        """Takes a computation out; its state stays in the store, for the day it is added again. Raises
        TopologyError."""
        if name not in self.parts:
            raise TopologyError(f"there is no computation {name!r} to take out: there are {', '.join(self.parts)}")
        del self.parts[name]

    def publish(self, stream: str, directory: str) -> None:
        """Files that ``photon read`` and Spark read exactly once."""
        if stream in self.published:
            raise TopologyError(f"the stream {stream!r} is published twice")
        self.published[stream] = directory

    def checked(self) -> tuple[Part, ...]:
        """Its parts, producers before consumers. Raises TopologyError: an unknown stream, a cycle."""
        producer = {stream: part.name for part in self.parts.values() for stream in part.outputs}
        known = producer.keys() | self.sources.keys()
        for part in self.parts.values():
            if not part.inputs:
                raise TopologyError(f"computation {part.name} has no input")
            for stream in part.inputs:
                _known(stream, known, f"computation {part.name} reads")
        for stream in self.published:
            _known(stream, producer, "published is")
        left, order = dict(self.parts), list[Part]()
        while left:
            free = [p for p in left.values() if not any(producer.get(stream) in left for stream in p.inputs)]
            if not free:
                raise TopologyError(f"the computations {', '.join(left)} wait for one another in a circle")
            for part in free:
                order.append(part)
                del left[part.name]
        return tuple(order)

    @property
    def sends(self) -> bool:
        """Whether an owner has anything for owners of other intervals."""
        own = {name for name, source in self.sources.items() if source.shared}
        return any(stream not in own for part in self.parts.values() for stream in part.inputs)

    def _new(self, stream: str, who: str = "") -> None:
        if not stream or any(sign in stream for sign in "/:\0"):
            raise TopologyError(f"{who}a stream's name is {stream!r}: it must not be empty or hold any of / :")
        if stream in self.sources or any(stream in part.outputs for part in self.parts.values()):
            raise TopologyError(f"{who}the stream {stream!r} has a producer already")


def _known(stream: str, known: Iterable[str], who: str) -> None:
    if stream not in known:
        raise TopologyError(f"{who} the stream {stream!r}, which nothing produces: there are {', '.join(known)}")

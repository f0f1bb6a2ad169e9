"""The directions between regions, the current state of each, and changes to it. Pure."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from photon.supervision.routes import Route

DELAY_S_MAX = 60.0


class Fault(enum.IntEnum):
    """The effect on bytes from one region to another, and on connections from the first."""

    NONE = 0
    # A silent cut: bytes are silently held back. They are lost if their connection ends first, and arrive if
    # the fault is lifted first.
    DROP = 1
    RESET = 2  # connections end with a TCP reset, existing and new ones
    REFUSE = 3  # new connections are refused; existing ones continue


@dataclass(frozen=True, slots=True)
class Direction:
    """The current state of one direction between regions. A connection uses both directions."""

    source: str
    destination: str
    delay_s: float = 0.0  # one way
    fault: Fault = Fault.NONE


@dataclass(frozen=True, slots=True)
class Change:
    """A change of one direction; ``None`` leaves a field unchanged."""

    source: str
    destination: str
    delay_s: float | None = None  # one way
    fault: Fault | None = None


@dataclass(frozen=True, slots=True)
class DirectionNow(Direction):
    bytes: int = 0  # delivered since the proxy's start
    connections: int = 0  # open now, begun in ``source``


@dataclass(slots=True)
class Link:
    """One direction, shared by all connections that use it; only LinkTable changes delay and fault."""

    source: str
    destination: str
    delay_s: float = 0.0
    fault: Fault = Fault.NONE
    delivered: int = 0  # bytes
    connections: int = 0  # open now, begun in source

    @property
    def passes(self) -> bool:
        return self.fault is not Fault.DROP

    @property
    def welcomes(self) -> bool:
        """True if connections may be opened from ``source``."""
        return self.fault not in (Fault.RESET, Fault.REFUSE)


class LinkTable:
    """Both directions of each pair of regions that a route joins."""

    def __init__(self, routes: Iterable[Route], delay_s: float = 0.0) -> None:
        """``delay_s``: one-way delay of each direction at the start."""
        pairs = {(route.source, route.destination) for route in routes}
        pairs |= {(destination, source) for source, destination in pairs}
        self._links: Mapping[tuple[str, str], Link] = {pair: Link(*pair, delay_s) for pair in sorted(pairs)}

    def link(self, source: str, destination: str) -> Link:
        """The direction from one region to another. Raises KeyError."""
        return self._links[source, destination]

    def apply(self, changes: Sequence[Change]) -> str:
        """Makes all changes and returns "", or makes none and returns one line with the reason."""
        for change in changes:
            if error := self._error(change):
                return error
        for change in changes:
            link = self._links[change.source, change.destination]
            if change.delay_s is not None:
                link.delay_s = change.delay_s
            if change.fault is not None:
                link.fault = change.fault
        return ""

    def now(self) -> list[DirectionNow]:
        return [
            DirectionNow(link.source, link.destination, link.delay_s, link.fault, link.delivered, link.connections)
            for link in self._links.values()
        ]

    def _error(self, change: Change) -> str:
        if (change.source, change.destination) not in self._links:
            known = ", ".join(f"{source} to {destination}" for source, destination in self._links) or "none"
            return f"no connections go from {change.source!r} to {change.destination!r}; directions: {known}"
        if change.delay_s is not None and not 0 <= change.delay_s <= DELAY_S_MAX:
            return f"a delay of {change.delay_s:g} s is outside 0 to {DELAY_S_MAX:g} s; it is a one-way delay"
        return ""

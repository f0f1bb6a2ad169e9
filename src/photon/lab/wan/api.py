"""What a link between two regions may be told to do, and which ports of the proxy lead where."""

from __future__ import annotations

import enum
from dataclasses import dataclass

DELAY_S_MAX = 60.0


class Fault(enum.IntEnum):
    """What happens to bytes from one region on their way to another, and to connections begun there."""

    NONE = 0
    DROP = 1
    """A silent cut: bytes are not delivered, nobody is told. They are lost with their connection when it ends; once
    the fault is lifted before that, they arrive."""
    RESET = 2
    """Connections end with a TCP reset, present and new ones."""
    REFUSE = 3
    """New connections are refused; present ones go on."""


@dataclass(frozen=True, slots=True)
class Route:
    """One port of the proxy: who in region ``source`` connects to ``listen`` reaches ``target`` in another region."""

    listen: str  # host:port
    source: str
    destination: str  # region
    target: str  # host:port


@dataclass(frozen=True, slots=True)
class Direction:
    """How bytes travel from one region to another now. A connection uses both directions."""

    source: str
    destination: str
    delay_s: float = 0.0  # one way
    fault: Fault = Fault.NONE

"""How services of one process (``photon serve pipeline``) find each other, and say that they serve."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from photon.eventstore.api import OperatedStore
    from photon.joiner.api import Joiner


@dataclass(slots=True)
class Nearby:
    """What of a pipeline serves in this process, to be called directly. In a process of its own: nothing."""

    store: OperatedStore | None = None
    joiners: dict[str, Joiner] = field(default_factory=dict)
    """By address."""
    replicas: dict[str, object] = field(default_factory=dict)
    """The registry's, by name: what answers their callers."""


Up: TypeAlias = Callable[[], None]
"""A service calls it once it serves."""
Serve: TypeAlias = Callable[[asyncio.Event, Up], Awaitable[object]]
"""Runs a service until the event is set."""


def unheard() -> None:
    """As ``Up``, where nobody waits for it."""

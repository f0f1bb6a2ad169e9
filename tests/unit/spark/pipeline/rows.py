"""Would-be records of a part."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from photon.idregistry.api import Kind
from photon.joiner.rows import Rows


@dataclass(frozen=True)
class Event:
    """A foreign event."""

    digest: bytes
    time: int


def rows_of(events: list[Event], token: int) -> Rows:
    n = len(events)
    return Rows(
        digests=b"".join(event.digest for event in events),
        times=np.array([event.time for event in events], np.int64),
        tokens=np.full(n, token, np.uint64),
        kinds=np.array([Kind.JOINED if event.time % 2 else Kind.REJECTED for event in events], np.uint8),
        tags=np.zeros(n, np.uint32),
        generations=np.zeros(n, np.uint32),
        lines=[b"%b %016x\n" % (event.digest.hex().encode(), token) for event in events],
    )

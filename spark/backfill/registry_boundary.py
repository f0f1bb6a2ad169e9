"""Finds the registry's boundary by look-ups. Ids with earlier event times can no longer be registered."""

from __future__ import annotations

from hashlib import blake2b
from typing import Protocol

import numpy as np

from photon.batch.verdicts import Verdicts
from photon.config.clock import NS_PER_S
from photon.config.errors import PhotonError
from photon.idregistry.api import DIGEST_BYTES, I64, Answer

PROBES = 256  # digests of no real event: enough to reach every shard
PRECISION_NS = NS_PER_S
LOOK_UP_S = 10.0


class RegistryLookUps(Protocol):
    async def look_up(self, digests: bytes, times: I64, *, timeout: float) -> Verdicts: ...


class RegistrySilent(PhotonError):
    """No replica answers."""


async def boundary_in(registry: RegistryLookUps, from_ns: int, to_ns: int, *, of_all: bool = False) -> int | None:
    """Returns the first time in [``from_ns``, ``to_ns``] at which ids can be registered, accurate to PRECISION_NS;
    ``None`` if there is none.

    If the shards' boundaries differ, finds the latest one; with ``of_all``, the earliest, before which no shard
    accepts an id. Raises RegistrySilent.
    """
    if not await _below(registry, from_ns, of_all):
        return from_ns
    if await _below(registry, to_ns, of_all):
        return None
    below, above = from_ns, to_ns
    while above - below > PRECISION_NS:
        middle = (below + above) // 2
        if await _below(registry, middle, of_all):
            below = middle
        else:
            above = middle
    return below + 1 if of_all else above


async def _below(registry: RegistryLookUps, time_ns: int, of_all: bool) -> bool:
    digests = b"".join(
        blake2b(b"photon: no event %d" % number, digest_size=DIGEST_BYTES).digest() for number in range(PROBES)
    )
    found = await registry.look_up(digests, np.full(PROBES, time_ns, np.int64), timeout=LOOK_UP_S)
    if (found.outcomes == Answer.UNKNOWN).any():
        raise RegistrySilent("the registry does not answer; run the same command again once it does")
    below = found.outcomes == Answer.BELOW_BOUNDARY
    return bool(below.all() if of_all else below.any())

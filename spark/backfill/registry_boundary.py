"""Finds how far back the registry remembers, by look-ups: below its boundary no id can be registered."""

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
    """The first time in [from, to] at which ids can be registered, to PRECISION_NS; ``None`` means not even at
    ``to``.

    With several shards the latest boundary counts; with ``of_all`` the earliest, below which no shard accepts an id.
    Raises RegistrySilent.
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

"""Ids that another shard holds since before a change of the shards: they are met there, and entered nowhere else.

An id is entered by the shard that the active config names, whatever its event time says; the shards that earlier
configs name for it may hold it since then. They cannot come to hold it any more once they have entered the change
themselves (``Sharding.takes``), and every replica hosts every shard: so a leader that finds the id in none of them,
as they are on its own replica after that entry, knows it for as long as it serves by this config. The number of the
config goes into the entry, and is compared where that is applied.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np

from photon.idregistry.api import DIGEST_BYTES
from photon.idregistry.core.commands import take
from photon.idregistry.core.restored_shard import CLOSED_REASON
from photon.idregistry.core.shard_standing import Bools
from photon.idregistry.core.sharding import shards_of
from photon.idregistry.core.state_machine import ShardMachine


class NotKnown(Exception):
    """``str()`` says why a shard cannot tell yet where an id is."""


def held_elsewhere(
    number: int,
    digests: bytes,
    shards: Mapping[int, ShardMachine],
    removed: Collection[int],
    *,
    restoring: bool = False,
) -> tuple[Bools, int]:
    """Of shard ``number``: (which ids another one holds, the config by which that is so).

    ``restoring``: what is registered again may be entered while all shards are closed. Raises NotKnown.
    """
    standing, ranges = shards[number].serving
    held = np.zeros(len(digests) // DIGEST_BYTES, np.bool_)
    for each in ranges[:-1]:
        numbers = shards_of(digests, each.shards)
        for former in np.unique(numbers).tolist():
            if former == number or former in removed:
                continue
            shard = shards.get(former)
            if shard is None or shard.serving[0].decided < standing.config:
                raise NotKnown(f"shard {former} has not entered change {standing.config} of the shards here yet")
            if shard.closed and not restoring:
                raise NotKnown(f"shard {former}, which may hold some of the ids, {CLOSED_REASON}")
            rows = np.flatnonzero(numbers == former)
            held[rows] |= shard.holds(take(digests, DIGEST_BYTES, rows), each.end_ns)
    return held, standing.config

"""Finds ids that another shard has held since before a change of the shards: that shard answers for them, and no
other shard enters them.

An id is entered by the shard that the active config names, regardless of its event time; the shards that earlier
configs name for it may still hold it. Those shards cannot take it any more once they have applied the change
themselves (``Sharding.takes``), and every replica hosts every shard. So if a leader finds the id in none of them on
its own replica after that entry, this stays true while it serves under this config. The config's number goes into the
entry and is compared when the entry is applied.
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
    """Raised if a shard cannot tell yet which shard holds an id; ``str()`` says why."""


def held_elsewhere(
    number: int,
    digests: bytes,
    shards: Mapping[int, ShardMachine],
    removed: Collection[int],
    *,
    restoring: bool = False,
) -> tuple[Bools, int]:
    """Returns (True for ids held by a shard other than ``number``, the config under which this is so).

    ``restoring``: ids registered again may be entered while all shards are closed. Raises NotKnown.
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

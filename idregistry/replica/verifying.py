"""Whether what a replica holds agrees with the shard config: no id outside its shard, no shard behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

from photon.idregistry.core.shard_changes import Changes
from photon.idregistry.replica.shard_server import ShardServer


async def problems(changes: Changes, shards: Mapping[int, ShardServer]) -> AsyncIterator[str]:
    """For people, one line each. Takes time in the number of ids, in pieces: others go on meanwhile."""
    if not changes.ranges:
        yield "the registry is not set up yet"
        return
    if changes.pending is not None:
        yield f"change {changes.pending.config} of the shards is under way: verify again when it has ended"
    for number in changes.live:
        server = shards.get(number)
        if server is None or not server.machine.configured:
            yield f"shard {number} is not open here"
            continue
        facts = server.machine.sharding
        if facts.number != number:
            yield f"shard {number} believes to be shard {facts.number}"
        if facts.standing.decided != changes.decided:
            yield f"shard {number} knows changes up to {facts.standing.decided}, the config group {changes.decided}"
        elif facts.standing.config != changes.config or server.machine.ranges != changes.ranges:
            yield f"shard {number} serves by config {facts.standing.config}, the config group by {changes.config}"
        misplaced = 0
        for bucket in server.machine.bucket_numbers():
            misplaced += server.machine.misplaced(bucket)
            await asyncio.sleep(0)
        if misplaced:
            yield f"shard {number} holds {misplaced} ids that belong to other shards"
    for number, server in shards.items():
        if number not in changes.live and server.machine.ids:
            yield f"shard {number} is none of the config's and holds {server.machine.ids} ids"

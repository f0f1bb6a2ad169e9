"""Reads a registry replica's metrics, and its shards for the status page, from its state."""

from __future__ import annotations

from typing import Any

from photon.config.metrics.readings import Details, Readings, Source
from photon.idregistry.core.commands import END_OF_TIME, NO_TIME
from photon.idregistry.core.outcomes import GroupFacts, Refusal
from photon.idregistry.core.resharding import Stage
from photon.idregistry.replica.server import RegistryReplica

PREFIX = "photon_registry"


def reads(replica: RegistryReplica) -> list[Source]:
    """Returns one replica's metrics sources: one per shard, and one for their common figures."""

    def shards(into: Readings) -> None:
        for facts in replica.describe().groups:
            _put_group(into, replica, facts)

    def common(into: Readings) -> None:
        resharding = replica.resharding()
        change, memory = resharding.change, replica.memory
        into.put_all(
            PREFIX,
            {
                "shards": len(resharding.shards),
                "config": resharding.config,
                "resharding": change is not None and change.stage is Stage.PREPARING,
                "memory_bytes": memory.used,
                "overloaded_memory": memory.reached,
                "clock_objection": bool(replica.clocks.objection()),
            },
        )
        if memory.limit is not None:
            into.put(f"{PREFIX}_memory_limit_bytes", memory.limit)

    return [shards, common]


def _put_group(into: Readings, replica: RegistryReplica, facts: GroupFacts) -> None:
    labels = {"shard": str(facts.group)}
    into.put_all(
        PREFIX,
        {
            "leader": facts.is_leader,
            "leader_known": bool(facts.leader),
            "term": facts.term,
            "applied_entries": facts.applied,
            "healthy": facts.healthy,
            "writable": facts.writable,
            "alarms": len(facts.alarms),
        },
        **labels,
    )
    server = replica.shard(facts.group)
    if isinstance(server, Refusal):  # no server: the config group
        return
    batcher = server.batcher
    into.put_all(
        PREFIX,
        {
            "entries_total": batcher.batches,
            "entry_ids_total": batcher.ids,
            "overloaded_total": facts.overloaded,
            "ids": facts.ids,
            "id_bytes": facts.bytes,
            "queued_ids": batcher.queued_ids,
        },
        **labels,
    )
    if server.machine.boundary > NO_TIME:
        into.put(f"{PREFIX}_boundary_seconds", server.machine.boundary / 1e9, **labels)
    if facts.is_leader:
        into.put(f"{PREFIX}_commit_p50_seconds", facts.commit_ms_p50 / 1000, **labels)
        into.put(f"{PREFIX}_commit_p99_seconds", facts.commit_ms_p99 / 1000, **labels)


def details_of(replica: RegistryReplica) -> Details:
    """Describes the shards with their event times, the change of the shards, and alarms."""

    def details() -> dict[str, Any]:
        resharding = replica.resharding()
        change = resharding.change
        groups = {facts.group: facts for facts in replica.describe().groups}
        return {
            "replica": replica.name,
            "config": resharding.config,
            "shards": [
                {
                    "shard": shard.shard,
                    "ids": shard.ids,
                    "leader": shard.leader,
                    "boundary_s": shard.boundary_ns / 1e9 if shard.boundary_ns > NO_TIME else None,
                    "until_s": shard.until_ns / 1e9 if shard.until_ns < END_OF_TIME else None,
                    "config": shard.config,
                    "prepared": shard.prepared,
                }
                for shard in resharding.shards
            ],
            "change": None
            if change is None
            else {
                "config": change.config,
                "stage": change.stage.name.lower(),
                "starts_s": change.starts_ns / 1e9,
                "added": list(change.added),
                "leaving": list(change.leaving),
                "settled": change.settled,
                "reason": change.reason,
            },
            "alarms": [
                {"shard": number, "what": alarm} for number, facts in groups.items() for alarm in facts.alarms
            ],
        }

    return details

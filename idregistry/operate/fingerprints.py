"""A short fingerprint of a replica's copy of a group's state: under one mark all replicas must have the same."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b

import msgspec

from photon.idregistry.client.export_stream import ExportReader, Summer
from photon.idregistry.core.commands import CONFIG_GROUP
from photon.idregistry.core.shard_snapshot import NO_BOUNDARY, ShardImage, read_shard


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """A group's state after one entry."""

    applied: int
    ids: int
    sum: str  # hex; order-independent sum of all ids' entries. For the config group: hash of its snapshot
    facts: str  # hex; hash of the rest of a shard's state: slots, incarnations, boundary, ranges
    boundary_ns: int | None = None


def fingerprint(group: int, export: ExportReader) -> Fingerprint:
    """Reads a whole export; returns its fingerprint. Raises ExportFailed, SnapshotError, RegistryUnreachable."""
    if group == CONFIG_GROUP:
        summer = Summer()
        for chunk in export:
            summer.add(chunk)
        assert export.facts is not None
        return Fingerprint(export.facts.applied, 0, summer.checksum()[:8].hex(), "")
    image = read_shard(export)
    boundary = image.state.boundary
    return Fingerprint(
        image.applied,
        len(image.table),
        f"{image.table.sum():016x}",
        facts_sum(image),
        None if boundary == NO_BOUNDARY else boundary,
    )


def facts_sum(image: ShardImage) -> str:
    """Hashes a shard's state except for its ids, regardless of the order of slots."""
    state = image.state
    slots = sorted((name, slot.datacentre, slot.newest, slot.fenced) for name, slot in state.slots.items())
    facts = (
        state.sharding.number,
        state.sharding.ranges,
        state.sharding.standing,
        state.boundary,
        state.datacentres,
        slots,
        sorted(state.incarnations.items()),
        sorted(state.watermarks.items()),
        state.held,
    )
    return blake2b(msgspec.msgpack.encode(facts), digest_size=8).hexdigest()


def differences(group: int, found: Mapping[str, Fingerprint]) -> list[str]:
    """Describes how replicas differ, and names those in the minority; empty if they agree."""
    kinds: dict[Fingerprint, list[str]] = {}
    for name, each in sorted(found.items()):
        kinds.setdefault(each, []).append(name)
    if len(kinds) <= 1:
        return []
    said = [
        f"{' and '.join(names)} {'has' if len(names) == 1 else 'have'} {each.ids:,} ids, sum {each.sum}, "
        f"facts {each.facts or '-'} as of entry {each.applied}"
        for each, names in sorted(kinds.items(), key=lambda item: (-len(item[1]), item[1]))
    ]
    return [f"group {group}: replicas differ: {'; '.join(said)}"]

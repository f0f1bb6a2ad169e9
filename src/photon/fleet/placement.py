"""Which losses a registry's placement survives. Pure."""

from __future__ import annotations

from collections import Counter

from photon.config.settings import Settings


def survives(settings: Settings) -> list[str]:
    """One sentence for the replica count, and for each datacentre and region that holds replicas."""
    replicas = settings.registry.replicas
    if not replicas:
        return []
    majority = len(replicas) // 2 + 1
    spare = len(replicas) - majority
    lines = [f"the registry goes on while any {spare} of its {len(replicas)} replicas are lost"]
    held = {name: replica.datacentre for name, replica in replicas.items()}
    regions = {name: settings.region_of_replica(name) for name in replicas}
    kinds = [("datacentre", held)]
    if regions != held:
        kinds.append(("region", regions))
    for kind, places in kinds:
        for place, count in sorted(Counter(place for place in places.values() if place).items()):
            verdict = "survives" if count <= spare else "does not survive"
            lines.append(f"the registry {verdict} the loss of {kind} {place} ({count} of {len(replicas)} replicas)")
    return lines

"""Which losses a registry's placement survives. Pure."""

from __future__ import annotations

from collections import Counter

from photon.config.settings import Settings


def survives(settings: Settings) -> list[str]:
    """One sentence per replica count and per datacentre that holds replicas; empty without replicas."""
    replicas = settings.registry.replicas
    if not replicas:
        return []
    majority = len(replicas) // 2 + 1
    spare = len(replicas) - majority
    lines = [f"the registry goes on while any {spare} of its {len(replicas)} replicas are lost"]
    held = Counter(replica.datacentre for replica in replicas.values() if replica.datacentre)
    for datacentre, count in sorted(held.items()):
        verdict = "survives" if count <= spare else "does not survive"
        lines.append(
            f"the registry {verdict} the loss of datacentre {datacentre} ({count} of {len(replicas)} replicas)"
        )
    return lines

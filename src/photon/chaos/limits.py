"""Whether a plan takes more from a deployment than it may lose at once. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from photon.chaos.api import Do, Step
from photon.chaos.topology import Topology

RETURN_S = 8.0
"""So long after a fault its replicas may still be catching up."""


def too_much(steps: Sequence[Step], topology: Topology) -> str:
    """Why a plan is too much, in one line; empty: a majority of the replicas and one pipeline datacentre are always
    left alone."""
    for step in sorted(steps, key=lambda each: each.at_s):
        together = [each for each in steps if each.at_s <= step.at_s < each.end_s + RETURN_S]
        lost = frozenset[str]().union(*(topology.impaired(each) for each in together))
        if len(lost) > topology.spare:
            return (
                f"at {step.at_s:.1f} s {len(lost)} of {len(topology.replicas)} replicas are taken away "
                f"({', '.join(sorted(lost))}); {topology.spare} may be"
            )
        away = {each.target[0] for each in together if each.do is Do.AWAY}
        if away >= set(topology.datacentres):
            return f"at {step.at_s:.1f} s no pipeline is left: {', '.join(sorted(away))} are away"
    return ""

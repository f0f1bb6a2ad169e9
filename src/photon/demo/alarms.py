"""What the continuous verifiers of the demo have found."""

from __future__ import annotations

from photon.config.disk import RealDisk
from photon.demo.deployment import DemoDeployment
from photon.embedded.verifier_service import pipeline_of
from photon.verifier.status import status_of


def alarms_in(demo: DemoDeployment) -> list[str]:
    """One line for each alarm that stands in any slot."""
    settings, base = demo.deployment.settings, demo.deployment.file.parent
    found = []
    for name in demo.places:
        for slot in status_of(RealDisk(), pipeline_of(settings, base, name)[1]).slots:
            found += [f"verifier of {name}, slot {slot.slot}: {alarm.finding}: {alarm.what}" for alarm in slot.alarms]
            found += [f"verifier of {name}: {slot.problem}"] if slot.problem else []
    return found

"""What the continuous verifiers of a deployment have found."""

from __future__ import annotations

from pathlib import Path

from photon.assembly.verifier import pipeline_of
from photon.config.disk import RealDisk
from photon.config.settings import Settings
from photon.verifier.status import status_of


def alarms_in(settings: Settings, base: Path) -> list[str]:
    """One line for each alarm that stands in any slot. ``base``: directory of the deployment file."""
    found = []
    for name in settings.datacentre:
        for slot in status_of(RealDisk(), pipeline_of(settings, base, name)[1]).slots:
            found += [f"verifier of {name}, slot {slot.slot}: {alarm.finding}: {alarm.what}" for alarm in slot.alarms]
            found += [f"verifier of {name}, slot {slot.slot}: {slot.problem}"] if slot.problem else []
    return found

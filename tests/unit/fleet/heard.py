"""Simulated reports of processes."""

from __future__ import annotations

from typing import Any

from photon.config.metrics.families import Family, Sample, families_of
from photon.config.metrics.readings import Readings
from photon.fleet.polling import Heard
from photon.fleet.processes import Process


def said(service: str, process: str, put: Any = None, details: dict[str, Any] | None = None) -> Heard:
    """``put(readings)`` puts its metrics."""
    readings = Readings()
    if put is not None:
        put(readings)
    target = Process("" if service == "registry" else "east", service, process, "127.0.0.1:1")
    return Heard(target, families_of(readings.families()), details or {})


def samples(*found: tuple[str, dict[str, str], float]) -> list[Family]:
    """Metrics that need not be in the table: name, labels, value."""
    return [Family("all", "", "gauge", tuple(Sample(*each) for each in found))]


def silent(service: str, process: str) -> Heard:
    """It does not answer."""
    return Heard(Process("east", service, process, "127.0.0.1:1"), problem="UNAVAILABLE")

"""Metrics of the proxy: what each direction is told to do."""

from __future__ import annotations

from photon.config.metrics.readings import Readings, Source
from photon.lab.wan.api import Fault
from photon.lab.wan.proxy import Proxy


def reads(proxy: Proxy) -> Source:
    """Of every direction."""

    def read(into: Readings) -> None:
        for direction in proxy.directions():
            labels = {"source": direction.source, "destination": direction.destination}
            into.put("photon_wan_delay_seconds", direction.delay_s, **labels)
            into.put("photon_wan_fault", direction.fault is not Fault.NONE, **labels)

    return read

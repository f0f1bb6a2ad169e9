"""Exports traces, log lines and metrics of a process by OTLP, as the settings say."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING

from photon import __version__
from photon.config.clock import SystemClock
from photon.config.extras import check_extras
from photon.config.metrics.readings import SERVED
from photon.config.settings import Settings, TelemetrySettings
from photon.config.stopping import end
from photon.config.structured import get_logger, structlog
from photon.config.telemetry import spans
from photon.fleet.processes import KINDS, Process, processes

if TYPE_CHECKING:
    from photon.config.telemetry.otlp import Otlp

log = get_logger(__name__)

Labels = Mapping[str, str]  # the same labels as on the status page: datacentre, service, process


def labels_of(settings: Settings, kind: str, datacentre: str | None, member: str | None) -> Labels:
    """Returns the labels of the process ``photon serve KIND MEMBER --datacentre DATACENTRE``."""
    listed = [each for each in processes(settings) if each.kind == kind]
    meant = [each for each in listed if member in (each.name, None) and datacentre in (each.datacentre, None)]
    if len(meant) == 1:
        return meant[0].labels
    process = f"{member or kind}@{socket.gethostname()}"  # a process that the file does not name
    return {"datacentre": datacentre or "", "service": kind, "process": process}


@contextlib.asynccontextmanager
async def exporting(settings: Settings, own: Labels) -> AsyncIterator[None]:
    """While the context is open, exports this process's traces, logs and metrics. Does nothing without [telemetry].
    Raises UsageError."""
    table = settings.telemetry
    if table is None:
        yield
        return
    check_extras(settings)
    from photon.config.telemetry.otlp import Otlp

    otlp = Otlp(table.endpoint, table.traces, _resource(own))
    configured = structlog.get_config()["processors"]
    if table.logs:
        structlog.configure(processors=[*configured[:-1], otlp.log_line, configured[-1]])
    spans.tracer = otlp.tracer
    measuring = [asyncio.create_task(_measure(otlp, table, settings, own))] if table.interval else []
    try:
        yield
    finally:
        await end(measuring)
        spans.tracer = None
        structlog.configure(processors=configured)
        await asyncio.to_thread(otlp.stop)


def _resource(own: Labels) -> dict[str, str]:
    return {
        "service.name": f"photon-{own['service']}",
        "service.instance.id": own["process"],
        "service.version": __version__,
        "photon.datacentre": own["datacentre"],
        "host.name": socket.gethostname(),
        "process.pid": str(os.getpid()),
    }


async def _measure(otlp: Otlp, table: TelemetrySettings, settings: Settings, own: Labels) -> None:
    """Exports the metrics of every service in this process at intervals, each with its own labels."""
    from photon.config.telemetry.points import metrics_of

    known, clock = dict[str, Process](), SystemClock()
    for each in processes(settings):
        known |= {str(each.address): each, f"{each.address} {KINDS[each.kind].health}": each}
    while True:
        await asyncio.sleep(table.interval)
        try:
            said = []
            for address, metrics in list(SERVED.items()):
                labels = known[address].labels if address in known else own
                if address in KINDS:  # a service without an address is listed under its kind
                    labels = {**own, "service": address}
                said.append((await metrics.families(), labels))
            otlp.metrics(metrics_of(said, clock.now_ns()))
        except Exception:  # a bug in one reading must not stop all exports silently
            log.exception("the metrics cannot be sent")

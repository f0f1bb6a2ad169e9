"""What a process asked of object stores, for people and as metrics."""

from __future__ import annotations

from collections.abc import Mapping

from photon.config.metrics.readings import Readings
from photon.objects.directory import counts

REQUESTS = ("lists", "reads", "writes", "deletes")
GIB = 1 << 30


def put_costs(into: Readings) -> None:
    """A source of metrics; it puts nothing where nothing is read or written by URL."""
    found = counts()
    if not any(found.values()):
        return
    for kind in REQUESTS:
        into.put("photon_objects_requests_total", found[kind], kind=kind)
    into.put("photon_objects_retries_total", found["retries"])
    into.put("photon_objects_read_bytes_total", found["bytes_read"])
    into.put("photon_objects_written_bytes_total", found["bytes_written"])


def said(found: Mapping[str, int], seconds: float) -> str:
    """One line: requests, per GiB of what was read and written, and listings per hour."""
    moved = found["bytes_read"] + found["bytes_written"]
    of_bytes = found["reads"] + found["writes"]
    kinds = ", ".join(f"{found[kind]:,} {kind}" for kind in REQUESTS if found[kind]) or "no requests"
    line = f"object storage: {kinds}, {found['retries']:,} of them again, {moved / (1 << 20):,.1f} MiB"
    if moved:
        line += f"; {of_bytes * GIB / moved:,.0f} reads and writes a GiB"
    return f"{line}; {found['lists'] * 3600 / max(seconds, 1e-3):,.0f} lists an hour"

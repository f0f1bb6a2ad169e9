"""Reports a process's requests to object stores, as text and as metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from photon.config.metrics.readings import Readings
from photon.objects.directory import counts

REQUESTS = ("lists", "reads", "writes", "deletes")
OTHERS = {"retries": "retries", "read_bytes": "bytes_read", "written_bytes": "bytes_written"}  # metric -> counter
GIB = 1 << 30
ASK_S = 5.0


def put_costs(into: Readings) -> None:
    """Adds the counts as metrics, unless this process has made no requests to object stores."""
    found = counts()
    if not any(found.values()):
        return
    for kind in REQUESTS:
        into.put("photon_objects_requests_total", found[kind], kind=kind)
    for name, counted in OTHERS.items():
        into.put(f"photon_objects_{name}_total", found[counted])


def said(found: Mapping[str, int], seconds: float) -> str:
    """Formats one line: requests in total and per GiB read and written, and listings per hour."""
    moved = found["bytes_read"] + found["bytes_written"]
    of_bytes = found["reads"] + found["writes"]
    kinds = ", ".join(f"{found[kind]:,} {kind}" for kind in REQUESTS if found[kind]) or "no requests"
    line = f"object storage: {kinds}, {found['retries']:,} of them retries, {moved / (1 << 20):,.1f} MiB"
    if moved:
        line += f"; {of_bytes * GIB / moved:,.0f} reads and writes per GiB"
    return f"{line}; {found['lists'] * 3600 / max(seconds, 1e-3):,.0f} lists per hour"


async def costs_said(store: str | None, seconds: float) -> str:
    """Like ``said``, for this process plus the event store at ``store``, which is left out if it does not answer."""
    if store is None:
        return said(counts(), seconds)
    import grpc

    from photon.config.metrics import metrics_pb2 as pb
    from photon.config.metrics.families import decode
    from photon.config.metrics.service import METRICS_SERVICE
    from photon.config.tls import open_channel

    total = Counter(counts())
    channel = open_channel(store)
    try:
        reply = await METRICS_SERVICE.stub(channel).Read(pb.MetricsRequest(), timeout=ASK_S)
        for sample in (each for family in decode(reply.samples) for each in family.samples):
            name = sample.name.removeprefix("photon_objects_").removesuffix("_total")
            counted = sample.labels.get("kind") if name == "requests" else OTHERS.get(name)
            if sample.name.startswith("photon_objects_") and counted:
                total[counted] += int(sample.value)
    except grpc.aio.AioRpcError:
        pass
    finally:
        await channel.close(None)
    return said(total, seconds)

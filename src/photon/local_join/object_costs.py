"""What a ``photon join`` asked of object stores: its own process, and that of its event store."""

from __future__ import annotations

import re
from collections import Counter

import grpc

from photon.config.metrics import metrics_pb2 as pb
from photon.config.metrics.service import METRICS_SERVICE
from photon.config.tls import open_channel
from photon.objects.costs import said
from photon.objects.directory import counts

ASK_S = 5.0
_SAMPLE = re.compile(r'^photon_objects_(?:requests_total{kind="(\w+)"}|(\w+)_total) (\S+)$', re.MULTILINE)
_KINDS = {"read_bytes": "bytes_read", "written_bytes": "bytes_written"}


async def costs_said(store: str, seconds: float) -> str:
    """One line. ``store``: the event store's address; one that does not answer any more is left out."""
    total = Counter(counts())
    channel = open_channel(store)
    try:
        reply = await METRICS_SERVICE.stub(channel).Read(pb.MetricsRequest(), timeout=ASK_S)
        for kind, other, value in _SAMPLE.findall(reply.text.decode()):
            total[kind or _KINDS.get(other, other)] += int(float(value))
    except grpc.aio.AioRpcError:
        pass
    finally:
        await channel.close(None)
    return said(total, seconds)

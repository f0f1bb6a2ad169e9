"""The service ``photon.v1.Metrics``, which every server of ours offers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from photon.config.metrics import metrics_pb2 as pb
from photon.config.metrics.families import encode
from photon.config.metrics.readings import SERVED
from photon.config.rpc import Context, Service

if TYPE_CHECKING:
    from photon.config.metrics.readings import ProcessMetrics

# Metadata of a call: the health name of the part that is meant, where a server is shared (config/serving.py).
PART = "photon-part"
METRICS_SERVICE = Service(pb.DESCRIPTOR, "Metrics")


class MetricsService:
    def __init__(self, metrics: ProcessMetrics, address: str) -> None:
        """``address``: as in the deployment file; for a part of a shared server, its health name is added."""
        self._metrics = SERVED[address] = metrics

    async def Read(self, request: pb.MetricsRequest, context: Context) -> pb.MetricsReply:  # noqa: N802
        details = await self._metrics.details() if request.details else b""
        samples = b"" if request.no_samples else encode(await self._metrics.families())
        return pb.MetricsReply(samples=samples, details=details)

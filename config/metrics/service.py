"""``photon.v1.Metrics``: every server of ours answers it."""

from __future__ import annotations

from typing import Any

import grpc
import grpc.aio

from photon.config.metrics import metrics_pb2 as pb
from photon.config.metrics import metrics_pb2_grpc
from photon.config.metrics.readings import ProcessMetrics

READ = "/photon.v1.Metrics/Read"


class MetricsService(metrics_pb2_grpc.MetricsServicer):
    """Answers from what the process counts now."""

    def __init__(self, metrics: ProcessMetrics) -> None:
        self._metrics = metrics

    async def Read(  # noqa: N802
        self, request: pb.MetricsRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> pb.MetricsReply:
        """See metrics.proto."""
        details = await self._metrics.details() if request.details else b""
        return pb.MetricsReply(text=await self._metrics.text(), details=details)


def add_metrics(server: grpc.aio.Server, metrics: ProcessMetrics) -> None:
    """Registers the service."""
    metrics_pb2_grpc.add_MetricsServicer_to_server(MetricsService(metrics), server)  # type: ignore[no-untyped-call]

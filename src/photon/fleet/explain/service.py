"""``photon.v1.Explain``: dispatchers and joiners say what they know of one event. Read-only, one question each."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import grpc

from photon.config.rpc import Context, Service, abort, seconds_left
from photon.fleet.explain import explain_pb2 as pb
from photon.fleet.explain.evidence import Evidence, encode
from photon.fleet.explain.question import ID_BYTES_MAX, Place, Question

SEARCH_S = 60.0
"""Of one question, however long its caller would wait."""
MARGIN_S = 0.5
"""The answer leaves so long before the caller's deadline."""
EXPLAIN = Service(pb.DESCRIPTOR, "Explain")


@dataclass(frozen=True, slots=True)
class Scope:
    """How far a question goes: see explain.proto."""

    seconds: float
    time_ns: int | None
    """The event's, where it is known."""
    logs: bool = False
    memory_only: bool = False
    registry: bool = False


Explainer = Callable[[Question, Scope], Awaitable[Evidence]]


class ExplainService:
    """Over a process's explainer."""

    def __init__(self, explainer: Explainer) -> None:
        self._explainer = explainer
        self._busy = asyncio.Lock()

    async def Event(self, request: pb.EventRequest, context: Context) -> pb.EventReply:  # noqa: N802
        """See explain.proto."""
        if not 0 < len(request.event_id) <= ID_BYTES_MAX or len(request.file) > ID_BYTES_MAX or request.offset < 0:
            await abort(context, grpc.StatusCode.INVALID_ARGUMENT, f"an event id has 1 to {ID_BYTES_MAX} bytes")
        seconds = max(seconds_left(context, default=SEARCH_S, margin=MARGIN_S, most=SEARCH_S), 0.1)
        if self._busy.locked():
            await abort(context, grpc.StatusCode.RESOURCE_EXHAUSTED, "another question is under way; ask again")
        question = Question(request.event_id, Place(request.file, request.offset) if request.file else None)
        time_ns = request.time_ns if request.timed else None
        async with self._busy:
            scope = Scope(seconds, time_ns, request.logs, request.memory_only, request.registry)
            return pb.EventReply(evidence=encode(await self._explainer(question, scope)))

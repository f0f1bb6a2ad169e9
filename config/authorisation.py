"""Runs before every handler of every server: refuses calls that config/rights.py does not permit."""

from __future__ import annotations

import inspect
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio

from photon.config.handlers import rebuilt
from photon.config.rights import DatacentreOf, refusal
from photon.config.structured import get_logger
from photon.config.tls import caller

LOGGED_EACH_S = 60.0  # repeated refusals of a caller's same method are logged once in this time
LOGGED_MAX = 256  # callers and methods distinguished at a time; further ones count as one

log = get_logger(__name__)


class Said:
    """Decides when to log that a caller was refused. Pure: the time, in seconds, is passed in."""

    def __init__(self) -> None:
        self._until: dict[tuple[str, str], float] = {}
        self._unsaid = 0

    def refused(self, caller: str, method: str, now_s: float) -> int | None:
        """Returns how many refusals went unlogged since the last line; ``None`` if this one is not logged either."""
        known = (caller, method)
        if len(self._until) >= LOGGED_MAX:
            self._until = {key: until for key, until in self._until.items() if until > now_s}
        if known not in self._until and len(self._until) >= LOGGED_MAX:
            known = ("", "")
        if self._until.get(known, now_s) > now_s:
            self._unsaid += 1
            return None
        self._until[known] = now_s + LOGGED_EACH_S
        unsaid, self._unsaid = self._unsaid, 0
        return unsaid


class Authorisation(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # generic in its stubs only
    """Authorises the calls to a server over TLS; refused ones get PERMISSION_DENIED before their handler runs."""

    def __init__(self, server: str, datacentre_of: DatacentreOf | None = None) -> None:
        """``server``: the server's identity. ``datacentre_of``: see config/rights.py."""
        self._server = server
        self._datacentre_of = datacentre_of
        self._said = Said()
        self._wrapped: dict[str, tuple[Any, Any]] = {}  # only existing methods, so callers cannot make it grow

    async def intercept_service(
        self, continuation: Callable[[grpc.HandlerCallDetails], Awaitable[Any]], handler_call_details: Any
    ) -> Any:
        """Called by gRPC to get the handler of each call."""
        handler = await continuation(handler_call_details)
        if handler is None:
            return None  # gRPC answers UNIMPLEMENTED
        method = handler_call_details.method
        known = self._wrapped.get(method)
        if known is None or known[0] is not handler:
            known = self._wrapped[method] = (handler, self._guarded(handler, method))
        return known[1]

    async def _check(self, method: str, request: Any, context: Any) -> None:
        who = caller(context)
        why = refusal(method, who, self._server, request, self._datacentre_of)
        if why is None:
            return
        unsaid = self._said.refused(who, method, time.monotonic())
        if unsaid is not None:
            log.warning("refused", why=why, peer=context.peer(), not_logged_before=unsaid)
        await context.abort(grpc.StatusCode.PERMISSION_DENIED, why)

    def _guarded(self, handler: Any, method: str) -> Any:
        def wrap(act: Any) -> Any:
            async def answered(request: Any, context: Any) -> Any:
                await self._check(method, None if handler.request_streaming else request, context)
                return await act(request, context)

            async def streamed(request: Any, context: Any) -> AsyncIterator[Any]:
                await self._check(method, None if handler.request_streaming else request, context)
                async for reply in act(request, context):
                    yield reply

            return streamed if inspect.isasyncgenfunction(act) else answered

        return rebuilt(handler, wrap)

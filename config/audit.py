"""Audit log: each process logs the calls by which an operator changes something.

Routine calls of Photon's own processes are not audited: config/rights.py bounds their changes, and there are
thousands a second.
"""

from __future__ import annotations

import inspect
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from photon.config.handlers import rebuilt
from photon.config.rights import RIGHTS
from photon.config.roles import Role, identity_parts
from photon.config.structured import get_logger
from photon.config.tls import caller

# Calls with which an operator changes or extracts something.
CHANGES = frozenset(
    {
        "/photon.v1.Registry/Clear",
        "/photon.v1.Registry/ClearBelow",
        "/photon.v1.Registry/Reopen",
        "/photon.v1.Registry/RetireSlot",
        "/photon.v1.Registry/Reshard",
        "/photon.v1.RegistryOperator/TransferLeader",
        "/photon.v1.RegistryOperator/OpenShard",
        "/photon.v1.RegistryOperator/RegisterAgain",
        "/photon.v1.RegistryOperator/Follow",
        "/photon.v1.RegistryOperator/Export",  # exports are logged too
        "/photon.v1.EventStore/Forget",
        "/photon.v1.Wan/Set",
    }
)
SAID_CHARACTERS = 300  # characters of a request that are logged: names are at its beginning

log = get_logger(__name__)


def audited(method: str, who: str) -> bool:
    """True if the call is an operator's change.

    ``who``: the caller's identity. Without TLS it is empty, and only methods reserved for operators count.
    """
    if method not in CHANGES:
        return False
    if not who:
        return set(RIGHTS[method]) == {Role.OPERATOR}
    identity = identity_parts(who)
    return identity is not None and identity.role is Role.OPERATOR


def said(request: Any) -> str:
    """Formats a request as one line of bounded length; a stream as ``a stream``."""
    if request is None:
        return "a stream"
    line = " ".join(str(request).split())
    return line if len(line) <= SAID_CHARACTERS else line[:SAID_CHARACTERS] + " …"


def audited_methods(service: str, methods: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the handlers, changed so that the methods in CHANGES log a line after each call."""
    named = {name: f"/{service}/{name}" for name in methods}
    return {
        name: _told(handler, named[name]) if named[name] in CHANGES else handler for name, handler in methods.items()
    }


def _told(handler: Any, method: str) -> Any:
    """Wraps a handler so that its calls are audited. It runs after Authorisation, which logs refused calls itself."""

    def begin(request: Any, context: Any) -> Callable[[str], None]:
        who = caller(context)
        if not audited(method, who):
            return lambda outcome: None
        since_s = time.monotonic()
        asked = said(None if handler.request_streaming else request)
        peer = context.peer()  # read now: if the caller leaves a stream, gRPC frees the call before it is closed

        def end(outcome: str) -> None:
            seconds = round(time.monotonic() - since_s, 3)
            log.info("audit", caller=who or "not shown", peer=peer, method=method[1:], request=asked,
                     outcome=outcome, seconds=seconds)  # fmt: skip

        return end

    def wrap(act: Any) -> Any:
        async def answered(request: Any, context: Any) -> Any:
            end = begin(request, context)
            try:
                reply = await act(request, context)
            except BaseException as error:
                end(type(error).__name__)
                raise
            end("done")
            return reply

        async def streamed(request: Any, context: Any) -> AsyncIterator[Any]:
            end, outcome = begin(request, context), "broken off"
            try:
                async for reply in act(request, context):
                    yield reply
                outcome = "done"
            finally:
                end(outcome)

        return streamed if inspect.isasyncgenfunction(act) else answered

    return rebuilt(handler, wrap)

"""Rebuilds gRPC's method handlers around other functions, for our interceptors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc

_MAKERS: dict[str, Any] = {
    "unary_unary": grpc.unary_unary_rpc_method_handler,
    "unary_stream": grpc.unary_stream_rpc_method_handler,
    "stream_unary": grpc.stream_unary_rpc_method_handler,
    "stream_stream": grpc.stream_stream_rpc_method_handler,
}


def rebuilt(handler: Any, wrap: Callable[[Any], Any]) -> Any:
    """Returns a copy of the handler whose function is wrapped by ``wrap``."""
    kind = next(name for name in _MAKERS if getattr(handler, name) is not None)
    made = wrap(getattr(handler, kind))
    return _MAKERS[kind](made, handler.request_deserializer, handler.response_serializer)

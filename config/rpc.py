"""Makes handlers and stubs from the services in a .proto's module: the only way to serve and to call.

Every request is bounded before it is parsed: its bytes by the server's options, its fields here. Operators' changes
are logged (config/audit.py). Every server first checks if the caller may call at all (config/authorisation.py). Wire
formats import this module, so it imports gRPC only when something is served.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

from google.protobuf.message_factory import GetMessageClass

from photon.config.message_bounds import bounded
from photon.config.telemetry import spans

if TYPE_CHECKING:
    import grpc.aio
    from google.protobuf.descriptor import FileDescriptor, MethodDescriptor, ServiceDescriptor

Context: TypeAlias = "grpc.aio.ServicerContext[Any, Any]"  # a call's context, as passed to its handler
# Option of both ends of a connection: gRPC measures no bandwidth, for which it pings after nearly every message and
# wakes three threads. Its windows stay as they are: a receiver of large amounts sets ``grpc.http2.lookahead_bytes``.
UNPROBED = (("grpc.http2.bdp_probe", 0),)
# Top-level fields of a request, unless its service sets a number. A request with more is not parsed.
FIELDS_MAX = 64


class WireError(ValueError):
    """A message that no process of this release sends. ``str()`` is one line.

    If a handler raises it, the caller gets INVALID_ARGUMENT.
    """


class Service:
    """A service of a .proto: makes its handlers and stubs, within its limits."""

    def __init__(
        self, file: FileDescriptor, name: str, *, bytes_max: int | None = None, fields_max: int = FIELDS_MAX
    ) -> None:
        """``file``: DESCRIPTOR of the generated module; ``name``: as in the .proto; ``fields_max``: see FIELDS_MAX.

        ``bytes_max``: size of a request or reply; ``None`` means the bounds of config/serving.py and config/tls.py.
        """
        self._service: ServiceDescriptor = file.services_by_name[name]
        self._fields_max = fields_max
        self.name: str = self._service.full_name
        self.sizes: tuple[tuple[str, int], ...] = ()  # options of servers and channels
        if bytes_max is not None:
            limits = ("grpc.max_receive_message_length", "grpc.max_send_message_length")
            self.sizes = tuple((limit, bytes_max) for limit in limits)

    def add(self, server: grpc.aio.Server, servicer: object) -> None:
        """Makes ``servicer`` answer each method of the service, with its coroutine of the same name.

        Call it before the server starts. Raises AttributeError if a method is missing.
        """
        import grpc

        from photon.config.audit import audited_methods

        handlers = {}
        for method in self._service.methods:
            make = getattr(grpc, f"{_kind(method)}_rpc_method_handler")
            parse = bounded(GetMessageClass(method.input_type).FromString, self._fields_max)
            act = _answering(getattr(servicer, method.name))
            handlers[method.name] = make(act, parse, GetMessageClass(method.output_type).SerializeToString)
        audited = audited_methods(self.name, handlers)
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(self.name, audited),))

    def here(self, servicer: object) -> Any:
        """Returns a stub for a servicer in this process: its coroutines are called without a socket or a copy.

        Callers are not authorised. Only for methods with a single answer.
        """
        return _Here(servicer, self._service)

    def stub(self, channel: Any, *, encoded: bool = False) -> Any:
        """Returns a stub of the service over a grpc or grpc.aio channel. ``encoded``: requests are bytes."""
        return _Stub(channel, self._service, encoded)


class _Stub:
    """Creates each method at its first use: most callers need few."""

    def __init__(self, channel: Any, service: ServiceDescriptor, encoded: bool) -> None:
        self._channel = channel
        self._service = service
        self._encoded = encoded

    def __getattr__(self, name: str) -> Any:
        method = self._service.methods_by_name.get(name)
        if method is None:
            raise AttributeError(f"{self._service.full_name} has no method {name}")
        made: Any = getattr(self._channel, _kind(method))(
            f"/{self._service.full_name}/{name}",
            request_serializer=None if self._encoded else GetMessageClass(method.input_type).SerializeToString,
            response_deserializer=GetMessageClass(method.output_type).FromString,
            _registered_method=True,
        )
        if spans.tracer is not None and _kind(method) == "unary_unary" and not hasattr(made, "future"):
            made = _tracing(made)
        setattr(self, name, made)
        return made


def _tracing(call: Callable[..., Any]) -> Callable[..., Any]:
    """Wraps a stub's unary call on an event loop, so that it passes on the current span. Threads, such as those
    between replicas, trace nothing and need the unwrapped stub.
    """

    def traced(request: Any, **options: Any) -> Any:
        span = spans.current.get()
        if span is not None:
            options["metadata"] = ((spans.TRACEPARENT, span.header()),)
        return call(request, **options)

    return traced


class _Here:
    """A stub of a servicer in this process. Fails like a channel, so that callers handle one kind of failure."""

    def __init__(self, servicer: object, service: ServiceDescriptor) -> None:
        self._servicer = servicer
        self._service = service

    def __getattr__(self, name: str) -> Any:
        if name not in self._service.methods_by_name:
            raise AttributeError(f"{self._service.full_name} has no method {name}")
        act = _answering(getattr(self._servicer, name))

        async def call(request: Any, *, timeout: float) -> Any:
            import grpc.aio

            context = _HereContext(timeout)
            try:
                async with asyncio.timeout(timeout):
                    return await act(request, context)
            except grpc.aio.AioRpcError:
                raise
            except TimeoutError:
                await context.abort(grpc.StatusCode.DEADLINE_EXCEEDED, "no answer in this process")
            except Exception as error:  # same as a server whose handler raises
                await context.abort(grpc.StatusCode.UNKNOWN, f"{type(error).__name__}: {error}")

        setattr(self, name, call)
        return call


class _HereContext:
    """Stands in for a call's gRPC context, with the methods that handlers use."""

    def __init__(self, timeout: float) -> None:
        self._at = asyncio.get_running_loop().time() + timeout

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        """Returns no metadata: the handler runs in the caller's task."""
        return ()

    def time_remaining(self) -> float:
        return self._at - asyncio.get_running_loop().time()

    async def abort(self, code: grpc.StatusCode, why: str) -> NoReturn:
        import grpc.aio

        raise grpc.aio.AioRpcError(code, grpc.aio.Metadata(), grpc.aio.Metadata(), why, None)


def _kind(method: MethodDescriptor) -> str:
    """Returns gRPC's name for the method's kind, such as unary_stream."""
    return "_".join("stream" if many else "unary" for many in (method.client_streaming, method.server_streaming))


def _answering(act: Callable[..., Any]) -> Callable[..., Any]:
    if inspect.isasyncgenfunction(act):
        return act

    async def answered(request: Any, context: Context) -> Any:
        if spans.tracer is not None:
            spans.received(context.invocation_metadata() or ())
        try:
            return await act(request, context)
        except WireError as error:
            import grpc

            await abort(context, grpc.StatusCode.INVALID_ARGUMENT, str(error))

    return answered


async def abort(context: Context, code: grpc.StatusCode, why: str) -> NoReturn:
    """Ends the call that a handler is answering."""
    await context.abort(code, why)
    raise AssertionError("abort returned")


def seconds_left(context: Context, *, default: float, margin: float, most: float = float("inf")) -> float:
    """Returns the number of seconds that a handler may take.

    The time ends ``margin`` before the caller's deadline, so that the answer still arrives, and is at most ``most``.
    If the caller has no deadline, it is ``default``.
    """
    left: Any = context.time_remaining()  # ``None`` without a deadline, despite the stubs' type
    return default if left is None else max(0.0, min(float(left) - margin, most))


async def serves(channel: grpc.aio.Channel, name: str, timeout: float) -> bool | None:
    """Returns the health service's answer for ``name``; ``None`` if it does not answer within ``timeout`` seconds."""
    import grpc
    from grpc_health.v1 import health_pb2

    check = Service(health_pb2.DESCRIPTOR, "Health").stub(channel).Check
    try:
        reply = await check(health_pb2.HealthCheckRequest(service=name), timeout=timeout)
    except grpc.aio.AioRpcError as error:
        return False if error.code() is grpc.StatusCode.NOT_FOUND else None
    return bool(reply.status == health_pb2.HealthCheckResponse.SERVING)


def back_off(first_ms: int, most_ms: int, attempt_ms: int | None = None) -> tuple[tuple[str, int], ...]:
    """Returns channel options for the pauses between attempts to connect and the time-out of each."""
    options = (("grpc.initial_reconnect_backoff_ms", first_ms), ("grpc.max_reconnect_backoff_ms", most_ms))
    if attempt_ms is None:
        return options
    return (*options, ("grpc.min_reconnect_backoff_ms", attempt_ms))  # gRPC's name for the time-out of one attempt

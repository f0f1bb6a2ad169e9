"""Spans: they record a room's part in a sampled batch.

Whether a batch is traced is decided once, at its start (``root``). From there the current span follows the task, and
over gRPC as W3C's ``traceparent`` (config/rpc.py). For untraced batches ``span`` and ``begin`` create nothing: they
check a context variable.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from contextvars import ContextVar
from typing import Any, Protocol


class Span(Protocol):
    """A span that has begun."""

    def note(self, **attributes: Any) -> None:
        """Adds numbers and texts; their names get the prefix ``photon.``."""
        ...

    def end(self, error: BaseException | None = None) -> None: ...

    def header(self) -> str:
        """Returns the span's ``traceparent``."""
        ...


class Tracer(Protocol):
    share: float  # share of batches that are traced

    def begin(self, name: str, parent: Span | None, attributes: dict[str, Any]) -> Span:
        """Starts a span; if ``parent`` is ``None``, in a new trace."""
        ...

    def elsewhere(self, header: str) -> Span | None:
        """Returns the span that another process names; ``None`` if there is none, or it is not traced."""
        ...


TRACEPARENT = "traceparent"

tracer: Tracer | None = None  # of this process; ``None`` means nothing is traced
current: ContextVar[Span | None] = ContextVar("span", default=None)

_Traced = contextlib.AbstractContextManager[Span | None]
_UNTRACED: _Traced = contextlib.nullcontext()


def root(name: str, number: int, **attributes: Any) -> _Traced:
    """Starts the span of batch ``number`` (from 1) if the batch is in the traced share."""
    if tracer is None or int(number * tracer.share) == int((number - 1) * tracer.share):
        return _UNTRACED
    return _Current(tracer.begin(name, None, attributes))


def span(name: str, **attributes: Any) -> _Traced:
    """Within the context, a new child of the current span is current. Yields ``None`` if nothing is traced."""
    begun = begin(name, **attributes)
    return _UNTRACED if begun is None else _Current(begun)


def begin(name: str, **attributes: Any) -> Span | None:
    """Starts a child of the current span; the caller ends it."""
    parent = current.get()
    return None if parent is None or tracer is None else tracer.begin(name, parent, attributes)


def received(metadata: Iterable[tuple[str, Any]]) -> None:
    """Continues the trace of a received call in the task that answers it."""
    if tracer is not None:
        for key, value in metadata:
            if key == TRACEPARENT and isinstance(value, str):
                current.set(tracer.elsewhere(value))


class _Current:
    """A context in which a span is current; the span ends with it."""

    def __init__(self, begun: Span) -> None:
        self._span = begun

    def __enter__(self) -> Span:
        self._token = current.set(self._span)
        return self._span

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        current.reset(self._token)
        self._span.end(error)

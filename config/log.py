"""Structured logs on stderr: JSON lines for services, short lines for a terminal.

Each line has ``timestamp`` (UTC), ``level`` and ``event``, a fixed text that names the kind of event. Details have
fields of their own (``event_id``, ``slot``, ``log`` and ``offset``, ...), so that lines can be counted and searched.
A flood is limited to ``BURST`` lines of a kind at once, and one per ``REFILL_S`` after that; the next line of the
kind says in ``left_out`` how many were dropped.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TextIO, cast

from photon.config.structured import structlog

BURST = 20  # lines of one kind in a burst
REFILL_S = 2.0  # afterwards, seconds for each further line
KINDS_MAX = 500  # kinds of lines that are distinguished; the least recently seen is forgotten first
VALUE_CHARS_MAX = 2_000  # characters of a field; tracebacks may be this many times longer
TRACEBACK_TIMES = 8

Fields = structlog.typing.EventDict


@dataclass(slots=True)
class _Kind:
    """A token bucket: ``left`` lines may be written at ``at_s``."""

    left: float
    at_s: float
    left_out: int = 0


class RateLimit:
    """A processor that limits lines of one kind: equal level and event text, regardless of fields. Thread-safe."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._kinds: OrderedDict[tuple[str, str], _Kind] = OrderedDict()
        self._lock = threading.Lock()

    def __call__(self, logger: Any, method: str, fields: Fields) -> Fields:
        """Returns the line's fields to write it. Raises DropEvent to drop the line."""
        key = (str(fields.get("level", method)), str(fields.get("event", ""))[:VALUE_CHARS_MAX])
        with self._lock:
            left_out = self._taken(key)
        if left_out is None:
            raise structlog.DropEvent
        if left_out:
            fields["left_out"] = left_out
        return fields

    def _taken(self, key: tuple[str, str]) -> int | None:
        """Returns how many lines were dropped before this one; ``None`` if this one is dropped too."""
        now = self._now()
        kind = self._kinds.get(key)
        if kind is None:
            kind = self._kinds[key] = _Kind(BURST, now)
            if len(self._kinds) > KINDS_MAX:
                self._kinds.popitem(last=False)
        self._kinds.move_to_end(key)
        kind.left = min(BURST, kind.left + (now - kind.at_s) / REFILL_S)
        kind.at_s = now
        if kind.left < 1:
            kind.left_out += 1
            return None
        kind.left -= 1
        left_out, kind.left_out = kind.left_out, 0
        return left_out


def bounded(logger: Any, method: str, fields: Fields) -> Fields:
    """A processor that turns bytes, such as ids, into text and truncates fields to a line's length."""
    for name, value in fields.items():
        if isinstance(value, bytes):
            value = fields[name] = value[:VALUE_CHARS_MAX].decode("utf-8", "backslashreplace")
        if isinstance(value, str):
            most = VALUE_CHARS_MAX * (TRACEBACK_TIMES if name == "exception" else 1)
            if len(value) > most:
                fields[name] = f"{value[:most]}…"
    return fields


class Unfailing:
    """A stream that drops text it cannot write: a full disk under the log must not end a process."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.flush()


def configure(*, json: bool, level: int = logging.INFO) -> None:
    """Sets up logging; call it once, at the entry point."""
    renderer: structlog.typing.Processor
    renderer = structlog.processors.JSONRenderer() if json else structlog.dev.ConsoleRenderer(colors=False)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            RateLimit(),
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            bounded,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(cast(TextIO, Unfailing(sys.stderr))),
    )

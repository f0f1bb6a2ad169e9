"""Structured logs on stderr: JSON for services, short lines for people."""

from __future__ import annotations

import logging
import sys

import structlog


def configure(*, json: bool, level: int = logging.INFO) -> None:
    """Call once, at the entry point."""
    renderer: structlog.typing.Processor
    renderer = structlog.processors.JSONRenderer() if json else structlog.dev.ConsoleRenderer(colors=False)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
    )

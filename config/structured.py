"""Imports structlog without rich, whose coloured tracebacks would take a sixth of a process's start-up time."""

from __future__ import annotations

import sys

from photon.config.left_out import left_out

with left_out("rich", "better_exceptions", "colorama"):
    import structlog

if not structlog.is_configured():  # structlog's default is standard output, where records are printed
    structlog.configure(logger_factory=lambda *names: structlog.PrintLogger(sys.stderr))

get_logger = structlog.get_logger

__all__ = ["get_logger", "structlog"]

"""structlog, in one place, and without rich: tracebacks in colour would be a sixth of a process's start."""

from __future__ import annotations

from photon.config.left_out import left_out

with left_out("rich", "better_exceptions", "colorama"):
    import structlog

get_logger = structlog.get_logger

__all__ = ["get_logger", "structlog"]

"""From settings to what the event store of a pipeline is told.

Apart from pipeline.py, for an event store's process needs nothing of the joiner and the dispatcher.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from photon.adapters.logs.watching import Watch
from photon.config.settings import Settings
from photon.config.structured import get_logger
from photon.eventstore.engine import EventStoreConfig
from photon.eventstore.file_map import HBaseTable, MapKind

log = get_logger(__name__)


def eventstore_config(
    settings: Settings,
    join: str,
    primary: Path,
    state: Path,
    *,
    once: bool = False,
    may_be_empty: bool = False,
    watch: Watch = Watch.AUTO,
    hbase: HBaseTable | None = None,
) -> EventStoreConfig:
    """What the event store of a join is told."""
    configured = settings.join[join]
    return EventStoreConfig(
        join=join,
        directory=primary,
        state=state,
        patterns=tuple(configured.primary_files),
        max_record=settings.limits.record,
        watch=watch,
        hbase=hbase,
        kind=MapKind.DENSE if configured.file_map == "dense" else MapKind.SPARSE,
        window_micros=round(configured.file_map_window * 1e6),
        window_bytes=configured.file_map_bytes,
        forget_missing=configured.missing_logs == "forget",
        cache_bytes=settings.limits.cache,
        last_line_after_s=configured.last_line_after,
        sought_keys=settings.limits.sought_keys,
        once=once,
        may_be_empty=may_be_empty,
    )


def reporter(what: str) -> Callable[[str], None]:
    """Reports one-line problems of a part into the log."""

    def report(line: str) -> None:
        log.warning(line, part=what)

    return report

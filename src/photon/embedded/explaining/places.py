"""Where the evidence of a pipeline lies on this machine."""

from __future__ import annotations

from pathlib import Path

from photon.config.settings import Settings
from photon.dispatcher.database import STATE_NAME
from photon.embedded.adapter import adapter_of
from photon.embedded.explaining.dispatchers import read_places
from photon.embedded.explaining.logs import ForeignLogs


def foreign_logs(settings: Settings, base: Path, join: str, directory: Path, state: Path) -> ForeignLogs:
    """``state``: the pipeline's state directory. Raises UsageError: the join's adapter cannot be loaded."""
    configured = settings.join[join]
    return ForeignLogs(
        directory,
        configured.foreign_files,
        adapter_of(settings, join, base),
        settings.limits.record,
        lambda: read_places(state / STATE_NAME),
    )

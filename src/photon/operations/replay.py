"""``photon dispatcher replay``: requests in a pipeline's state."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from photon.adapters.contract import Framing
from photon.adapters.join_adapters import adapter_of
from photon.config.settings import Settings
from photon.dispatcher.database import STATE_NAME
from photon.dispatcher.replay import requests
from photon.dispatcher.replay.requests import Preview
from photon.fleet.access import pipeline_named
from photon.objects.paths import placed


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Of one datacentre: its name, its dispatcher's state, its foreign logs and how they are read."""

    datacentre: str
    state: Path
    logs: Path
    patterns: Sequence[str]
    has_header: bool
    framing: Framing


def pipeline_of(settings: Settings, base: Path, datacentre: str | None) -> Pipeline:
    """Raises UsageError."""
    name, pipeline = pipeline_named(settings, datacentre)
    adapter = adapter_of(settings, pipeline.join, base)
    return Pipeline(
        name,
        base / pipeline.state / STATE_NAME,
        placed(base, pipeline.foreign),
        settings.join[pipeline.join].foreign_files,
        adapter.foreign_has_header,
        adapter.foreign_framing,
    )


def preview(of: Pipeline, from_ns: int, to_ns: int, pattern: str) -> list[Preview]:
    """What would be read again. Raises StateError, OSError."""
    return requests.preview(
        of.state,
        of.logs,
        of.patterns,
        has_header=of.has_header,
        framing=of.framing,
        from_ns=from_ns,
        to_ns=to_ns,
        pattern=pattern,
    )

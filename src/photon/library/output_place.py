"""Where the output of one pipeline of a deployment file lies on this machine, and what others keep of it."""

from __future__ import annotations

import os
from pathlib import Path

from photon.assembly.services import pipeline_named
from photon.config.disk import RealDisk
from photon.config.errors import UsageError
from photon.config.loader import load
from photon.outputs import OutputPlace
from photon.outputs.output_places import COPIES_NAME


def output_place(config: Path, datacentre: str | None) -> OutputPlace:
    """Of ``datacentre`` (None: the only one). Raises ConfigError, UsageError."""
    settings = load(config, environment=os.environ)
    name, pipeline = pipeline_named(settings, datacentre)
    kept = [config.parent / each.state / COPIES_NAME / name for each in settings.datacentre.values()]
    copies = tuple(directory for directory in kept if directory.is_dir())
    place = OutputPlace(config.parent / pipeline.output, config.parent / pipeline.state, copies)
    if not place.state.is_dir() and not place.states(RealDisk()):
        raise UsageError(f"{place.state}: no such directory; datacentre {name} has not begun here")
    return place

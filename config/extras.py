"""Imports packages that are not installed by default."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from photon.config.errors import PhotonError, UsageError
from photon.config.settings import Settings


class ExtraMissing(PhotonError):
    """A package that is not installed by default is missing; the message names it."""


def needed(package: str, extra: str) -> Any:
    """Imports and returns the package. Raises ExtraMissing."""
    try:
        return import_module(package)
    except ImportError:
        raise ExtraMissing(
            f"{package.partition('.')[0]} is not installed; pip install 'photon-join[{extra}]'"
        ) from None


def check_extras(settings: Settings) -> None:
    """Raises UsageError if the settings need a package that is not installed."""
    if settings.telemetry is not None:
        try:
            needed("opentelemetry.exporter.otlp.proto.http", "otlp")
        except ExtraMissing as missing:
            raise UsageError(f"[telemetry]: {missing}, or remove the table") from None

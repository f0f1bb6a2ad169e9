"""Packages that are not installed by default."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from photon.config.errors import PhotonError


class ExtraMissing(PhotonError):
    """A package that is not installed by default is needed; one line names it."""


def needed(package: str, extra: str) -> Any:
    """The package, imported. Raises ExtraMissing."""
    try:
        return import_module(package)
    except ImportError:
        raise ExtraMissing(
            f"{package.partition('.')[0]} is not installed; pip install 'photon-join[{extra}]'"
        ) from None

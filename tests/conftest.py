"""Tests marked ``full`` are long rounds: they run with PHOTON_FULL only, as ``make test-full`` sets it."""

from __future__ import annotations

import os

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if os.environ.get("PHOTON_FULL"):
        return
    for item in items:
        if item.get_closest_marker("full") is not None:
            item.add_marker(pytest.mark.skip(reason="a long round: make test-full runs it"))

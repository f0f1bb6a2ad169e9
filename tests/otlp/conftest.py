"""A collector for each test, killed at its end.

Without the collector's program (``make test-otlp`` builds it, with Go) the tests skip; with CI=true nothing skips.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.otlp.collector import PROGRAM, Collector


@pytest.fixture
def collector(tmp_path: Path) -> Iterator[Collector]:
    """It runs, and may be killed and started again by the test."""
    if not PROGRAM.exists() and not os.environ.get("CI"):
        pytest.skip(f"needs a real collector: {PROGRAM} is not there, make test-otlp builds it with Go")
    directory = tmp_path / "collector"
    directory.mkdir()
    made = Collector(directory)
    try:
        made.start()
        yield made
    finally:
        made.kill()

"""A browser for all tests of pages, and a canned server for each."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pages.canned import Canned
from tests.pages.chromium import CHROMIUM, Chromium


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Chromium]:
    """Skipped where there is none, but not in CI."""
    if CHROMIUM is None:
        if os.environ.get("CI"):
            pytest.fail("no Chromium is there: apt-get install chromium")
        pytest.skip("no Chromium is there: apt-get install chromium")
    browser = Chromium(tmp_path_factory.mktemp("chromium") / "profile")
    yield browser
    browser.close()


@pytest.fixture(scope="session")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where screenshots go: PHOTON_PICTURES, or a temporary directory."""
    wanted = os.environ.get("PHOTON_PICTURES")
    if wanted is None:
        return tmp_path_factory.mktemp("pictures")
    directory = Path(wanted)
    directory.mkdir(parents=True, exist_ok=True)
    return directory


@pytest.fixture
def canned() -> Iterator[Canned]:
    server = Canned()
    yield server
    server.close()

"""A browser for all tests of pages, and a canned server for each."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pages.canned import Canned
from tests.pages.chromium import CHROMIUM, PICTURES, Chromium


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
def pictures() -> Path:
    """Where screenshots go, if any are taken."""
    directory = Path(os.environ.get(PICTURES, ""))
    directory.mkdir(parents=True, exist_ok=True)
    return directory


@pytest.fixture
def canned() -> Iterator[Canned]:
    server = Canned()
    yield server
    server.close()

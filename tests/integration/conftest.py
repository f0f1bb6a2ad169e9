"""Distributes these tests over test processes, with ``-n``.

Tests of a file with one shared deployment stay together, all others go wherever there is room; the longest begin
first, so that none is left for the end.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from xdist.scheduler.loadscope import LoadScopeScheduling

from tests.integration.forked import SUBPROCESS

ROOT = Path(__file__).parents[2]
LONG = ("test_chaos", "test_reshard", "test_datacentres", "test_verifier_service", "test_kill9_services")


class Spread(LoadScopeScheduling):
    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return file if shares(file) else nodeid


@cache
def shares(file: str) -> bool:
    """True if a test file has fixtures for more than one test."""
    return 'scope="module"' in (ROOT / file).read_text()


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> LoadScopeScheduling:
    return Spread(config, log)  # type: ignore[arg-type]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=lambda item: item.path.stem not in LONG)


@pytest.fixture(autouse=True)
def _library_starts_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a program, separate processes that it starts are not copies."""
    for module in ("library.join", "supervision.detached"):
        monkeypatch.setattr(f"photon.{module}.subprocess", SUBPROCESS)

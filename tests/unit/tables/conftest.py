from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from photon.tables import Tables
from photon.tables.oracle import MemoryOracle
from photon.tables.store import in_file, in_memory


@pytest.fixture(params=["memory", "sqlite"])
def tables(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Tables]:
    with Tables.open(":memory:" if request.param == "memory" else tmp_path / "tables.db") as tables:
        tables.around.limits.grace_s = 0.0
        yield tables


@pytest.fixture(params=["memory", "sqlite"])
def locking(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Tables]:
    """Tables that commit by locks, as in HBase."""
    store = in_memory() if request.param == "memory" else in_file(tmp_path / "tables.db")
    with Tables(store, MemoryOracle()) as tables:
        tables.around.limits.grace_s = 0.0
        yield tables

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from photon.tables import Tables


@pytest.fixture(params=["memory", "sqlite"])
def tables(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Tables]:
    with Tables.open(":memory:" if request.param == "memory" else tmp_path / "tables.db") as tables:
        tables.around.limits.grace_s = 0.0
        yield tables

"""A bucket in memory under the product's own directory of objects."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from photon.objects import directory as module
from photon.objects import listing
from photon.objects.paths import ObjectPath
from tests.unit.objects.fakes import MemoryBucket


@pytest.fixture
def bucket(monkeypatch: pytest.MonkeyPatch) -> Iterator[MemoryBucket]:
    """Every URL leads to it; new objects there are listed at once."""
    monkeypatch.setattr(listing, "NEW_S", 0.02)
    monkeypatch.setattr(listing, "ALL_S", 0.05)
    monkeypatch.setattr(module, "MOMENT_S", 0.01)
    made = MemoryBucket()
    monkeypatch.setattr(module, "opener", lambda url: made)
    monkeypatch.setattr(module, "_buckets", {})
    yield made
    monkeypatch.setattr(module, "IDLE_S", 0.0)  # its threads end


@pytest.fixture
def logs(bucket: MemoryBucket, request: pytest.FixtureRequest) -> ObjectPath:
    """The prefix ``logs`` of it."""
    return ObjectPath(f"s3://{request.node.name.partition('[')[0]}/logs")

"""Small sizes, short times and silence; ids are collected within a schedule of seconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from photon.idregistry.core.state_machine import ShardMachine
from photon.idregistry.replica import server, shard_keeper
from tests.simulation.raft.conftest import Silent, small
from tests.simulation.registry import history as registry_history
from tests.simulation.registry.conftest import short

__all__ = ["brief", "short", "small"]

BUCKET_BITS = 28


@pytest.fixture(autouse=True)
def brief(short: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Buckets of a quarter of a second."""
    monkeypatch.setattr(ShardMachine.__init__, "__defaults__", (BUCKET_BITS,))
    monkeypatch.setattr(registry_history, "BUCKET_BITS", BUCKET_BITS)
    monkeypatch.setattr(server, "_CHANGING_SECONDS", 0.05)
    monkeypatch.setattr(shard_keeper, "log", Silent())
    return

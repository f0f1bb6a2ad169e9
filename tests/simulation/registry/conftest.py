"""Small sizes, short times and silence for every simulation of the registry."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from photon.idregistry.client import grpc_client
from photon.idregistry.replica import server, shard_server
from tests.simulation.raft.conftest import Silent, small

__all__ = ["small"]


@pytest.fixture(autouse=True)
def short(small: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The boundary moves within a schedule of a few seconds."""
    monkeypatch.setattr(server, "BOUNDARY_STEP_NS", 300_000_000)
    monkeypatch.setattr(server, "CARETAKER_SECONDS", 0.2)
    monkeypatch.setattr(grpc_client, "TRY_SECONDS_MAX", 0.5)
    for module in (server, shard_server):
        monkeypatch.setattr(module, "log", Silent())
    return

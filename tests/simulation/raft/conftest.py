"""Small sizes and silence for every simulation of the driver."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from photon.idregistry.raft import driver, host, journal, snapshot


class Silent:
    def info(self, *_: object, **__: object) -> None: ...

    warning = error = exception = info


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Snapshots and logs of a few hundred bytes, and a few entries, still take several slices and messages."""
    monkeypatch.setattr(driver, "ENTRIES_MAX", 3)
    monkeypatch.setattr(journal, "FRAME_TARGET", 150)
    monkeypatch.setattr(journal, "SLICE_BYTES", 200)
    monkeypatch.setattr(snapshot, "SNAPSHOT_SLICE_BYTES", 200)
    monkeypatch.setattr(snapshot, "TRANSFER_BYTES", 300)
    monkeypatch.setattr(host, "log", Silent())
    logger = logging.getLogger("pysyncobj")  # the library complains a lot when it is ablated, and goes on
    before = logger.level
    logger.setLevel(100)
    yield
    logger.setLevel(before)

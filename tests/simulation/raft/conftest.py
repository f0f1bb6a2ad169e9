"""Small sizes and no logging for every simulation of the driver."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from photon.idregistry.raft import host
from tests.simulation.world.cluster import SMALL


class Silent:
    def info(self, *_: object, **__: object) -> None: ...

    warning = error = exception = info


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for where, name, value in SMALL:
        monkeypatch.setattr(where, name, value)
    monkeypatch.setattr(host, "log", Silent())
    logger = logging.getLogger("pysyncobj")  # the library complains a lot when it is ablated, and continues
    before = logger.level
    logger.setLevel(100)
    yield
    logger.setLevel(before)

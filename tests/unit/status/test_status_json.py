"""status.json says how old it is and when there will be a newer one, so that a page asks in step."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

from photon.config.clock import NS_PER_S
from photon.status import process
from photon.status.process import PERIOD_S, StatusService
from photon.supervision.ports import free_ports
from tests.kit.clock import ManualClock
from tests.unit.fleet.test_polling import settings_of


def _said(service: StatusService) -> dict[str, Any]:
    answer = service.answer("/status.json")
    assert answer is not None
    said: dict[str, Any] = orjson.loads(answer.body)
    return said


async def test_its_age_and_when_it_is_gathered_again(tmp_path: Path) -> None:
    clock, stop = ManualClock(100 * NS_PER_S), asyncio.Event()
    service = StatusService(settings_of(tmp_path, east=free_ports(1)[0]), "east", None, clock)
    gathered = 0
    gather = service.gather

    async def counted() -> dict[str, Any]:
        nonlocal gathered
        said = await gather()
        gathered += 1
        if gathered == 2:
            stop.set()
        return said

    service.gather = counted  # type: ignore[method-assign]
    try:
        await service.run(stop)
        assert (_said(service)["age_s"], _said(service)["next_s"]) == (0.0, PERIOD_S)
        clock.passes(1.5)
        assert (_said(service)["age_s"], _said(service)["next_s"]) == (1.5, PERIOD_S - 1.5)
        clock.passes(10.0)
        assert (_said(service)["age_s"], _said(service)["next_s"]) == (11.5, 0.0)
    finally:
        await service.close()


async def test_it_rests_while_nobody_looks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "PERIOD_S", 0.0)
    monkeypatch.setattr(process, "LEAST_S", 0.0)
    clock, stop = ManualClock(100 * NS_PER_S), asyncio.Event()
    at: list[float] = []
    service = StatusService(settings_of(tmp_path, east=free_ports(1)[0]), "east", None, clock)

    async def counted() -> dict[str, Any]:
        at.append(clock.monotonic())
        service._at = clock.monotonic()
        clock.passes(1.0)
        if clock.monotonic() == 200.0:
            assert service.answer("/metrics") is not None
        if clock.monotonic() > 202.0:
            stop.set()
        return {}

    due = service._due

    def passes() -> bool:
        found = due()
        clock.passes(0.0 if found else 1.0)
        return found

    service.gather, service._due = counted, passes  # type: ignore[method-assign]
    await service.run(stop)
    await service.close()
    assert at == [*(100.0 + n for n in range(60)), 169.0, 179.0, 189.0, 199.0, 200.0, 201.0, 202.0]

"""status.json says how old it is and when there will be a newer one, so that a page asks in step."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson

from photon.config.clock import SystemClock
from photon.status.process import PERIOD_S, StatusService
from photon.supervision.ports import free_ports
from tests.unit.fleet.test_polling import settings_of


class _Still(SystemClock):
    """Its monotonic seconds are set."""

    at = 100.0

    def monotonic(self) -> float:
        return self.at


def _said(service: StatusService) -> dict[str, Any]:
    answer = service.answer("/status.json")
    assert answer is not None
    said: dict[str, Any] = orjson.loads(answer.body)
    return said


async def test_its_age_and_when_it_is_gathered_again(tmp_path: Path) -> None:
    clock, stop = _Still(), asyncio.Event()
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
        clock.at += 1.5
        assert (_said(service)["age_s"], _said(service)["next_s"]) == (1.5, PERIOD_S - 1.5)
        clock.at += 10.0
        assert (_said(service)["age_s"], _said(service)["next_s"]) == (11.5, 0.0)
    finally:
        await service.close()

"""Answers to callers when nobody knows.

An attempt that may have committed is never followed by a certain TOO_NEW: another leader's clock may be slow.
"""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from photon.batch.ids import Ids
from photon.batch.verdicts import Verdicts
from photon.config.clock import SystemClock
from photon.idregistry.api import Answer, Slot
from photon.idregistry.client.routing import RoutedRegistry
from photon.idregistry.core.outcomes import Answered, Description, Refusal, SlotClaim, Status
from photon.idregistry.core.sharding import single_range
from tests.unit.idregistry.model import CLOCK


class Scripted:
    """A backend that answers inserts from a list."""

    def __init__(self, outcomes: list[Answered]) -> None:
        self.outcomes = outcomes

    async def describe(self, *, timeout: float) -> Description | Refusal:
        return Description("r1", tuple(single_range(1)), (), {}, CLOCK)

    async def insert(self, shard: int, caller: int, claim: SlotClaim | None, ids: Ids, *, timeout: float) -> Answered:
        return self.outcomes.pop(0)

    async def close(self) -> None: ...


def _all(answer: Answer) -> Verdicts:
    return Verdicts.blank(2, answer)


UNKNOWN = Refusal(Status.UNKNOWN)
NOT_LEADER = Refusal(Status.NOT_LEADER)


@pytest.mark.parametrize(
    ("first", "expected"), [(UNKNOWN, Answer.UNKNOWN), (NOT_LEADER, Answer.TOO_NEW)], ids=["unknown", "not leader"]
)
async def test_too_new_after_an_unknown_attempt_is_unknown(first: Refusal, expected: Answer) -> None:
    registry = RoutedRegistry(Scripted([first, _all(Answer.TOO_NEW)]), SystemClock())
    registry.announce(Slot("east-1", "east"), [1])
    inserts = Ids(
        bytes(range(32)),
        np.zeros(2, np.int64),
        np.full(2, 1 << 40, np.uint64),
        np.ones(2, np.uint8),
        np.zeros(2, np.uint32),
    )
    assert (await registry.insert(inserts, timeout=60)).outcomes.tolist() == [expected, expected]


@pytest.mark.parametrize("reason", ["it is for operators", ""])
async def test_an_attempt_that_the_deadline_cuts_off_does_not_hide_why_those_before_it_failed(reason: str) -> None:
    class Slow(Scripted):
        asked = 0

        async def ask(self, group: int, method: str, request: Any, *, timeout: float) -> Any:
            self.asked += 1
            if self.asked > 1:
                await asyncio.sleep(60)
            return Refusal(Status.NOT_LEADER, reason)

    clock, backend = SystemClock(), Slow([])
    outcome = await RoutedRegistry(backend, clock).ask(0, "Reshard", None, deadline=clock.monotonic() + 0.2)
    assert (outcome.status, outcome.reason) == (Status.UNKNOWN, reason or "no answer in time")
    assert backend.asked == 2

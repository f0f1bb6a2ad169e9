"""The client's choice of leader after silence and after hints."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from photon.batch.ids import Ids
from photon.idregistry import registry_pb2 as pb
from photon.idregistry.client.grpc_client import SILENT_SECONDS, GrpcBackend
from photon.idregistry.core.outcomes import Refusal, Status
from tests.kit.clock import ManualClock

SHARD = 1
ROW = Ids.decode(bytes(16), bytes(8), bytes(8))
SILENCE = Refusal(Status.UNKNOWN, "unavailable")


class Asked:
    """A backend whose replicas answer as the test says, and a list of those it asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, answers: dict[str, Callable[[], Any]]) -> None:
        self.clock = ManualClock(0)
        self.backend = GrpcBackend(dict.fromkeys(answers, "nowhere:1"), self.clock)
        self.names: list[str] = []

        async def call(name: str, method: str, request: Any, *, timeout: float) -> Any:
            self.names.append(name)
            return answers[name]()

        monkeypatch.setattr(self.backend._channels, "call", call)

    async def tries(self, n: int) -> str:
        self.names.clear()
        for _ in range(n):
            await self.backend.clear(SHARD, ROW, timeout=1.0)
        return " ".join(self.names)


def silence() -> Refusal:
    return SILENCE


def hint(name: str) -> Callable[[], pb.ClearReply]:
    return lambda: pb.ClearReply(status=pb.STATUS_NOT_LEADER, leader_hint=name)


def ok() -> pb.ClearReply:
    return pb.ClearReply(status=pb.STATUS_OK, answers=b"\x08")


async def test_a_dead_leader_that_the_others_still_name_is_asked_again_after_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers: dict[str, Callable[[], Any]] = {"r1": hint("r2"), "r2": silence, "r3": hint("r2")}
    asked = Asked(monkeypatch, answers)
    assert await asked.tries(5) == "r2 r3 r1 r3 r1"
    answers["r3"] = ok
    assert await asked.tries(3) == "r3 r3 r3"
    answers["r3"] = hint("r2")
    asked = Asked(monkeypatch, answers)
    assert await asked.tries(2) == "r2 r3"
    asked.clock.ns += int(SILENT_SECONDS * 1e9)
    answers["r2"] = ok
    assert await asked.tries(3) == "r1 r2 r2"


async def test_when_all_are_silent_they_are_asked_in_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = Asked(monkeypatch, {"r1": silence, "r2": silence, "r3": silence})
    assert await asked.tries(6) == "r2 r3 r1 r2 r3 r1"
    assert await Asked(monkeypatch, {"r1": silence}).tries(3) == "r1 r1 r1"


async def test_hints_are_followed_and_a_name_that_is_not_configured_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert await Asked(monkeypatch, {"r1": ok, "r2": hint("r1"), "r3": ok}).tries(3) == "r2 r1 r1"
    assert await Asked(monkeypatch, {"r1": ok, "r2": hint("r9"), "r3": ok}).tries(2) == "r2 r3"

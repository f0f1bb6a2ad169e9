"""Operators' requests: messages survive the round trip."""

from __future__ import annotations

from collections.abc import Sequence

import grpc
import pytest

from photon.eventstore import eventstore_pb2 as pb
from photon.eventstore.api import Details, EventLookUps, Forgotten, OperatedStore, Progress, UnavailableLog
from photon.eventstore.service import EventStoreService

LOGS = (
    UnavailableLog("a.log.7", "0" * 32, "its file is gone", 12, 34, False, True),
    UnavailableLog("b.log", "1" * 32, "it cannot be opened (Permission denied)", 1, 5, True, False),
)


class Store(OperatedStore):
    """Notes the logs it is asked to give up."""

    def __init__(self, error: OSError | None = None) -> None:
        self.error = error
        self.asked: list[tuple[list[str], bool]] = []

    async def look_up(
        self, keys: Sequence[bytes], as_of: Sequence[int], times: Sequence[int] | None = None
    ) -> EventLookUps:
        return EventLookUps.unavailable(0)

    async def progress(self) -> Progress:
        return Progress(1)

    async def details(self) -> Details:
        return Details(Progress(1))

    async def forget(self, logs: Sequence[str], *, apply: bool) -> Forgotten:
        self.asked.append((list(logs), apply))
        if self.error is not None:
            raise self.error
        return Forgotten(LOGS[:1], ("b.log: exists",))

    async def close(self) -> None:
        pass


class Aborted(Exception):
    pass


class Call:
    """A call that ends with the status it is aborted with."""

    async def abort(self, code: grpc.StatusCode, details: str) -> None:
        raise Aborted(code, details)


async def test_logs_are_given_up_when_that_is_asked_for() -> None:
    store = Store()
    service = EventStoreService({"clicks": store})
    await service.Forget(pb.ForgetRequest(join="clicks", logs=["a"]), Call())  # type: ignore[arg-type]
    asked = pb.ForgetRequest(join="clicks", logs=["a"], apply=True)
    reply = await service.Forget(asked, Call())  # type: ignore[arg-type]
    assert store.asked == [(["a"], False), (["a"], True)]
    assert [each.path for each in reply.logs] == ["a.log.7"]


async def test_a_disk_that_is_full_is_one_line() -> None:
    service = EventStoreService({"clicks": Store(OSError(28, "No space left on device", "state/forgotten-logs"))})
    asked = pb.ForgetRequest(join="clicks", logs=["a"], apply=True)
    with pytest.raises(Aborted, match="forgotten-logs: No space left on device"):
        await service.Forget(asked, Call())  # type: ignore[arg-type]

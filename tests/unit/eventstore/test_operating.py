"""What operators ask: messages go there and back, and over TLS only operators give logs up."""

from __future__ import annotations

from collections.abc import Sequence

import grpc
import pytest

from photon.config.tls import dns_name
from photon.eventstore import eventstore_pb2 as pb
from photon.eventstore import operating
from photon.eventstore.api import (
    Details,
    EventLookUps,
    Forgotten,
    OperatedStore,
    Progress,
    SourceProgress,
    UnavailableLog,
)

LOGS = (
    UnavailableLog("a.log.7", "0" * 32, "its file is gone", 12, 34, False, True),
    UnavailableLog("b.log", "1" * 32, "it cannot be opened (Permission denied)", 1, 5, True, False),
)


class Store(OperatedStore):
    """Notes what it is asked to give up."""

    def __init__(self, error: OSError | None = None) -> None:
        self.error = error
        self.asked: list[tuple[list[str], bool]] = []

    async def look_up(self, keys: Sequence[bytes], as_of: Sequence[int]) -> EventLookUps:
        return EventLookUps([], [])

    async def progress(self) -> Progress:
        return Progress(1)

    async def details(self) -> Details:
        return Details(Progress(1))

    async def forget(self, logs: Sequence[str], *, apply: bool) -> Forgotten:
        self.asked.append((list(logs), apply))
        if self.error is not None:
            raise self.error
        return Forgotten(LOGS[:1], ("b.log: is there",))

    async def close(self) -> None:
        pass


class Aborted(Exception):
    pass


class Call:
    """A call over TLS by this identity; None: in plain text."""

    def __init__(self, identity: str | None) -> None:
        self.names = () if identity is None else (dns_name(identity).encode(),)
        self.plain = identity is None

    def auth_context(self) -> dict[str, tuple[bytes, ...]]:
        if self.plain:
            return {}
        return {"transport_security_type": (b"ssl",), "x509_subject_alternative_name": self.names}

    async def abort(self, code: grpc.StatusCode, details: str) -> None:
        raise Aborted(code, details)


def test_messages_there_and_back() -> None:
    source = SourceProgress("deep/a.log", "2" * 32, 10, 20, 30, -5)
    details = Details(Progress(7, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12), (source,), LOGS)
    assert operating.details_of(operating.details_reply(details)) == details
    forgotten = Forgotten(LOGS, ("x: no",))
    assert operating.forgotten_of(operating.forget_reply(forgotten)) == forgotten


@pytest.mark.parametrize("who", ["joiner-east", "eventstore-east", "operators"])
async def test_over_tls_only_operators_give_logs_up(who: str) -> None:
    store = Store()
    with pytest.raises(Aborted) as refused:
        await operating.forget(store, pb.ForgetRequest(logs=["a"], apply=True), Call(who))  # type: ignore[arg-type]
    assert refused.value.args[0] is grpc.StatusCode.PERMISSION_DENIED
    assert store.asked == []
    await operating.forget(store, pb.ForgetRequest(logs=["a"]), Call(who))  # type: ignore[arg-type]
    assert store.asked == [(["a"], False)]


@pytest.mark.parametrize("who", [None, "operator", "operator-alice"])
async def test_operators_do(who: str | None) -> None:
    store = Store()
    reply = await operating.forget(store, pb.ForgetRequest(logs=["a"], apply=True), Call(who))  # type: ignore[arg-type]
    assert store.asked == [(["a"], True)]
    assert [each.path for each in reply.logs] == ["a.log.7"]


async def test_a_disk_that_is_full_is_one_line() -> None:
    store = Store(OSError(28, "No space left on device", "state/forgotten-logs"))
    with pytest.raises(Aborted, match="forgotten-logs: No space left on device"):
        await operating.forget(store, pb.ForgetRequest(logs=["a"], apply=True), Call(None))  # type: ignore[arg-type]

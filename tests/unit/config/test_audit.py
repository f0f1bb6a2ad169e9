"""Audited calls, and their lines."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from structlog.testing import capture_logs

from photon.config import audit
from photon.config.audit import CHANGES, SAID_CHARACTERS, audited, audited_methods, said
from photon.config.rights import RIGHTS
from photon.config.roles import Role

LOOKS = {
    "/photon.v1.Registry/LookUp",
    "/photon.v1.Registry/Describe",
    "/photon.v1.Registry/ReadWitness",
    "/photon.v1.Registry/KeepSamples",  # an operator gives none
    "/photon.v1.Registry/ListSlots",
    "/photon.v1.Registry/Trace",
    "/photon.v1.Registry/ScanOwned",
    "/photon.v1.Registry/ScanReopened",
    "/photon.v1.RegistryOperator/Inspect",
    "/photon.v1.RegistryOperator/Barrier",
    "/photon.v1.Timestamps/Take",
    "/photon.v1.EventStore/Progress",
    "/photon.v1.Cache/Counts",
    "/photon.v1.Metrics/Read",
    "/photon.v1.Explain/Event",
    "/photon.v1.Wan/List",
}


def test_what_an_operator_may_call_either_looks_or_is_audited() -> None:
    theirs = {method for method, roles in RIGHTS.items() if Role.OPERATOR in roles and "health" not in method}
    assert theirs == CHANGES | LOOKS
    assert not CHANGES & LOOKS


@pytest.mark.parametrize(
    ("method", "who", "expected"),
    [
        ("/photon.v1.Registry/Reshard", "operator-ann", True),
        ("/photon.v1.Registry/Clear", "operator-ann", True),
        ("/photon.v1.Registry/Clear", "datacentre-east", False),  # its daily work
        ("/photon.v1.Registry/Clear", "", False),  # nobody knows the caller
        ("/photon.v1.Registry/Reshard", "", True),  # only operators do that
        ("/photon.v1.Registry/LookUp", "operator-ann", False),
    ],
)
def test_an_operator_s_changes_are_audited(method: str, who: str, expected: bool) -> None:
    assert audited(method, who) is expected


def test_what_a_request_says_is_one_bounded_line() -> None:
    assert said("a\n  b") == "a b"
    assert len(said("x" * 10_000)) == SAID_CHARACTERS + 2
    assert said(None) == "a stream"


def handlers(act: Any, **more: Any) -> dict[str, Any]:
    made = grpc.unary_unary_rpc_method_handler(act)
    streamed = grpc.unary_stream_rpc_method_handler(more["stream"]) if "stream" in more else made
    return audited_methods("photon.v1.Registry", {"Reshard": made, "LookUp": made, "RetireSlot": streamed})


async def call(monkeypatch: pytest.MonkeyPatch, handler: Any, who: str = "operator-ann") -> list[dict[str, Any]]:
    monkeypatch.setattr(audit, "caller", lambda context: who)
    context = SimpleNamespace(peer=lambda: "ipv4:10.0.0.1:5")
    with capture_logs() as lines:
        if handler.unary_unary is not None:
            await handler.unary_unary("shards: 3", context)
        else:
            async for _ in handler.unary_stream("slot: 1", context):
                pass
    return [dict(line) for line in lines]


async def test_a_line_says_who_did_what_from_where_and_what_came_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def act(request: Any, context: Any) -> str:
        return "done"

    (line,) = await call(monkeypatch, handlers(act)["Reshard"])
    assert line.pop("seconds") >= 0
    assert line == {
        "event": "audit", "log_level": "info", "caller": "operator-ann", "peer": "ipv4:10.0.0.1:5",
        "method": "photon.v1.Registry/Reshard", "request": "shards: 3", "outcome": "done",
    }  # fmt: skip
    (unknown,) = await call(monkeypatch, handlers(act)["Reshard"], who="")
    assert unknown["caller"] == "not shown"
    assert await call(monkeypatch, handlers(act)["LookUp"]) == []


async def test_what_failed_or_was_broken_off_is_told_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fails(request: Any, context: Any) -> str:
        raise LookupError("no")

    async def streams(request: Any, context: Any) -> Any:
        yield 1
        raise LookupError("no")

    monkeypatch.setattr(audit, "caller", lambda context: "operator-ann")
    with capture_logs() as lines, pytest.raises(LookupError):
        await handlers(fails)["Reshard"].unary_unary("x", SimpleNamespace(peer=lambda: "p"))
    assert [line["outcome"] for line in lines] == ["LookupError"]
    with capture_logs() as lines, pytest.raises(LookupError):
        async for _ in handlers(fails, stream=streams)["RetireSlot"].unary_stream("x", SimpleNamespace(peer=str)):
            pass
    assert [line["outcome"] for line in lines] == ["broken off"]


async def test_a_call_that_is_gone_is_not_asked_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A caller that leaves a stream has its generator closed some time later, when gRPC has freed the call: asking
    the call for its peer then ended the process (SIGSEGV)."""
    gone = False

    def peer() -> str:
        assert not gone
        return "p"

    async def streams(request: Any, context: Any) -> Any:
        yield 1
        yield 2

    monkeypatch.setattr(audit, "caller", lambda context: "operator-ann")
    with capture_logs() as lines:
        left = handlers(streams, stream=streams)["RetireSlot"].unary_stream("x", SimpleNamespace(peer=peer))
        assert await anext(left) == 1
        gone = True
        await left.aclose()
    assert [(line["peer"], line["outcome"]) for line in lines] == [("p", "broken off")]

"""Authorisation by role at real services over TLS: each call that a role may not make is refused and changes nothing,
and each call that it needs passes."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import grpc
import pytest

from photon.config.certificate_files import begin, issue_missing, load
from photon.config.rights import RIGHTS, refusal
from photon.config.roles import PLACED, Role
from photon.config.tls import OPERATOR, Tls, open_channel
from photon.idregistry import registry_pb2 as pb
from photon.idregistry.api import Slot
from photon.idregistry.client.channels import REGISTRY
from photon.idregistry.client.grpc_client import RegistryClient
from tests.integration.tls_services import SERVICES, identity, registry

CALL_S = 30.0
WHO = (*(f"{role}-east" for role in sorted(PLACED - {Role.REGISTRY})), "registry-r1", "wan", OPERATOR)
OTHERS = ("datacentre-west", "operator-alice")
# Services of each, in addition to health and metrics.
OWNER: Mapping[str, tuple[str, ...]] = {
    "registry": ("photon.v1.Registry", "photon.v1.RegistryOperator", "photon.v1.Timestamps"),
    "eventstore": ("photon.v1.EventStore",),
    "cache": ("photon.v1.Cache",),
    "joiner": ("photon.v1.Joiner", "photon.v1.Explain"),
    "dispatcher": ("photon.v1.Explain",),
    "copies": ("photon.v1.Copies",),
    "datacentre": ("photon.v1.EventStore", "photon.v1.Joiner", "photon.v1.Explain"),
    "spark": ("photon.v1.Explain",),
    "wan": ("photon.v1.Wan",),
}
EAST, WEST = Slot("s-east", "east", "here:1:1"), Slot("s-west", "west", "here:1:1")
DIGEST, TIME, KIND = bytes(16), (5).to_bytes(8, "little"), b"\x01"


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory, now = tmp_path_factory.mktemp("certs"), datetime.now(UTC)
    begin(directory, "test", now, days=2)
    issue_missing(directory, directory, [*WHO, *OTHERS], now, days=2)
    return directory


def of(certificates: Path, who: str) -> Tls:
    return load(certificates, who, datetime.now(UTC))


@asynccontextmanager
async def channels(certificates: Path, address: str, server: str) -> AsyncIterator[Mapping[str, grpc.aio.Channel]]:
    """Channels to a service, one for everybody."""
    opened = {who: open_channel(address, to=of(certificates, who).to(server)) for who in (*WHO, *OTHERS)}
    try:
        yield opened
    finally:
        for channel in opened.values():
            await channel.close()


async def answer(channel: grpc.aio.Channel, method: str, request: bytes = b"") -> tuple[grpc.StatusCode, str]:
    """The result of a call; streams are sent one message and nothing is read."""
    call: Any
    if method.endswith("/Exchange"):
        call = channel.stream_unary(method)(iter([request]), timeout=CALL_S)
    elif method.endswith(("/Export", "/Watch")):
        call = channel.unary_stream(method)(request, timeout=CALL_S)
        if await _first(call):
            call.cancel()
            return grpc.StatusCode.OK, ""
    else:
        call = channel.unary_unary(method)(request, timeout=CALL_S)
    return await call.code(), await call.details()


async def _first(stream: Any) -> bool:
    try:
        return await stream.read() is not grpc.aio.EOF
    except grpc.aio.AioRpcError:
        return False


@pytest.mark.parametrize("kind", SERVICES)
async def test_each_role_at_each_method(tmp_path: Path, certificates: Path, kind: str) -> None:
    """As in the table, with empty requests."""
    server = identity(kind)
    served = {"grpc.health.v1.Health", "photon.v1.Metrics", *OWNER.get(kind, ())}
    asked = [method for method in RIGHTS if method.split("/")[1] in served]
    assert len(asked) >= 3
    async with (
        SERVICES[kind][1](tmp_path, of(certificates, server)) as address,
        channels(certificates, address, server) as to,
    ):
        for method in asked:
            for who, channel in to.items():
                why = refusal(method, who, server, None)
                code, said = await answer(channel, method)
                if why is None:
                    assert code is not grpc.StatusCode.PERMISSION_DENIED, f"{who} {method}: {said}"
                    assert code is not grpc.StatusCode.UNIMPLEMENTED, method
                else:
                    assert (code, said) == (grpc.StatusCode.PERMISSION_DENIED, why), f"{who} {method}"


def test_every_service_of_every_proto_is_asked() -> None:
    everywhere = {"grpc.health.v1.Health", "photon.v1.Metrics"}
    everywhere.add("photon.v1.RaftPeer")  # only where there are peers: tests/unit/config/test_authorisation.py
    assert {method.split("/")[1] for method in RIGHTS} == everywhere | {each for of in OWNER.values() for each in of}


# -- the registry, with requests that would do something ------------------------------------------------------------
@asynccontextmanager
async def stubs(certificates: Path, address: str) -> AsyncIterator[Callable[[str], Any]]:
    async with channels(certificates, address, identity("registry")) as to:
        yield lambda who: REGISTRY.stub(to[who])


async def opened(certificates: Path, address: str, slot: Slot) -> int:
    """A slot's incarnation, with an id registered under its first token by its own joiner."""
    client = RegistryClient({"r1": address}, tls=of(certificates, f"datacentre-{slot.datacentre}"))
    try:
        found = await client.open_slot(slot, 0, slot.name.ljust(16).encode())
        assert found is not None
        assert found.incarnation, found
        client.announce(slot, [found.incarnation])
        assert await client.introduce(timeout=CALL_S)
        return found.incarnation
    finally:
        await client.close()


async def of_leader(call: Callable[[], Awaitable[Any]]) -> Any:
    """A reply whose status is not that of an election."""
    for _ in range(100):
        reply = await call()
        if reply.status not in (pb.STATUS_NOT_LEADER, pb.STATUS_UNKNOWN):
            return reply
    raise AssertionError("no leader")


def insert(incarnation: int, slot: Slot | None = None) -> pb.InsertRequest:
    token = (incarnation << 40 | 1).to_bytes(8, "little")
    named = (
        None if slot is None else pb.SlotName(slot=slot.name, datacentre=slot.datacentre, incarnations=[incarnation])
    )
    return pb.InsertRequest(
        shard=1, caller=incarnation, slot=named, digests=DIGEST, times=TIME, tokens=token, kinds=KIND, tags=bytes(4)
    )


def forbidden(east: int, west: int) -> list[tuple[str, str, Any]]:
    """(who, method, request): each would change something if it were permitted."""
    token = (east << 40 | 1).to_bytes(8, "little")
    clear = pb.ClearRequest(shard=1, digests=DIGEST, times=TIME, tokens=token)
    reopen = {"shard": 1, "digests": DIGEST, "times": TIME, "tokens": token, "generations": bytes(4)}
    stolen = pb.SlotName(slot=EAST.name, datacentre="east", address="there:1:1")
    end = pb.WitnessLog(number=1, length=1, hash=bytes(16))
    open_stolen = pb.OpenSlotRequest(slot=stolen, last=east, nonce=bytes(16))
    extend = pb.ExtendWitnessRequest(slot=EAST.name, incarnation=east, to=[end])
    apply = pb.ReshardRequest(action=pb.RESHARD_ACTION_APPLY, shards=4)
    return [
        ("sink-east", "Clear", clear),
        ("compute-east", "ClearBelow", pb.ClearBelowRequest(shard=1, incarnation=east, batch=2, count=1, xor=DIGEST)),
        ("observe-east", "Reopen", pb.ReopenRequest(**reopen)),
        ("datacentre-east", "Reopen", pb.ReopenRequest(operator=True, **reopen)),
        ("spark-east", "Reopen", pb.ReopenRequest(operator=True, **reopen)),
        *((who, "RetireSlot", pb.RetireSlotRequest(slot=EAST.name)) for who in WHO if who != OPERATOR),
        *((who, "Reshard", apply) for who in WHO if who != OPERATOR),
        ("datacentre-west", "OpenSlot", open_stolen),
        ("operator", "OpenSlot", open_stolen),
        ("datacentre-west", "ExtendWitness", extend),
        ("datacentre-west", "ReadWitness", pb.ReadWitnessRequest(slot=EAST.name)),
        ("datacentre-west", "Insert", insert(east)),
        ("datacentre-west", "Insert", insert(east, EAST)),
        ("datacentre-east", "Insert", insert(west)),
        ("operator", "Insert", insert(east)),
    ]


async def everything(stub: Any) -> tuple[Any, ...]:
    """Everything that could have been changed, as an operator sees it."""
    slots = await of_leader(lambda: stub.ListSlots(pb.ListSlotsRequest(), timeout=CALL_S))
    owned = await of_leader(
        lambda: stub.ScanOwned(pb.ScanOwnedRequest(shard=1, slot=EAST.name, upto=99), timeout=CALL_S)
    )
    described = await stub.Describe(pb.DescribeRequest(), timeout=CALL_S)
    seen = await stub.LookUp(pb.LookUpRequest(shard=1, digests=DIGEST, times=TIME), timeout=CALL_S)
    return slots, owned.digests, owned.tokens, owned.fenced, described.config, described.ranges, seen.answers


async def test_what_a_role_may_not_do_changes_nothing_and_what_it_needs_passes(
    tmp_path: Path, certificates: Path
) -> None:
    server = of(certificates, identity("registry"))
    async with registry(tmp_path, server) as address, stubs(certificates, address) as stub:
        east, west = [await opened(certificates, address, slot) for slot in (EAST, WEST)]
        registered = await of_leader(lambda: stub("datacentre-east").Insert(insert(east), timeout=CALL_S))
        assert registered.status == pb.STATUS_OK
        before = await everything(stub(OPERATOR))
        assert before[1] == DIGEST
        for who, method, request in forbidden(east, west):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await getattr(stub(who), method)(request, timeout=CALL_S)
            assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED, (who, method)
            details = refused.value.details() or ""
            assert re.fullmatch(rf"{who} may not call photon\.v1\.Registry/{method}\b[^\n]+", details), details
        assert await everything(stub(OPERATOR)) == before
        await _needed(stub, east)


async def _needed(stub: Callable[[str], Any], east: int) -> None:
    """The same calls by roles that need them; the last ones end things that the others need."""
    token = (east << 40 | 1).to_bytes(8, "little")
    joiner, verifier, operator = stub("datacentre-east"), stub("datacentre-east"), stub("operator-alice")
    end = pb.WitnessLog(number=1, length=1, hash=bytes(16))
    extend = pb.ExtendWitnessRequest(slot=EAST.name, incarnation=east, to=[end])
    named = pb.SlotName(slot="backfill-1", datacentre="east", address="here")
    reopen = {"shard": 1, "digests": DIGEST, "times": TIME, "tokens": token, "generations": bytes(4)}
    clear = pb.ClearRequest(shard=1, digests=DIGEST, times=TIME, tokens=token)
    calls = [
        (stub("datacentre-east").LookUp, pb.LookUpRequest(shard=1, digests=DIGEST, times=TIME)),
        (stub("datacentre-east").ScanReopened, pb.ScanReopenedRequest(shard=1)),
        (stub("datacentre-east").ListSlots, pb.ListSlotsRequest()),
        (joiner.ExtendWitness, extend),
        (joiner.ReadWitness, pb.ReadWitnessRequest(slot=EAST.name)),
        (stub("spark-east").OpenSlot, pb.OpenSlotRequest(slot=named, nonce=bytes(16))),
        (verifier.ScanOwned, pb.ScanOwnedRequest(shard=1, slot=EAST.name, upto=east)),
        (verifier.Clear, clear),
        (operator.Reshard, pb.ReshardRequest(action=pb.RESHARD_ACTION_PLAN, shards=4)),
        (operator.Reopen, pb.ReopenRequest(operator=True, **reopen)),
        (verifier.Reopen, pb.ReopenRequest(**reopen)),
        (operator.RetireSlot, pb.RetireSlotRequest(slot=EAST.name)),
    ]
    for call, request in calls:
        reply = await of_leader(lambda call=call, request=request: call(request, timeout=CALL_S))  # type: ignore[misc]
        assert reply.status == pb.STATUS_OK, (request, reply)

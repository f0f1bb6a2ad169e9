"""Over TLS only an operator changes shards, retires slots, and reopens ids by the operator's word."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import grpc
import pytest

from photon.config.certificate_files import begin, issue_missing, load
from photon.config.serving import make_server
from photon.config.tls import OPERATOR, Tls, bind, open_channel
from photon.idregistry import registry_pb2 as pb
from photon.idregistry.client.channels import REGISTRY
from photon.idregistry.client.grpc_client import RegistryClient
from photon.idregistry.core.resharding import Action, Ask, Resharding, ReshardOutcome
from photon.idregistry.replica.service import RegistryServicer
from photon.idregistry.replica.shard_keeper import ShardKeeper
from tests.unit.lab.wan.peers import Server, proxied

REPLICA = "registry-r1"
REQUESTS = (
    ("RetireSlot", pb.RetireSlotRequest(slot="s"), pb.RetireSlotReply, True),
    ("Reopen", pb.ReopenRequest(operator=True), pb.ReopenReply, True),
    ("Reopen", pb.ReopenRequest(), pb.ReopenReply, False),
    ("ScanOwned", pb.ScanOwnedRequest(slot="s"), pb.EntriesReply, False),
)


class Replica:
    """Says yes to all."""

    async def reshard(self, ask: Ask, *, timeout: float) -> ReshardOutcome:
        return Resharding("r1", 1, (), None, (), (), 0)

    async def answer(self, request: Any, *, timeout: float) -> Any:
        return next(reply for _, asked, reply, _ in REQUESTS if type(asked) is type(request))(status=pb.STATUS_OK)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory, now = tmp_path_factory.mktemp("certs"), datetime.now(UTC)
    begin(directory, "test", now, days=2)
    names = [REPLICA, "datacentre-east", OPERATOR, f"{OPERATOR}-alice", "datacentre-east"]
    issue_missing(directory, directory, names, now, days=2)
    return directory


def identity(directory: Path, name: str) -> Tls:
    return load(directory, name, datetime.now(UTC))


@asynccontextmanager
async def replica(own: Tls | None) -> AsyncIterator[str]:
    """Its address."""
    server = make_server(tls=own)
    servicer = RegistryServicer(cast(Any, Replica()))
    servicer._recovery = cast(Any, Replica())
    REGISTRY.add(server, servicer)
    port = bind(server, "127.0.0.1:0", "test", own)
    await server.start()
    yield f"127.0.0.1:{port}"
    await server.stop(0)


@pytest.mark.parametrize("who", [OPERATOR, f"{OPERATOR}-alice", "datacentre-east"])
async def test_who_may_do_what_rests_on_an_operators_word(certificates: Path, who: str) -> None:
    to = identity(certificates, who).to(REPLICA)
    async with replica(identity(certificates, REPLICA)) as address, open_channel(address, to=to) as channel:
        stub = REGISTRY.stub(channel)
        for method, request, _, by_word in REQUESTS:
            if by_word and not who.startswith(OPERATOR):
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    await getattr(stub, method)(request, timeout=60)
                assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
            else:
                assert (await getattr(stub, method)(request, timeout=60)).status == pb.STATUS_OK, method


@pytest.mark.parametrize(
    ("who", "allowed"), [(None, True), ("operator", True), ("datacentre-east", False), ("registry-r1", False)]
)
async def test_who_may_change_shards(certificates: Path, who: str | None, allowed: bool) -> None:
    """On a plain connection, which one machine may have, everybody."""
    own, tls = (None, None) if who is None else (identity(certificates, REPLICA), identity(certificates, who))
    async with replica(own) as address:
        client = RegistryClient({"r1": address}, tls=tls)
        outcome = await client.reshard(Ask(Action.STATUS), replica="r1", timeout=10.0 if allowed else 3.0)
        if allowed:
            assert isinstance(outcome, Resharding)
        else:
            assert f"{who} may not call photon.v1.Registry/Reshard: it is for operator" in outcome.reason
        await client.close()


@pytest.mark.parametrize("tls", [True, False])
async def test_a_replica_that_is_down_behind_a_gateway_is_called_down_first(certificates: Path, tls: bool) -> None:
    """The gateway accepts the connection, so a certificate may be the reason too."""
    server = Server()
    async with proxied(server) as gateway:
        await server.stop()
        who = identity(certificates, OPERATOR) if tls else None
        client = RegistryClient({"r1": f"127.0.0.1:{gateway.port(0)}"}, tls=who)
        outcome = await client.reshard(Ask(Action.STATUS), replica="r1", timeout=3.0)
        assert "closes the connection: it is down behind a gateway, or " in outcome.reason
        await client.close()


def test_the_replica_of_this_test_is_asked_as_a_replica_is() -> None:
    assert ShardKeeper.answer.__annotations__ == Replica.reshard.__annotations__

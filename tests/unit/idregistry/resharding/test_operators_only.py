"""Over TLS only operators change shards; on a plain connection, which one machine may have, everybody."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest

from photon.config.certificate_files import begin, issue_missing, load
from photon.config.serving import make_server
from photon.config.tls import OPERATOR, Tls, bind
from photon.idregistry.client.channels import REGISTRY
from photon.idregistry.client.grpc_client import RegistryClient
from photon.idregistry.core.resharding import Action, Ask, Resharding, ReshardOutcome
from photon.idregistry.replica.service import RegistryServicer
from photon.idregistry.replica.shard_keeper import ShardKeeper
from photon.supervision.ports import free_ports


class Replica:
    """Answers every request about shards."""

    async def reshard(self, ask: Ask, *, timeout: float) -> ReshardOutcome:
        return Resharding("r1", 1, (), None, (), (), 0)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory, now = tmp_path_factory.mktemp("certs"), datetime.now(UTC)
    begin(directory, "test", now, days=2)
    issue_missing(directory, directory, ["registry-r1", "joiner-east", OPERATOR], now, days=2)
    return directory


def identity(directory: Path, name: str) -> Tls:
    return load(directory, name, datetime.now(UTC))


@pytest.mark.parametrize(
    ("who", "allowed"), [(None, True), ("operator", True), ("joiner-east", False), ("registry-r1", False)]
)
async def test_who_may_change_shards(certificates: Path, who: str | None, allowed: bool) -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    own = None if who is None else identity(certificates, "registry-r1")
    server = make_server(tls=own)
    REGISTRY.add(server, RegistryServicer(cast(Any, Replica())))
    bind(server, address, "test", own)
    await server.start()
    client = RegistryClient({"r1": address}, tls=None if who is None else identity(certificates, who))
    try:
        outcome = await client.reshard(Ask(Action.STATUS), replica="r1", timeout=10.0 if allowed else 3.0)
        if allowed:
            assert isinstance(outcome, Resharding)
        else:
            assert f"{who} may not call photon.v1.Registry/Reshard: it is for operator" in outcome.reason
    finally:
        await client.close()
        await server.stop(0)


def test_the_replica_of_this_test_is_asked_as_a_replica_is() -> None:
    assert ShardKeeper.answer.__annotations__ == Replica.reshard.__annotations__

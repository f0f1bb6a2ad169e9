"""Over TLS only an operator retires slots, and reopens ids by the operator's word."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import grpc
import pytest

from photon.config.certificate_files import begin, issue_missing, load
from photon.config.roles import Role, identity
from photon.config.serving import make_server
from photon.config.tls import OPERATOR, bind, open_channel
from photon.idregistry import registry_pb2 as pb
from photon.idregistry.client.channels import REGISTRY
from photon.idregistry.replica.service import RegistryServicer

REQUESTS = (
    ("RetireSlot", pb.RetireSlotRequest(slot="s"), pb.RetireSlotReply, True),
    ("Reopen", pb.ReopenRequest(operator=True), pb.ReopenReply, True),
    ("Reopen", pb.ReopenRequest(), pb.ReopenReply, False),
    ("ScanOwned", pb.ScanOwnedRequest(slot="s"), pb.EntriesReply, False),
)


class _Answers:
    """In place of the recovery server: says yes to all."""

    async def answer(self, request: Any, *, timeout: float) -> Any:
        return next(reply for _, asked, reply, _ in REQUESTS if type(asked) is type(request))(status=pb.STATUS_OK)


@pytest.mark.parametrize("who", [OPERATOR, f"{OPERATOR}-alice", "verifier-east"])
async def test_who_may_do_what_rests_on_an_operators_word(tmp_path: Path, who: str) -> None:
    now = datetime.now(UTC)
    begin(tmp_path, "test", now, days=2)
    issue_missing(tmp_path, tmp_path, sorted({identity(Role.REGISTRY, "r1"), who}), now, days=2)
    own = load(tmp_path, identity(Role.REGISTRY, "r1"), now)
    server = make_server(tls=own)
    servicer = RegistryServicer(cast(Any, None))
    servicer._recovery = cast(Any, _Answers())
    REGISTRY.add(server, servicer)
    port = bind(server, "127.0.0.1:0", "test", own)
    await server.start()
    try:
        to = load(tmp_path, who, now).to(identity(Role.REGISTRY, "r1"))
        async with open_channel(f"127.0.0.1:{port}", to=to) as channel:
            stub = REGISTRY.stub(channel)
            for method, request, _, by_word in REQUESTS:
                if by_word and not who.startswith(OPERATOR):
                    with pytest.raises(grpc.aio.AioRpcError) as refused:
                        await getattr(stub, method)(request, timeout=10)
                    assert refused.value.code() is grpc.StatusCode.PERMISSION_DENIED
                else:
                    assert (await getattr(stub, method)(request, timeout=10)).status == pb.STATUS_OK, method
    finally:
        await server.stop(0)

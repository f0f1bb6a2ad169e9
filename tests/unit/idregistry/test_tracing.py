"""One id's entry as people see it: over gRPC and within the process alike."""

from __future__ import annotations

import numpy as np

from photon.idregistry import registry_pb2 as pb
from photon.idregistry.api import Answer, token_of
from photon.idregistry.core.scans import Traced
from photon.idregistry.replica.recovery import RecoveryServer
from tests.unit.idregistry.groups import digests_of, inserts
from tests.unit.idregistry.served import SLOT, answers, both, opened, registry

ID, TIME_NS = 2, 2000


@both
async def test_an_id_through_its_states(kind: str) -> None:
    async with registry(kind) as (client, cluster):
        incarnation = await opened(client)
        digest, token = digests_of([ID]), token_of(incarnation, 4)
        times, tokens = np.array([TIME_NS], np.int64), np.array([token], np.uint64)

        async def trace() -> Traced:
            found = await client.recovery.trace(digest, TIME_NS, timeout=60.0)
            assert isinstance(found, Traced)
            return found

        absent = await trace()
        assert (absent.answer, absent.slot, absent.token) == (Answer.ABSENT, "", 0)
        assert absent.replica == cluster.replica().name
        assert await answers(client, inserts([ID], incarnation, 4)) == [Answer.COMMITTED]
        owned = await trace()
        assert (owned.answer, owned.cleared, owned.token) == (Answer.PRESENT, False, token)
        assert (owned.slot, owned.datacentre, owned.shard) == (SLOT.name, SLOT.datacentre, absent.shard)
        assert owned.applied > absent.applied
        assert (await client.clear(digest, times, tokens, timeout=60.0)).tolist() == [Answer.CLEARED]
        assert (await trace()).cleared


@both
async def test_a_reopened_id_shows_its_former_owner(kind: str) -> None:
    async with registry(kind) as (client, _):
        incarnation = await opened(client)
        await answers(client, inserts([ID], incarnation, 4))
        tokens = np.array([token_of(incarnation, 4)], np.uint64)
        times, none = np.array([TIME_NS], np.int64), np.zeros(1, np.uint32)
        gave = await client.recovery.reopen(digests_of([ID]), times, tokens, none, timeout=60.0)
        assert gave.tolist() == [Answer.REOPENED]
        found = await client.recovery.trace(digests_of([ID]), TIME_NS, timeout=60.0)
        assert (found.answer, found.generation, found.slot) == (Answer.REOPENED, 1, SLOT.name)


async def test_a_digest_of_another_size_is_refused() -> None:
    async with registry("embedded") as (client, cluster):
        (shard, *_) = await client.recovery.shards(timeout=60.0)
        request = pb.TraceRequest(shard=shard, digest=b"x", time_ns=TIME_NS)
        reply = await RecoveryServer(cluster.replica()).answer(request, timeout=60.0)
        assert (reply.status, "16 bytes" in reply.reason) == (pb.STATUS_REFUSED, True)

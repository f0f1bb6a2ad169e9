"""Witness, watermark, scans, reopening and retirement as requests: over gRPC and within the process alike."""

from __future__ import annotations

import numpy as np
import pytest

from photon.batch.ids import Ids
from photon.config.clock import SystemClock
from photon.idregistry import registry_pb2 as pb
from photon.idregistry.api import Answer, Slot, token_of
from photon.idregistry.client.messages import REOPEN_IDS_MAX
from photon.idregistry.client.recovery import Recovery
from photon.idregistry.client.routing import RoutedRegistry
from photon.idregistry.core.outcomes import Refusal, Status
from photon.idregistry.core.scans import EntryPage
from photon.idregistry.replica.recovery import RecoveryServer
from photon.idregistry.witness import KnownSlot, Witnessed, WitnessLog
from tests.unit.idregistry.groups import digests_of, inserts, lead
from tests.unit.idregistry.served import SLOT, answers, both, opened, registry, until

IDS = [2, 4, 6, 8]  # all of one shard where there are two
TIMES = np.array([i * 1000 for i in IDS], np.int64)
NONE = np.zeros(len(IDS), np.uint32)
OTHER_TIMEOUT = 5.0


async def shard_of_ids(client: RoutedRegistry) -> int:
    numbers = await client.recovery.shards(timeout=60.0)
    for number in numbers:
        page = await client.recovery.scan_owned(number, SLOT.name, 9, timeout=60.0)
        assert isinstance(page, EntryPage)
        if len(page):
            return number
    raise AssertionError("no shard owns anything")


@both
async def test_witness(kind: str) -> None:
    async with registry(kind) as (client, _):
        assert await client.read_witness("slot") == Witnessed(0, ())
        incarnation = await opened(client)
        to = (WitnessLog(0, 7, b"hash"), WitnessLog(3, 2**40, b""))
        assert await client.extend_witness("slot", incarnation, (), to) == Witnessed(incarnation, to)
        assert await client.extend_witness("slot", incarnation, (), to) == Witnessed(incarnation, to)
        assert await client.read_witness("slot") == Witnessed(incarnation, to)
        again = await client.open_slot(SLOT, incarnation, b"m")
        assert again.witness == to
        assert "not the newest" in (await client.extend_witness("slot", incarnation, to, to)).reason
        bad = await client.extend_witness("slot", again.incarnation, to, (WitnessLog(0, 7, bytes(33)),))
        assert bad.reason


@both
async def test_clearing_by_watermark(kind: str) -> None:
    async with registry(kind) as (client, _):
        incarnation = await opened(client)
        assert await answers(client, inserts(IDS[:3], incarnation, 4)) == [Answer.COMMITTED] * 3
        assert await answers(client, inserts(IDS[3:], incarnation, 5)) == [Answer.COMMITTED]
        shard = await shard_of_ids(client)
        xor = bytes(8) + (2 ^ 4 ^ 6).to_bytes(8, "little")
        wrong = await client.recovery.clear_below(shard, incarnation, 5, 2, xor, timeout=60.0)
        assert (wrong.applied, wrong.count, wrong.xor) == (False, 3, xor)
        for _ in range(2):  # the second time it was done already
            assert (await client.recovery.clear_below(shard, incarnation, 5, 3, xor, timeout=60.0)).applied
        assert await answers(client, inserts(IDS, incarnation, 4)) == [Answer.DONE] * 4
        assert await answers(client, inserts(IDS, incarnation, 5)) == [*[Answer.TAKEN] * 3, Answer.COMMITTED]
        unknown = await client.recovery.clear_below(shard, 77, 5, 0, bytes(16), timeout=60.0)
        assert "not known" in unknown.reason
        assert not (await client.recovery.clear_below(shard, incarnation, 5, 3, b"x", timeout=60.0)).applied


@both
async def test_scans_and_reopening(kind: str) -> None:
    async with registry(kind) as (client, _):
        incarnation = await opened(client)
        await answers(client, inserts(IDS, incarnation, 4))
        shard = await shard_of_ids(client)
        first = await client.recovery.scan_owned(shard, SLOT.name, incarnation, limit=3, timeout=60.0)
        assert isinstance(first, EntryPage)
        rest = await client.recovery.scan_owned(
            shard, SLOT.name, incarnation, cursor=first.cursor, limit=3, timeout=5.0
        )
        assert first.digests + rest.digests == digests_of(IDS)
        assert (len(first), len(rest), rest.cursor, rest.fenced) == (3, 1, b"", False)
        assert first.times.tolist() == TIMES[:3].tolist()
        assert first.tags.tolist() == IDS[:3]
        assert set(first.tokens.tolist()) == {token_of(incarnation, 4)}
        tokens = np.full(len(IDS), token_of(incarnation, 4), np.uint64)
        tokens[3] += np.uint64(1)
        gave = await client.recovery.reopen(digests_of(IDS), TIMES, tokens, NONE, timeout=60.0)
        assert gave.tolist() == [Answer.REOPENED] * 3 + [Answer.NO_OP]
        page = await client.recovery.scan_reopened(shard, timeout=60.0)
        assert page.digests == digests_of(IDS[:3])
        assert page.generations.tolist() == [1, 1, 1]
        assert page.tokens.tolist() == tokens[:3].tolist()  # the former owner's
        taken = await client.insert(inserts(IDS[:1], incarnation, 9), timeout=60.0)
        assert taken.outcomes.tolist() == [Answer.TAKEN]
        assert taken.datacentres[taken.owner_datacentres[0]] == SLOT.datacentre
        bad = await client.recovery.scan_owned(shard, SLOT.name, 1, cursor=b"rubbish", timeout=60.0)
        assert bad.status is Status.REFUSED


@both
async def test_retiring_fences_every_shard(kind: str) -> None:
    async with registry(kind) as (client, cluster):
        incarnation = await opened(client)
        await answers(client, inserts(IDS, incarnation, 4))
        tokens = np.full(len(IDS), token_of(incarnation, 4), np.uint64)
        unfenced = await client.recovery.reopen(digests_of(IDS), TIMES, tokens, NONE, retired=True, timeout=60.0)
        assert unfenced.tolist() == [Answer.NO_OP] * 4
        assert "no slot" in (await client.recovery.retire_slot("nobody", timeout=60.0)).reason
        assert await client.recovery.retire_slot(SLOT.name, timeout=60.0) == (1, 2)
        assert await client.recovery.shards(timeout=60.0) == (1, 2)
        await until(lambda: all(each.is_fenced(SLOT.name) for each in cluster.machines["r1"].shards.values()))
        for shard in (1, 2):
            assert (await client.recovery.scan_owned(shard, SLOT.name, incarnation, timeout=60.0)).fenced
        assert await answers(client, inserts([*IDS, 9], incarnation, 4)) == [Answer.FENCED] * 5
        gave = await client.recovery.reopen(digests_of(IDS), TIMES, tokens, NONE, retired=True, timeout=60.0)
        assert gave.tolist() == [Answer.REOPENED] * 4
        assert "retired" in (await client.open_slot(SLOT, incarnation, b"m")).reason
        assert (await client.read_witness(SLOT.name)).retired


@both
async def test_all_slots_are_listed_page_by_page(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("photon.idregistry.replica.recovery.PAGE_SLOTS_MAX", 2)
    async with registry(kind) as (client, _):
        assert await client.recovery.list_slots(timeout=60.0) == []
        names = [f"s{number}" for number in range(5)]
        for name in reversed(names):
            assert await client.open_slot(Slot(name, "east", f"host:{name}"), 0, name.encode())
        assert await client.open_slot(Slot("s1", "east", "host:again"), 4, b"again")
        end = (WitnessLog(1, 10, b"hash"),)
        assert await client.extend_witness("s0", 5, (), end)
        assert not isinstance(await client.recovery.retire_slot("s3", timeout=60.0), Refusal)
        found = await client.recovery.list_slots(timeout=60.0)
        assert not isinstance(found, Refusal)
        assert [each.name for each in found] == names
        assert found[0] == KnownSlot("s0", "east", "host:s0", 5, 1, False, end)
        assert found[1] == KnownSlot("s1", "east", "host:again", 6, 2, False, ())
        assert [each.retired for each in found] == [False, False, False, True, False]


async def test_a_leader_that_has_applied_nothing_of_its_term_lists_no_slots() -> None:
    async with registry("gRPC", replicas=3) as (client, cluster):
        assert await client.open_slot(SLOT, 0, b"n")
        behind = cluster.groups["r1"][0]
        behind.current = False
        assert isinstance(await client.recovery.list_slots(timeout=0.3), Refusal)
        assert await client.read_witness(SLOT.name, timeout=0.3) is None
        behind.current = True
        found = await client.recovery.list_slots(timeout=60.0)
        assert not isinstance(found, Refusal)
        assert [each.name for each in found] == [SLOT.name]


async def test_a_leader_that_was_replaced_gives_no_first_page() -> None:
    async with registry("gRPC", replicas=3) as (client, cluster):
        await opened(client)
        assert isinstance(await client.recovery.scan_owned(1, SLOT.name, 9, timeout=60.0), EntryPage)
        lead(cluster, "r3", (0, 1, 2))
        assert isinstance(await client.recovery.scan_owned(1, SLOT.name, 9, timeout=60.0), EntryPage)
        lead(cluster, None, (0, 1, 2))
        assert isinstance(await client.recovery.scan_owned(1, SLOT.name, 9, timeout=0.3), Refusal)
        assert await client.recovery.clear_below(1, 1, 1, 0, bytes(16), timeout=0.2) is None


async def test_ids_of_another_shard_are_not_reopened() -> None:
    async with registry("embedded") as (client, cluster):
        mixed = [2, 3, 4]
        rows = inserts(mixed, await opened(client), 4)
        await answers(client, rows)
        server = RecoveryServer(cluster.replica())

        async def reopened(shard: int, rows: Ids) -> pb.ReopenReply:
            columns = Ids.of(rows.digests, rows.times, rows.tokens)
            request = pb.ReopenRequest(
                shard=shard,
                digests=columns.digests,
                times=columns.times.tobytes(),
                tokens=columns.tokens.tobytes(),
                generations=bytes(4 * len(rows)),
            )
            return await server.answer(request, timeout=OTHER_TIMEOUT)

        found = {shard: list((await reopened(shard, rows)).answers) for shard in (1, 2)}
        yes, no = Answer.REOPENED, Answer.UNKNOWN
        assert sorted(found.values()) == sorted([[yes, no, yes], [no, yes, no]])
        odd = await reopened(1 if found[1][0] == no else 2, rows.take(np.arange(1)))
        assert odd.status == pb.STATUS_WRONG_SHARD


async def test_sizes_are_checked_before_anything_is_proposed() -> None:
    async with registry("embedded", shards=1) as (client, cluster):
        await opened(client)
        server = RecoveryServer(cluster.replica())
        proposed = len(cluster.logs[1].commands)
        n = REOPEN_IDS_MAX + 1
        for request in (
            pb.ReopenRequest(shard=1, digests=bytes(16 * n)),
            pb.ReopenRequest(shard=1, digests=bytes(16), times=b"short"),
            pb.ClearBelowRequest(shard=1, incarnation=0, xor=bytes(16)),
            pb.ClearBelowRequest(shard=1, incarnation=1, batch=2**63, xor=bytes(16)),
            pb.ScanReopenedRequest(shard=1, cursor=b"x"),
            pb.RetireSlotRequest(slot=""),
            pb.RetireSlotRequest(slot="x" * 600),
        ):
            reply = await server.answer(request, timeout=OTHER_TIMEOUT)
            assert reply.status == pb.STATUS_REFUSED
            assert "\n" not in reply.reason
        elsewhere = await server.answer(pb.ScanReopenedRequest(shard=9), timeout=OTHER_TIMEOUT)
        assert elsewhere.status == pb.STATUS_UNKNOWN, "the shard may be opened yet"
        assert len(cluster.logs[1].commands) == proposed


async def test_the_shards_are_asked_for_each_time() -> None:
    """A dispatcher that sends nothing would not hear of new ones, and never of ids reopened there."""
    asked: list[bool] = []

    async def described(deadline: float, *, fresh: bool = False) -> None:
        asked.append(fresh)

    async def nobody(*_: object, **__: object) -> None:
        raise AssertionError

    assert await Recovery(nobody, described, SystemClock()).shards(timeout=1.0) == ()
    assert asked == [True]

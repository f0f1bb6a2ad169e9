"""Operators' commands against real replicas under load: nothing acknowledged is lost, and it stays available."""

from __future__ import annotations

import asyncio
import gzip
import os
import random
import re
import shutil
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import numpy as np
import pytest

from photon.batch.ids import Ids
from photon.fleet.access import tls_in
from photon.idregistry.api import Answer, Digester, Slot, token_of
from photon.idregistry.client.grpc_client import RegistryClient
from photon.idregistry.operate.operator_client import Mark, OperatorClient, RegistryUnreachable
from tests.integration.registry_ops import Deployment, deployment, photon
from tests.integration.registry_processes import insert_known, rows
from tests.integration.test_registry_kill9 import Writer, batches, verify

SEED = int(os.environ.get("PHOTON_SEED", "61"))
IDS = 40_000
WAIT_MAX_S = 30.0  # longest wait of a batch while replicas are restarted one after the other, on a busy machine


class Load:
    """Two writers that meet on the same ids; ``slowest_s`` is the longest that a batch waited for its answers."""

    def __init__(self, made: Deployment) -> None:
        self.made = made
        self.slowest_s = 0.0
        self.clients = [made.client() for _ in range(2)]
        self.writers = [
            Timed(f"w{n}", client, batches(random.Random(f"{SEED} {n}"), range(IDS)), self)
            for n, client in enumerate(self.clients)
        ]
        self.tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        for writer in self.writers:
            await writer.open()
        self.tasks = [asyncio.create_task(writer.run()) for writer in self.writers]

    async def more(self, ids: int) -> None:
        """Waits until ``ids`` further ids are decided."""
        goal = self.decided() + ids
        deadline = time.monotonic() + 40
        while self.decided() < goal:
            self.made.check()
            for task in self.tasks:
                assert not task.done(), task
            assert time.monotonic() < deadline, [client.problem for client in self.clients]
            await asyncio.sleep(0.02)

    async def stop(self) -> None:
        for writer in self.writers:
            writer.stopped = True
        await asyncio.gather(*self.tasks)

    def decided(self) -> int:
        return sum(writer.decided for writer in self.writers)

    def owned(self) -> dict[int, int]:
        """All acknowledged ids; no id twice."""
        one, two = (writer.owned for writer in self.writers)
        assert not one.keys() & two.keys()
        return {**one, **two}


class Timed(Writer):
    """Notes how long each batch waits."""

    def __init__(self, name: str, client: RegistryClient, ids: Iterator[list[int]], load: Load) -> None:
        super().__init__(name, client, self._timed(ids, load))

    @staticmethod
    def _timed(ids: Iterator[list[int]], load: Load) -> Iterator[list[int]]:
        for each in ids:
            began = time.monotonic()
            yield each
            load.slowest_s = max(load.slowest_s, time.monotonic() - began)


@asynccontextmanager
async def loaded(made: Deployment) -> AsyncIterator[Load]:
    print(f"seed {SEED}")
    load = Load(made)
    try:
        await load.start()
        yield load
    finally:
        for task in load.tasks:
            task.cancel()
        await asyncio.gather(*load.tasks, return_exceptions=True)
        for client in load.clients:
            await client.close()


async def all_kept(load: Load) -> None:
    """Acknowledged ids are owned by the same tokens, and refused to others."""
    for writer in load.writers:
        await verify(writer.client, writer.owned)


@pytest.mark.timeout(150)
async def test_rolling_restart_of_all_replicas_under_load(tmp_path: Path) -> None:
    with deployment(tmp_path) as made:
        await made.settled()
        async with loaded(made) as load:
            await load.more(2_000)
            for name in made.addresses:
                moved = (await made.good("transfer-leader", "--from", name, "-o", "json")).json()
                assert all(each["to"] != name for each in moved)
                await made.stop(name)
                await load.more(2_000)
                made.start(name)
                await made.settled()
            await load.more(2_000)
            await load.stop()
            assert load.slowest_s < WAIT_MAX_S
            await all_kept(load)
            print(f"{load.decided():,} ids decided, a batch waited {load.slowest_s:.2f} s at most")


@pytest.mark.timeout(150)
async def test_a_lost_replica_is_replaced_under_load(tmp_path: Path) -> None:
    with deployment(tmp_path) as made:
        await made.settled()
        async with loaded(made) as load:
            await load.more(3_000)
            unnamed = await made.command("replace", "r3", "r4", "--dry-run")
            assert unnamed.code == 1
            assert "first replace the table of r3 in the deployment file" in unnamed.err
            made.file.write_text(re.sub(r"\br3\b", "r4", made.file.read_text()))
            refused = await made.command("replace", "r3", "r4", "--dry-run")
            assert refused.code == 1
            assert "r3 answers" in refused.err
            made.kill("r3")
            shutil.rmtree(tmp_path / "r3")
            await load.more(3_000)
            plan = await made.eventually("replace", "r3", "r4", "--dry-run")  # groups that r3 led elect first
            assert "nothing was changed" in plan.out
            assert not (tmp_path / "r4").exists()
            unsaid = await made.command("replace", "r3", "r4")
            assert unsaid.code == 2
            await made.good("replace", "r3", "r4", "--yes")
            other = await made.command("replace", "r3", "r4", "--yes")
            assert other.code == 1
            assert "is not empty" in other.err
            early = await made.command("replace", "r3", "r4", "--wait", "--timeout", "0.2")
            assert early.code == 1
            made.start("r4")
            for name in ("r1", "r2"):
                await made.stop(name)
                made.start(name)
            await made.good("replace", "r3", "r4", "--wait", "--timeout", "90")
            members = (await made.good("members", "-o", "json")).json()
            assert [each["replica"] for each in members["members"]] == ["r1", "r2", "r4"]
            assert members["epoch"] == 2
            await load.more(2_000)
            await load.stop()
            print(f"{load.decided():,} ids decided, a batch waited {load.slowest_s:.2f} s at most")
            # The new replica and either survivor have everything.
            made.kill("r1")
            await all_kept(load)
            made.start("r1")
            await made.settled()
            await made.good("verify")


@pytest.mark.timeout(150)
async def test_backup_under_load_and_restore_into_a_new_deployment(tmp_path: Path) -> None:
    with deployment(tmp_path / "old") as made:
        await made.settled()
        async with loaded(made) as load:
            await load.more(4_000)
            before = dict(load.owned())
            backup = tmp_path / "backup"
            said = (await made.good("backup", str(backup), "-o", "json")).json()
            assert sum(group["ids"] for group in said["groups"]) >= len(before)
            await load.more(2_000)
            assert (await made.good("verify")).out.count("r1, r2, r3") == 3
            again = await made.command("backup", str(backup))
            assert again.code == 1
            assert again.err.count("\n") == 1
            await load.stop()
            after = load.owned()
        assert (await photon("registry", "verify", str(backup))).code == 0
        assert len(before) < len(after)
    with stopped_at_the_end(Deployment(tmp_path / "new")) as new:
        await new.good("restore", str(backup), "--yes")
        for name in new.addresses:
            new.start(name)
        status = await new.settled()
        assert [group["closed"] for group in status["groups"]] == [False, True, True]
        assert (await new.command("doctor")).code == 1
        await registers_what_was_restored(new, before, after)


@asynccontextmanager
async def restored_writer(new: Deployment) -> AsyncIterator[Writer]:
    client = new.client()
    try:
        writer = Writer("later", client, iter(()))
        await writer.open()
        yield writer
    finally:
        await client.close()


async def registers_what_was_restored(new: Deployment, before: dict[int, int], after: dict[int, int]) -> None:
    async with restored_writer(new) as writer:
        token = writer.incarnation << 40
        assert writer.incarnation > 1 << 16
        assert all(token >> 40 > old >> 40 for old in after.values())
        ids = list(before)
        for _ in range(30):  # a busy machine may not even answer within the second
            waiting = await writer.client.insert(rows(ids[:100], [token] * 100), timeout=1.0)
            assert set(waiting.outcomes.tolist()) == {Answer.UNKNOWN}
            if "closed" in writer.client.problem:
                break
        assert "closed" in writer.client.problem
        await new.good("restore", "--accept-boundary", "now", "--yes")
        assert (await new.command("restore", "--open", "--yes")).code == 1
        found = await writer.client.insert(rows(ids, [token] * len(ids)), timeout=10.0)
        assert set(found.outcomes.tolist()) == {Answer.TAKEN}
        assert found.owner_tokens.tolist() == list(before.values())
        since = [each for each in after if each not in before]
        found = await writer.client.insert(rows(since, [token] * len(since)), timeout=10.0)
        # Ids in the backup, and ids that nobody may own any more.
        assert set(found.outcomes.tolist()) <= {Answer.TAKEN, Answer.BELOW_BOUNDARY}
        assert Answer.BELOW_BOUNDARY in found.outcomes
    assert (await new.command("doctor")).code == 0


@contextmanager
def stopped_at_the_end(made: Deployment) -> Iterator[Deployment]:
    try:
        yield made
    finally:
        for name in list(made.running):
            made.kill(name)


PIPELINE = """
key_file = "key"
[join.clicks]
[join.clicks.primary]
format = "jsonl"
key = "q"
[join.clicks.foreign]
format = "jsonl"
key = "q"
id = "i"
time = { field = "t", unit = "ns" }
[datacentre.east]
join = "clicks"
primary = "p"
foreign = "f"
output = "output"
state = "state"
address = "127.0.0.1:1"
"""
KEY = b"0123456789abcdef0123456789abcdef"


def pipeline(directory: Path) -> Deployment:
    directory.mkdir()
    (directory / "key").write_bytes(KEY)
    keys, tables = PIPELINE.split("[", 1)
    made = Deployment(directory, more="[" + tables)
    made.file.write_text(keys + made.file.read_text())
    return made


def line(event: int, token: int) -> bytes:
    return (
        f'{{"event_id":"e{event}","key":"k","event_time_ns":{event},"foreign":{{}},"primary":{{}},'
        f'"token":"{token:016x}"}}\n'
    ).encode()


def inserts(events: range, token: int) -> Ids:
    n = len(events)
    digests = Digester(KEY, "clicks").digests([f"e{event}".encode() for event in events])
    times = np.array(events, np.int64)
    return Ids(digests, times, np.full(n, token, np.uint64), np.ones(n, np.uint8), np.zeros(n, np.uint32))


@pytest.mark.timeout(150)
async def test_what_outputs_hold_is_registered_again_before_a_restored_registry_opens(tmp_path: Path) -> None:
    """A backup, then more is registered and written; a new deployment from the backup learns it from the outputs."""
    with stopped_at_the_end(pipeline(tmp_path / "old")) as made:
        for name in made.addresses:
            made.start(name)
        await made.settled()
        client = made.client()
        opened = await client.open_slot(Slot("w0", "east"), 0, b"first nonce")
        assert opened is not None
        client.announce(Slot("w0", "east"), [opened.incarnation])
        early, late = (token_of(opened.incarnation, batch) for batch in (1, 2))
        assert await insert_known(client, inserts(range(100), early)) == {Answer.COMMITTED}
        await made.good("backup", str(tmp_path / "backup"))
        assert await insert_known(client, inserts(range(100, 200), late)) == {Answer.COMMITTED}
        # A slot that was opened only after the backup, twice.
        second = await client.open_slot(Slot("w0", "east"), opened.incarnation, b"second nonce")
        assert second is not None
        await client.close()
    with stopped_at_the_end(pipeline(tmp_path / "new")) as new:
        joined = tmp_path / "new" / "output" / "joined"
        joined.mkdir(parents=True)
        (joined / "w0-000001.jsonl.gz").write_bytes(gzip.compress(b"".join(line(e, early) for e in range(50))))
        rest = [line(e, early) for e in range(50, 100)] + [line(e, late) for e in range(100, 200)]
        (joined / "w0-000002.jsonl").write_bytes(b"".join(rest) + line(200, late)[:40])
        shown = await new.good("restore", str(tmp_path / "backup"), "--dry-run")
        assert "would get" in shown.out
        assert not list((tmp_path / "new").glob("r1/*"))
        await new.good("restore", str(tmp_path / "backup"), "--yes")
        for name in new.addresses:
            new.start(name)
        await new.settled()
        shown = (await new.good("restore", "--register-again", "--dry-run", "-o", "json")).json()["datacentres"]
        assert [each["lines"] for each in shown] == [200]
        [said] = (await new.good("restore", "--register-again", "--yes", "-o", "json")).json()
        assert (said["lines"], said["registered"], said["taken"]) == (200, 200, 0)
        assert (await new.good("restore", "--register-again", "--yes", "-o", "json")).json() == [said]
        assert "would be opened" in (await new.good("restore", "--open", "--dry-run")).out
        await new.good("restore", "--open", "--yes")
        would = await new.command("restore", "--register-again", "--dry-run")
        assert (would.code, "no shard is closed" in would.err) == (1, True)
        refused = await new.command("restore", "--register-again", "--yes")
        assert refused.code == 1
        assert "is open" in refused.err
        client = new.client()
        try:
            # The slot's directory remembers an incarnation that the backup has never heard of.
            third = await client.open_slot(Slot("w0", "east"), second.incarnation, b"third nonce")
            assert third is not None
            assert third.incarnation > second.incarnation + (1 << 15), third.reason
            client.announce(Slot("w0", "east"), [opened.incarnation, second.incarnation, third.incarnation])
            assert await insert_known(client, inserts(range(100, 200), late)) == {Answer.COMMITTED}
            own = token_of(third.incarnation, 1)
            assert await insert_known(client, inserts(range(200), own)) == {Answer.TAKEN}
            assert await insert_known(client, inserts(range(50), early)) == {Answer.DONE}
        finally:
            await client.close()


@pytest.mark.timeout(120)
async def test_status_members_doctor_and_their_exit_codes(tmp_path: Path) -> None:
    with deployment(tmp_path) as made:
        nobody = await Deployment(tmp_path / "elsewhere").command("status")
        assert nobody.code == 1
        assert nobody.err.startswith("photon: no registry replica answers")
        await made.settled()
        async with loaded(made) as load:
            await load.more(2_000)
            await load.stop()
            status = (await made.good("status", "-o", "json")).json()
            owned = load.owned()
            assert sum(group["ids"] for group in status["groups"]) == len(owned)
            assert (await made.good("doctor", "-o", "json")).json() == []
        made.kill("r2")
        assert (await made.command("members")).code == 3
        sick = await made.command("doctor", "-o", "json")
        assert sick.code == 1
        assert any(each["where"] == "replica r2" for each in sick.json())
        would = await made.command("transfer-leader", "--group", "0", "--to", "r2", "--dry-run")
        assert (would.code, "r2 does not answer" in would.err) == (1, True)
        usage = await photon("registry", "transfer-leader", "--config", str(made.file))
        assert usage.code == 2


@pytest.mark.timeout(120)
async def test_over_tls_only_operators_are_served(tmp_path: Path) -> None:
    made = pipeline(tmp_path / "d")
    made.file.write_text(made.file.read_text() + '\n[tls]\ndirectory = "certs"\n')
    assert (await photon("certs", "for", str(made.file))).code == 0
    with stopped_at_the_end(made):
        for name in made.addresses:
            made.start(name)
        await made.settled()
        assert (await made.good("doctor")).out == "3 replicas: nothing found\n"
        joiner = OperatorClient(made.addresses, tls_in(tmp_path / "d" / "certs", "datacentre-east"))
        with joiner:
            found = await asyncio.to_thread(joiner.inspect_all)
            assert {each.why for each in found.values()} == {
                "refused: the presented certificate is not an operator's"
            }
            assert all(each.reply is None for each in found.values())
            with pytest.raises(RegistryUnreachable, match="not an operator's"):
                await asyncio.to_thread(list, joiner.export("r1", Mark(1, b"mark", 1, 1)))
        (tmp_path / "d" / "certs" / "operator.crt").unlink()
        without = await made.command("status")
        assert without.code == 2
        assert without.err.count("\n") == 1

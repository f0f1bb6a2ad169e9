"""A joiner's disk is permanently gone: its slot is retired over real processes that are killed and stopped
anywhere."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from subprocess import TimeoutExpired

import msgspec
import pytest

from photon.config.clock import SystemClock
from photon.config.disk import RealDisk
from photon.fleet.ledger import balances
from photon.idregistry.client.grpc_client import RegistryClient
from photon.idregistry.core.outcomes import Refusal
from photon.joiner.slot.place import DIRECTORY_OF
from photon.joiner.slot.place import KINDS as WITNESSED
from photon.lab.demo.check import records
from photon.lab.demo.deployment import Shape
from photon.operations.slots.retiring import ALL_INCARNATIONS
from photon.outputs import OutputPlace, Reader
from photon.outputs.log.format import name_of
from tests.integration.commands import drawn_seed, soon
from tests.integration.forked import begin
from tests.integration.rig import SETTLE_S, Rig

FULL = bool(os.environ.get("PHOTON_FULL"))
SECONDS = 5.0
KINDS = ("joined", "unmatched")
DIRECTORIES = ("joined", "filtered", "unmatched", "rejected")
LOST = "east-1"
GONE_S = 60.0
REST_S = 90.0
RUNS_KILLED = 3
LONGER_THAN_EVERY_TIME_OUT_S = 50.0


class LosingRig(Rig):
    """A deployment that loses the disk of one joiner, and an operator who retires its slot."""

    def __init__(self, directory: Path, seed: int) -> None:
        shape = Shape(joiners=2, unmatched_after_s=3.0, round_trip_s=None)
        super().__init__(directory, seed, seconds=SECONDS, shape=shape)
        self.lost = directory / "lost"
        self.copied = directory / "saved"
        self.file = directory / "photon.toml"
        self.ids = directory / "ids.jsonl"
        self.with_copy = False
        self._place = self.demo.places["east"]

    @property
    def _state(self) -> Path:
        return self._place.state / "slots" / LOST

    # -- what happens -----------------------------------------------------------------------------------------------
    def has_written(self) -> bool:
        return any((self._place.output / "joined").glob(f"{LOST}-*"))

    def take_away(self) -> None:
        """The disk is gone: its contents are kept for the final check, out of everybody's reach."""
        self._take_output("")
        if self._state.exists():
            self._state.rename(self.lost / "state")

    def _take_output(self, prefix: str) -> None:
        for kind in DIRECTORIES:
            (self.lost / kind).mkdir(parents=True, exist_ok=True)
            for path in (self._place.output / kind).glob(f"{LOST}-*"):
                path.rename(self.lost / kind / f"{prefix}{path.name}")

    async def save(self) -> None:
        """A copy of its output survived: a byte-wise prefix that has all that the registry knows of. It hears of it
        before readers are shown it."""
        self.with_copy = True
        known = await self._known()
        for kind in DIRECTORIES:
            (self.copied / kind).mkdir(parents=True)
            for path in (self.lost / kind).iterdir():
                least, data = known.get(f"{kind}/{path.name}", 0), path.read_bytes()
                cut = self.random.randint(least, len(data))
                print(f"the copy of {kind}/{path.name}: {cut} bytes of {len(data)}, {least} are known")
                (self.copied / kind / path.name).write_bytes(data[:cut])
        shutil.rmtree(self.lost)

    async def holds_something(self) -> bool:
        """True if it has written something not yet shown to readers: then it has to ask the registry."""
        known = await self._known()
        lines = [(f"{kind}/{path.name}", path) for kind in DIRECTORIES for path in (self.lost / kind).iterdir()]
        return any(path.stat().st_size > known.get(name, 0) for name, path in lines)

    async def _known(self) -> dict[str, int]:
        """Bytes of its output that the registry knows of, by file."""
        async with self._registry() as client:
            slots = await client.recovery.list_slots(timeout=5)
        assert not isinstance(slots, Refusal)
        (witness,) = (each.witness for each in slots if each.name == LOST)
        logs = zip((DIRECTORY_OF[kind] for kind in WITNESSED), witness, strict=False)
        return {name_of(kind, LOST, log.number): log.length for kind, log in logs}

    async def retire(self) -> None:
        """Killed at random moments and begun again, until it reports that it is done."""
        for _ in range(RUNS_KILLED):
            code = await self._command(self.random.uniform(0.5, 8.0))
            print(f"retire: {'killed' if code is None else f'exit code {code}'}")
            if code is not None:
                break
        assert await self._command(None) == 0
        again = await self._command(None)  # done is done
        assert again == 0

    async def _command(self, kill_after_s: float | None) -> int | None:
        """Its exit code; ``None`` means that it was killed."""
        copy = ["--copy", str(self.copied)] if self.with_copy else []
        arguments = ["slot", "retire", LOST, "--config", str(self.file), "--ids", str(self.ids), "--yes", *copy]
        process = begin(*arguments)
        try:
            return await asyncio.to_thread(process.wait, kill_after_s or REST_S)
        except TimeoutExpired:
            process.kill()
            process.wait()
            assert kill_after_s is not None, "retiring did not come to its end"
            return None

    # -- the reckoning ----------------------------------------------------------------------------------------------
    async def settled(self) -> None:
        """Every record has its verdict, and no id is owned or reopened."""
        lines = self.generator.truth.lines
        async with asyncio.timeout(SETTLE_S):
            while any(each["read"] != lines or each["pending"] for each in self.observer.ledgers().values()):  # noqa: ASYNC110
                await asyncio.sleep(0.2)
        async with self._registry() as client, asyncio.timeout(REST_S):
            while left := await self._unrest(client):
                print(left)
                await asyncio.sleep(0.5)
        self._take_output("woken-")  # possible output of a process that slept, after it woke up

    @asynccontextmanager
    async def _registry(self) -> AsyncIterator[RegistryClient]:
        client = RegistryClient(self.demo.replicas, clock=SystemClock())
        try:
            yield client
        finally:
            await client.close()

    async def _unrest(self, client: RegistryClient) -> str:
        slots = await client.recovery.list_slots(timeout=5)
        shards = await client.recovery.shards(timeout=5)
        if isinstance(slots, Refusal) or not shards:
            return "the registry does not answer"
        for shard in shards:
            pages = [await client.recovery.scan_owned(shard, s.name, ALL_INCARNATIONS, timeout=5) for s in slots]
            pages.append(await client.recovery.scan_reopened(shard, timeout=5))
            for page in pages:
                if isinstance(page, Refusal) or len(page) or page.cursor:
                    return f"shard {shard}: ids are owned or reopened"
        return ""

    def verify(self) -> None:
        self._check_ledgers()
        expected = self.generator.truth.joined.keys() | self.generator.truth.unmatched
        if self.with_copy:
            counts = self._published()
            assert counts == dict.fromkeys(expected, 1), _odd(counts, expected)
            return
        listed = self._listed()
        live, lost = self._counted(place.output for place in self.demo.places.values()), self._counted([self.lost])
        print(f"{len(listed)} ids listed, {lost.total()} records lost, {live.total()} stand")
        once = [each for each in expected if live[each] + (0 if each in listed else lost[each]) == 1]
        assert len(once) == len(expected), _odd(live + lost, expected)
        assert all(lost[each] <= 1 for each in listed)
        assert listed <= expected == live.keys() | lost.keys()

    def _check_ledgers(self) -> None:
        """Each balances; together they count each event once, except for given-up ones: a line that was not counted
        yet when its id was given up is counted by its final verdict (docs/dispatcher.md, redispatched events)."""
        ledgers, truth, listed = self.observer.ledgers(), self.generator.truth, len(self._listed())
        for name, ledger in ledgers.items():
            assert balances(ledger), (name, ledger)
            assert (ledger["read"], ledger["rejected"]) == (truth.lines, truth.malformed), (name, ledger)
        for verdict, count in (("joined", len(truth.joined)), ("unmatched", len(truth.unmatched))):
            assert abs(sum(ledger[verdict] for ledger in ledgers.values()) - count) <= listed, (verdict, ledgers)

    def _listed(self) -> set[str]:
        found = {each["event_id"] for each in map(msgspec.json.decode, self.ids.read_bytes().splitlines()[1:])}
        assert None not in found, "an id was not found in the logs"
        return found

    def _counted(self, outputs: Iterable[Path]) -> Counter[str]:
        return Counter(str(each["event_id"]) for at in outputs for kind in KINDS for each in records(at / kind))

    def _published(self) -> Counter[str]:
        """Records shown to readers of both datacentres, including the sealed copy."""
        counts: Counter[str] = Counter()
        for place in self.demo.places.values():
            for block in Reader(RealDisk(), OutputPlace(place.output, place.state), KINDS).read():
                counts.update(re.findall(r'^\{"event_id":"([^"]+)"', block.data.decode(), re.MULTILINE))
        return counts


def _odd(counts: Counter[str], expected: Iterable[str]) -> dict[str, int]:
    return {each: counts[each] for each in expected if counts[each] != 1}


async def killed(rig: Rig) -> None:
    """kill -9, and its disk is gone."""
    assert isinstance(rig, LosingRig)
    await rig.pause(0.5, SECONDS - 1.0)
    rig.supervisor.kill(f"joiner {LOST}", hold=True)
    await rig._gone([f"joiner {LOST}"])
    rig.take_away()
    await rig.retire()


async def copied(rig: Rig) -> None:
    """The same, and a copy of its output is left."""
    assert isinstance(rig, LosingRig)
    await rig.pause(1.0, SECONDS - 1.0)
    await soon(rig.has_written, SETTLE_S, "there is something to copy")
    rig.supervisor.kill(f"joiner {LOST}", hold=True)
    await rig._gone([f"joiner {LOST}"])
    rig.take_away()
    await rig.save()
    await rig.retire()


async def stopped(rig: Rig) -> None:
    """SIGSTOP; retired meanwhile. It writes no record that is elsewhere and unlisted, and ends when it wakes up,
    unless nothing is left to do: nobody asks it any more."""
    assert isinstance(rig, LosingRig)
    await rig.pause(0.5, SECONDS - 1.0)
    name = f"joiner {LOST}"
    pid = rig.supervisor.pause(name)
    rig.take_away()
    must_end = await rig.holds_something()
    await rig.retire()
    if FULL:
        await asyncio.sleep(rig.random.uniform(0, LONGER_THAN_EVERY_TIME_OUT_S))
    rig.supervisor.resume(name)
    async with asyncio.timeout(GONE_S):
        while must_end and rig.supervisor.pid(name) == pid:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
    rig.supervisor.kill(name, hold=True)


async def all_killed(rig: Rig) -> None:
    """All processes are killed while the slot is being retired."""
    assert isinstance(rig, LosingRig)
    await rig.pause(0.5, SECONDS - 1.0)
    rig.supervisor.kill(f"joiner {LOST}", hold=True)
    await rig._gone([f"joiner {LOST}"])
    rig.take_away()
    names = [s.name for s in rig.demo.deployment.services() if s.name != f"joiner {LOST}"]
    rig.random.shuffle(names)

    async def kill() -> None:
        for name in names[:6]:
            await rig.pause(0.2, 2.0)
            await rig.kill(name)

    await asyncio.gather(rig.retire(), kill())


DRILLS = (killed, stopped, copied)


@pytest.mark.parametrize("drill", DRILLS, ids=lambda drill: drill.__name__)
async def test_each_event_exactly_once_but_the_listed_ones(tmp_path: Path, drill: object) -> None:
    assert callable(drill)
    await LosingRig(tmp_path, drawn_seed()).run(drill)


@pytest.mark.full
@pytest.mark.parametrize("number", range(20))
async def test_rounds(tmp_path: Path, number: int) -> None:
    await LosingRig(tmp_path, drawn_seed()).run((*DRILLS, all_killed)[number % 4])

"""A deployment with raw logs of some hours, its registry, and the expected result of a backfill."""

from __future__ import annotations

import asyncio
import gzip
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from photon.config.clock import SystemClock
from photon.config.loader import load
from photon.idregistry.client.grpc_client import RegistryClient
from photon.idregistry.core.outcomes import Refusal
from photon.objects.disk import UrlDisk
from photon.outputs.output_places import KINDS, OutputPlace
from photon.spark.backfill.known import BackfillJob, BackfillPaths, read_job
from photon.supervision.deployment import Deployment
from photon.supervision.supervisor import Supervisor
from tests.deployments import deployment, join
from tests.integration.supervised import supervised

T = 1_760_000_400  # a whole hour
HOURS = 3


@dataclass
class Site:
    """``pairs``: click -> file and offset of the query that it must be joined with."""

    directory: Path
    registry: str
    pairs: dict[str, tuple[str, int]] = field(default_factory=dict)
    without: set[str] = field(default_factory=set)  # clicks that name no query

    @property
    def file(self) -> Path:
        return self.directory / "photon.toml"

    def arguments(self, output: Path, *more: str) -> list[str]:
        """Arguments of ``photon spark backfill`` over everything there."""
        whole = ["--from", str(T), "--to", str(T + HOURS * 3600)]
        return ["spark", "backfill", "--config", str(self.file), *whole, "--output", str(output), *more]

    @asynccontextmanager
    async def running(self, nouns: Sequence[str] = ("registry",)) -> AsyncIterator[Supervisor]:
        """Running processes whose labels have this prefix."""
        deployment = Deployment(self.file, load(self.file, environment={}), self.directory / "run")
        async with supervised(deployment) as supervisor:
            await supervisor.start([each for each in deployment.services() if each.name.split()[0] in nouns])
            await supervisor.ready(60)
            yield supervisor

    async def owned(self, slot: str) -> int:
        """Ids that a slot owns."""
        client = RegistryClient({"r1": self.registry}, clock=SystemClock())
        try:
            total = 0
            for shard in await client.recovery.shards(timeout=20):
                page = await client.recovery.scan_owned(shard, slot, (1 << 24) - 1, timeout=20)
                assert not isinstance(page, Refusal)
                total += len(page)
            return total
        finally:
            await client.close()


def make_site(directory: Path, clicks: int, *, seed: int = 1, text: int = 20) -> Site:
    """Logs in several files, one compressed; keys that occur twice, an unreadable line, clicks without query."""
    joined = join(key="query_id", event_id="click_id", time="time_us", unit="us")
    file = deployment(directory, joined, "eventstore", "dispatcher", "joiners.east-1", top="[registry]\nshards = 2\n")
    site = Site(directory, load(file, environment={}).registry.replicas["r1"].address)
    random = Random(seed)
    queries = directory / "queries"
    places: dict[int, tuple[str, int]] = {}
    count = max(clicks // 2, 1)
    for part in ("a.log", "b.log"):
        lines, offset = [], 0
        for n in range(count) if part == "a.log" else range(count // 2, count + count // 2):
            line = json.dumps({"query_id": f"q{n}", "words": "w" * text}).encode() + b"\n"
            places.setdefault(n, (part, offset))  # the first one of a key counts
            lines.append(line)
            offset += len(line)
        (queries / part).write_bytes(b"".join(lines))
    logs: list[list[bytes]] = [[], [], []]
    for n in range(clicks):
        # One key has a third of all clicks.
        query = 7 if random.random() < 0.3 else random.randrange(count + count // 2 + count // 10)
        time = T * 10**6 + random.randrange(HOURS * 3600 * 10**6)
        record = {"click_id": f"c{n}", "query_id": f"q{query}", "time_us": time, "text": "x" * text}
        logs[n % 3].append(json.dumps(record).encode() + b"\n")
        if query in places:
            site.pairs[f"c{n}"] = places[query]
        else:
            site.without.add(f"c{n}")
    logs[0].insert(len(logs[0]) // 2, b"not a record\n")
    logs[1].append(logs[0][0])  # the same line in two logs
    logs[1].append(json.dumps({"click_id": "old", "query_id": "q1", "time_us": (T - 9999) * 10**6}).encode() + b"\n")
    for n, name in enumerate(("c1.log", "c2.log", "c3.log.gz")):
        data = b"".join(logs[n])
        (directory / "clicks" / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return site


def job_of(output: Path) -> BackfillJob:
    job = read_job(UrlDisk(), BackfillPaths(output).job)
    assert job is not None
    return job


def published(output: Path) -> dict[str, list[dict[str, Any]]]:
    """The published records, by kind; checks that there are no others."""
    found: dict[str, list[dict[str, Any]]] = {}
    names = set[str]()
    for slot in OutputPlace.of_join(output).published(UrlDisk()):
        for file in slot.files:
            data = (output / file.name).read_bytes()
            assert len(data) == file.length
            found.setdefault(file.kind, []).extend(json.loads(line) for line in data.splitlines())
            names.add(file.name)
    there = {str(path.relative_to(output)) for kind in KINDS for path in (output / kind).glob("*")}
    assert there == names
    return found


def staged(output: Path) -> list[Path]:
    """Files that the tasks have written."""
    return list(output.glob(".photon/slots/*/spark/parts/*"))


def check_pairs(site: Site, records: Sequence[dict[str, Any]]) -> None:
    """Every click that has a query exactly once, with the first record of its key."""
    ids = [record["event_id"] for record in records]
    assert len(ids) == len(set(ids))
    assert set(ids) == set(site.pairs)
    for record in records:
        place = record["primary_source"]
        assert (place["file"], place["offset"]) == site.pairs[record["event_id"]]


async def in_thread(call: Any, *arguments: Any) -> Any:
    """Blocking work in parallel with processes that this loop supervises."""
    return await asyncio.to_thread(call, *arguments)

"""photon spark backfill with a real registry: exactly once, alone and next to others, killed and run again."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from photon.cli.heads import Deployed
from photon.cli.spark.verify import _export
from photon.config.clock import SystemClock
from photon.config.errors import UsageError
from photon.config.loader import load
from photon.idregistry.client.grpc_client import RegistryClient
from photon.operations.spark_backfill import Wish, backfill
from photon.operations.spark_verify import Wish as Nightly
from photon.operations.spark_verify import nightly
from photon.spark.backfill.driver import BackfillFailed
from photon.spark.backfill.registry_boundary import boundary_in
from photon.spark.backfill.run import BackfillOutcome
from tests.integration.forked import Process, begin
from tests.spark.backfill_site import HOURS, Site, T, check_pairs, in_thread, make_site, manifest_of, published
from tests.spark.cluster import Cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NS = 10**9
CLICKS = 4000


def run_here(site: Site, output: Path, **more: object) -> BackfillOutcome:
    """In this process's session."""
    wish = Wish(None, T * NS, (T + HOURS * 3600) * NS, output, "jsonl", False, 3600.0)
    wish = Wish(**{**{name: getattr(wish, name) for name in wish.__dataclass_fields__}, **more})  # type: ignore[arg-type]
    return backfill(load(site.file, environment={}), site.directory, wish, print)


async def test_a_range_is_joined_exactly_once_and_nothing_is_owned_at_rest(
    spark: SparkSession, tmp_path: Path
) -> None:
    site, output = make_site(tmp_path / "site", CLICKS), tmp_path / "out"
    async with site.running():
        done = await in_thread(run_here, site, output)
        found = published(output)
        assert set(found) == {"joined"}
        check_pairs(site, found["joined"])
        counts = done.counts
        assert counts is not None
        assert (counts.events, counts.unreadable, counts.elsewhere) == (CLICKS + 1, 1, 0)
        assert (counts.without_primary, counts.won, counts.own) == (len(site.without), len(site.pairs), 1)
        assert done.cleared == len(site.pairs)
        assert await site.owned(done.manifest.slot) == 0
        assert not list((output / ".backfill" / "staging").iterdir())
        again = await in_thread(run_here, site, output)
        assert (again.counts, again.manifest) == (None, done.manifest)
        # Another directory: everything is registered, and nobody writes it twice.
        other = await in_thread(lambda: run_here(site, tmp_path / "other", unmatched=True))
        assert published(tmp_path / "other").keys() == {"unmatched"}
        assert other.counts is not None
        assert other.counts.elsewhere == len(site.pairs)
        assert {r["event_id"] for r in published(tmp_path / "other")["unmatched"]} == site.without


async def test_parquet_has_the_same_records(spark: SparkSession, tmp_path: Path) -> None:
    site, output = make_site(tmp_path / "site", 600), tmp_path / "out"
    async with site.running():
        done = await in_thread(lambda: run_here(site, output, format="parquet", unmatched=True))
        rows = spark.read.parquet(str(output / "joined")).collect()
        assert {bytes(row.event_id).decode() for row in rows} == set(site.pairs)
        assert len(rows) == len(site.pairs)
        for row in rows:
            assert (row.primary_file, row.primary_offset) == site.pairs[bytes(row.event_id).decode()]
            assert json.loads(bytes(row.foreign))["click_id"] == bytes(row.event_id).decode()
            assert row.hour.strftime("%H") if hasattr(row.hour, "strftime") else row.hour
        assert done.manifest.records() == {"joined": len(site.pairs), "unmatched": len(site.without)}
        await verified_with_a_moved_output(site, output, tmp_path / "moved")


async def verified_with_a_moved_output(site: Site, output: Path, moved: Path) -> None:
    """A backfill known to its deployment, a moved one that is named, and a damaged one."""
    events = len(site.pairs) + len(site.without)
    assert await verified(site, moved.parent / "known") == {"correct": events}
    os.rename(output, moved)
    assert (await verified(site, moved.parent / "moved-away")).keys() == {"lost-cleared"}
    if os.environ.get("PHOTON_FULL"):  # else the next one says it of all files but one, and the first of that one
        assert await verified(site, moved.parent / "named", moved) == {"correct": events}
    [file, *_] = [each for each in manifest_of(moved).files if each.kind == "joined"]
    (moved / file.name).write_bytes((moved / file.name).read_bytes()[:-1])
    assert await verified(site, moved.parent / "damaged", moved) == {
        "correct": events - file.records, "lost-cleared": file.records, "torn": 1,
    }  # fmt: skip


async def verified(site: Site, report: Path, *backfills: Path) -> dict[str, int]:
    """Events by class, if any; except for the one line that no dispatcher has rejected."""
    settings = load(site.file, environment={})
    wish = Nightly(from_ns=T * NS, to_ns=(T + HOURS * 3600) * NS, report=report, backfills=backfills)
    export = partial(_export, Deployed(site.file, (), None, "table"))
    outcome = await in_thread(lambda: nightly(settings, site.directory, wish, export, print))
    assert outcome.verdict.counts["lost-unreadable"] == 1
    return {name: count for name, count in outcome.verdict.counts.items() if count and name != "lost-unreadable"}


async def test_what_cannot_be_done_is_refused_in_one_line(spark: SparkSession, tmp_path: Path) -> None:
    site, output = make_site(tmp_path / "site", 30), tmp_path / "out"
    hdfs = Path("hdfs://name/out")
    with pytest.raises(UsageError, match="Hadoop file systems are not supported"):
        run_here(site, hdfs)
    now = time.time_ns()
    with pytest.raises(UsageError, match="the live pipeline is still at it"):
        run_here(site, output, to_ns=now)
    with pytest.raises(UsageError, match="is not before --to"):
        run_here(site, output, to_ns=T * NS)
    async with site.running():
        await in_thread(run_here, site, output)
        with pytest.raises(UsageError, match="was begun with unmatched = False"):
            await in_thread(lambda: run_here(site, output, unmatched=True))
        (site.directory / "key").write_bytes(b"another key of 32 bytes, surely.")
        with pytest.raises(UsageError, match="not those that the registry was filled under"):
            await in_thread(run_here, site, tmp_path / "other")


async def test_what_the_registry_has_forgotten_is_compared_with_all_output(
    spark: SparkSession, tmp_path: Path
) -> None:
    site, output = make_site(tmp_path / "site", 600), tmp_path / "out"
    site.file.write_text(site.file.read_text().replace("shards = 2", 'shards = 2\nretention = "1h"'))
    there = set(sorted(site.pairs)[::2])
    lines = "".join(
        json.dumps(
            {
                "event_id": event, "key": "k", "event_time_ns": T * NS, "foreign": {}, "primary": {},
                "source": {"file": "c1.log", "offset": 0}, "primary_source": {"file": "a.log", "offset": 0},
                "joined_at": "2026-01-01T00:00:00.000000Z", "token": "0000010000000001",
            },
            separators=(",", ":"),
        ) + "\n"
        for event in there
    )  # fmt: skip
    slot = site.directory / "state" / "slots" / "east-1"
    slot.mkdir(parents=True)
    (site.directory / "output" / "joined").mkdir(parents=True)
    file = "joined/east-1-000001.jsonl"
    (site.directory / "output" / file).write_text(lines)
    (slot / "durable.json").write_text(json.dumps({"version": 1, "slot": "east-1", "files": {file: len(lines)}}))
    async with site.running():
        client = RegistryClient({"r1": site.registry}, clock=SystemClock())
        deadline = time.monotonic() + 120
        while await boundary_in(client, T * NS, (T + HOURS * 3600) * NS) is not None:
            assert time.monotonic() < deadline, "the boundary moves"
            await asyncio.sleep(0.2)
        await client.close()
        with pytest.raises(UsageError, match="forgotten all of the range, which is below its boundary"):
            await in_thread(run_here, site, output)
        done = await in_thread(lambda: run_here(site, output, compare_below=True))
        records = published(output)["joined"]
        assert sorted(record["event_id"] for record in records) == sorted(set(site.pairs) - there)
        assert all("token" not in record for record in records)
        assert all(
            (record["primary_source"]["file"], record["primary_source"]["offset"]) == site.pairs[record["event_id"]]
            for record in records
        )
        assert (done.cleared, done.manifest.counts["elsewhere"]) == (0, 0)
        # An event with a record in an unreadable file is not written again.
        (site.directory / "output" / file).write_text(lines[:-9] + "x" * 8 + "\n")
        with pytest.raises(BackfillFailed, match=r"joined/east-1-000001.jsonl, byte \d+: .* repair it"):
            await in_thread(lambda: run_here(site, tmp_path / "other", compare_below=True))


# -- drivers of their own: killed --------------------------------------------------------------------------------
@contextmanager
def driver_of(site: Site, output: Path, log: Path, *more: str, master: str = "local[2]") -> Iterator[Process]:
    """The command in a separate session, with its Java process and workers; killed with them at the end."""
    backfill = site.arguments(output, "--master", master, "--batch-rows", "100", *more)
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable}
    with open(log, "ab") as file:
        process = begin(*backfill, "-o", "json", stdout=file, stderr=file, start_new_session=True, env=environment)
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


async def until(condition: Callable[[], bool], what: str, seconds: float = 400) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.02)


async def test_a_driver_that_is_killed_goes_on_where_it_was(spark: SparkSession, tmp_path: Path) -> None:
    """kill -9 of the driver with its Java process and its workers, once mid-run; the next run ends it."""
    site, output, log = make_site(tmp_path / "site", 6000), tmp_path / "out", tmp_path / "log"
    staging = output / ".backfill" / "staging"
    async with site.running():
        with driver_of(site, output, log, "--spark", "spark.sql.adaptive.advisoryPartitionSizeInBytes=64k"):
            await until(lambda: staging.exists() and any(staging.glob("*.batch")), "a batch is staged")
        assert not (output / "manifest.json").exists()
        await in_thread(run_here, site, output)
        check_pairs(site, published(output)["joined"])
        assert await site.owned(manifest_of(output).slot) == 0


FAULTY = '''
"""Joins as any adapter; after some records it ends once a worker, once an executor, and once it is slow."""
import os, signal, time
import orjson
from photon.adapters.contract import Adapter, BadRecord, ForeignHeader


def first(path):
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL))
        return True
    except FileExistsError:
        return False


def parent(pid):
    return int(open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[1])


class Faulty(Adapter):
    def __init__(self, options):
        super().__init__(options)
        self.calls = 0

    def foreign_header(self, record, file):
        try:
            found = orjson.loads(record)
        except orjson.JSONDecodeError:
            raise BadRecord("not JSON") from None
        return ForeignHeader(found["query_id"].encode(), found["time_us"] * 1000, found["click_id"].encode())

    def primary_key(self, record, file):
        return orjson.loads(record)["query_id"].encode()

    def foreign_payload(self, record, file):
        return record

    primary_payload = foreign_payload

    def join(self, *pair):
        self.calls += 1
        markers = self.options["markers"]
        if self.calls == 300 and first(markers + "/worker"):
            os.kill(os.getpid(), signal.SIGKILL)
        if self.calls == 300 and first(markers + "/executor"):
            os.kill(parent(parent(os.getpid())), signal.SIGKILL)
        if self.calls == 250 and os.path.exists(markers + "/executor") and first(markers + "/slow"):
            time.sleep(20)
        return super().join(*pair)
'''


def make_faulty(site: Site) -> None:
    markers = site.directory / "markers"
    markers.mkdir()
    (site.directory / "faulty.py").write_text(FAULTY)
    text = site.file.read_text()
    begin, end = text.index("[join.clicks.primary]"), text.index("[registry.replicas.r1]")
    join = f'[join.clicks]\nadapter = "faulty.py:Faulty"\n[join.clicks.options]\nmarkers = "{markers}"\n'
    site.file.write_text(text[:begin] + join + text[end:])


async def test_killed_workers_and_executors_and_speculation_lose_nothing_and_double_nothing(
    cluster: Cluster, tmp_path: Path
) -> None:
    """A Python worker is killed, then an executor, and a slow task runs twice."""
    site, output, log = make_site(tmp_path / "site", 6000), tmp_path / "out", tmp_path / "log"
    make_faulty(site)
    settings = {
        "speculation": "true", "speculation.interval": "100ms", "speculation.multiplier": "1.01",
        "speculation.quantile": "0.1", "speculation.minTaskRuntime": "100ms",
        "sql.adaptive.advisoryPartitionSizeInBytes": "64k",
    }  # fmt: skip
    more = [flag for name, value in settings.items() for flag in ("--spark", f"spark.{name}={value}")]
    async with site.running():
        with driver_of(site, output, log, *more, master=cluster.master) as driver:
            assert await in_thread(driver.wait, 1000) == 0, log.read_text()
        found = sorted(path.name for path in (site.directory / "markers").iterdir())
        assert found == ["executor", "slow", "worker"]
        check_pairs(site, published(output)["joined"])
        (said,) = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
        assert said["events"]["duplicate"] == 1
        assert await site.owned(manifest_of(output).slot) == 0
        # The second attempt met the ids won by the first.
        assert manifest_of(output).counts["own"] > 1


async def test_beside_a_live_pipeline_every_event_is_there_once(spark: SparkSession, tmp_path: Path) -> None:
    site, output = make_site(tmp_path / "site", 6000), tmp_path / "out"
    live = site.directory / "output" / "joined"
    async with site.running(["registry", "eventstore", "joiner", "dispatcher"]):
        await in_thread(run_here, site, output)
        found = [record["event_id"] for record in published(output).get("joined", [])]

        def elsewhere() -> list[str]:
            lines = [line for file in live.glob("*.jsonl") for line in file.read_bytes().splitlines(keepends=True)]
            return [json.loads(line)["event_id"] for line in lines if line.endswith(b"\n")]

        wanted = len(site.pairs) + 1  # the old click is outside of the range
        await until(lambda: len(found) + len(elsewhere()) >= wanted, "all are joined by one of them")
        both = found + elsewhere()
        assert len(both) == len(set(both)) == wanted
        assert set(both) == {*site.pairs, "old"}
        assert await site.owned(manifest_of(output).slot) == 0

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
from photon.cli.spark.backfill import copied
from photon.cli.spark.verify import _export
from photon.config.clock import SystemClock
from photon.config.errors import UsageError
from photon.config.loader import load
from photon.idregistry.client.grpc_client import RegistryClient
from photon.operations.spark_backfill import Wish, backfill
from photon.operations.spark_verify import Wish as Nightly
from photon.operations.spark_verify import nightly
from photon.spark import register
from photon.spark.backfill.deciding import BackfillFailed
from photon.spark.backfill.registry_boundary import boundary_in
from photon.spark.backfill.run import BackfillOutcome
from tests.integration.commands import photon
from tests.integration.forked import Process, begin
from tests.spark.backfill_site import (
    HOURS,
    Site,
    T,
    check_pairs,
    in_thread,
    job_of,
    make_site,
    published,
    staged,
)
from tests.spark.cluster import Cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NS = 10**9
CLICKS = 4000
PART_BYTES = 40_000


def run_here(site: Site, output: Path, **more: object) -> BackfillOutcome:
    """In this process's session."""
    wish = Wish(None, T * NS, (T + HOURS * 3600) * NS, output, False, 3600.0, part_bytes=PART_BYTES)
    wish = Wish(**{**{name: getattr(wish, name) for name in wish.__dataclass_fields__}, **more})  # type: ignore[arg-type]
    return backfill(load(site.file, environment={}), site.directory, wish, print, copied)


async def test_a_range_is_joined_exactly_once_and_nothing_is_owned_at_rest(
    spark: SparkSession, tmp_path: Path
) -> None:
    site, output = make_site(tmp_path / "site", CLICKS), tmp_path / "out"
    async with site.running():
        done = await in_thread(run_here, site, output)
        found = published(output)
        assert set(found) == {"joined"}
        check_pairs(site, found["joined"])
        counts = done.result.counts
        assert counts == {
            "events": CLICKS + 1, "joined": len(site.pairs), "own": 1, "unreadable": 1,
            "without_primary": len(site.without),
        }  # fmt: skip
        assert (done.cleared, done.earlier) == (len(site.pairs), False)
        assert await site.owned(done.slot) == 0
        assert not staged(output)
        said = photon("read", output)
        assert sorted(json.loads(line)["event_id"] for line in said.out.splitlines()) == sorted(site.pairs)
        register(spark)
        rows = spark.read.format("photon").option("path", str(output)).load()
        assert rows.select("event_id").distinct().count() == len(site.pairs)
        again = await in_thread(run_here, site, output)
        assert (again.earlier, again.result, again.cleared) == (True, done.result, 0)
        # Another directory: everything is registered, and nobody writes it twice.
        other = await in_thread(lambda: run_here(site, tmp_path / "other", unmatched=True))
        assert published(tmp_path / "other").keys() == {"unmatched"}
        assert other.result.counts["elsewhere"] == len(site.pairs) + 1  # the line that is there twice, too
        assert {r["event_id"] for r in published(tmp_path / "other")["unmatched"]} == site.without
        await verified_with_a_moved_output(site, output, tmp_path / "moved")


async def verified_with_a_moved_output(site: Site, output: Path, moved: Path) -> None:
    """A backfill known to its deployment, a moved one that is named, and a damaged one."""
    events = len(site.pairs) + len(site.without)
    assert await verified(site, moved.parent / "known") == {"correct": events}
    os.rename(output, moved)
    away = await verified(site, moved.parent / "moved-away")
    assert away == {"correct": len(site.without), "lost-cleared": len(site.pairs)}
    if os.environ.get("PHOTON_FULL"):  # else the next one says it of all files but one, and the first of that one
        assert await verified(site, moved.parent / "named", moved) == {"correct": events}
    [file] = (moved / "joined").iterdir()
    file.write_bytes(file.read_bytes()[:-2] + b"x\n")
    damaged = await verified(site, moved.parent / "damaged", moved)
    assert damaged.pop("torn") == 1
    assert damaged == {"correct": events - 1, "lost-cleared": 1}


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
    with pytest.raises(UsageError, match="the live pipeline still works on it"):
        run_here(site, output, to_ns=now)
    with pytest.raises(UsageError, match="is not before --to"):
        run_here(site, output, to_ns=T * NS)
    async with site.running():
        await in_thread(run_here, site, output)
        with pytest.raises(UsageError, match="was begun with unmatched = False"):
            await in_thread(lambda: run_here(site, output, unmatched=True))
        (site.directory / "key").write_bytes(b"another key of 32 bytes, surely.")
        with pytest.raises(UsageError, match="differs from the one that the registry was filled with"):
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
        with pytest.raises(UsageError, match="forgotten the whole range, which is below its boundary"):
            await in_thread(run_here, site, output)
        done = await in_thread(lambda: run_here(site, output, compare_below=True))
        records = published(output)["joined"]
        assert sorted(record["event_id"] for record in records) == sorted(set(site.pairs) - there)
        assert all("token" not in record for record in records)
        assert all(
            (record["primary_source"]["file"], record["primary_source"]["offset"]) == site.pairs[record["event_id"]]
            for record in records
        )
        assert (done.cleared, done.result.counts["elsewhere"]) == (0, len(there) + ("c0" in site.pairs))
        # An event with a record in an unreadable file is not written again.
        (site.directory / "output" / file).write_text(lines[:-9] + "x" * 8 + "\n")
        with pytest.raises(BackfillFailed, match=r"joined/east-1-000001.jsonl, byte \d+: .* repair it"):
            await in_thread(lambda: run_here(site, tmp_path / "other", compare_below=True))


# -- drivers of their own: killed --------------------------------------------------------------------------------
@contextmanager
def driver_of(site: Site, output: Path, log: Path, *more: str, master: str = "local[2]") -> Iterator[Process]:
    """The command in a separate session, with its Java process and workers; killed with them at the end."""
    backfill = site.arguments(output, "--master", master, "--part", "40000B", *more)
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
    make_faulty(site, kills=False, slow_s=3600)
    async with site.running():
        with driver_of(site, output, log):
            marker = site.directory / "markers" / "slow"
            await until(lambda: marker.exists() and any(path.suffix == ".result" for path in staged(output)), "part")
        assert not published(output)
        await in_thread(run_here, site, output)
        check_pairs(site, published(output)["joined"])
        assert await site.owned(job_of(output).slot) == 0
        assert not staged(output)


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
        if self.calls == 300 and self.options["kills"] and first(markers + "/worker"):
            os.kill(os.getpid(), signal.SIGKILL)
        if self.calls == 300 and self.options["kills"] and first(markers + "/executor"):
            os.kill(parent(parent(os.getpid())), signal.SIGKILL)
        killed = os.path.exists(markers + "/executor") or not self.options["kills"]
        if self.calls == 250 and killed and first(markers + "/slow"):
            time.sleep(self.options["slow_s"])
        return super().join(*pair)
'''


def make_faulty(site: Site, *, kills: bool, slow_s: int) -> None:
    markers = site.directory / "markers"
    markers.mkdir()
    (site.directory / "faulty.py").write_text(FAULTY)
    text = site.file.read_text()
    begin, end = text.index("[join.clicks.primary]"), text.index("[registry.replicas.r1]")
    options = f'markers = "{markers}"\nkills = {str(kills).lower()}\nslow_s = {slow_s}\n'
    join = f'[join.clicks]\nadapter = "faulty.py:Faulty"\n[join.clicks.options]\n{options}'
    site.file.write_text(text[:begin] + join + text[end:])


async def test_killed_workers_and_executors_and_speculation_lose_nothing_and_double_nothing(
    cluster: Cluster, tmp_path: Path
) -> None:
    """A Python worker is killed, then an executor, and a slow task runs twice."""
    site, output, log = make_site(tmp_path / "site", 6000), tmp_path / "out", tmp_path / "log"
    make_faulty(site, kills=True, slow_s=20)
    settings = {
        "speculation": "true", "speculation.interval": "100ms", "speculation.multiplier": "1.01",
        "speculation.quantile": "0.1", "speculation.minTaskRuntime": "100ms",
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
        assert await site.owned(job_of(output).slot) == 0


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
        assert await site.owned(job_of(output).slot) == 0

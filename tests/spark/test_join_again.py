"""Decided records are decided again on Spark: what both datacentres skipped, and the ids of a slot that is lost."""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from photon.config.loader import load
from photon.outputs.output_places import SLOTS_DIRECTORY
from photon.supervision.deployment import Deployment
from tests.deployments import addresses, datacentre, replica
from tests.deployments import write as deployed
from tests.integration.commands import Result, photon, soon
from tests.integration.join_logs import CONFIG
from tests.integration.supervised import supervised
from tests.integration.test_skip import T, joined, write
from tests.spark.conftest import require_spark

SKIPPED, READ, MORE = 60, 40, 20
BEGUN = SKIPPED + READ
PIPELINE = 'pipeline = "spark"'


def configuration(directory: Path) -> Path:
    free = addresses(5)
    text = [CONFIG, replica(next(free))]
    for name in ("east", "west"):
        for made in ("queries", "clicks"):
            (directory / name / made).mkdir(parents=True)
        text.append(datacentre(free, "eventstore", "dispatcher", name=name, base=f"{name}/", more=PIPELINE))
    return deployed(directory, *text)


def is_each_once(directory: Path, clicks: range) -> bool:
    found = Counter(joined(directory))
    assert max(found.values(), default=1) == 1, found.most_common(3)
    return found.keys() == {f"c{n}" for n in clicks}


@asynccontextmanager
async def at_work(file: Path) -> AsyncIterator[None]:
    """Without verifiers: nobody clears ids, so that all of a lost slot are given up."""
    deployment = Deployment(file, load(file, environment={}), file.parent / "run")
    async with supervised(deployment) as supervisor:
        await supervisor.start([each for each in deployment.services() if not each.name.startswith("verifier")])
        yield


async def test_what_was_skipped_or_lost_is_decided_again(tmp_path: Path) -> None:
    """Without Java, as all batches are small."""
    require_spark()
    file = configuration(tmp_path)
    write(tmp_path, 0, SKIPPED)

    async def dispatcher(name: str, *arguments: str) -> Result:
        verb, *more = arguments
        return await asyncio.to_thread(
            photon, "dispatcher", verb, "--config", file, "--datacentre", name, *more, "-o", "json"
        )

    for name, other in (("east", "west"), ("west", "east")):  # each relies on the other: nobody reads these
        told = await dispatcher(name, "skip", "--to", "now", "--reader", other, "--yes")
        assert (told.code, told.err, told.json["applied"]) == (0, "", True)
        assert not (await dispatcher(name, "skip", "--to", "now", "--reader", other, "--dry-run")).json["bytes"]
    async with at_work(file):
        write(tmp_path, SKIPPED, READ)
        await soon(lambda: is_each_once(tmp_path, range(SKIPPED, BEGUN)), 60, "only what was not skipped is joined")

        whole = ("--from", str(T), "--to", str(T + BEGUN))
        size = (tmp_path / "east" / "clicks" / "c.log").stat().st_size
        read = [{"file": "c.log", "bytes": size, "there": True}]
        async with asyncio.timeout(60):
            while (await dispatcher("east", "replay", *whole, "--dry-run")).json["logs"] != read:  # noqa: ASYNC110
                await asyncio.sleep(0.2)
        busy = await dispatcher("east", "skip", "--to", "now", "--reader", "west", "--yes")
        assert (busy.code, busy.err.count("another process works on this slot")) == (2, 1)
        waited = await dispatcher("east", "replay", *whole, "--wait")
        assert (waited.code, "replay 1: done" in waited.err) == (0, True), waited
        await soon(lambda: is_each_once(tmp_path, range(BEGUN)), 60, "the others too")
        [row] = (await dispatcher("east", "replay", "--status")).json["replays"]
        assert (row["state"], row["done"], row["events"], row["known"]) == ("done", size, BEGUN, READ)
        ledger = await asyncio.to_thread(photon, "status", "ledger", "--config", file, "-o", "json")
        assert ledger.code == 0, ledger

    shutil.rmtree(tmp_path / "east" / "state" / SLOTS_DIRECTORY / "east-spark")
    shutil.rmtree(tmp_path / "east" / "output")
    file.write_text(file.read_text().replace(PIPELINE, f'{PIPELINE}\nslot = "east-spark-2"', 1))
    async with at_work(file):
        write(tmp_path, BEGUN, MORE)
        await soon(lambda: f"c{BEGUN + MORE - 1}" in joined(tmp_path), 60, "both join again")
        retired = await asyncio.to_thread(photon, "slot", "retire", "east-spark", "--config", file, "--yes")
        assert retired.code == 0, retired
        await soon(lambda: is_each_once(tmp_path, range(BEGUN + MORE)), 120, "the lost slot's ids are taken up again")

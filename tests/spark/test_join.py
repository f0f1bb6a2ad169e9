"""photon spark join with real registry, event stores, Spark and services: each click once, whoever is killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import psutil
import pytest

from photon.fleet.counters import VERDICTS
from tests.integration.commands import Result, photon
from tests.integration.forked import Process, begin
from tests.spark.cluster import Cluster
from tests.spark.conftest import require_spark
from tests.spark.join_site import JoinSite, make_site
from tests.spark.test_backfill import until

START = 14_000  # clicks of the first batch: more than the driver does by itself
ENDED_S = 400.0


@contextmanager
def application(site: JoinSite, datacentre: str, *more: str) -> Iterator[Process]:
    """The command in a session of its own, with its Java process and workers; killed with them at the end."""
    arguments = ("spark", "join", "--config", str(site.file), "--datacentre", datacentre, "--master", "local[2]")
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable}
    with open(site.directory / f"{datacentre}.log", "ab") as log:
        process = begin(*arguments, *more, stdout=log, stderr=log, start_new_session=True, env=environment)
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def once(site: JoinSite, datacentre: str, *more: str) -> Result:
    return photon(
        "spark", "join", "--config", site.file, "--datacentre", datacentre, "--once", "-o", "json", *more,
        timeout=ENDED_S, env={"PYSPARK_PYTHON": sys.executable},
    )  # fmt: skip


def kill_some(process: Process, random: Random) -> None:
    """Everything of an application, or its Java process, or its Python workers."""
    what = random.choice(("all", "java", "workers"))
    children = psutil.Process(process.pid).children(recursive=True)
    java = [each for each in children if each.name() == "java"]
    if what == "all" or not java:
        os.killpg(process.pid, signal.SIGKILL)
    elif what == "java":
        java[0].kill()
    else:
        for worker in java[0].children(recursive=True):
            with suppress(psutil.NoSuchProcess):
                worker.kill()


def is_in_batch(site: JoinSite, datacentre: str) -> bool:
    """True if a batch is planned and not committed."""
    journal = site.state(datacentre) / "slots" / f"{datacentre}-spark" / "spark"
    names = [[int(path.name) for path in (journal / what).glob("[0-9]*")] for what in ("plans", "commits")]
    planned, committed = (max(each, default=-1) for each in names)
    return planned > committed


async def killed_now_and_then(site: JoinSite, datacentre: str, random: Random, kills: int) -> None:
    """Runs an application that is killed ``kills`` times in a batch, and then until every click has a line."""
    for left in range(kills, -1, -1):
        with application(site, datacentre) as process:
            deadline = time.monotonic() + ENDED_S
            while time.monotonic() < deadline and process.poll() is None:
                await asyncio.sleep(0.05 if left else 0.5)
                if not left and not await asyncio.to_thread(site.missing):
                    return
                if left and is_in_batch(site, datacentre):
                    await asyncio.sleep(random.uniform(0, random.choice((0.5, 12))))
                    kill_some(process, random)
                    await asyncio.sleep(random.uniform(0, 2))
                    break
    pytest.fail((site.directory / f"{datacentre}.log").read_text()[-3000:])


async def growing(site: JoinSite, steps: int) -> None:
    for step in range(steps):
        await asyncio.to_thread(site.grow, 400, delay_s=1.0)
        if step % 3 == 1:
            site.roll(compress=False)
        elif step % 3 == 2:
            site.roll(compress=True)
        await asyncio.sleep(1.5)


async def test_two_applications_join_each_click_once_whoever_is_killed(tmp_path: Path) -> None:
    require_spark()
    site, random = make_site(tmp_path), Random(1)
    site.grow(START)
    async with site.running("registry", "eventstore"):
        await asyncio.gather(
            growing(site, 6),
            killed_now_and_then(site, "east", random, 2),
            killed_now_and_then(site, "west", random, 2),
        )
        await asyncio.to_thread(_settle, site)
        site.check()


async def test_an_application_beside_the_services_of_another_datacentre(tmp_path: Path) -> None:
    require_spark()
    site, random = make_site(tmp_path, seed=2), Random(2)
    site.grow(START)
    async with site.running("registry", "eventstore", "joiner west", "dispatcher west"):
        await asyncio.gather(growing(site, 4), killed_now_and_then(site, "east", random, 2))
        await asyncio.to_thread(_settle, site, ["east"])
        site.check()


async def test_executors_of_a_cluster_that_die_lose_nothing(cluster: Cluster, tmp_path: Path) -> None:
    """Photon is shipped to them; one dies with a part in its hands, and with speculation on another one may do it."""
    site = make_site(tmp_path, seed=4)
    site.grow(START)
    more = ("--once", "--master", cluster.master, "--spark", "spark.speculation=true")
    async with site.running("registry", "eventstore"):
        with application(site, "east", *more) as process:
            await until(lambda: bool(executors_of(cluster)), "an executor runs", ENDED_S)
            await asyncio.sleep(2)
            executors_of(cluster)[0].kill()
            assert await asyncio.to_thread(process.wait, ENDED_S) == 0, (site.directory / "east.log").read_text()
        await asyncio.to_thread(_settle, site, ["east"])
        await asyncio.to_thread(_settle, site, ["west"])
        site.check()


def executors_of(cluster: Cluster) -> list[psutil.Process]:
    """Java processes of the cluster's applications."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.name() == "java" and f"{cluster.directory}/work-" in process.cwd():
                found.append(process)
    return found


def test_a_datacentre_moves_to_spark_and_back(tmp_path: Path) -> None:
    """Only small batches, which need no Java."""
    site = make_site(tmp_path, seed=3)
    own = '[datacentre.east]\npipeline = "spark"\n'
    texts = {True: site.file.read_text().replace("[datacentre.east]\n", own), False: site.file.read_text()}
    site.file.write_text(texts[True])
    assert photon("up", site.file, "--detach", "--timeout", "200", timeout=240).code == 0
    try:
        # Each side has read bad records of the other's time once more.
        for on_spark, rejected in ((True, 2), (False, 5), (True, 8)):
            site.file.write_text(texts[on_spark])
            assert photon("reload", site.file).code == 0
            site.grow(300)
            deadline = time.monotonic() + ENDED_S
            while site.missing() or len(site.lines("rejected")) != rejected:
                assert time.monotonic() < deadline
                time.sleep(0.5)
            if rejected == 2:  # nothing of the services' time is left
                _look(site)
    finally:
        photon("down", site.file)
    site.check(rejected_again=2)


def _look(site: JoinSite) -> None:
    """The join on Spark is seen as a dispatcher is: by status, doctor, the watermark and the ledger."""

    def said(*words: str) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(photon(*words, "--config", site.file, "-o", "json").out)
        return document

    deadline = time.monotonic() + 60
    while True:
        (east,) = said("status", "--datacentre", "east")["datacentres"]
        (mark,) = said("watermark", "--datacentre", "east")["datacentres"]
        total = east["ledger"]["total"]
        if mark.get("percentile") and not total["pending"]:
            break
        assert time.monotonic() < deadline, (east, mark)
        time.sleep(1)
    assert [each["up"] for each in east["processes"] if each["service"] == "spark"] == [True]
    assert total["read"] == sum(total[name] for name in VERDICTS)
    assert (east["flow"]["foreign_lag_bytes"], east["flow"]["foreign_logs"]) == (0, 1)
    assert [why.partition(":")[0] for why in mark["held_by"]] == ["written_within is not set"]
    kept = said("status", "ledger")
    assert (kept["balances"], kept["datacentres"]["east"]["total"]["read"]) == (True, total["read"])
    levels = {each["area"]: each["level"] for each in said("doctor")["findings"]}
    assert {levels[area] for area in ("versions", "clocks", "ports", "watermarks")} == {"ok"}


def _settle(site: JoinSite, datacentres: list[str] | None = None) -> None:
    """Until each event has its verdict in each datacentre that joins on Spark."""
    for name in datacentres or ["east", "west"]:
        deadline = time.monotonic() + ENDED_S
        while (done := once(site, name)).code or json.loads(done.out)["waiting"]:
            assert done.code == 0, done.err
            assert time.monotonic() < deadline, done.out

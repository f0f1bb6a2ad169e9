"""The program of docs/spark.md that joins, run by spark-submit; the executors do not have Photon."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import psutil

from tests.spark.cluster import HOME, Cluster, python_without
from tests.spark.join_site import make_site
from tests.spark.test_backfill import until
from tests.spark.test_cluster import ROOT, environment
from tests.spark.test_join import ENDED_S, START

PROGRAM = re.compile(r"^```python\n((?:(?!```).)*photon\.spark\.join\(.*?)^```\n\n```\n(.*?)\n```", re.M | re.S)


@contextmanager
def submitted(command: Sequence[str], directory: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Ends it by SIGTERM."""
    own = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
    python = python_without(directory / "venv")
    with log.open("wb") as out:
        process = subprocess.Popen(command, env=environment(python) | own, cwd=directory, stdout=out, stderr=out)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)


async def test_spark_submit_runs_the_program_of_the_page(cluster: Cluster, tmp_path: Path) -> None:
    """Its Python ends with Java, although it joins small batches without it."""
    site, events, log = make_site(tmp_path, seed=6), tmp_path / "events", tmp_path / "log"
    site.grow(START)
    events.mkdir()
    found = PROGRAM.search((ROOT / "docs" / "spark.md").read_text())
    assert found is not None
    submit, master, address, program, config = found[2].split()
    assert address == "spark://host:7077"
    (tmp_path / program).write_text(found[1].replace("awaitTermination(10)", "awaitTermination(1)"))
    settings = ("enabled=true", "compress=false", f"dir={events.as_uri()}")
    more = [f"--conf=spark.eventLog.{each}" for each in settings]
    command = [str(HOME / "bin" / submit), master, cluster.master, *more, program, config]
    async with site.running("registry", "eventstore east"):
        with submitted(command, tmp_path, log) as process:
            deadline = time.monotonic() + ENDED_S
            while await asyncio.to_thread(site.missing) or "'batchId': " not in log.read_text():
                assert process.poll() is None, log.read_text()[-4000:]
                assert time.monotonic() < deadline, log.read_text()[-4000:]
                await asyncio.sleep(1)
            below = psutil.Process(process.pid).children(recursive=True)
            (driver,) = [each for each in below if each.name().startswith("python")]
        await until(lambda: not driver.is_running() or driver.status() == psutil.STATUS_ZOMBIE, "it ends", 30)
    described = "".join(path.read_text() for path in events.rglob("*") if path.is_file())
    assert "photon join east · batch 0 · " in described
    site.check(rejected_again=-site.rejected)  # only east has rejected them

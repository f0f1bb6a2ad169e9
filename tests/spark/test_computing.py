"""The same topology on two engines: ``photon compute run`` here, and ``--on spark`` on a cluster whose Python has no
Photon, while driver, executors and Python workers are killed."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from pathlib import Path

import psutil
import pytest

from tests.spark import recorded
from tests.spark.cluster import HOST, Cluster, bare_environment, python_without, running
from tests.spark.conftest import JAVA, require_spark

ROUNDS = int(os.environ.get("PHOTON_SPARK_KILLS", "20" if os.environ.get("PHOTON_FULL") else "3"))
"""How many processes are killed."""
BATCH_S = 600.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    require_spark()
    with running(tmp_path_factory.mktemp("cluster")) as made:
        yield made


class OnSpark:
    """Runs of one topology, one after the other."""

    def __init__(self, cluster: Cluster, base: Path, python: Path, records: int) -> None:
        settings = {
            "spark.driver.host": HOST,
            "spark.driver.bindAddress": HOST,
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
            "spark.executor.extraJavaOptions": JAVA,
            "spark.ui.enabled": "false",
            "spark.python.authenticate.socketTimeout": "300s",
        }
        flags = [each for name, value in settings.items() for each in ("--spark", f"{name}={value}")]
        run = [sys.executable, "-m", "photon", "compute", "run", "clicks.py", "--once", "-o", "json", "--on", "spark"]
        sizes = ["--partitions", "2", "--records", str(records)]
        self._command = [*run, "--master", cluster.master, *sizes, *flags]
        self._base = base
        self._environment = bare_environment() | {"PYSPARK_PYTHON": str(python)}
        self._commits = base / ".photon-compute" / "clicks" / "checkpoint" / "commits"
        self.starts = 0

    def start(self) -> None:
        self.starts += 1
        assert self.starts <= 2 * ROUNDS + 2, self.said()
        with (self._base / "log").open("ab") as log, (self._base / "answer").open("wb") as answer:
            self.driver = subprocess.Popen(
                self._command, cwd=self._base, env=self._environment, stdout=answer, stderr=log
            )

    def said(self) -> str:
        return (self._base / "log").read_text()[-3000:]

    def commits(self) -> int:
        return len([each for each in self._commits.glob("[0-9]*") if each.name.isdecimal()])

    def after_a_batch(self) -> bool:
        """Whether the run goes on after one more batch. One that ended, but not well, is started again."""
        before, until = self.commits(), time.monotonic() + BATCH_S
        while self.commits() == before:
            if self.driver.poll() == 0:
                return False
            if self.driver.poll() is not None:
                self.start()
            assert time.monotonic() < until, self.said()
            time.sleep(0.05)
        return True

    def kill_driver(self) -> None:
        self.driver.kill()
        self.driver.wait()
        self.start()

    def kill(self, what: str, chance: random.Random) -> None:
        """One of the cluster's processes whose command line has this."""
        found = [each for each in psutil.Process().children(recursive=True) if _runs(each, what)]
        if found:
            chance.choice(found).kill()

    def ended(self) -> None:
        while (code := self.driver.wait(timeout=BATCH_S)) != 0:
            assert code == 1, self.said()
            self.start()
        assert json.loads((self._base / "answer").read_bytes())["owners"][0]["aside"] == 0

    def close(self) -> None:
        self.driver.kill()
        self.driver.wait()


def _runs(process: psutil.Process, what: str) -> bool:
    try:
        return any(what in each for each in process.cmdline())
    except psutil.Error:
        return False


def test_two_engines_produce_the_same(cluster: Cluster, tmp_path: Path) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for base in (here, there):
        recorded.write(base, 2000, 40)
    embedded = [sys.executable, "-m", "photon", "compute", "run", "clicks.py", "--once", "--quiet"]
    subprocess.run(embedded, cwd=here, check=True, capture_output=True, timeout=300)
    expected = recorded.published(here)
    assert all(expected[stream] for stream in ("windows", "anomalies", "seconds"))

    chance = random.Random(ROUNDS)
    runs = OnSpark(cluster, there, python_without(tmp_path / "venv"), 1600 // (ROUNDS + 2))
    kills: list[Callable[[], None]] = [
        runs.kill_driver,
        lambda: runs.kill("CoarseGrainedExecutorBackend", chance),
        lambda: runs.kill("pyspark.daemon", chance),
    ]
    runs.start()
    try:
        for kill in islice(cycle(kills), ROUNDS):
            assert runs.after_a_batch()
            time.sleep(chance.random())
            kill()
        runs.ended()
    finally:
        runs.close()
    assert recorded.published(there) == expected
    assert runs.starts > ROUNDS // 3
    if ROUNDS > 3:  # it is at its end: nothing more comes of it
        runs.start()
        runs.ended()
        runs.close()
        assert recorded.published(there) == expected

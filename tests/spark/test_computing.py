"""The same topology on two engines: ``photon compute run`` here, and ``--on spark`` on a cluster whose Python has no
Photon, while driver, executors and Python workers are killed."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections.abc import Callable
from itertools import cycle, islice
from pathlib import Path

import psutil
import pytest

from tests.integration.commands import photon
from tests.spark import recorded
from tests.spark.cluster import Cluster, bare_environment, python_without

# Number of killed processes.
ROUNDS = int(os.environ.get("PHOTON_SPARK_KILLS", "20" if os.environ.get("PHOTON_FULL") else "3"))
BATCH_S = 600.0
ONE = ("--spark", "spark.cores.max=1")  # Executor
COMPUTE = [sys.executable, "-m", "photon", "compute", "run", "clicks.py"]


class OnSpark:
    """Runs of one topology, one after the other."""

    def __init__(self, cluster: Cluster, base: Path, python: Path, *options: str) -> None:
        run = [*COMPUTE, *options, "-o", "json", "--on", "spark", "--master", cluster.master, "--partitions", "2"]
        self._command = [*run, "--spark", "spark.python.authenticate.socketTimeout=300s"]
        self._base = base
        self._environment = bare_environment() | {"PYSPARK_PYTHON": str(python)}
        self._commits = base / ".photon-compute" / "clicks" / "checkpoint" / "commits"
        self.starts = 0

    def start(self, *more: str) -> None:
        self.starts += 1
        assert self.starts <= 2 * ROUNDS + 6, self.said()
        with (self._base / "log").open("ab") as log, (self._base / "answer").open("wb") as answer:
            self.driver = subprocess.Popen(
                [*self._command, *more], cwd=self._base, env=self._environment, stdout=answer, stderr=log
            )

    def said(self) -> str:
        return (self._base / "log").read_text()[-3000:]

    def commits(self) -> int:
        return len([each for each in self._commits.glob("[0-9]*") if each.name.isdecimal()])

    def goes_on_until(self, reached: Callable[[], bool]) -> bool:
        """True if it was before the end. A run that ended with an error is restarted."""
        until = time.monotonic() + BATCH_S
        while not reached():
            if self.driver.poll() == 0:
                return False
            if self.driver.poll() is not None:
                self.start()
            assert time.monotonic() < until, self.said()
            time.sleep(0.2)
        return True

    def after_a_batch(self) -> bool:
        before = self.commits()
        return self.goes_on_until(lambda: self.commits() != before)

    def until_complete(self, mark_ns: int) -> None:
        """All output for the time before is published."""
        assert self.goes_on_until(lambda: recorded.complete_ns(self._base) == mark_ns)

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

    def once(self) -> None:
        """No more will be published: the remaining work is done, on one executor."""
        self._command += ["--once", *ONE]
        self.start()
        self.ended()

    def close(self) -> None:
        self.driver.kill()
        self.driver.wait()


def _runs(process: psutil.Process, what: str) -> bool:
    try:
        return any(what in each for each in process.cmdline())
    except psutil.Error:
        return False


@pytest.mark.timeout(1200 + 60 * ROUNDS)
def test_two_engines_produce_the_same(cluster: Cluster, tmp_path: Path) -> None:
    """With records arriving and afterwards: timers are called, and their stream is published. While time stands still
    there is no batch."""
    here, there = tmp_path / "here", tmp_path / "there"
    for base in (here, there):
        recorded.write(base, 2000, 40)
    chance = random.Random(ROUNDS)
    size = str(1600 // (ROUNDS + 2))
    runs = OnSpark(cluster, there, python_without(tmp_path / "venv"), "--records", size)

    def kill_executor() -> None:
        runs.kill("CoarseGrainedExecutorBackend", chance)

    kills = (runs.kill_driver, kill_executor, lambda: runs.kill("pyspark.daemon", chance))
    idle: list[Callable[[], None]] = [lambda: None]
    if ROUNDS > 3:
        idle += (kill_executor, runs.kill_driver)
    mark_ns = recorded.move_on(there, 0)
    runs.start(*ONE)  # until it is killed: its remains continue on both
    try:
        began = time.monotonic()
        for kill in islice(cycle(kills), ROUNDS):
            assert runs.after_a_batch()
            time.sleep(chance.random())
            kill()
            print(f"{time.monotonic() - began:.0f} s: {runs.commits()} batches, {runs.starts} drivers")
        runs.until_complete(mark_ns)
        for kill in idle:
            before, windows = runs.commits(), len(recorded.published(there)["windows"])
            kill()
            time.sleep(1.5)  # triggers that find nothing
            mark_ns = recorded.move_on(there, 4)
            runs.until_complete(mark_ns)
            assert runs.commits() == before + 2  # the watermark, then its timers
            assert len(recorded.published(there)["windows"]) > windows
        runs.driver.terminate()
        runs.ended()
        assert runs.starts > ROUNDS // 3
        runs.once()
        if ROUNDS > 3:  # it is at its end: no more output comes
            before_it = recorded.published(there)
            runs.start()
            runs.ended()
            assert recorded.published(there) == before_it
    finally:
        runs.close()
    while recorded.move_on(here, 4) < mark_ns:
        pass
    done = photon("compute", "run", here / "clicks.py", "--once", "--quiet", timeout=300)
    assert done.code == 0, done.err
    expected = recorded.published(here)
    assert all(expected[stream] for stream in ("windows", "anomalies", "seconds"))
    assert recorded.published(there) == expected

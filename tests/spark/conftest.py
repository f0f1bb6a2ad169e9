"""One Spark session, and one cluster, for all tests of a test process."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from photon.spark.session import SparkMissing, check_present, session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.spark.cluster import Cluster

SETTINGS = {
    "spark.sql.shuffle.partitions": "3",
    "spark.driver.memory": "1g",
    "spark.default.parallelism": "2",
    "spark.python.authenticate.socketTimeout": "300s",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """One process has the session, as the first verification of a Java process costs as much as three; another one
    has the cluster, and the tests that need neither."""
    for item in items:
        group = "session" if {"spark", "joined"}.intersection(getattr(item, "fixturenames", ())) else "cluster"
        item.add_marker(pytest.mark.xdist_group(group))


def require_spark() -> None:
    """Skips where Spark cannot run; in CI it must."""
    try:
        check_present()
    except SparkMissing as missing:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A local session; its event log is in ``spark_event_log``."""
    require_spark()
    home = tmp_path_factory.mktemp("spark")
    (home / "events").mkdir()
    settings = SETTINGS | {
        "spark.local.dir": str(home / "local"),
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": (home / "events").as_uri(),
        "spark.eventLog.compress": "false",
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        made = session("photon tests", master="local[2]", settings=settings)
        yield made
        made.stop()


@pytest.fixture
def spark_event_log(spark: SparkSession) -> Path:
    """The session's event log, from which its history is shown."""
    return Path(spark.conf.get("spark.eventLog.dir", "").removeprefix("file://"))


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """For one application at a time."""
    from tests.spark.cluster import running

    require_spark()
    with running(tmp_path_factory.mktemp("cluster")) as made:
        yield made

"""The nightly verification finds every planted defect, with its class and id, and nothing else."""

from __future__ import annotations

import os
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from photon.adapters.configured import ConfiguredAdapter
from photon.adapters.logs.identity import log_name
from photon.spark import logs, outputs, schemas
from photon.spark.classes import LOST_REGISTERED
from photon.spark.verify.classify import KnownLogs
from photon.spark.verify.job import Verification, VerifyInputs, VerifyQuestion, pairs, verify
from tests.spark.small_deployment import FOREIGN, HOUR_NS, PRIMARY, SITES, Deployment, make, plant

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# Small groups are treated here as if they were big.
SKEW = {
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.adaptive.autoBroadcastJoinThreshold": "-1",
    "spark.sql.adaptive.skewJoin.skewedPartitionFactor": "1.0",
    "spark.sql.adaptive.skewJoin.skewedPartitionThresholdInBytes": "20KB",
    "spark.sql.adaptive.advisoryPartitionSizeInBytes": "20KB",
}
SEED = int(os.environ.get("PHOTON_SEED", "0"))
make_adapter = partial(ConfiguredAdapter, {"primary": PRIMARY, "foreign": FOREIGN, "where": "join.clicks"})


def question(deployment: Deployment) -> VerifyQuestion:
    hours = [entry.time_ns // HOUR_NS for entry in deployment.registry.values()]
    return VerifyQuestion(min(hours), max(hours) + 1, SITES, make_adapter)


def verified(spark: SparkSession, deployment: Deployment) -> Verification:
    source = deployment.source()
    entries = [entry.row() for entry in deployment.registry.values()]
    inputs = VerifyInputs(
        logs.foreign(spark, source, deployment.logs("clicks")),
        partial(logs.primary, spark, source, deployment.logs("queries")),
        outputs.outputs(spark, deployment.outputs(), source),
        spark.createDataFrame(entries, schemas.REGISTRY),
        logs=partial(standing, deployment),
    )
    return verify(inputs, question(deployment))


def standing(deployment: Deployment) -> KnownLogs:
    """All logs of the deployment; none was ever removed."""
    names = frozenset(
        (side, site, log_name(str(path.relative_to(deployment.root / site / directory))))
        for side, directory in (("foreign", "clicks"), ("primary", "queries"))
        for site in SITES
        for path in (deployment.root / site / directory).rglob("*")
        if path.is_file()
    )
    return KnownLogs(names, {}, {})


@pytest.mark.parametrize("seed", range(SEED, SEED + (20 if os.environ.get("PHOTON_FULL") else 1)))
def test_planted_defects_are_found_and_nothing_else(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    print(f"PHOTON_SEED={seed}")
    deployment = make(tmp_path, seed)
    plant(deployment, seed, each=3)
    found = verified(spark, deployment)
    rows = found.problems().collect()
    reported = Counter((row["class"], (row["event_id"] or b"").decode()) for row in rows)
    assert reported == deployment.expected
    for row in rows:
        if row["class"] not in ("invented", "torn"):
            assert (row["log"], row["hour"] is not None) != (None, False)
        if row["class"] in LOST_REGISTERED:
            owner = deployment.registry[row["event_id"].decode()].site
            raw = (deployment.root / owner / "clicks" / row["log"]).read_bytes()[row["offset"] :]
            assert (row["datacentre"], row["event_id"] in raw.partition(b"\n")[0]) == (owner, True)
    found.close()


def test_a_hot_key_is_split_and_finds_the_first_of_its_primaries(spark: SparkSession) -> None:
    before = {name: spark.conf.get(name, None) for name in SKEW}
    names = [column.split()[0] for column in schemas.FOREIGN.split(", ")]
    foreign = spark.range(0, 20_000, 1, 4).selectExpr(
        "if(id < 0, 'west', 'east') AS datacentre", "'a.log' AS log", "'a.log' AS name",
        "'ab' AS identity", "id AS offset",
        "CAST(NULL AS BINARY) AS header", "CAST(CAST(id AS STRING) AS BINARY) AS event_id",
        "unhex(md5(CAST(id AS STRING))) AS digest",
        "CAST(if(id % 50 = 0, CAST(id AS STRING), 'hot') AS BINARY) AS key", "1L AS event_time_ns", "0L AS hour",
        "CAST(repeat('x', 100) AS BINARY) AS record", "CAST(NULL AS STRING) AS unreadable", "false AS unread",
    )  # fmt: skip
    assert foreign.columns == [*names, "unread"]
    primary = spark.range(0, 1_000, 1, 3).selectExpr(
        "if(id < 0, 'west', 'east') AS datacentre", "if(id < 500, 'q.log.1', 'p.log') AS log",
        "if(id < 500, 'q.log', 'p.log') AS name", "'ab' AS identity",
        "id AS offset", "CAST(NULL AS BINARY) AS header", "CAST(if(id < 0, '-', 'hot') AS BINARY) AS key",
        "CAST('{}' AS BINARY) AS record",
    )  # fmt: skip
    try:
        for name, value in SKEW.items():
            spark.conf.set(name, value)
        found = pairs(primary, foreign, VerifyQuestion(0, 1, ("east",), make_adapter))
        wide = found.select("offset", "event_id", "record", "p_name", "p_offset")
        rows = wide.collect()
        plan = str(wide._jdf.queryExecution().executedPlan().toString())  # type: ignore[operator]
    finally:
        for name, value in before.items():
            if value is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, value)
    assert sorted(row["offset"] for row in rows) == list(range(20_000))
    assert {(row["p_name"], row["p_offset"]) for row in rows if row["offset"] % 50} == {("p.log", 500)}
    assert {row["p_name"] for row in rows if row["offset"] % 50 == 0} == {None}
    assert "skew=true" in plan


def test_records_are_not_sent_to_every_executor(spark: SparkSession, tmp_path: Path) -> None:
    """Frames made from a list of tasks look as small as the list before they have run."""
    deployment = make(tmp_path, SEED)
    source = deployment.source()
    foreign = logs.foreign(spark, source, deployment.logs("clicks")).selectExpr("*", "false AS unread")
    primary = logs.primary(spark, source, deployment.logs("queries"))
    plan = str(pairs(primary, foreign, question(deployment))._jdf.queryExecution().executedPlan().toString())  # type: ignore[operator]
    joins = [line for line in plan.splitlines() if "Join" in line]
    assert joins
    assert all("SortMergeJoin" in line or "LeftSemi" in line for line in joins), plan

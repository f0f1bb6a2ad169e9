"""The nightly verification finds every planted defect, with its class and id, and nothing else."""

from __future__ import annotations

import os
from collections import Counter
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from photon.adapters.configured import ConfiguredAdapter
from photon.spark import logs, outputs, schemas
from photon.spark.verify.job import Inputs, Question, Verification, verify
from tests.spark.small_deployment import FOREIGN, HOUR_NS, PRIMARY, SITES, Deployment, make, plant

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SEED = int(os.environ.get("PHOTON_SEED", "0"))
make_adapter = partial(ConfiguredAdapter, {"primary": PRIMARY, "foreign": FOREIGN, "where": "join.clicks"})


def question(deployment: Deployment) -> Question:
    hours = [entry.time_ns // HOUR_NS for entry in deployment.registry.values()]
    return Question(min(hours), max(hours) + 1, SITES, make_adapter)


def verified(spark: SparkSession, deployment: Deployment) -> Verification:
    source = deployment.source()
    entries = [entry.row() for entry in deployment.registry.values()]
    inputs = Inputs(
        logs.foreign(spark, source, deployment.logs("clicks")),
        logs.primary(spark, source, deployment.logs("queries")),
        outputs.outputs(spark, deployment.outputs(), source),
        spark.createDataFrame(entries, schemas.REGISTRY),
    )
    return verify(inputs, question(deployment))


def test_a_deployment_without_fault_is_right(spark: SparkSession, tmp_path: Path) -> None:
    deployment = make(tmp_path, SEED)
    found = verified(spark, deployment)
    assert [row.asDict() for row in found.problems().collect()] == []
    counts = Counter[str]()
    for row in found.counts.collect():
        counts[row["class"]] += row["count"]
    rejected = sum(1 for each in deployment.lines if each.kind == "rejected")
    assert rejected > 0
    assert counts == {"correct": len(deployment.registry) + rejected}
    found.close()


@pytest.mark.parametrize("seed", range(SEED, SEED + (20 if os.environ.get("PHOTON_FULL") else 2)))
def test_planted_defects_are_found_and_nothing_else(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    print(f"PHOTON_SEED={seed}")
    deployment = make(tmp_path, seed)
    plant(deployment, seed, each=4)
    assert len({kind for kind, _ in deployment.expected}) >= 12
    found = verified(spark, deployment)
    rows = found.problems().collect()
    reported = Counter((row["class"], (row["event_id"] or b"").decode()) for row in rows)
    assert reported == deployment.expected
    for row in rows:
        if row["class"] not in ("invented", "torn"):
            assert (row["log"], row["hour"] is not None) != (None, False)
    found.close()

"""A driver on a cluster whose executors do not have Photon: what is said of shipping in docs/spark.md, done.

Run by ``test_cluster``: arguments are the directory of logs and the deployment file; prints one line of JSON.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from photon.config.loader import load
from photon.spark import register
from photon.spark.logs import foreign, primary
from photon.spark.outputs import outputs
from photon.spark.session import session
from photon.spark.sources import pipeline_sources


def where_is_photon(_: int) -> str | None:
    """On an executor."""
    from importlib.util import find_spec

    found = find_spec("photon")
    return None if found is None else found.origin


def main(file: Path, with_source: bool) -> None:
    """Prints what the executors found."""
    plain = SparkSession.builder.getOrCreate()
    where_is_photon.__module__ = "__main__"
    said: dict[str, object] = {"before": plain.sparkContext.parallelize(range(4), 4).map(where_is_photon).collect()}
    spark = session("cluster test")
    said["same"] = spark is plain
    said["after"] = spark.sparkContext.parallelize(range(4), 4).map(where_is_photon).collect()
    settings = load(file, environment={})
    sources = pipeline_sources(settings, file.parent, "clicks")
    clicks = foreign(spark, sources.join, sources.foreign, partition_size=4000)
    queries = primary(spark, sources.join, sources.primary, partition_size=4000)
    said["clicks"] = sorted(bytes(row.event_id).decode() for row in clicks.select("event_id").collect())
    said["pairs"] = clicks.select("key").join(queries.select("key"), "key").count()
    said["output"] = outputs(spark, sources.outputs, sources.join).where("torn is null").count()
    if with_source:
        register(spark)
        frame = spark.read.format("photon").option("path", str(file)).load()
        said["source"] = sorted(row.event_id for row in frame.where("hour < 10").select("event_id").collect())
    print(json.dumps(said))
    spark.stop()


if __name__ == "__main__":
    if sys.argv[2] == "register":
        register(SparkSession.builder.getOrCreate())
    main(Path(sys.argv[1]), sys.argv[2] == "source")

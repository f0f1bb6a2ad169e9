"""A driver on a cluster whose executors do not have Photon: carries out the shipping described in docs/spark.md.

Run by ``test_cluster``: arguments are the deployment file, a Python that does not run on executors, and one that has
the libraries by itself, as a data source needs it; prints one line of JSON.
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
from photon.spark.worker_python import WorkerPythonWrong


def where_is_photon(_: int) -> str | None:
    """On an executor."""
    from importlib.util import find_spec

    found = find_spec("photon")
    return None if found is None else found.origin


def main(file: Path, wrong: str, whole: str) -> None:
    """Prints what the executors found."""
    plain = SparkSession.builder.getOrCreate()
    where_is_photon.__module__ = "__main__"
    said: dict[str, object] = {"before": plain.sparkContext.parallelize(range(4), 4).map(where_is_photon).collect()}
    right, plain.sparkContext.pythonExec = plain.sparkContext.pythonExec, wrong
    try:
        register(plain)
    except WorkerPythonWrong as why:
        said["wrong"] = str(why)
    plain.sparkContext.pythonExec = right
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
    spark.sparkContext.pythonExec = whole
    register(spark)
    frame = spark.read.format("photon").option("path", str(file)).load()
    said["source"] = sorted(row.event_id for row in frame.where("hour < 10").select("event_id").collect())
    print(json.dumps(said))
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])

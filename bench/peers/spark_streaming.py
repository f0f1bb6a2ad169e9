"""Spark Structured Streaming: all existing files, through a stream-stream join with RocksDB state and a checkpoint.

``dropDuplicates`` on the click's id is before the join, so that each click comes out once. There is no watermark: as
with the other systems, nothing may be dropped for its age.
"""

import argparse

from options import parse
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

CLICK = "click_id STRING, query_id STRING, time_us BIGINT, position BIGINT, cost_micros BIGINT"
QUERY = (
    "query_id STRING, time_us BIGINT, user STRING, terms STRING, country STRING, device STRING, "
    "ads ARRAY<BIGINT>, bid DOUBLE, page STRING"
)


def session(given: argparse.Namespace, partitions: int) -> SparkSession:
    """Makes the Spark session of a run, with RocksDB for the stream's state. ``partitions``: those of a shuffle."""
    spark = (
        SparkSession.builder.master(f"local[{given.processes}]")
        .appName("bench")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "3g")
        .config("spark.local.dir", str(given.state / "local"))
        .config("spark.sql.warehouse.dir", str(given.state / "warehouse"))
        .config("spark.sql.shuffle.partitions", partitions)
        .config(
            "spark.sql.streaming.stateStore.providerClass",
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
        )
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def main() -> None:
    given = parse()
    spark = session(given, given.processes)
    clicks = (
        spark.readStream.schema(CLICK).option("pathGlobFilter", "*.log").json(str(given.clicks))
        .dropDuplicates(["click_id"]).select("query_id", f.struct("*").alias("click"))
    )  # fmt: skip
    queries = (
        spark.readStream.schema(QUERY).option("pathGlobFilter", "*.log").json(str(given.queries))
        .select(f.col("query_id").alias("wanted"), f.struct("*").alias("query"))
    )  # fmt: skip
    joined = clicks.join(queries, clicks.query_id == queries.wanted).select("click", "query")
    writing = (
        joined.writeStream.format("json").option("path", str(given.output))
        .option("checkpointLocation", str(given.state / "checkpoint")).trigger(availableNow=True).start()
    )  # fmt: skip
    writing.awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()

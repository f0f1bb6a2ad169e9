"""Spark's Java classes, parsed and checked once: each of the many Java processes that the tests start takes half the
processor time then; and its Python modules, compiled once, for a quarter. ``python -m tests.spark.java_classes FILE``
makes the archive, and a home of Spark, for ``tests/conftest.py``.

A process whose Java or Spark is another one than the archive's goes without it.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import py4j
import pyspark

from tests.conftest import JAVA_OPTIONS, SPARK_HOME

if TYPE_CHECKING:
    import pyarrow as pa


def make_home() -> None:
    """Spark's own, except that directories replace its zips of sources, which every Python process that it starts
    would compile."""
    shutil.rmtree(SPARK_HOME, ignore_errors=True)
    spark = Path(pyspark.__file__).parent
    for package in (pyspark, py4j):
        (zipped,) = (spark / "python" / "lib").glob(f"{package.__name__}*.zip")
        there = SPARK_HOME / "python" / "lib" / zipped.name
        there.mkdir(parents=True)
        (there / package.__name__).symlink_to(Path(package.__file__).parent)
    for name in ("bin", "jars"):
        (SPARK_HOME / name).symlink_to(spark / name)


def use() -> None:
    """Uses part of everything that the tests do: other classes are only slower."""
    from pyspark.sql import SparkSession

    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
        ),
    }
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()

    def same(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from batches

    with tempfile.TemporaryDirectory() as directory:
        rows = spark.createDataFrame([(n, f"k{n % 7}") for n in range(1000)], "n bigint, k string")
        rows.mapInArrow(same, rows.schema).write.parquet(f"{directory}/rows")
        read = spark.read.parquet(f"{directory}/rows")
        read.join(read.groupBy("k").agg({"n": "max"}), "k").orderBy("n").collect()
        stream = spark.readStream.schema(read.schema).parquet(f"{directory}/rows").groupBy("k").count()
        sink = stream.writeStream.outputMode("update").option("checkpointLocation", f"{directory}/checkpoint")
        query = sink.foreachBatch(lambda frame, _: print(frame.collect())).trigger(availableNow=True).start()
        query.awaitTermination()
    java = spark.sparkContext._gateway.proc  # type: ignore[union-attr]
    spark.stop()
    java.stdin.close()
    java.wait()


if __name__ == "__main__":
    Path(sys.argv[1]).unlink(missing_ok=True)
    make_home()
    os.environ |= {
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_SUBMIT_OPTS": f"{JAVA_OPTIONS} -XX:ArchiveClassesAtExit={sys.argv[1]} -Xlog:disable",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
    }
    use()

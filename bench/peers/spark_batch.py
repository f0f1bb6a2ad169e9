"""A batch join of Spark, written by hand: each click once, with the query that it names. It promises nothing."""

from options import parse
from pyspark.sql import SparkSession
from pyspark.sql import functions as f
from spark_streaming import CLICK, QUERY


def main() -> None:
    given = parse()
    spark = (
        SparkSession.builder.master(f"local[{given.processes}]")
        .appName("bench")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.memory", "3g")
        .config("spark.local.dir", str(given.state / "local"))
        .config("spark.sql.warehouse.dir", str(given.state / "warehouse"))
        .config("spark.sql.shuffle.partitions", 2 * given.processes)
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    clicks = (
        spark.read.schema(CLICK).json(str(given.clicks))
        .dropDuplicates(["click_id"]).select("query_id", f.struct("*").alias("click"))
    )  # fmt: skip
    queries = (
        spark.read.schema(QUERY).json(str(given.queries))
        .select(f.col("query_id").alias("wanted"), f.struct("*").alias("query"))
    )  # fmt: skip
    joined = clicks.join(queries, clicks.query_id == queries.wanted).select("click", "query")
    joined.write.mode("overwrite").json(str(given.output))
    spark.stop()


if __name__ == "__main__":
    main()

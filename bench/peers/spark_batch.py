"""A batch join of Spark, written by hand: each click once, with the query that it names. It promises nothing."""

from options import parse
from pyspark.sql import functions as f
from spark_streaming import CLICK, QUERY, session


def main() -> None:
    given = parse()
    spark = session(given, 2 * given.processes)
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

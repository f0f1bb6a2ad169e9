"""What a verification leaves out because a repair accounts for it. Spark.

Two things stay in the output for ever after a repair: the unmatched line of an event that was given up so that it may
be joined, and places of files that are gone or damaged. Neither is a finding any more, as long as the repair is all
that explains it. Where the registry's answer was lost, the unmatched line is left out only beside another record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from photon.spark.recover.repairs import REOPENED, Repairs

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_LINE = ["digest", "file", "offset"]


def without_repaired(spark: SparkSession, output: DataFrame, repairs: Repairs) -> DataFrame:
    """OUTPUT less what repairs account for, in one pass. Raises RepairsDamaged, OSError."""
    output = _without_given_up(spark, output, repairs.given_up_unmatched())
    return _without_damages(spark, output, repairs.damages())


def _without_given_up(spark: SparkSession, output: DataFrame, found: pa.Table) -> DataFrame:
    from pyspark.sql import functions as sql

    if not found.num_rows:
        return output
    rows = spark.createDataFrame(found).where("digest IS NOT NULL AND output_file IS NOT NULL")
    lines = rows.groupBy(
        "digest", sql.col("output_file").alias("file"), sql.col("output_offset").alias("offset")
    ).agg(sql.max(sql.col("answer") == REOPENED).alias("surely"))
    settled = lines.where("surely").select(*_LINE)
    doubtful = lines.where("NOT surely").select(*_LINE)
    if not doubtful.isEmpty():  # rare: reads the output once more
        ids = sql.broadcast(doubtful.select("digest").distinct())
        records = output.where("kind <> 'late' AND torn IS NULL").join(ids, "digest", "left_semi").select(*_LINE)
        others = records.join(sql.broadcast(doubtful), _LINE, "left_anti").select("digest").distinct()
        settled = settled.unionByName(doubtful.join(sql.broadcast(others), "digest", "left_semi").select(*_LINE))
    marked = sql.broadcast(settled.withColumn("given_up", sql.lit(True)))
    left_out = "given_up IS NOT NULL AND kind = 'unmatched' AND torn IS NULL"
    return _back(output, output.join(marked, _LINE, "left").where(f"NOT ({left_out})"))


def _without_damages(spark: SparkSession, output: DataFrame, found: pa.Table) -> DataFrame:
    from pyspark.sql import functions as sql

    if not found.num_rows:
        return output
    noted = spark.createDataFrame(found)
    places = noted.select(
        "datacentre", noted["output_file"].alias("file"), noted["output_offset"].alias("offset")
    ).distinct()
    at_place = sql.broadcast(places.withColumn("at_place", sql.lit(True)))
    in_file = sql.broadcast(places.select("datacentre", "file").distinct().withColumn("in_file", sql.lit(True)))
    # A line stands where it stands; where a file that is gone ends depends on how its reading was shared out.
    rest = "coalesce(length(line), 0) = 0"
    left_out = f"torn IS NOT NULL AND ((at_place IS NOT NULL) OR (in_file IS NOT NULL AND {rest}))"
    joined = output.join(at_place, ["datacentre", "file", "offset"], "left").join(
        in_file, ["datacentre", "file"], "left"
    )
    return _back(output, joined.where(f"NOT ({left_out})"))


def _back(output: DataFrame, joined: DataFrame) -> DataFrame:
    """The columns of OUTPUT in their order."""
    return joined.select(*output.columns)
